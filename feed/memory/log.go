// Package memory is a feed.Store in the process's memory. Its events, its
// control state and its epoch end with the process: after a restart every
// cursor is of another epoch, and readers are told so.
package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"time"

	"gapless/feed"
)

// Defaults of [Config].
const (
	DefaultDedupeWindow = 10 * time.Minute
	DefaultEvents       = 1024
	DefaultBytes        = 256 << 20
)

// Config holds the log's options.
type Config struct {
	// Retention; where it bounds neither events nor bytes nor age, 1,024
	// events and 256 MiB.
	Retention feed.Retention
	// DedupeWindow is for how long a publisher's id is remembered; 10 minutes.
	DedupeWindow time.Duration
	// Now is the store's clock; time.Now. Ages are measured by its monotonic
	// reading, where it has one, so that a jump of the clock expires nothing.
	Now func() time.Time
}

// Log is the store: a [feed.Store]. All methods are safe for concurrent use.
type Log struct {
	cfg   Config
	epoch feed.Epoch

	// mu guards what follows; nothing else is locked under it.
	mu      sync.RWMutex
	events  ring
	bytes   int64
	head    feed.Position
	trimmed feed.Fence // of the event before the oldest
	last    time.Time  // of the newest event ever stored
	topics  topicIndex
	dedupe  dedupe
	control control
	changed chan struct{} // closed at the next change; nil: nobody waits
	closed  bool
}

// New mints an epoch and returns an empty log.
func New(cfg Config) (*Log, error) {
	if cfg.Retention == (feed.Retention{}) {
		cfg.Retention = feed.Retention{Events: DefaultEvents, Bytes: DefaultBytes}
	}
	cfg.DedupeWindow = cmp.Or(cfg.DedupeWindow, DefaultDedupeWindow)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.DedupeWindow < 0 || cfg.Retention.Age < 0 || cfg.Retention.Bytes < 0 {
		return nil, &feed.Error{Code: feed.CodeInvalid, Op: "memory", Msg: "a retention bound or the dedupe window is negative"}
	}
	epoch, err := feed.NewEpoch(cfg.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &Log{cfg: cfg, epoch: epoch, topics: topicIndex{}, dedupe: newDedupe(cfg.DedupeWindow), control: newControl()}, nil
}

// Append implements [feed.Log]. It does not block.
func (l *Log) Append(ctx context.Context, drafts []feed.Draft) (feed.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return feed.Receipt{}, &feed.Error{Code: feed.CodeUnavailable, Op: "append", Err: err}
	}
	prints := fingerprints(drafts)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return feed.Receipt{}, feed.ErrClosed
	}
	now := l.cfg.Now()
	l.dedupe.expire(now)
	receipt := feed.Receipt{Epoch: l.epoch, Events: make([]feed.Appended, len(drafts))}
	fresh, err := l.dedupe.admit(drafts, prints, l.head.Seq, receipt.Events)
	if err != nil {
		return feed.Receipt{}, err
	}
	l.last = later(l.last, now.UTC().Truncate(feed.TimeUnit))
	for _, i := range fresh {
		d := &drafts[i]
		l.store(entry{stored: now, Event: &feed.Event{
			Seq: l.head.Seq + 1, Fence: feed.NewFence(), ID: d.ID, Time: l.last,
			Type: d.Type, Topic: d.Topic, Source: d.Source, Data: d.Data, CE: d.CE,
		}})
	}
	l.dedupe.remember(drafts, prints, fresh, receipt.Events, now)
	l.trimLocked(now)
	if len(fresh) > 0 {
		l.notifyLocked()
	}
	return receipt, nil
}

// later keeps the time of events from going back.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *Log) store(ev entry) {
	l.events.push(ev)
	l.bytes += ev.Size()
	l.head = ev.Position()
	l.topics.add(ev.Topic, ev.Seq)
}

func (l *Log) trimLocked(now time.Time) {
	r := l.cfg.Retention
	for l.events.n > 0 {
		oldest := l.events.get(0)
		switch {
		case r.Events > 0 && uint64(l.events.n) > r.Events:
		case r.Bytes > 0 && l.bytes > r.Bytes && l.events.n > 1:
		case r.Age > 0 && now.Sub(oldest.stored) > r.Age:
		default:
			return
		}
		l.events.shift()
		l.bytes -= oldest.Size()
		l.trimmed = oldest.Fence
		l.topics.drop(oldest.Topic)
	}
}

// Trim implements [feed.Log].
func (l *Log) Trim(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return feed.ErrClosed
	}
	now := l.cfg.Now()
	l.dedupe.expire(now)
	l.trimLocked(now)
	return nil
}

// Read implements [feed.Log]. It does not block.
func (l *Log) Read(_ context.Context, after uint64, limit feed.Limit) (feed.Page, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return feed.Page{}, feed.ErrClosed
	}
	page := feed.Page{Bounds: l.boundsLocked(), TrimmedFence: l.trimmed}
	if after > l.head.Seq || after < page.Oldest-1 {
		return page, nil
	}
	page.Anchor = l.positionLocked(after).Fence
	first := int(after - (page.Oldest - 1))
	for i, size := first, int64(0); i < l.events.n && len(page.Events) < limit.Events; i++ {
		ev := l.events.get(i)
		if size += ev.Size(); limit.Bytes > 0 && size > limit.Bytes && len(page.Events) > 0 {
			break
		}
		page.Events = append(page.Events, ev.Event)
	}
	return page, nil
}

func (l *Log) boundsLocked() feed.Bounds {
	return feed.Bounds{Epoch: l.epoch, Oldest: l.head.Seq + 1 - uint64(l.events.n), Head: l.head}
}

// positionLocked returns the position at a seq in oldest − 1 … head.
func (l *Log) positionLocked(seq uint64) feed.Position {
	oldest := l.head.Seq + 1 - uint64(l.events.n)
	if seq < oldest {
		return feed.Position{Seq: seq, Fence: l.trimmed}
	}
	return l.events.get(int(seq - oldest)).Position()
}

// Wait implements [feed.Log].
func (l *Log) Wait(ctx context.Context, at feed.Cursor) error {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return feed.ErrClosed
		}
		if at.Epoch != l.epoch || at.Seq != l.head.Seq {
			l.mu.Unlock()
			return nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Log) notifyLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Info implements [feed.Log].
func (l *Log) Info() feed.Info {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return feed.Info{Store: "memory", Retention: l.cfg.Retention, Events: uint64(l.events.n), Bytes: l.bytes}
}

// Close implements [feed.Log]. The events are gone.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.events, l.bytes, l.topics, l.control = ring{}, 0, topicIndex{}, newControl()
	l.notifyLocked()
	return nil
}
