package feed

import (
	"context"
	"encoding/json"
	"time"
)

// MaxReadEvents bounds one catch-up page.
const MaxReadEvents = 1000

// readBytes bounds the payload of one catch-up page; one event may be larger.
const readBytes = 8 << 20

// ReadOptions says what a catch-up page is to hold.
type ReadOptions struct {
	From
	Filter Filter
	Limit  int           // events; 1 to [MaxReadEvents]
	Wait   time.Duration // how long to wait for a first event; 0: not at all
}

// ReadResult is one catch-up page, or the reason why there is none.
type ReadResult struct {
	Bounds
	Events  []json.RawMessage // envelopes, each with its cursor
	Last    Cursor            // read on from here; it moves past filtered events
	HasMore bool              // the log holds events behind Last
	Resync  Reason            // not empty: the position cannot be served
}

// Read returns the events that match behind a position, in order, as JSON
// envelopes. It scans until the page is full, the head is reached, or the
// scan limit; an event that cannot be encoded ends the page with
// [ReasonEncodingFailed], except where a snapshot passes it. With Wait, it
// blocks while there is none. Errors: as for [Feed.Subscribe].
func (f *Feed) Read(ctx context.Context, opts ReadOptions) (ReadResult, error) {
	if err := f.Ready(); err != nil {
		return ReadResult{}, err
	}
	filter := opts.Filter.hiding(f.hidden)
	at, err := f.locate(ctx, opts.From, filter)
	if err != nil {
		return ReadResult{}, err
	}
	if at.reason != "" {
		f.stats.resynced(at.reason, time.Now())
		return ReadResult{Bounds: at.bounds, Resync: at.reason}, nil
	}
	r := reading{feed: f, filter: filter, limit: min(max(opts.Limit, 1), MaxReadEvents), pos: at.pos, bounds: at.bounds}
	if at.start == startedSnapshot {
		r.snapshot = at.bounds.Head.Seq
	}
	deadline := time.Now().Add(opts.Wait)
	for {
		f.mu.Lock()
		advanced := f.advancedLocked()
		draining := f.phase == phaseDraining
		f.mu.Unlock()
		if err := r.scan(ctx); err != nil {
			return ReadResult{}, err
		}
		left := time.Until(deadline)
		if r.reason != "" || len(r.events) > 0 || r.pos.Seq < r.bounds.Head.Seq || draining || left <= 0 {
			return r.result(), nil
		}
		timer := time.NewTimer(left)
		select {
		case <-advanced:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return ReadResult{}, err
		}
	}
}

// reading is the state of one catch-up page.
type reading struct {
	feed     *Feed
	filter   Filter
	limit    int
	bounds   Bounds
	pos      Position
	snapshot uint64 // events up to here that cannot be encoded are skipped
	reason   Reason
	events   []json.RawMessage
	size     int
}

// scan reads on until the page is full, the head, or the scan limit.
func (r *reading) scan(ctx context.Context) error {
	for scanned := 0; scanned < r.feed.cfg.ScanLimit; {
		page, err := r.feed.cfg.Log.Read(ctx, r.pos.Seq, replayLimit)
		if err != nil {
			return err
		}
		switch page.follows(Cursor{Epoch: r.bounds.Epoch, Position: r.pos}) {
		case followsEpochChanged:
			r.fail(ReasonEpochChanged, page.Bounds)
			return nil
		case followsReset:
			r.fail(ReasonLogReset, page.Bounds)
			return nil
		case followsTrimmed:
			if len(r.events) > 0 {
				return nil // the next page is told
			}
			if r.snapshot > 0 {
				r.pos = Position{Seq: page.Oldest - 1, Fence: page.TrimmedFence}
				continue
			}
			r.fail(ReasonLagged, page.Bounds)
			return nil
		}
		r.bounds = page.Bounds
		if len(page.Events) == 0 {
			return nil
		}
		for _, ev := range page.Events {
			if !r.take(ev) {
				return nil
			}
		}
		scanned += len(page.Events)
	}
	return nil
}

// take adds an event that matches and moves past it. It reports false where
// the page has to end before it.
func (r *reading) take(ev *Event) bool {
	if len(r.events) == r.limit {
		return false
	}
	if r.filter.Match(ev.Topic, ev.Type) {
		if err := encodable(ev); err != nil {
			if ev.Seq > r.snapshot {
				if len(r.events) == 0 {
					r.fail(ReasonEncodingFailed, r.bounds)
				}
				return false
			}
			r.pos = ev.Position()
			return true
		}
		if r.size += len(ev.Data) + len(ev.CE); r.size > readBytes && len(r.events) > 0 {
			return false
		}
		cursor := Cursor{Epoch: r.bounds.Epoch, Position: ev.Position()}
		r.events = append(r.events, appendEnvelope(nil, ev, r.bounds.Epoch, cursor))
	}
	r.pos = ev.Position()
	return true
}

func (r *reading) fail(reason Reason, bounds Bounds) {
	r.reason, r.bounds, r.events = reason, bounds, nil
	r.feed.stats.resynced(reason, time.Now())
}

func (r *reading) result() ReadResult {
	return ReadResult{
		Bounds:  r.bounds,
		Events:  r.events,
		Last:    Cursor{Epoch: r.bounds.Epoch, Position: r.pos},
		HasMore: r.pos.Seq < r.bounds.Head.Seq,
		Resync:  r.reason,
	}
}
