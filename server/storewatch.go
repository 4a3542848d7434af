package server

import (
	"context"
	"sync"
	"time"

	"gapless/feed"
)

// How often the store is asked what its guard sees, for pages that are polled;
// how long it may take to answer; and how long the page that asked waits.
const (
	watchEvery   = 5 * time.Second
	watchTimeout = 10 * time.Second
	watchWait    = time.Second
)

// storeWatch keeps what a durable store last said about itself, so that
// neither the status page nor a scrape waits for a disk or a database that
// hangs. All methods are safe for concurrent use.
type storeWatch struct {
	durable feed.Durable // nil: the store has no guard

	mu      sync.Mutex
	last    feed.RestoreStatus // zero: it has not answered yet
	asked   time.Time          // when it last answered, or failed to; zero: ask again
	looking *storeLook         // the one look under way; nil: none
}

// storeLook is one question to the store. It belongs to no request: a store may
// hang without heed to its context, and a client that leaves says nothing
// about the store.
type storeLook struct {
	done   chan struct{} // closed when the store has answered
	failed error         // set before done is closed
	stale  bool          // under storeWatch.mu: what it asks about has changed since
}

func newStoreWatch(durable feed.Durable) *storeWatch { return &storeWatch{durable: durable} }

// look returns what the store last said. Where that is too long ago, it first
// asks in the background, and waits for the answer for watchWait at the most;
// for nothing while a look is under way. Where the store does not answer, what
// it said before stands.
func (w *storeWatch) look(ctx context.Context) feed.RestoreStatus {
	if l, mine := w.begin(); mine {
		l.wait(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// sealed asks the store anew whether it is sealed. Known is false where it
// does not say so in time: the call blocks for twice watchWait at the most.
func (w *storeWatch) sealed(ctx context.Context) (sealed, known bool) {
	w.forget()
	l, mine := w.begin()
	if l != nil && !mine && l.wait(ctx) { // it asked before the change
		l, mine = w.begin()
	}
	known = mine && l.wait(ctx) && l.failed == nil
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.Sealed, known && !l.stale
}

// wait blocks until the look has ended, for watchWait at the most, and reports
// whether it has.
func (l *storeLook) wait(ctx context.Context) bool {
	patience := time.NewTimer(watchWait)
	defer patience.Stop()
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
	case <-patience.C:
	}
	return false
}

// begin starts a look where one is due and none is under way. It returns the
// one under way, nil where there is none, and whether this call has started it.
func (w *storeWatch) begin() (l *storeLook, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.asked.IsZero() || time.Since(w.asked) >= watchEvery
	if w.durable == nil || w.looking != nil || !due {
		return w.looking, false
	}
	l = &storeLook{done: make(chan struct{})}
	w.looking = l
	go w.ask(l)
	return l, true
}

// ask is the goroutine of a look. Nobody waits for its end without a bound: it
// ends when the store answers, is closed, or heeds the context.
func (w *storeWatch) ask(l *storeLook) {
	defer close(l.done)
	ctx, cancel := context.WithTimeout(context.Background(), watchTimeout)
	defer cancel()
	status, err := w.durable.RestoreStatus(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking, l.failed = nil, err
	if l.stale {
		return // and the next page asks
	}
	if w.asked = time.Now(); err == nil {
		w.last = status
	}
}

// forget makes the next page ask: the store has changed.
func (w *storeWatch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = time.Time{}
	if w.looking != nil {
		w.looking.stale = true
	}
}

// outbox returns the counts of the store's outbox; zeros where it has none.
func (w *storeWatch) outbox() feed.OutboxStats {
	if counts, ok := w.durable.(interface{ OutboxStats() feed.OutboxStats }); ok {
		return counts.OutboxStats()
	}
	return feed.OutboxStats{}
}

// shut reports whether a store's guard keeps the feed from serving. It does
// not ask the store.
func shut(f *feed.Feed) bool { return feed.CodeOf(f.Ready()) == feed.CodeRestoreNotFinalized }
