package sqlite

import (
	"context"
	"database/sql"

	"gapless/feed"
)

// rules say when a transaction is allowed, and what comes of it. The zero
// value is for a change of the control state.
type rules struct {
	anyway  bool // also where the guard keeps the store shut
	sealed  bool // also where a final backup has sealed the store
	audit   bool // it records what was done, and changes nothing that a reader could miss
	settles bool // it says what happened to the store: the guard is content from then on
}

// update runs fn in one durable transaction, serialized with the appends. fn
// may change *in; what it changed is stored with the transaction, and becomes
// what readers see after the commit. An error of fn rolls everything back and
// is returned, as one of [feed.CodeUnavailable] where it is no [feed.Error].
// It fails where the guard keeps the store shut, or where it is sealed. It
// waits no longer than ctx, up to its commit. fn must not call the store.
func (s *Store) update(ctx context.Context, op string, fn func(tx *sql.Tx, in *instance) error) error {
	return s.transact(ctx, op, rules{}, fn)
}

// transact is update by other rules.
func (s *Store) transact(ctx context.Context, op string, r rules, fn func(tx *sql.Tx, in *instance) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.writing.take(ctx); err != nil {
		return unavailable(op, "given up; nothing was changed", err)
	}
	defer s.writing.give()
	if err := ctx.Err(); err != nil {
		return unavailable(op, "given up; nothing was changed", err)
	}
	if err := s.ready(op, !r.anyway); err != nil {
		return err
	}
	in := s.committed()
	if in.sealed && !r.sealed {
		return sealedError(op)
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return s.storeError(op, err)
	}
	defer tx.Rollback()
	next := in
	if err := fn(tx, &next); err != nil {
		return s.storeError(op, err)
	}
	if !r.audit {
		next.changes++
	}
	if next != in {
		next.version = in.version + 1
		if _, err := tx.ExecContext(context.WithoutCancel(ctx), updateInstance, next.values()...); err != nil {
			return s.storeError(op, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return unavailable(op, "given up; nothing was changed", err)
	}
	if err := atCommit(tx.Commit()); err != nil {
		s.stale = true
		_ = s.refresh(op) // tried again before the next transaction
		return s.storeError(op, err)
	}
	if next != in {
		s.publish(next, nil)
	}
	_ = s.writer.raw(func(raw rawConnection) error { s.countPages(raw); return nil })
	if r.settles {
		return s.reopen(op)
	}
	return nil
}

// begin begins a transaction for database/sql. The caller holds s.writing.
func (s *Store) begin(ctx context.Context) (tx *sql.Tx, err error) {
	err = patiently(ctx, func() error {
		// A transaction that ends with its context ends beside whoever uses the
		// connection next, so this one does not.
		tx, err = s.writer.conn.BeginTx(context.WithoutCancel(ctx), nil)
		return err
	})
	return tx, err
}

// ready checks, with s.writing held, what every transaction needs: that the
// file is still ours, that memory and file agree and, where asked, the guard.
func (s *Store) ready(op string, guarded bool) error {
	if guarded {
		if err := s.guardError(op); err != nil {
			return err
		}
	}
	if err := s.place.check(); err != nil {
		return unavailable(op, err.Error(), nil)
	}
	return s.refresh(op)
}

// sealedError is what a store answers that a final backup has sealed.
func sealedError(op string) error {
	return &feed.Error{
		Code: feed.CodeSealed, Op: op,
		Msg: "a final backup of this store was made, so it takes no more events or changes: go on at the store that was made from it, or run `gapless restore finalize` to go on here",
	}
}

// refresh takes over what the file says, after a commit of which the outcome
// was unknown. The caller holds s.writing.
func (s *Store) refresh(op string) error {
	if !s.stale {
		return nil
	}
	in, err := loadInstance(context.Background(), s.writer.conn)
	if err != nil {
		return s.storeError(op, err)
	}
	if old := s.committed(); in != old {
		if err := s.dedupe.load(s.writer, old.head.Seq); err != nil {
			return s.storeError(op, err)
		}
		s.oldestTime = 0
		s.mu.Lock()
		s.tail.reset()
		s.mu.Unlock()
		s.publish(in, nil)
	}
	s.stale = false
	return nil
}

// publish makes a committed instance, and the events that came with it, what
// readers see, and wakes who waits. The caller holds s.writing. The witness
// comes first, so that it holds all that anybody was told of.
func (s *Store) publish(in instance, events []*feed.Event) {
	s.mu.RLock()
	tripped := s.tripped != ""
	s.mu.RUnlock()
	if !tripped {
		s.testify(in)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = in
	s.tail.push(events, in.oldest)
	s.notifyLocked()
}

// view runs fn in one read snapshot, with the instance that belongs to it. It
// asks no guard. An error of fn is returned as update returns it.
func (s *Store) view(ctx context.Context, op string, fn func(tx *sql.Tx, in instance) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	r, err := s.reader(ctx, op)
	if err != nil {
		return err
	}
	in, err := func() (instance, error) {
		defer s.release(r)
		tx, in, err := r.readTx(ctx)
		if err != nil {
			return instance{}, err
		}
		defer tx.Rollback()
		return in, fn(tx, in)
	}()
	if err != nil {
		return s.storeError(op, err)
	}
	return s.settle(ctx, op, in.version)
}
