package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gapless/feed"
)

// holder is a kind of thing that keeps a server-side cursor: the table of its
// rows, the column that names one, and the word for it.
type holder struct{ table, key, kind string }

func consumerHolder() holder { return holder{table: "consumers", key: "name", kind: "consumer"} }
func webhookHolder() holder  { return holder{table: "webhooks", key: "id", kind: "webhook"} }

// holders lists all kinds, in the order in which a restore reports them.
func holders() []holder { return []holder{consumerHolder(), webhookHolder()} }

func (h holder) notFound(op, name string) error {
	return &feed.Error{Code: feed.CodeNotFound, Op: op, Msg: fmt.Sprintf("there is no %s %q", h.kind, name)}
}

// cursor returns the cursor of one row.
func (h holder) cursor(tx *sql.Tx, op, name string) (feed.Cursor, error) {
	var c rowCursor
	err := tx.QueryRow("SELECT epoch, seq, fence, reset_from FROM "+h.table+" WHERE "+h.key+" = ?", name).
		Scan(&c.epoch, &c.seq, &c.fence, &c.resetFrom)
	if errors.Is(err, sql.ErrNoRows) {
		return feed.Cursor{}, h.notFound(op, name)
	}
	if err != nil {
		return feed.Cursor{}, err
	}
	at, _, err := c.parse()
	return at, err
}

// Statements of this package's transactions run to their end, whatever becomes
// of the context of the call: they are short, and what interrupts one can hit
// the next on the same connection. The context is looked at before and after.

// move is MoveConsumer and MoveWebhook.
func (s *Store) move(ctx context.Context, op string, h holder, name string, from, to feed.Cursor) error {
	return s.update(ctx, op, func(tx *sql.Tx, in *instance) error {
		at, err := h.cursor(tx, op, name)
		switch {
		case err != nil:
			return err
		case from.Epoch != in.epoch:
			return epochChanged(op, from, *in)
		case at.Epoch != from.Epoch || at.Seq != from.Seq || !at.Fence.Agrees(from.Fence):
			return conflict(op, fmt.Sprintf("the cursor of %s %q is %s, not %s: read it again", h.kind, name, at, from))
		}
		if to, err = fitting(tx, op, *in, to); err != nil {
			return err
		}
		if to.Seq < at.Seq || to.Seq == at.Seq && !to.Fence.Agrees(at.Fence) {
			return conflict(op, fmt.Sprintf("the cursor of %s %q is %s and does not go back to %s", h.kind, name, at, to))
		}
		if to.Seq == at.Seq && !to.Fence.Known() {
			to.Fence = at.Fence // of what is trimmed, known here alone
		}
		_, err = tx.Exec("UPDATE "+h.table+" SET epoch = ?, seq = ?, fence = ?, reset_from = '', updated = ? WHERE "+h.key+" = ?",
			string(to.Epoch), int64(to.Seq), to.Fence.String(), s.micros(), name)
		return err
	})
}

// remove is DeleteConsumer and DeleteWebhook.
func (s *Store) remove(ctx context.Context, op string, h holder, name string) error {
	return s.update(ctx, op, func(tx *sql.Tx, _ *instance) error {
		return changedOne(h, op, name)(tx.Exec("DELETE FROM "+h.table+" WHERE "+h.key+" = ?", name))
	})
}

// create makes room for a new row: it fails where the name is taken or the
// cursor does not fit, and returns the cursor to store.
func (h holder) create(tx *sql.Tx, op string, in instance, name string, at feed.Cursor) (feed.Cursor, error) {
	var taken bool
	err := tx.QueryRow("SELECT EXISTS (SELECT 1 FROM "+h.table+" WHERE "+h.key+" = ?)", name).Scan(&taken)
	if err != nil {
		return feed.Cursor{}, err
	}
	if taken {
		return feed.Cursor{}, conflict(op, fmt.Sprintf("there is a %s %q already", h.kind, name))
	}
	return fitting(tx, op, in, at)
}

// changedOne turns the result of a statement that has to change one row into
// an error.
func changedOne(h holder, op, name string) func(sql.Result, error) error {
	return func(res sql.Result, err error) error {
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err == nil && n == 0 {
			err = h.notFound(op, name)
		}
		return err
	}
}

// fitting checks that a cursor means a place of the log as it is now, and
// returns it with the fence that the log holds there. What was trimmed cannot
// be compared any more and is taken as it is.
func fitting(tx *sql.Tx, op string, in instance, at feed.Cursor) (feed.Cursor, error) {
	switch {
	case at.Epoch != in.epoch:
		return at, epochChanged(op, at, in)
	case at.Seq > in.head.Seq:
		return at, conflict(op, fmt.Sprintf("cursor %s is above the head, %s", at, in.cursor()))
	}
	var held feed.Fence
	if at.Seq+1 >= in.oldest {
		var err error
		if held, err = in.fenceAt(at.Seq, fenceIn(context.Background(), tx)); err != nil {
			return at, err
		}
	}
	if !held.Agrees(at.Fence) {
		return at, conflict(op, fmt.Sprintf("cursor %s is of an event that this log does not hold: seq %d is another one here", at, at.Seq))
	}
	if held.Known() || at.Seq == 0 {
		at.Fence = held
	}
	return at, nil
}

// rowCursor is a server-side cursor as its row has it.
type rowCursor struct {
	epoch, fence, resetFrom string
	seq                     int64
}

func (c rowCursor) parse() (at, resetFrom feed.Cursor, err error) {
	at = feed.Cursor{Epoch: feed.Epoch(c.epoch), Position: feed.Position{Seq: uint64(c.seq)}}
	if at.Fence, err = parseFence(c.fence); err == nil && c.resetFrom != "" {
		resetFrom, err = feed.ParseCursor(c.resetFrom)
	}
	return at, resetFrom, err
}

// micros is the store's time as columns have it.
func (s *Store) micros() int64 { return s.cfg.Now().UnixMicro() }

func conflict(op, msg string) error {
	return &feed.Error{Code: feed.CodeConflict, Op: op, Msg: msg}
}

func epochChanged(op string, at feed.Cursor, in instance) error {
	return &feed.Error{
		Code: feed.CodeEpochChanged, Op: op,
		Msg: fmt.Sprintf("cursor %s is of another epoch than the store, which is in %s: start again from a cursor of that epoch", at, in.epoch),
	}
}

// damaged is the error for content that this package never writes.
func damaged(msg string) error {
	return &feed.Error{Code: feed.CodeUnavailable, Op: "sqlite", Msg: "the database is damaged: " + msg}
}
