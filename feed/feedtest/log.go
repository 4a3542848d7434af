package feedtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"gapless/feed"
)

// Log is a small, slow feed.Log whose faults a test switches on while it
// runs: it can be trimmed, rolled back, moved to a new epoch, filled with
// garbage, sealed, shut by its guard, made slow or made to fail under its
// readers. It keeps every key for ever, and trims by count only.
type Log struct {
	mu        sync.Mutex
	epoch     feed.Epoch
	events    []*feed.Event // retained
	head      feed.Position
	trimmed   feed.Fence
	keep      int
	keys      map[key]*feed.Event // first event under each
	last      time.Time           // of the newest event
	changed   chan struct{}
	closed    bool
	silent    bool
	sealed    bool
	shut      bool
	readErr   error
	appendErr error
	readDelay time.Duration
	reads     int
}

// key is what a publisher's repeat is known by.
type key struct{ topic, source, id string }

// NewLog returns an empty log that keeps the given number of events; 0: all.
func NewLog(keep int) *Log {
	return &Log{epoch: newEpoch(), keep: keep, keys: make(map[key]*feed.Event), changed: make(chan struct{})}
}

func newEpoch() feed.Epoch {
	epoch, err := feed.NewEpoch(time.Now(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return epoch
}

func (l *Log) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	l.notify()
}

func (l *Log) notify() {
	if !l.silent || l.closed {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *Log) store(ev *feed.Event) {
	ev.Seq, ev.Fence = l.head.Seq+1, feed.NewFence()
	l.head = ev.Position()
	l.events = append(l.events, ev)
	for l.keep > 0 && len(l.events) > l.keep {
		l.shift()
	}
}

func (l *Log) shift() {
	l.trimmed = l.events[0].Fence
	l.events = slices.Clone(l.events[1:])
}

// Append implements [feed.Log].
func (l *Log) Append(ctx context.Context, drafts []feed.Draft) (feed.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return feed.Receipt{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.refusal("append")
	switch {
	case err != nil:
		return feed.Receipt{}, err
	case l.sealed:
		return feed.Receipt{}, &feed.Error{Code: feed.CodeSealed, Op: "append", Msg: "a final backup was made"}
	case l.appendErr != nil:
		return feed.Receipt{}, l.appendErr
	}
	if now := time.Now().UTC().Truncate(feed.TimeUnit); now.After(l.last) {
		l.last = now
	}
	receipt := feed.Receipt{Epoch: l.epoch}
	var fresh []*feed.Event
	keys := make(map[key]*feed.Event)
	for _, d := range drafts {
		ev := &feed.Event{
			Seq: l.head.Seq + 1 + uint64(len(fresh)), ID: d.ID, Time: l.last,
			Type: d.Type, Topic: d.Topic, Source: d.Source, Data: d.Data, CE: d.CE,
		}
		if !d.Minted {
			k := key{d.Topic, d.Source, d.ID}
			first := cmp.Or(l.keys[k], keys[k])
			if first != nil && (first.Type != d.Type || string(first.Data) != string(d.Data) || string(first.CE) != string(d.CE)) {
				return feed.Receipt{}, &feed.Error{Code: feed.CodeIDConflict, Op: "append"}
			}
			if first != nil {
				receipt.Events = append(receipt.Events, feed.Appended{Seq: first.Seq, ID: d.ID, Duplicate: true})
				continue
			}
			keys[k] = ev
		}
		fresh = append(fresh, ev)
		receipt.Events = append(receipt.Events, feed.Appended{Seq: ev.Seq, ID: d.ID})
	}
	for _, ev := range fresh {
		l.store(ev)
	}
	maps.Copy(l.keys, keys)
	l.notify()
	return receipt, nil
}

// refusal is why a call fails whatever it asks. It needs mu.
func (l *Log) refusal(op string) error {
	switch {
	case l.closed:
		return feed.ErrClosed
	case l.shut:
		return &feed.Error{Code: feed.CodeRestoreNotFinalized, Op: op, Msg: "the log is not the one that was left: see gapless restore status"}
	}
	return nil
}

// beginRead takes the faults of reading into account, and returns with mu held
// where there is none.
func (l *Log) beginRead(ctx context.Context) error {
	l.mu.Lock()
	l.reads++
	delay := l.readDelay
	l.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	err := cmp.Or(l.refusal("read"), l.readErr)
	if err != nil {
		l.mu.Unlock()
	}
	return err
}

// Read implements [feed.Log].
func (l *Log) Read(ctx context.Context, after uint64, limit feed.Limit) (feed.Page, error) {
	if err := l.beginRead(ctx); err != nil {
		return feed.Page{}, err
	}
	defer l.mu.Unlock()
	page := feed.Page{Bounds: l.bounds(), TrimmedFence: l.trimmed}
	if after < page.Oldest-1 || after > l.head.Seq {
		return page, nil
	}
	if page.Anchor = l.trimmed; after >= page.Oldest {
		page.Anchor = l.events[after-page.Oldest].Fence
	}
	size := int64(0)
	for _, ev := range l.events[after+1-page.Oldest:] {
		size += ev.Size()
		if len(page.Events) == limit.Events || limit.Bytes > 0 && size > limit.Bytes && len(page.Events) > 0 {
			break
		}
		page.Events = append(page.Events, ev)
	}
	return page, nil
}

func (l *Log) bounds() feed.Bounds {
	return feed.Bounds{Epoch: l.epoch, Oldest: l.head.Seq + 1 - uint64(len(l.events)), Head: l.head}
}

// Search implements [feed.Log].
func (l *Log) Search(ctx context.Context, search feed.Search) (feed.Found, error) {
	if err := l.beginRead(ctx); err != nil {
		return feed.Found{}, err
	}
	defer l.mu.Unlock()
	found := feed.Found{Bounds: l.bounds(), After: l.head}
	matched, scanned := 0, 0
	for i := len(l.events) - 1; i >= 0 && matched < search.N; i-- {
		ev := l.events[i]
		if !search.Filter.MatchTopic(ev.Topic) {
			continue
		}
		if scanned++; search.ScanLimit > 0 && scanned > search.ScanLimit {
			found.Truncated = true
			break
		}
		if !search.Filter.Match(ev.Topic, ev.Type) {
			continue
		}
		matched++
		if found.After = (feed.Position{Seq: ev.Seq - 1, Fence: l.trimmed}); i > 0 {
			found.After.Fence = l.events[i-1].Fence
		}
	}
	return found, ctx.Err()
}

// Wait implements [feed.Log].
func (l *Log) Wait(ctx context.Context, at feed.Cursor) error {
	for {
		l.mu.Lock()
		changed := l.changed
		done := !l.silent && (at.Epoch != l.epoch || at.Position != l.head)
		err := l.refusal("wait")
		l.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Trim implements [feed.Log].
func (l *Log) Trim(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal("trim")
}

// Info implements [feed.Log].
func (l *Log) Info() feed.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	info := feed.Info{Store: "faulty", Retention: feed.Retention{Events: uint64(l.keep)}, Events: uint64(len(l.events))}
	for _, ev := range l.events {
		info.Bytes += ev.Size()
	}
	return info
}

// Close implements [feed.Log].
func (l *Log) Close() error {
	l.change(func() { l.closed = true })
	return nil
}
