package postgres

import (
	"fmt"

	"gapless/feed"
)

// storeName is what manifests and status answers call this kind of store.
const storeName = "postgres"

// A cursor is stored as three columns: epoch, seq, fence. A fence that is not
// known is the empty text.

// parseStored reads a cursor's columns as they come from the database.
func parseStored(epoch string, seq int64, fence string) feed.Cursor {
	f, _ := feed.ParseFence(fence)
	return feed.Cursor{Epoch: feed.Epoch(epoch), Position: feed.Position{Seq: uint64(seq), Fence: f}}
}

// parseReset reads the text of where a finalized restore found a cursor.
func parseReset(text string) (feed.Cursor, error) {
	if text == "" {
		return feed.Cursor{}, nil
	}
	return feed.ParseCursor(text)
}

// placed returns a cursor that is to be stored, with the fence that the log
// holds at its seq; held is what the events say of that. It fails with
// [feed.CodeEpochChanged] where the cursor is of another epoch than the store,
// and with [feed.CodeConflict] where it is above the head or means another
// event. What is trimmed cannot be compared.
func placed(in *instance, op string, c feed.Cursor, held *string) (feed.Cursor, error) {
	switch {
	case c.Epoch != in.Epoch:
		return c, foreign(op, c, in)
	case c.Seq > in.Head.Seq:
		return c, conflict(op, "the cursor %s is above the head, %d", c, in.Head.Seq)
	case c.Seq == 0:
		c.Fence = feed.Fence{}
		return c, nil
	}
	fence, err := in.fenceAt(op, c.Seq, held)
	if err != nil {
		return c, err
	}
	if !c.Fence.Agrees(fence) {
		return c, conflict(op, "the cursor %s is of another event than the log holds at %d", c, c.Seq)
	}
	if fence.Known() {
		c.Fence = fence
	}
	return c, nil
}

// selectFence returns one row: the fence that the events say, or null.
const selectFence = "select (select fence from gapless.events where seq = $1::bigint)"

// moved returns the cursor that replaces a stored one, or says why none does.
func moved(in *instance, op string, stored, from, to feed.Cursor, held *string) (feed.Cursor, error) {
	if from.Epoch != in.Epoch {
		return to, foreign(op, from, in)
	}
	to, err := placed(in, op, to, held)
	switch {
	case err != nil:
		return to, err
	case from.Epoch != stored.Epoch || from.Seq != stored.Seq || !from.Fence.Agrees(stored.Fence):
		return to, conflict(op, "the cursor is %s, not %s", stored, from)
	case to.Seq < stored.Seq || to.Seq == stored.Seq && !to.Fence.Agrees(stored.Fence):
		return to, conflict(op, "the cursor is %s and never moves back, to %s", stored, to)
	}
	if to.Seq == stored.Seq && !to.Fence.Known() {
		to.Fence = stored.Fence
	}
	return to, nil
}

func foreign(op string, c feed.Cursor, in *instance) error {
	return &feed.Error{Code: feed.CodeEpochChanged, Op: op, Msg: fmt.Sprintf("the cursor %s is not of the running epoch, %s", c, in.Epoch)}
}

func conflict(op, format string, args ...any) error {
	return &feed.Error{Code: feed.CodeConflict, Op: op, Msg: fmt.Sprintf(format, args...)}
}

// notFound is the error for a name that the store does not have.
func notFound(op, kind, name string) error {
	return &feed.Error{Code: feed.CodeNotFound, Op: op, Msg: fmt.Sprintf("there is no %s %q", kind, name)}
}
