package sqlite

import "gapless/feed"

// Bounds of the tail.
const (
	tailEvents = 8192
	tailBytes  = 16 << 20 // sum of feed.Event.Size
)

// tail is the newest events in memory, contiguous up to the head: most reads
// are of it. It is exact, since this process alone writes to the log.
type tail struct {
	ring  [tailEvents]*feed.Event // by seq modulo its length
	first uint64                  // seq of the oldest one in it
	next  uint64                  // seq after the newest one
	bytes int64
}

// reset empties the tail: what follows has to come from the file.
func (t *tail) reset() {
	clear(t.ring[:])
	t.first, t.next, t.bytes = 0, 0, 0
}

// push adds events that follow those in the tail, and drops what is below
// oldest or too much.
func (t *tail) push(events []*feed.Event, oldest uint64) {
	for _, ev := range events {
		if t.next != ev.Seq {
			t.reset()
			t.first, t.next = ev.Seq, ev.Seq
		}
		if t.next-t.first == tailEvents {
			t.drop()
		}
		t.ring[ev.Seq%tailEvents] = ev
		t.next++
		t.bytes += ev.Size()
		for t.bytes > tailBytes && t.next-t.first > 1 {
			t.drop()
		}
	}
	for t.first < min(oldest, t.next) {
		t.drop()
	}
}

func (t *tail) drop() {
	slot := &t.ring[t.first%tailEvents]
	t.bytes -= (*slot).Size()
	*slot = nil
	t.first++
}

// get returns an event; nil where the tail does not hold it.
func (t *tail) get(seq uint64) *feed.Event {
	if seq < t.first || seq >= t.next {
		return nil
	}
	return t.ring[seq%tailEvents]
}

// page returns the events after a seq, up to the limit. The caller has made
// sure that the first of them is in the tail.
func (t *tail) page(after uint64, limit feed.Limit) []*feed.Event {
	n := min(t.next-1-after, uint64(max(limit.Events, 0)))
	if n == 0 {
		return nil
	}
	events := make([]*feed.Event, 0, n)
	size := int64(0)
	for seq := after + 1; uint64(len(events)) < n; seq++ {
		ev := t.ring[seq%tailEvents]
		if size += ev.Size(); limit.Bytes > 0 && size > limit.Bytes && len(events) > 0 {
			break
		}
		events = append(events, ev)
	}
	return events
}
