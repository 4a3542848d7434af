package feed

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Config holds a feed's options. Log is required; every other zero field gets
// the default named beside it.
type Config struct {
	Log    Log
	Logger zerolog.Logger // the zero Logger writes nothing

	SnapshotEvents int // events of a default snapshot; 1,024
	ScanLimit      int // candidates that a search or a catch-up page examines; 100,000

	QueueFrames     int   // frames that one queue holds; 4,096
	QueueBytes      int64 // bytes that one queue holds; 16 MiB
	QueueBytesTotal int64 // bytes that all queues hold; 512 MiB
	RingEvents      int   // recent events kept with their frames; 4,096
	RingBytes       int64 // payload bytes of those; 8 MiB

	Heartbeat      time.Duration // silence after which a heartbeat goes out; 15 s
	ReconnectDelay time.Duration // what `retry:` asks of clients, ± 25 %; 2 s
	PollInterval   time.Duration // the longest time between two looks at the log; 1 s

	HideTypes []string // types that no subscriber gets
}

func (c *Config) setDefaults() error {
	if c.Log == nil {
		return invalid("feed", "no log")
	}
	c.SnapshotEvents = cmp.Or(c.SnapshotEvents, 1024)
	c.ScanLimit = cmp.Or(c.ScanLimit, 100_000)
	c.QueueFrames = cmp.Or(c.QueueFrames, 4096)
	c.QueueBytes = cmp.Or(c.QueueBytes, 16<<20)
	c.QueueBytesTotal = cmp.Or(c.QueueBytesTotal, 512<<20)
	c.RingEvents = cmp.Or(c.RingEvents, 4096)
	c.RingBytes = cmp.Or(c.RingBytes, 8<<20)
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	c.ReconnectDelay = cmp.Or(c.ReconnectDelay, 2*time.Second)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	if c.SnapshotEvents < 0 || c.ScanLimit < 0 || c.QueueFrames < 0 || c.QueueBytes < 0 || c.QueueBytesTotal < 0 ||
		c.RingEvents < 0 || c.RingBytes < 0 || c.Heartbeat < 0 || c.ReconnectDelay < 0 || c.PollInterval < 0 {
		return invalid("feed", "a limit or an interval is negative")
	}
	for _, t := range c.HideTypes {
		if !validType(t) {
			return invalid("feed", "a hidden type does not match [A-Za-z0-9._:/-]{1,128}")
		}
	}
	return nil
}

// phase is where a feed is in its life.
type phase uint8

const (
	phaseStarting phase = iota // the pump has not seen the log yet
	phaseServing               // subscribers and publishers are welcome
	phaseDraining              // nobody new is; those here are told to leave
)

// Feed delivers one log to any number of subscribers. See the package
// comment for what it guarantees. All methods are safe for concurrent use.
type Feed struct {
	cfg      Config
	hidden   map[string]struct{}
	stats    counters
	gate     gate
	replayed records               // beside the ring
	failing  atomic.Pointer[error] // of the last append, where the store failed it; nil: it did not

	// mu guards what follows. Lock order: Feed.mu, then Subscriber.mu.
	mu          sync.Mutex
	phase       phase
	resets      uint64 // how often the log turned out to be another one
	logErr      error  // the last read failed with this; nil: the log answers
	epoch       Epoch
	offered     Position // up to here the pump has offered every event
	bounds      Bounds   // as of the pump's last read
	ring        ring
	subscribers map[string]*Subscriber   // all that are not closed, by id
	live        map[*Subscriber]struct{} // those that the pump offers to
	shapesInUse [shapes]int              // subscribers by shape
	advanced    chan struct{}            // closed when offered moves; nil: nobody waits
	gone        chan struct{}            // closed when the last subscriber left; nil: nobody waits
}

// New checks the configuration and returns a feed that does nothing yet: see
// [Feed.Run].
func New(cfg Config) (*Feed, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	f := &Feed{
		cfg:         cfg,
		hidden:      make(map[string]struct{}, len(cfg.HideTypes)),
		subscribers: make(map[string]*Subscriber),
		live:        make(map[*Subscriber]struct{}),
		ring:        ring{maxEvents: cfg.RingEvents, maxBytes: cfg.RingBytes},
	}
	for _, t := range cfg.HideTypes {
		f.hidden[t] = struct{}{}
	}
	f.gate.limit = gateLimit(cfg.Log.Info().Retention)
	return f, nil
}

// Config returns the configuration in force, with its defaults filled in.
func (f *Feed) Config() Config { return f.cfg }

// Run reads the log and serves subscribers until ctx ends, then ends what
// streams are left. It blocks, and is called once.
func (f *Feed) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { f.retain(ctx) })
	f.pump(ctx)
	wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endAllLocked(DrainShutdown)
}

