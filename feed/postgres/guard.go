package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"gapless/feed"
)

// identity says which database, of which cluster, on which of its timelines, a
// log runs on. A dump restored elsewhere changes the first or the last of
// these, a promotion or a recovery to a point in time the timeline. A
// rolled-back disk, or a dump restored in place, changes none: that is for
// fences.
type identity struct {
	System   uint64 // pg_control_system's system_identifier; 0: unknown
	Timeline uint32
	Database uint32 // its oid
}

// String is the form that status answers and manifests carry.
func (id identity) String() string {
	if id.System == 0 {
		return ""
	}
	return fmt.Sprintf("system %d, timeline %d, database %d", id.System, id.Timeline, id.Database)
}

func (id identity) system() string { return strconv.FormatUint(id.System, 10) }

func parseIdentity(system string, timeline, database int64) (identity, error) {
	n, err := strconv.ParseUint(system, 10, 64)
	return identity{System: n, Timeline: uint32(timeline), Database: uint32(database)}, err
}

// incarnation is what a statement can say cheaply of the server that ran it.
// No two servers share a start to the microsecond and a timeline.
type incarnation struct {
	start    time.Time
	timeline uint32
	database uint32
	recovery bool
}

// targets are where incarnationColumns go.
func (on *incarnation) targets() []any {
	return []any{&on.recovery, &on.start, &on.timeline, &on.database}
}

// guard remembers which servers were verified, and where this process was
// content to be.
type guard struct {
	mu       sync.Mutex
	verified map[incarnation]uint64 // their system identifiers

	latest identity   // of these, the one of the newest epoch, and of its latest timeline
	newest feed.Epoch // an epoch begins behind all that the log had: see [feed.Epoch.Next]
}

func (g *guard) init() { g.verified = make(map[incarnation]uint64) }

func (g *guard) lookup(on incarnation) (system uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	system, ok = g.verified[on]
	return system, ok
}

func (g *guard) remember(on incarnation, system uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.verified) >= 64 {
		clear(g.verified)
	}
	g.verified[on] = system
}

// accept takes up that this process is content with what a log was found on.
func (g *guard) accept(in *instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case in.Found.System != g.latest.System, in.Epoch > g.newest:
		g.latest, g.newest = in.Found, in.Epoch
	case in.Found.Timeline > g.latest.Timeline:
		g.latest = in.Found
	}
}

// outrun returns the later timeline of the same cluster that this process was
// content with before, if it was: then what it finds now is a former primary
// that came back. It is not, once an operator has finalized it: the log is
// then in a newer epoch than any that this process knows.
func (g *guard) outrun(in *instance) (latest identity, yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.latest, in.Found.System == g.latest.System && in.Found.Timeline < g.latest.Timeline && in.Epoch <= g.newest
}

// moved takes up that an operator has moved the log to where it was found,
// whatever this process was content with before.
func (g *guard) moved(in *instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest, g.newest = in.Found, in.Epoch
}

// verify asks the server for its whole identity, in one statement with what
// marks its incarnation.
func (s *Store) verify(ctx context.Context, q querier) (on incarnation, err error) {
	on, system, err := readIdentity(ctx, q)
	if err == nil && !on.recovery {
		s.guard.remember(on, system)
	}
	return on, err
}

func readIdentity(ctx context.Context, q querier) (on incarnation, system uint64, err error) {
	var signed int64
	err = q.QueryRow(ctx, `select `+incarnationColumns+`, system_identifier from pg_control_system()`).Scan(append(on.targets(), &signed)...)
	on.start = on.start.UTC()
	return on, uint64(signed), err
}

// identify fills in.Found. Inside a transaction that is the server which the
// row was read on; outside, the caller reads again where it is another.
func (s *Store) identify(ctx context.Context, q querier, in *instance) error {
	if in.on.recovery {
		// Whoever leads to the server may lead elsewhere by now.
		s.resets.now(s.pool.Reset)
		return errInRecovery
	}
	system, ok := s.guard.lookup(in.on)
	if !ok {
		on, err := s.verify(ctx, q)
		if err != nil {
			return err
		}
		if on != in.on {
			return errServerChanged
		}
		system, _ = s.guard.lookup(on)
	}
	in.Found = identity{System: system, Timeline: in.on.timeline, Database: in.on.database}
	return nil
}

