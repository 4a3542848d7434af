package sqlite

import (
	"context"
	"errors"

	"gapless/feed"
)

// checkChunk is how many events are looked at between two reports.
const checkChunk = 10_000

// inspectLog compares the events with the rules of a log and with the
// instance row: contiguous seqs between the bounds, well-formed fences, topics
// and ids, times that never go back, and sums of bytes.
func inspectLog(ctx context.Context, src source, in instance, found *findings, progress func(float64)) error {
	inspectInstance(in, found)
	older := rule{query: `SELECT 'event ' || seq || ' is older than the oldest' FROM events WHERE seq < ?`, args: []any{int64(in.oldest)}}
	if err := older.inspect(ctx, src, found); err != nil {
		return err
	}
	l := ledger{in: in, found: found, next: in.oldest, offset: in.oldestOffset}
	for {
		n, err := l.chunk(ctx, src)
		if err != nil {
			return err
		}
		if n < checkChunk {
			break
		}
		progress(float64(l.next-in.oldest) / float64(max(in.events(), 1)))
	}
	if l.next != in.head.Seq+1 && found.n == 0 {
		found.add("the log ends at event %d, its head should be %d", l.next-1, in.head.Seq)
	}
	if l.offset != in.nextOffset && found.n == 0 {
		found.add("the log ends at byte %d, the sum says %d", l.offset, in.nextOffset)
	}
	return nil
}

// inspectInstance compares the row with itself.
func inspectInstance(in instance, found *findings) {
	if _, err := feed.ParseCursor(in.cursor().String()); err != nil {
		found.add("the epoch %q is none", in.epoch)
	}
	if in.oldest == 0 || in.oldest > in.head.Seq+1 {
		found.add("the bounds %d to %d are not those of a log", in.oldest, in.head.Seq)
	}
	if in.head.Fence.Known() != (in.head.Seq > 0) {
		found.add("the head is at event %d with the fence %q", in.head.Seq, in.head.Fence)
	}
	if in.trimmedFence.Known() != (in.oldest > 1) {
		found.add("the log begins at event %d with the fence %q before it", in.oldest, in.trimmedFence)
	}
}

// ledger walks the events and carries what the next one has to continue.
type ledger struct {
	in     instance
	found  *findings
	next   uint64 // seq
	offset int64
	time   int64
	row    row
}

// row is what is looked at of an event.
type row struct {
	seq              uint64
	fence, id, topic string
	time, offset     int64
	size             int64 // by the measure of feed.Event.Size
}

// octet_length takes lengths from the record's header: payloads are not read
// once more.
const selectLedger = `SELECT seq, fence, time, offset, id, topic, octet_length(id) + octet_length(type) + octet_length(topic)
	+ octet_length(source) + coalesce(octet_length(data), 0) + coalesce(octet_length(ce), 0)
	FROM events WHERE seq >= ? ORDER BY seq LIMIT ?`

// chunk looks at the next events and returns how many there were.
func (l *ledger) chunk(ctx context.Context, src source) (n int, err error) {
	rows, err := src.QueryContext(ctx, selectLedger, int64(l.next), checkChunk)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	flat := (&feed.Event{}).Size()
	for ; rows.Next(); n++ {
		r := &l.row
		if err := rows.Scan(&r.seq, &r.fence, &r.time, &r.offset, &r.id, &r.topic, &r.size); err != nil {
			return n, err
		}
		r.size += flat
		l.event(r)
	}
	return n, errors.Join(rows.Err(), ctx.Err())
}

// event compares one event with the one before it.
func (l *ledger) event(r *row) {
	switch fence, ok := feed.ParseFence(r.fence); {
	case r.seq != l.next:
		l.found.add("event %d follows event %d", r.seq, l.next-1)
	case r.offset != l.offset:
		l.found.add("event %d begins at byte %d, not at %d", r.seq, r.offset, l.offset)
	case r.time < l.time:
		l.found.add("the time of event %d is before that of event %d", r.seq, r.seq-1)
	case !ok:
		l.found.add("the fence of event %d is %q", r.seq, r.fence)
	case r.seq == l.in.head.Seq && fence != l.in.head.Fence:
		l.found.add("the fence of event %d, the head, is %q, not %q", r.seq, r.fence, l.in.head.Fence)
	case r.seq > l.in.head.Seq:
		l.found.add("event %d is above the head, %d", r.seq, l.in.head.Seq)
	case r.id == "" || feed.ValidateTopic(r.topic) != nil:
		l.found.add("event %d has the id %q and the topic %q", r.seq, r.id, r.topic)
	}
	l.next, l.offset, l.time = r.seq+1, r.offset+r.size, r.time
}