// Ready returns nil while the feed serves, else an [Error] whose message says
// why not: of [CodeRestoreNotFinalized] where the store's guard keeps it
// shut, else of [CodeNotReady].
// It says nothing of appends: see [Feed.Appending].
func (f *Feed) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readyLocked()
}

func (f *Feed) readyLocked() error {
	switch {
	case f.phase == phaseDraining:
		return ErrDraining
	case f.phase == phaseStarting && f.logErr == nil:
		return ErrStarting
	case CodeOf(f.logErr) == CodeRestoreNotFinalized:
		return f.logErr
	case f.logErr != nil:
		return &Error{Code: CodeNotReady, Msg: "the log does not answer", Err: f.logErr}
	}
	return nil
}

// WaitReady blocks until [Feed.Ready] returns nil or ctx ends.
func (f *Feed) WaitReady(ctx context.Context) error {
	for {
		f.mu.Lock()
		err := f.readyLocked()
		advanced := f.advancedLocked()
		f.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Status is a snapshot of the feed and its log.
type Status struct {
	Info
	Bounds
	Total, Replaying, Live, Lagging int // subscribers
}

// Status returns the bounds as the pump last saw them and the subscribers by
// state. It does not read the log.
func (f *Feed) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Info: f.cfg.Log.Info(), Bounds: f.bounds, Total: len(f.subscribers)}
	for _, sub := range f.subscribers {
		switch sub.currentState() {
		case StateReplaying:
			s.Replaying++
		case StateLive:
			s.Live++
		case StateLagging:
			s.Lagging++
		}
	}
	return s
}

// Subscribers describes every subscriber, in the order of their arrival.
func (f *Feed) Subscribers() []SubscriberInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	infos := make([]SubscriberInfo, 0, len(f.subscribers))
	for _, s := range f.subscribers {
		infos = append(infos, s.infoLocked())
	}
	slices.SortFunc(infos, func(a, b SubscriberInfo) int { return cmp.Compare(a.ID, b.ID) })
	return infos
}

// Cut ends one subscriber's stream with `server.draining`; it keeps its
// cursor. It reports whether there was such a subscriber.
func (f *Feed) Cut(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.subscribers[id]
	if ok {
		s.finish(ending{frame: drainingFrame(DrainCut, f.epoch, jitter(minRetry))})
		delete(f.live, s)
	}
	return ok
}

// Refusal is the one block that answers a stream that is not to begin: 200
// and this, where another server would send 429 or 503.
func (f *Feed) Refusal(reason DrainReason) *Frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	retry := f.spreadLocked()
	if reason == DrainNotReady && CodeOf(f.logErr) == CodeRestoreNotFinalized {
		// A person has to decide first: coming back soon helps nobody.
		retry = retryBetween(maxRetry/2, maxRetry)
	}
	return drainingFrame(reason, f.epoch, retry)
}

// Drain stops publishing, waits until what was accepted is offered (for a
// second at the most), tells every subscriber to leave once its queue is
// empty, and waits until they have. The error is ctx's.
func (f *Feed) Drain(ctx context.Context) error {
	f.mu.Lock()
	f.phase = phaseDraining
	f.mu.Unlock()
	f.gate.flush(ctx)
	f.mu.Lock()
	f.endAllLocked(DrainShutdown)
	f.mu.Unlock()
	for {
		f.mu.Lock()
		left := len(f.subscribers)
		if f.gone == nil {
			f.gone = make(chan struct{})
		}
		gone := f.gone
		f.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *Feed) endAllLocked(reason DrainReason) {
	f.phase = phaseDraining
	for _, s := range f.subscribers {
		s.finish(ending{frame: drainingFrame(reason, f.epoch, f.spreadLocked())})
	}
	clear(f.live)
	f.notifyLocked()
}

// spreadLocked is a `retry:` that keeps a crowd from returning in one wave:
// a millisecond more a subscriber, drawn evenly.
func (f *Feed) spreadLocked() time.Duration {
	d := f.cfg.ReconnectDelay
	return retryBetween(d/2, 3*d/2+time.Duration(len(f.subscribers))*time.Millisecond)
}

// advancedLocked returns a channel that is closed when offered moves or the
// phase changes.
func (f *Feed) advancedLocked() <-chan struct{} {
	if f.advanced == nil {
		f.advanced = make(chan struct{})
	}
	return f.advanced
}

func (f *Feed) notifyLocked() {
	if f.advanced != nil {
		close(f.advanced)
		f.advanced = nil
	}
}

// retain applies the retention's age until ctx ends; count and bytes are
// applied by the append itself.
func (f *Feed) retain(ctx context.Context) {
	every := f.cfg.Log.Info().Retention.trimInterval()
	if every == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := f.cfg.Log.Trim(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.stats.logErrors.Add(1)
			if !failed {
				f.cfg.Logger.Warn().Err(err).Msg("trimming the log fails; trying again")
			}
		}
		failed = err != nil
	}
}
