package feed

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// StartMode says where a stream without a position begins.
type StartMode uint8

const (
	// StartSnapshot: the last retained events that match, oldest first, then
	// live.
	StartSnapshot StartMode = iota
	// StartAll: everything retained that matches, then live.
	StartAll
	// StartLive: at the head.
	StartLive
	// StartLast: the last N events that match, then live.
	StartLast
)

// Start is a mode, and the N of [StartLast].
type Start struct {
	Mode StartMode
	N    int
}

// ParseStart reads snapshot, all, live or last:<n>; empty is snapshot. The
// error has [CodeInvalid].
func ParseStart(s string) (Start, error) {
	switch s {
	case "", "snapshot":
		return Start{}, nil
	case "all":
		return Start{Mode: StartAll}, nil
	case "live":
		return Start{Mode: StartLive}, nil
	}
	if digits, ok := strings.CutPrefix(s, "last:"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= 0 && digits[0] != '+' && digits[0] != '-' {
			return Start{Mode: StartLast, N: n}, nil
		}
	}
	return Start{}, invalid("subscribe", fmt.Sprintf("start: %q is none of snapshot, all, live, last:<n>", clip(s)))
}

// From is the place that a reader asks for.
type From struct {
	Cursor  Cursor // zero: none
	Invalid bool   // the client sent a cursor that cannot be parsed
	Start   Start  // decides where the cursor's seq is 0
}

// SubscribeOptions says what a subscriber wants.
type SubscribeOptions struct {
	From
	Filter Filter
	Shape  Shape
}

// Subscribe makes a subscriber that begins where opts say. It reads the log
// once. A position that cannot be served is no error: the stream then has one
// frame, resync_required. Whoever subscribed must Close it.
//
// Errors: [CodeNotReady] while starting or draining, [CodeUnavailable] and
// others where the log does not answer.
func (f *Feed) Subscribe(ctx context.Context, opts SubscribeOptions) (*Subscriber, error) {
	opts.Filter = opts.Filter.hiding(f.hidden)
	for {
		f.mu.Lock()
		resets, err := f.resets, f.readyLocked()
		f.mu.Unlock()
		if err != nil {
			return nil, err
		}
		at, err := f.locate(ctx, opts.From, opts.Filter)
		if err != nil {
			return nil, err
		}
		s := f.newSubscriber(opts, at)
		if registered, err := f.register(s, resets); registered || err != nil {
			return s, err
		}
	}
}

// register adds the subscriber, unless the feed drains by now, or the log was
// reset since the subscriber's position was looked up: the reset would not
// reach it, so it has to look again.
func (f *Feed) register(s *Subscriber, resets uint64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase == phaseDraining {
		return false, f.readyLocked()
	}
	if f.resets != resets {
		return false, nil
	}
	f.subscribers[s.id] = s
	f.shapesInUse[s.shape.index()]++
	if s.end != nil {
		f.stats.resynced(s.end.reason, s.since)
	} else if s.resumed {
		f.stats.resumes.Add(1)
	}
	return true, nil
}

// newSubscriber makes a subscriber that is not registered yet.
func (f *Feed) newSubscriber(opts SubscribeOptions, at located) *Subscriber {
	now := time.Now()
	s := &Subscriber{
		feed:      f,
		id:        ulid.Make().String(),
		since:     now,
		epoch:     at.bounds.Epoch,
		filter:    opts.Filter,
		shape:     opts.Shape,
		joinAt:    at.bounds.Head.Seq,
		startLive: opts.Start.Mode == StartLive,
		resumed:   at.start == startedResume,
		wake:      make(chan struct{}, 1),
		queue:     queue{maxFrames: f.cfg.QueueFrames, maxBytes: f.cfg.QueueBytes},
		pos:       at.pos,
		bookmark:  at.pos,
		lastWrite: now,
	}
	if at.reason != "" {
		ending := f.resyncEnding(s, at.reason, at.bounds)
		s.end = &ending
		return s
	}
	greet := Cursor{Epoch: at.bounds.Epoch, Position: at.pos}
	if at.start == startedSnapshot {
		s.fresh = true
		s.snapshot = at.bounds.Head.Seq
		greet.Position = Position{}
	}
	s.greeting = connectedFrame(s.id, greet, at.start, at.bounds, f.cfg.Heartbeat, f.cfg.ReconnectDelay, at.truncated)
	return s
}

