package sqlite

import (
	"context"

	"gapless/feed"
)

// Wait implements [feed.Log].
func (s *Store) Wait(ctx context.Context, at feed.Cursor) error {
	return s.await(ctx, func() (bool, error) {
		if err := s.guardErrorLocked("wait"); err != nil {
			return true, err
		}
		return at.Epoch != s.in.epoch || at.Seq != s.in.head.Seq, nil
	}, ctx.Err)
}

// settle waits until memory is as new as a snapshot of the file, so that no
// later read is of an older state than one that was answered. A commit shows
// in the file for a moment before it shows in memory.
func (s *Store) settle(ctx context.Context, op string, version uint64) error {
	return s.await(ctx, func() (bool, error) { return s.in.version >= version, nil },
		func() error { return unavailable(op, "given up", ctx.Err()) })
}

// await blocks until done, which is called under s.mu, reports true.
func (s *Store) await(ctx context.Context, done func() (bool, error), givenUp func() error) error {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return feed.ErrClosed
		}
		if ok, err := done(); ok {
			s.mu.Unlock()
			return err
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return givenUp()
		}
	}
}

// notifyLocked wakes who waits.
func (s *Store) notifyLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
