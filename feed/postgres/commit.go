package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"gapless/feed"
)

// tryPatience bounds one try of an append's transaction, commitPatience all of
// them: for so long an append of unknown outcome is looked up.
const (
	tryPatience    = 20 * time.Second
	commitPatience = 45 * time.Second
)

// commitAll commits one group after another until the store is closed. It is
// the one goroutine that appends.
func (s *Store) commitAll() {
	for {
		select {
		case <-s.appends.wake:
		case <-s.ctx.Done():
			return
		}
		if group := s.appends.take(); len(group) > 0 {
			s.commit(group)
		}
	}
}

// attempt is one try at a group's transaction.
type attempt struct {
	group []*pending
	// sent: the commit may have reached the server, so that the outcome is
	// known only by what the log holds.
	sent     bool
	last     feed.Position // of the events that were sent
	receipts []feed.Receipt
	errs     []error
}

// commit stores a group in one transaction and answers its appends.
func (s *Store) commit(group []*pending) {
	ctx, cancel := context.WithTimeout(s.commits, commitPatience)
	defer cancel()
	a := &attempt{group: group}
	for tries := 1; ; tries++ {
		one, cancel := context.WithTimeout(ctx, s.cfg.tryPatience)
		err := s.tryCommit(one, a)
		cancel()
		if err == nil {
			for i, p := range a.group {
				p.answer(a.receipts[i], a.errs[i])
			}
			return
		}
		var fe *feed.Error
		var server *pgconn.PgError
		switch {
		case errors.As(err, &fe): // an answer, though not the one hoped for
			s.refuse(a, err)
			return
		case !a.sent && len(a.group) > 1 && errors.As(err, &server) && badData(server):
			// Of the others each can be stored. Halves find the one soon.
			half := len(a.group) / 2
			s.commit(a.group[:half])
			s.commit(a.group[half:])
			return
		case (a.sent || unknown(err)) && s.renew(err) && pause(ctx, backOff(tries)):
			// Whatever it was: without an answer it is asked again.
		case !a.sent && tries < maxAttempts && s.again(ctx, err, tries):
			a.drop()
		default:
			s.renew(err)
			s.refuse(a, err)
			return
		}
	}
}

// drop leaves out the appends whose callers have gone.
func (a *attempt) drop() {
	kept := a.group[:0]
	for _, p := range a.group {
		if err := p.ctx.Err(); err != nil {
			p.answer(feed.Receipt{}, givenUp(err))
		} else {
			kept = append(kept, p)
		}
	}
	a.group = kept
}

func (s *Store) refuse(a *attempt, err error) {
	if a.sent {
		err = unavailable("append", "the commit was not confirmed, and the log cannot be asked for its outcome", err)
	} else if s.commits.Err() == nil {
		err = s.appendFailure(err)
	}
	if s.commits.Err() != nil {
		err = feed.ErrClosed
	}
	for _, p := range a.group {
		p.answer(feed.Receipt{}, err)
	}
}

// appendFailure is failure for the committer, which Close lets finish.
func (s *Store) appendFailure(err error) error {
	return s.word(context.Background(), "append", err)
}

// tryCommit does one transaction: two round trips. It returns nil where every
// append of the group has its answer.
func (s *Store) tryCommit(ctx context.Context, a *attempt) error {
	pooled, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer giveBack(pooled)
	conn := pooled.Conn()
	if err := s.prepare(ctx, conn); err != nil {
		return err
	}
	if a.sent {
		settled, err := s.lookUp(ctx, conn, a)
		if err != nil || settled {
			return err
		}
		a.sent = false
	}
	var keys []pgtype.UUID
	for _, p := range a.group {
		keys = keysOf(p.drafts, p.prints, keys)
	}
	in, n, err := s.begin(ctx, conn, keys)
	if err != nil {
		return err
	}
	if err := s.identify(ctx, conn, &in); err != nil {
		return err
	}
	if err := s.settle(ctx, conn, "append", &in); err != nil {
		return err
	}
	if !in.SealedAt.IsZero() {
		return sealed("append")
	}
	s.claim(&in)
	a.receipts, a.errs = make([]feed.Receipt, len(a.group)), make([]error, len(a.group))
	for i, p := range a.group {
		events, err := n.admit(&in, p.drafts, p.prints)
		if a.errs[i] = err; err == nil {
			a.receipts[i] = feed.Receipt{Epoch: in.Epoch, Events: events}
		}
	}
	a.last = in.Head
	if err := s.store(ctx, conn, &in, &n); err != nil {
		a.sent = len(n.rows.seqs) > 0 && unknown(err)
		return err
	}
	_ = s.saw("append", &in)
	return nil
}

// store inserts, trims, updates the instance row, notifies and commits. Where
// there is nothing but repeats, it commits all the same: behind that commit,
// the events that they repeat are as durable as if they were stored now, even
// if nobody has seen their own commit confirmed.
func (s *Store) store(ctx context.Context, conn *pgx.Conn, in *instance, n *numbering) error {
	var b pgx.Batch
	n.queue(&b, in)
	b.Queue(updateInstance, in.values()...)
	statements := b.Len()
	trim, sweep := s.dueToTrim(in), s.dueToSweep(in)
	if trim {
		b.Queue(trimInstance, s.trimArgs(in, trimLeast+uint64(len(n.rows.seqs)))...)
	}
	if sweep {
		b.Queue(sweepUsed, s.sweepArgs(in, int64(512+2*len(n.fresh)))...)
	}
	notify := len(n.rows.seqs) > 0
	if notify {
		b.Queue(notifyHead, in.hint())
	}
	return end(ctx, conn, &b, func(results pgx.BatchResults) error {
		if err := readAll(statements)(results); err != nil {
			return err
		}
		if trim {
			if _, err := in.trimmed(results.QueryRow()); err != nil {
				return err
			}
		}
		if sweep {
			if _, err := in.swept(results.QueryRow()); err != nil {
				return err
			}
		}
		if notify {
			return readAll(1)(results)
		}
		return nil
	})
}

// lookUp settles an attempt of unknown outcome. While its transaction lives,
// it holds the instance row; so, once this one has it, the log holds the
// events, or never will. It commits a change of its own before it says that
// they are there: behind that commit, theirs is as durable.
func (s *Store) lookUp(ctx context.Context, conn *pgx.Conn, a *attempt) (stored bool, err error) {
	in, _, err := s.begin(ctx, conn, nil)
	if err != nil {
		return false, err
	}
	if err := s.identify(ctx, conn, &in); err != nil {
		return false, err
	}
	if err := s.settle(ctx, conn, "append", &in); err != nil {
		return false, err
	}
	// Of all its events, the last one is trimmed last.
	if a.last.Seq+1 < in.Oldest {
		return false, &feed.Error{Code: feed.CodeUnavailable, Op: "append", Msg: "the events were trimmed, or never stored"}
	}
	held, err := holds(ctx, conn, &in, feed.Cursor{Epoch: in.Epoch, Position: a.last})
	if err != nil {
		return false, err
	}
	var b pgx.Batch
	b.Queue(updateInstance, in.values()...)
	if err := end(ctx, conn, &b, readAll(1)); err != nil {
		return false, err
	}
	_ = s.saw("append", &in)
	for i := range a.receipts {
		a.receipts[i].Epoch = in.Epoch // a restore may have been finalized in between
	}
	return held, nil
}

// hint is the text of a notification.
func (in *instance) hint() string { return feed.Cursor{Epoch: in.Epoch, Position: in.Head}.String() }