// What server.connected says of the start.
const (
	startedSnapshot = "snapshot"
	startedResume   = "resume"
	startedLive     = "live"
)

// located is where a reader begins, or the reason why it cannot.
type located struct {
	reason    Reason // empty: it can
	bounds    Bounds
	pos       Position // read what follows this
	start     string
	truncated bool
}

// locate applies the cursor table to what one snapshot of the log says. The
// rows are checked in the order: unparsable, seq 0, epoch, expired, ahead,
// fence.
func (f *Feed) locate(ctx context.Context, from From, filter Filter) (located, error) {
	c := from.Cursor
	if c.Seq == 0 && !from.Invalid {
		return f.locateStart(ctx, from.Start, filter)
	}
	page, err := f.cfg.Log.Read(ctx, c.Seq, Limit{})
	if err != nil {
		return located{}, err
	}
	at := located{bounds: page.Bounds, pos: Position{Seq: c.Seq, Fence: page.Anchor}, start: startedResume}
	switch {
	case from.Invalid:
		at.reason = ReasonCursorInvalid
	case c.Epoch == "":
		at.reason = ReasonEpochMissing
	case c.Epoch != page.Epoch:
		at.reason = ReasonEpochChanged
	case c.Seq < page.Oldest-1:
		at.reason = ReasonCursorExpired
	case c.Seq > page.Head.Seq:
		at.reason = ReasonCursorAhead
	case c.Fence.Known() && !page.Anchor.Known():
		at.reason = ReasonCursorExpired
	case !page.Anchor.Agrees(c.Fence):
		at.reason = ReasonHistoryChanged
	}
	return at, nil
}

// locateStart finds where a reader without a position begins.
func (f *Feed) locateStart(ctx context.Context, start Start, filter Filter) (located, error) {
	n := start.N
	switch start.Mode {
	case StartLive, StartAll:
		page, err := f.cfg.Log.Read(ctx, 0, Limit{})
		if err != nil {
			return located{}, err
		}
		if start.Mode == StartLive {
			return located{bounds: page.Bounds, pos: page.Head, start: startedLive}, nil
		}
		oldest := Position{Seq: page.Oldest - 1, Fence: page.TrimmedFence}
		return located{bounds: page.Bounds, pos: oldest, start: startedSnapshot}, nil
	case StartSnapshot:
		n = f.cfg.SnapshotEvents
	}
	found, err := f.cfg.Log.Search(ctx, Search{Filter: filter, N: n, ScanLimit: f.cfg.ScanLimit})
	if err != nil {
		return located{}, err
	}
	return located{bounds: found.Bounds, pos: found.After, start: startedSnapshot, truncated: found.Truncated}, nil
}

// resyncEnding builds the last frame of a stream that cannot go on, as of
// these bounds.
func (f *Feed) resyncEnding(s *Subscriber, reason Reason, bounds Bounds) ending {
	next := Cursor{Epoch: bounds.Epoch}
	if s.startLive {
		next.Position = bounds.Head
	}
	return ending{reason: reason, frame: resyncFrame(reason, next, bounds, f.cfg.ReconnectDelay)}
}

// resyncEndingLocked is resyncEnding as of the pump's view: at the head up to
// which it has offered. Called with Feed.mu held.
func (f *Feed) resyncEndingLocked(s *Subscriber, reason Reason, discard bool) ending {
	bounds := f.bounds
	bounds.Head = f.offered
	e := f.resyncEnding(s, reason, bounds)
	e.discard = discard
	return e
}
