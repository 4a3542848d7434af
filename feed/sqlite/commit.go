package sqlite

import (
	"context"
	"fmt"
	"runtime"

	"gapless/feed"
)

// commits is the loop that stores what waits in the queue: all that is there
// goes into one transaction, and the next one gathers while this one is
// written.
func (s *Store) commits(ctx context.Context) {
	var group []*request
	for {
		group = s.queue.take(group)
		if len(group) == 0 {
			select {
			case <-s.queue.ready:
			case <-ctx.Done():
				return // no call is left: see Close
			}
			continue
		}
		s.commit(ctx, group)
		// Those who were just answered, and come back at once, are of the next
		// group so: fewer and larger ones, at no wait.
		runtime.Gosched()
	}
}

// batch is what one transaction stores.
type batch struct {
	in      instance
	now     int64 // µs
	events  []*feed.Event
	prints  []*print // of events; nil entries are minted
	admit   []*request
	pending map[key]pendingID
	// Both are the store's from the commit on.
	oldestTime int64
	swept      uint64
}

// pendingID is a key that an earlier draft of the same group has taken.
type pendingID struct {
	seq     uint64
	content [8]byte
}

// commit stores one group and answers each of its requests. The context ends
// once nobody waits for them.
func (s *Store) commit(ctx context.Context, group []*request) {
	failed := func(err error) {
		for _, r := range group {
			r.reply(answer{err: err})
		}
	}
	if err := s.writing.take(ctx); err != nil {
		failed(feed.ErrClosed)
		return
	}
	defer s.writing.give()
	if err := s.ready("append", true); err != nil {
		failed(err)
		return
	}
	b := &batch{in: s.committed(), now: micros(s.cfg.Now()), pending: make(map[key]pendingID), oldestTime: s.oldestTime}
	if b.in.sealed {
		failed(sealedError("append"))
		return
	}
	s.dedupe.expire(b.now)
	version := b.in.version
	err := s.writer.raw(func(raw rawConnection) error {
		for _, r := range group {
			if err := s.admit(raw, b, r); err != nil {
				return err
			}
		}
		if len(b.events) == 0 {
			return nil
		}
		return s.store(ctx, raw, b)
	})
	if err != nil {
		s.stale = true
		_ = s.refresh("append") // tried again before the next transaction
		s.askCheckpoint()       // on a full disk, it makes room in the write-ahead log
		failed(s.storeError("append", err))
		return
	}
	if b.in.version != version {
		s.publish(b.in, b.events)
		s.remember(b)
	}
	for _, r := range b.admit {
		r.reply(answer{receipt: feed.Receipt{Epoch: b.in.epoch, Events: r.receipt}})
	}
}

// reply answers a request, unless it was answered before. Its appender may
// have gone.
func (r *request) reply(a answer) {
	select {
	case r.answer <- a:
	default:
	}
}

// admit numbers what is new in a request, and fills its receipt. A request
// that fails by itself, for an id with other content, is answered here and
// leaves no trace in the batch. The error is of the store.
func (s *Store) admit(raw rawConnection, b *batch, r *request) error {
	first, head := len(b.events), b.in.head.Seq
	b.in.lastTime = max(b.in.lastTime, b.now)
	for i, ev := range r.events {
		r.receipt[i] = feed.Appended{ID: ev.ID}
		var p *print
		if r.prints != nil && r.prints[i] != (print{}) {
			p = &r.prints[i]
			seq, content, taken, err := s.lookUp(raw, b, p.key)
			if err != nil {
				return err
			}
			if taken && content != p.content {
				b.undo(first, head)
				r.reply(answer{err: &feed.Error{
					Code: feed.CodeIDConflict, Op: "append",
					Msg: fmt.Sprintf("event %d: id %q was used on topic %q with other content", i, ev.ID, ev.Topic),
				}})
				return nil
			}
			if taken {
				r.receipt[i].Seq, r.receipt[i].Duplicate = seq, true
				continue
			}
		}
		b.in.head.Seq++
		ev.Seq, ev.Time = b.in.head.Seq, microTime(b.in.lastTime)
		r.receipt[i].Seq = ev.Seq
		b.events = append(b.events, ev)
		b.prints = append(b.prints, p)
		if p != nil {
			b.pending[p.key] = pendingID{ev.Seq, p.content}
		}
	}
	b.admit = append(b.admit, r)
	return nil
}

// undo takes back what a request has added to the batch.
func (b *batch) undo(first int, head uint64) {
	for _, p := range b.prints[first:] {
		if p != nil {
			delete(b.pending, p.key)
		}
	}
	b.events, b.prints, b.in.head.Seq = b.events[:first], b.prints[:first], head
}

// lookUp finds who has taken a key, in the batch or in the log.
func (s *Store) lookUp(raw rawConnection, b *batch, k key) (seq uint64, content [8]byte, taken bool, err error) {
	if p, ok := b.pending[k]; ok {
		return p.seq, p.content, true, nil
	}
	seq, ok := s.dedupe.find(k)
	if !ok {
		return 0, content, false, nil
	}
	content, taken, err = s.dedupe.stored(raw, seq, b.now)
	return seq, content, taken, err
}

// store writes the batch in one transaction.
func (s *Store) store(ctx context.Context, raw rawConnection, b *batch) error {
	err := raw.transaction(ctx, func() (err error) {
		if err := s.insert(raw, b); err != nil {
			return err
		}
		b.in.head = b.events[len(b.events)-1].Position()
		most := uint64(2*len(b.events) + trimSome)
		if _, err := s.trim(raw, &b.in, &b.oldestTime, b.now, most, true); err != nil {
			return err
		}
		if b.swept, err = s.dedupe.sweep(raw, most); err != nil {
			return err
		}
		b.in.version++
		return raw.exec(updateInstance, b.in.values()...)
	})
	if err == nil {
		s.countPages(raw)
	}
	return err
}

const (
	insertEvent = `INSERT INTO events (seq, fence, time, offset, id, type, topic, source, data, ce)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	insertDedupe = `INSERT INTO dedupe (seq, key, content, time) VALUES (?, ?, ?, ?)`
)

// insert writes the rows of the batch's events.
func (s *Store) insert(raw rawConnection, b *batch) error {
	at := b.in.lastTime
	for i, ev := range b.events {
		err := raw.exec(insertEvent, int64(ev.Seq), string(ev.Fence[:]), at, b.in.nextOffset,
			ev.ID, ev.Type, ev.Topic, ev.Source, text(ev.Data), text(ev.CE))
		if err != nil {
			return err
		}
		b.in.nextOffset += ev.Size()
		if p := b.prints[i]; p != nil {
			if err := raw.exec(insertDedupe, int64(ev.Seq), p.key[:], p.content[:], at); err != nil {
				return err
			}
		}
	}
	return nil
}

// text is JSON as a column holds it; nil is null.
func text(json []byte) any {
	if json == nil {
		return nil
	}
	return string(json)
}

// remember takes up in memory what a committed batch changed beside the
// instance. The caller holds s.writing.
func (s *Store) remember(b *batch) {
	for i, p := range b.prints {
		if p != nil {
			s.dedupe.remember(p.key, b.events[i].Seq, b.in.lastTime)
		}
	}
	s.dedupe.swept = b.swept
	s.oldestTime = b.oldestTime
}