// assess compares what the log remembers with what it was found on. The error
// says why the guard keeps the store shut; nil where it does not.
func (s *Store) assess(op string, in *instance) error {
	if s.cfg.Guard == feed.GuardOff {
		return nil
	}
	latest, outrun := s.guard.outrun(in)
	var what string
	expected := in.Identity
	switch {
	case in.Identity == in.Found && !outrun:
		return nil
	case outrun:
		what, expected = "this is an older timeline of its database cluster than the one that this process ran on: a former primary came back, or the log was moved here and this process has to be restarted", latest
	case in.Identity.System != in.Found.System:
		what = "its log was last written on another database cluster: a dump was restored, or it was moved here"
	case in.Identity.Database != in.Found.Database:
		what = "its log was last written in another database of this cluster: a dump was restored, or the database was copied"
	default:
		what = "its log was last written on another timeline of this database cluster: a standby was promoted, or it was recovered to a point in time"
	}
	return &feed.Error{Code: feed.CodeRestoreNotFinalized, Op: op, Msg: fmt.Sprintf(
		"%s (expected: %s; found: %s). Nothing is served until an operator says what happened: see `gapless restore status`", what, expected, in.Found)}
}

// adopts reports whether the guard may take over by itself what a log was
// found on. What was sealed is an operator's to move.
func (s *Store) adopts(in *instance) bool {
	if in.Identity == in.Found || s.cfg.Guard == feed.GuardStrict || !in.SealedAt.IsZero() {
		return false
	}
	_, outrun := s.guard.outrun(in)
	return !outrun || s.cfg.Guard == feed.GuardOff
}

// settle is what the guard says inside a transaction that holds the instance
// row: where the mode allows it, the identity found is taken over, with an
// audit entry, and the caller writes the row.
func (s *Store) settle(ctx context.Context, q querier, op string, in *instance) error {
	if !s.adopts(in) {
		return s.refusal(op, in)
	}
	seen, _ := s.known.seen() // of no epoch before the first look
	if s.cfg.Guard == feed.GuardVerify {
		held, err := holds(ctx, q, in, seen)
		if err != nil {
			return err
		}
		if !held {
			return s.refusal(op, in)
		}
	}
	actor := "gapless"
	if s.cfg.Node != "" {
		actor += " on " + s.cfg.Node
	}
	err := recordAudit(ctx, q, actor, feed.ActionAdopt, feed.Adopted{
		OldIdentity: in.Identity.String(), NewIdentity: in.Found.String(), Node: s.cfg.Node,
		HeadSeq: seen.Seq, HeadFence: seen.Fence,
	})
	if err != nil {
		return err
	}
	in.adopted, in.Identity = in.Identity, in.Found
	return nil
}

// refusal is assess for a transaction that may yet fail: of what it finds, it
// takes up nothing but that the guard is not content.
func (s *Store) refusal(op string, in *instance) error {
	if s.assess(op, in) == nil {
		return nil
	}
	return s.saw(op, in)
}

// saw takes up what a snapshot showed of the log, and what a transaction that
// is committed made of it. It returns what the guard says.
func (s *Store) saw(op string, in *instance) error {
	refusal := s.assess(op, in)
	if refusal == nil {
		s.guard.accept(in)
	}
	if refusal != nil {
		s.resets.now(s.pool.Reset) // who leads to the server may lead elsewhere by now
	}
	news := s.known.observe(in.taken, in, refusal)
	if in.adopted != (identity{}) {
		s.log.Warn().Str("guard", string(s.cfg.Guard)).Str("expected", in.adopted.String()).Str("found", in.Found.String()).
			Msg("the database is not the one that the log was last written on; its identity is taken over")
	}
	switch {
	case news && refusal != nil:
		s.log.Error().Str("expected", in.Identity.String()).Str("found", in.Found.String()).
			Msg("the database is not the one that the log was last written on; see `gapless restore status`")
	case news:
		s.log.Info().Str("identity", in.Found.String()).Msg("the guard is content again")
	}
	return refusal
}

// holds reports whether the log still holds the event that a cursor means.
func holds(ctx context.Context, q querier, in *instance, at feed.Cursor) (bool, error) {
	switch {
	case at.Epoch != in.Epoch || at.Seq > in.Head.Seq || at.Seq+1 < in.Oldest:
		return false, nil
	case at.Seq == 0:
		return true, nil
	}
	var held *string
	err := q.QueryRow(ctx, selectFence, int64(at.Seq)).Scan(&held)
	if err != nil {
		return false, err
	}
	fence, err := in.fenceAt("guard", at.Seq, held)
	return at.Fence.Known() && fence == at.Fence, err
}

// adopt takes over a new identity where the mode allows it: reads call it, and
// look again.
func (s *Store) adopt(ctx context.Context, op string) error {
	return s.update(ctx, op, func(context.Context, querier, *instance) error { return nil })
}
