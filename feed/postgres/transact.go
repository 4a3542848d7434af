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

// Bounds of a transaction that holds the instance row. It waits for the row
// at most so long, and is ended by the server where this process falls silent
// in the middle of it: else a gateway that lost its network would keep the row
// from all others until TCP gives up.
const (
	lockPatience = "14s"
	idlePatience = "12s"
)

// localSettings hold for one transaction, so that they work behind a pooler.
// A commit that is not durable would break what an append promises, and so
// would one whose warning, that its standby was not waited for, is not sent.
const localSettings = `select set_config('lock_timeout', $1::text, true), set_config('idle_in_transaction_session_timeout', $2::text, true),
	set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end, true),
	set_config('client_min_messages', 'warning', true)`

const notifyHead = `select pg_notify('gapless', $1::text)`

// begin begins a transaction: it locks the instance row, and then, with a
// snapshot that is newer than the lock, looks for ids that were used.
func (s *Store) begin(ctx context.Context, conn *pgx.Conn, keys []pgtype.UUID) (in instance, n numbering, err error) {
	n.fresh = make(map[key]stored)
	var b pgx.Batch
	b.Queue("begin isolation level read committed read write")
	b.Queue(localSettings, lockPatience, idlePatience)
	b.Queue(lockInstance)
	if len(keys) > 0 {
		b.Queue(selectUsed, keys)
	}
	taken := s.known.mark()
	results := conn.SendBatch(ctx, &b)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return in, n, err
		}
	}
	if in, err = loadInstance(results.QueryRow()); err != nil {
		return in, n, err
	}
	in.taken = taken
	if len(keys) > 0 {
		rows, err := results.Query()
		if err != nil {
			return in, n, err
		}
		if n.used, err = used(rows, s.forgotten(&in)); err != nil {
			return in, n, err
		}
	}
	return in, n, nil
}

// errCommit marks an error of which the outcome is unknown: the transaction
// was committed, perhaps, or is committed, and perhaps not as durable as it
// should be.
type errCommit struct{ error }

func (e errCommit) Unwrap() error { return e.error }

func unknown(err error) bool {
	var e errCommit
	return errors.As(err, &e)
}

// end sends what is queued, and a commit behind it, in one round trip; read
// takes the answers to what was queued. Where the transaction may have been
// committed all the same, the error is an errCommit.
func end(ctx context.Context, conn *pgx.Conn, b *pgx.Batch, read func(pgx.BatchResults) error) error {
	b.Queue("commit")
	results := conn.SendBatch(ctx, b)
	err := read(results)
	before := warnings(conn) // of what stands before the commit; only its own count
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = results.Exec()
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil && (refused(err) || inTransaction(conn)):
		return err
	case err != nil:
		return errCommit{err}
	case tag.String() != "COMMIT":
		return errors.New("the server rolled the transaction back")
	case warnings(conn) != before:
		return errCommit{errUnconfirmed}
	}
	return nil
}

// readAll takes the answers to n statements that are queued.
func readAll(n int) func(pgx.BatchResults) error {
	return func(results pgx.BatchResults) error {
		for range n {
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		return nil
	}
}

// refused reports whether the server says that it did not do what it was
// asked for, in a session that goes on. (A pooler's errors are others.)
func refused(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.SeverityUnlocalized == "ERROR"
}

// inTransaction reports whether the connection is in the middle of one.
func inTransaction(conn *pgx.Conn) bool {
	return !conn.IsClosed() && !conn.PgConn().IsBusy() && conn.PgConn().TxStatus() != 'I'
}

// warningsKey is where a connection counts the warnings that came on it.
const warningsKey = "gapless.warnings"

// countWarning takes up a notice. Where the wait of a commit for its standby
// is cancelled, the server says that it is done, and says in a warning that it
// may be so here alone.
func countWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		count, _ := conn.CustomData()[warningsKey].(int)
		conn.CustomData()[warningsKey] = count + 1
	}
}

func warnings(conn *pgx.Conn) int {
	count, _ := conn.PgConn().CustomData()[warningsKey].(int)
	return count
}

