package sqlite

import (
	"context"
	"sync"

	"gapless/feed"
)

// Bounds of a group: what one transaction takes of the queue. A single append
// above them is a group of its own.
const (
	groupEvents = 1024
	groupBytes  = 8 << 20
)

// request is one append on its way to the commit loop.
type request struct {
	events []*feed.Event // one a draft, without seq and time
	prints []print       // nil where every draft is minted
	bytes  int64
	answer chan answer // of room for one

	receipt []feed.Appended // the commit loop's
}

type answer struct {
	receipt feed.Receipt
	err     error
}

// Append implements [feed.Log]. It blocks until the group that it is part of
// is on disk. Given up before the commit loop took it, it stores nothing;
// later, it may have stored all of it.
func (s *Store) Append(ctx context.Context, drafts []feed.Draft) (feed.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return feed.Receipt{}, unavailable("append", "given up; nothing was stored", err)
	}
	if err := s.enter(); err != nil {
		return feed.Receipt{}, err
	}
	defer s.leave()
	if err := s.guardError("append"); err != nil {
		return feed.Receipt{}, err
	}
	r := newRequest(drafts)
	s.queue.push(r)
	select {
	case a := <-r.answer:
		return a.receipt, a.err
	case <-ctx.Done():
	}
	if s.queue.withdraw(r) {
		return feed.Receipt{}, unavailable("append", "given up; nothing was stored", ctx.Err())
	}
	select {
	case a := <-r.answer:
		return a.receipt, a.err
	default:
		return feed.Receipt{}, unavailable("append", "given up while it was being stored; the same ids again tell what became of it", ctx.Err())
	}
}

// newRequest makes the events, with all that needs no order.
func newRequest(drafts []feed.Draft) *request {
	r := &request{
		events: make([]*feed.Event, len(drafts)), prints: fingerprints(drafts),
		answer: make(chan answer, 1), receipt: make([]feed.Appended, len(drafts)),
	}
	events := make([]feed.Event, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		events[i] = feed.Event{
			Fence: feed.NewFence(), ID: d.ID, Type: d.Type, Topic: d.Topic, Source: d.Source, Data: d.Data, CE: d.CE,
		}
		r.events[i] = &events[i]
		r.bytes += events[i].Size()
	}
	return r
}

// queue is the appends that wait for the commit loop, in the order in which
// they came. The zero queue is empty; ready must be made.
type queue struct {
	mu    sync.Mutex
	list  []*request
	ready chan struct{} // of room for one: the list is not empty
}

func (q *queue) push(r *request) {
	q.mu.Lock()
	q.list = append(q.list, r)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// withdraw takes a request out again; it reports false where the commit loop
// has it.
func (q *queue) withdraw(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, waiting := range q.list {
		if waiting == r {
			q.list = append(q.list[:i], q.list[i+1:]...)
			return true
		}
	}
	return false
}

// take moves the next group into group, which is emptied first.
func (q *queue) take(group []*request) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(group)
	group = group[:0]
	events, bytes := 0, int64(0)
	for _, r := range q.list {
		events, bytes = events+len(r.events), bytes+r.bytes
		if len(group) > 0 && (events > groupEvents || bytes > groupBytes) {
			break
		}
		group = append(group, r)
	}
	rest := copy(q.list, q.list[len(group):])
	clear(q.list[rest:])
	q.list = q.list[:rest]
	return group
}
