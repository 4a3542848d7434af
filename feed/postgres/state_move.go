package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// cursorTable is where one kind of server-side cursor is kept.
type cursorTable struct {
	kind   string
	lock   string // locks and reads the cursor with the key $1
	update string // sets it
}

var (
	consumerCursors = newCursorTable("consumer", "consumers", "name")
	webhookCursors  = newCursorTable("webhook", "webhooks", "id")
)

func newCursorTable(kind, table, key string) cursorTable {
	return cursorTable{
		kind: kind,
		lock: "select epoch, seq, fence from gapless." + table + " where " + key + " = $1::text for update",
		update: "update gapless." + table + " set epoch = $2::text, seq = $3::bigint, fence = $4::text, reset_from = '', updated = clock_timestamp() where " +
			key + " = $1::text",
	}
}

// move sets a cursor that stands at `from`. It is what consumers do most, so
// it does not take the instance row, and waits for no append. It locks the
// cursor first and reads the instance row after: a restore that is finalized
// meanwhile either has moved the cursor already, and the row says so, or waits
// for this lock and moves it afterwards. A seal waits for it, too.
func (s *Store) move(ctx context.Context, op string, table cursorTable, name string, from, to feed.Cursor) error {
	return s.persist(ctx, op, func(ctx context.Context) error { return s.moveOnce(ctx, op, table, name, from, to) })
}

// moveOnce does one transaction: two round trips.
func (s *Store) moveOnce(ctx context.Context, op string, table cursorTable, name string, from, to feed.Cursor) error {
	conn, release, err := s.borrow(ctx)
	if err != nil {
		return err
	}
	defer func() { release() }() // with a rollback of what is not committed
	stored, in, held, err := s.beginMove(ctx, conn, table, name, to)
	if errors.Is(err, pgx.ErrNoRows) {
		return notFound(op, table.kind, name)
	} else if err != nil {
		return err
	}
	if err := s.identify(ctx, conn, &in); err != nil {
		return err
	}
	if s.adopts(&in) {
		// Only a transaction that holds the instance row can.
		release()
		release = func() {}
		if err := s.adopt(ctx, op); err != nil {
			return err
		}
		return errServerChanged // look again
	}
	if err := s.saw(op, &in); err != nil {
		return err
	}
	if !in.SealedAt.IsZero() {
		return sealed(op)
	}
	at, err := moved(&in, op, stored, from, to, held)
	if err != nil {
		return err
	}
	var b pgx.Batch
	b.Queue(table.update, name, string(at.Epoch), int64(at.Seq), at.Fence.String())
	err = end(ctx, conn, &b, readAll(1))
	if errors.Is(err, errUnconfirmed) {
		err = s.confirm(ctx, conn, in.on)
	}
	return err
}

// beginMove begins the transaction and reads what a move depends on: first
// the cursor, which it locks, then with a newer snapshot the instance row and
// beside it what the events say of the fence at the new place.
func (s *Store) beginMove(ctx context.Context, conn *pgx.Conn, table cursorTable, name string, to feed.Cursor) (stored feed.Cursor, in instance, held *string, err error) {
	var b pgx.Batch
	b.Queue("begin isolation level read committed read write")
	b.Queue(localSettings, lockPatience, idlePatience)
	b.Queue(table.lock, name)
	b.Queue(anchoredInstance, int64(min(to.Seq, maxSeq)))
	taken := s.known.mark()
	results := conn.SendBatch(ctx, &b)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if err = readAll(2)(results); err != nil {
		return stored, in, held, err
	}
	var epoch, fence string
	var seq int64
	if err = results.QueryRow().Scan(&epoch, &seq, &fence); err != nil {
		return stored, in, held, err
	}
	stored = parseStored(epoch, seq, fence)
	in, held, err = loadAnchored(results.QueryRow())
	in.taken = taken
	return stored, in, held, err
}