// confirm commits a change of nothing, until it is as durable as it should
// be: so is, then, what was committed before on the same server. The error is
// an errCommit.
func (s *Store) confirm(ctx context.Context, conn *pgx.Conn, on incarnation) error {
	for tries := 1; ; tries++ {
		in, _, err := s.begin(ctx, conn, nil)
		if err == nil && in.on != on {
			err = errServerChanged
		}
		if err == nil {
			var b pgx.Batch
			b.Queue(updateInstance, in.values()...)
			err = end(ctx, conn, &b, readAll(1))
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, errUnconfirmed) || !pause(ctx, backOff(tries)) {
			return errCommit{err}
		}
	}
}

func backOff(tries int) time.Duration {
	return min(time.Duration(tries)*50*time.Millisecond, time.Second)
}

// change is what a transaction does that holds the instance row. The context
// ends when the call should have.
type change func(ctx context.Context, q querier, in *instance) error

// alter runs a change of the control state: as update, but a seal refuses it.
func (s *Store) alter(ctx context.Context, op string, do change) error {
	return s.update(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		if !in.SealedAt.IsZero() {
			return sealed(op)
		}
		return do(ctx, q, in)
	})
}

// update runs a change of the store in one transaction that holds the
// instance row, so that it stands in one order with all appends. Where it
// changes *in, the row is written. A failure that left nothing behind is
// tried again, so the change may run more than once; after an error of the
// commit itself the outcome is unknown, and the error has
// [feed.CodeUnavailable]. A guard that is not content refuses, a seal does not.
func (s *Store) update(ctx context.Context, op string, do change) error {
	return s.decide(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		if err := s.settle(ctx, q, op, in); err != nil {
			return err
		}
		return do(ctx, q, in)
	})
}

// decide is update for what an operator decides: no guard refuses it.
// in.Found is the identity to take over.
func (s *Store) decide(ctx context.Context, op string, do change) error {
	return s.persist(ctx, op, func(ctx context.Context) error { return s.changeOnce(ctx, op, do) })
}

// persist does a call's transaction, again where it failed and left nothing
// behind.
func (s *Store) persist(ctx context.Context, op string, once func(ctx context.Context) error) error {
	if s.ctx.Err() != nil {
		return feed.ErrClosed
	}
	bounded, cancel := s.bound(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := once(bounded)
		if err == nil {
			return nil
		}
		if attempt == maxAttempts || !s.again(bounded, err, attempt) {
			return s.failure(ctx, op, err)
		}
	}
}

func (s *Store) changeOnce(ctx context.Context, op string, do change) error {
	conn, release, err := s.borrow(ctx)
	if err != nil {
		return err
	}
	defer release() // with a rollback of what is not committed
	in, _, err := s.begin(ctx, conn, nil)
	if err != nil {
		return err
	}
	if err := s.identify(ctx, conn, &in); err != nil {
		return err
	}
	was := in
	if err := do(ctx, conn, &in); err != nil {
		return err
	}
	if in != was {
		if _, err := conn.Exec(ctx, updateInstance, in.values()...); err != nil {
			return err
		}
	}
	if in.Head != was.Head && s.dueToTrim(&in) {
		if _, err := s.trimTx(ctx, conn, &in, trimLeast); err != nil {
			return err
		}
	}
	var b pgx.Batch
	if in.Epoch != was.Epoch || in.Head != was.Head {
		b.Queue(notifyHead, in.hint())
	}
	err = end(ctx, conn, &b, readAll(b.Len()))
	if errors.Is(err, errUnconfirmed) {
		err = s.confirm(ctx, conn, in.on)
	}
	if err == nil {
		_ = s.saw(op, &in) // what is done is done, and for an operator done on purpose
	}
	return err
}

// view reads in one transaction of one snapshot. No guard refuses it: what it
// reads may be of a log whose restore is not finalized.
func (s *Store) view(ctx context.Context, op string, do func(ctx context.Context, q querier, in instance) error) error {
	return s.persist(ctx, op, func(ctx context.Context) error {
		conn, release, err := s.borrow(ctx)
		if err != nil {
			return err
		}
		defer release()
		return s.viewOn(ctx, conn, do)
	})
}

func (s *Store) viewOn(ctx context.Context, conn *pgx.Conn, do func(ctx context.Context, q querier, in instance) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		in, err := loadInstance(tx.QueryRow(ctx, readInstance))
		if err != nil {
			return err
		}
		if err := s.identify(ctx, tx, &in); err != nil {
			return err
		}
		return do(ctx, tx, in)
	})
}
