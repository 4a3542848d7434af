package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// Bounds of what is committed, and waits to be committed, together.
const (
	groupDrafts = 1024
	groupBytes  = 8 << 20
	queueBytes  = 256 << 20
)

// pending is an append that waits for its group.
type pending struct {
	ctx    context.Context
	drafts []feed.Draft
	prints []fingerprint
	bytes  int64

	done    chan struct{} // closed when what follows is set
	receipt feed.Receipt
	err     error
}

func (p *pending) answer(receipt feed.Receipt, err error) {
	p.receipt, p.err = receipt, err
	close(p.done)
}

// appendQueue holds the appends that the committer has not taken yet.
type appendQueue struct {
	mu     sync.Mutex
	list   []*pending
	bytes  int64
	closed bool
	wake   chan struct{} // has a token where the list is not empty, or closed
}

func (q *appendQueue) init() { q.wake = make(chan struct{}, 1) }

func (q *appendQueue) add(p *pending) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return feed.ErrClosed
	case len(q.list) > 0 && q.bytes+p.bytes > queueBytes:
		return unavailable("append", fmt.Sprintf("appends of more than %d bytes wait for the database", queueBytes), nil)
	}
	q.list = append(q.list, p)
	q.bytes += p.bytes
	q.wakeLocked()
	return nil
}

func (q *appendQueue) wakeLocked() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns the next group: at least one append where there is any. It
// leaves out those whose callers have gone.
func (q *appendQueue) take() (group []*pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	drafts, bytes, taken := 0, int64(0), 0
	for _, p := range q.list {
		if err := p.ctx.Err(); err != nil {
			p.answer(feed.Receipt{}, givenUp(err))
		} else {
			if len(group) > 0 && (drafts+len(p.drafts) > groupDrafts || bytes+p.bytes > groupBytes) {
				break
			}
			group = append(group, p)
			drafts += len(p.drafts)
			bytes += p.bytes
		}
		q.bytes -= p.bytes
		taken++
	}
	clear(q.list[:taken])
	if q.list = q.list[taken:]; len(q.list) > 0 {
		q.wakeLocked()
	} else {
		q.list = nil
	}
	return group
}

// close refuses what waits and what comes.
func (q *appendQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, p := range q.list {
		p.answer(feed.Receipt{}, feed.ErrClosed)
	}
	q.list, q.bytes = nil, 0
	q.wakeLocked()
}

func givenUp(err error) error {
	return &feed.Error{Code: feed.CodeUnavailable, Op: "append", Err: err}
}

// Append implements [feed.Log]. It blocks until the transaction of its group
// is committed. Where ctx ends before, the batch may be stored all the same,
// whole.
func (s *Store) Append(ctx context.Context, drafts []feed.Draft) (feed.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return feed.Receipt{}, givenUp(err)
	}
	// The slice is the caller's again when this returns, and the committer may
	// not be done with it then.
	p := &pending{ctx: ctx, drafts: append([]feed.Draft(nil), drafts...), prints: fingerprints(drafts), done: make(chan struct{})}
	for i := range drafts {
		p.bytes += sizeOf(&drafts[i])
	}
	if err := s.appends.add(p); err != nil {
		return feed.Receipt{}, err
	}
	select {
	case <-p.done:
		return p.receipt, p.err
	case <-ctx.Done():
	}
	select {
	case <-p.done:
		return p.receipt, p.err
	default:
		return feed.Receipt{}, givenUp(ctx.Err())
	}
}

// sizeOf is the size that the draft's event will have.
func sizeOf(d *feed.Draft) int64 {
	ev := feed.Event{ID: d.ID, Type: d.Type, Topic: d.Topic, Source: d.Source, Data: d.Data, CE: d.CE}
	return ev.Size()
}

// rows are events to insert, by column.
type rows struct {
	seqs, totals, sizes                       []int64
	fences, ids, types, topics, sources, data []string
	ces                                       []*string
}

// add numbers a draft: it is the event at seq, the log's head from here on.
func (r *rows) add(in *instance, seq uint64, d *feed.Draft) {
	size := sizeOf(d)
	in.Head = feed.Position{Seq: seq, Fence: feed.NewFence()}
	in.Total += size
	if in.Now.After(in.LastTime) {
		in.LastTime = in.Now
	}
	r.seqs = append(r.seqs, int64(seq))
	r.totals = append(r.totals, in.Total)
	r.sizes = append(r.sizes, size)
	r.fences = append(r.fences, in.Head.Fence.String())
	r.ids = append(r.ids, d.ID)
	r.types = append(r.types, d.Type)
	r.topics = append(r.topics, d.Topic)
	r.sources = append(r.sources, d.Source)
	r.data = append(r.data, string(d.Data))
	var ce *string
	if d.CE != nil {
		text := string(d.CE)
		ce = &text
	}
	r.ces = append(r.ces, ce)
}

const insertEvents = `insert into gapless.events (seq, total, size, time, fence, id, type, topic, source, data, ce)
	select seq, total, size, $4::timestamptz, fence, id, type, topic, source, data, ce
	from unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[])
		as t (seq, total, size, fence, id, type, topic, source, data, ce)`

// messageBytes bounds one statement's arguments, well below the 1 GiB that a
// message can have.
const messageBytes = 64 << 20

// queue queues the inserts.
func (r *rows) queue(b *pgx.Batch, at *instance) {
	for from := 0; from < len(r.seqs); {
		to, bytes := from+1, r.sizes[from]
		for to < len(r.seqs) && bytes+r.sizes[to] <= messageBytes {
			bytes += r.sizes[to]
			to++
		}
		b.Queue(insertEvents, r.seqs[from:to], r.totals[from:to], r.sizes[from:to], at.LastTime, r.fences[from:to], r.ids[from:to],
			r.types[from:to], r.topics[from:to], r.sources[from:to], r.data[from:to], r.ces[from:to])
		from = to
	}
}

func sealed(op string) error {
	return &feed.Error{Code: feed.CodeSealed, Op: op, Msg: "the store was sealed by a final backup: it takes no more events, and its cursors stay"}
}
