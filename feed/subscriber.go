package feed

import (
	"sync"
	"time"
)

// SubscriberState is where a subscriber stands to the live events.
type SubscriberState uint8

const (
	// StateReplaying: it reads the log, page by page, from its cursor.
	StateReplaying SubscriberState = iota
	// StateLive: the pump offers to its queue what matches.
	StateLive
	// StateLagging: its queue was full; it drains what was accepted, and then
	// replays from the first event that was not.
	StateLagging
	// StateClosed: its last frame was taken, or it was closed.
	StateClosed
)

// String returns the state's name.
func (s SubscriberState) String() string {
	switch s {
	case StateReplaying:
		return "replaying"
	case StateLive:
		return "live"
	case StateLagging:
		return "lagging"
	default:
		return "closed"
	}
}

// Subscriber is one reader of the feed. One goroutine calls
// [Subscriber.Next]; whoever subscribed calls [Subscriber.Close] in the end.
type Subscriber struct {
	feed      *Feed
	id        string
	since     time.Time
	epoch     Epoch // fixed: a new epoch ends the stream
	filter    Filter
	shape     Shape
	resumed   bool   // began from a cursor
	joinAt    uint64 // the head at the subscribe: server.live comes behind it
	startLive bool   // a resync sends it to the head, not to a snapshot

	wake chan struct{} // capacity 1: something under mu changed

	// mu guards what follows. Lock order: Feed.mu, then Subscriber.mu.
	mu        sync.Mutex
	state     SubscriberState
	queue     queue
	taken     Position  // of the last frame that left the queue, or of the attach
	resume    Position  // lagging: replay from here once the queue is empty
	lagSince  time.Time // lagging or replaying after it: when the queue was full
	joined    bool      // was live at least once; liveSeq is set
	liveSeq   uint64    // server.live comes right behind this
	liveHead  Position  // what was offered of it
	liveTold  bool      // server.live was taken
	end       *ending   // how the stream ends; nil: it goes on
	finished  bool      // the last frame was taken
	bookmark  Position  // everything that matches up to here was written
	flight    flight    // what Next returned last, not yet known to be written
	delivered uint64    // events written

	// The goroutine that calls Next owns what follows.
	greeting  *Frame   // server.connected, until taken
	pos       Position // replaying: the scan position
	fresh     bool     // a snapshot of which the client holds nothing yet, not even a position
	snapshot  uint64   // the head when a snapshot began: events up to it that cannot be encoded are skipped; else 0
	lastWrite time.Time
	timer     *time.Timer
	batch     []*Frame
}

// ending is the last frame of a stream.
type ending struct {
	frame   *Frame
	reason  Reason // of a resync, else empty
	discard bool   // do not drain the queue first
}

// flight is what Next handed out and the caller is writing.
type flight struct {
	upTo   Position
	events uint64
	bytes  uint64
	any    bool
}

// SubscriberInfo describes a subscriber for operators.
type SubscriberInfo struct {
	ID             string
	Since          time.Time
	Topics, Types  []string
	Shape          Shape
	State          SubscriberState
	Lag            uint64 // head minus bookmark, in events
	Bookmark       Cursor
	QueueFrames    int
	QueueBytes     int64
	QueueHighWater int
	Delivered      uint64
}

// ID returns the connection id that `server.connected` carries, a ULID.
func (s *Subscriber) ID() string { return s.id }

// Info describes the subscriber.
func (s *Subscriber) Info() SubscriberInfo {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	return s.infoLocked()
}

// infoLocked needs Feed.mu.
func (s *Subscriber) infoLocked() SubscriberInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	bookmark := s.bookmark
	if s.idleLocked() {
		bookmark = s.feed.offered
	}
	info := SubscriberInfo{
		ID: s.id, Since: s.since, Topics: s.filter.Topics(), Types: s.filter.Types(), Shape: s.shape, State: s.state,
		Bookmark:    Cursor{Epoch: s.epoch, Position: bookmark},
		QueueFrames: s.queue.n, QueueBytes: s.queue.bytes, QueueHighWater: s.queue.highWater, Delivered: s.delivered,
	}
	if head := s.feed.bounds.Head.Seq; head > bookmark.Seq {
		info.Lag = head - bookmark.Seq
	}
	return info
}

// idleLocked: live, and everything offered was written.
func (s *Subscriber) idleLocked() bool {
	return s.state == StateLive && s.queue.n == 0 && s.flight.events == 0 && s.end == nil
}

func (s *Subscriber) currentState() SubscriberState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Close takes the subscriber out of the feed and drops its queue. It is safe
// to call more than once; a blocked Next returns [ErrEnded].
func (s *Subscriber) Close() {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.subscribers[s.id]; !ok {
		return
	}
	delete(f.subscribers, s.id)
	delete(f.live, s)
	f.shapesInUse[s.shape.index()]--
	if len(f.subscribers) == 0 && f.gone != nil {
		close(f.gone)
		f.gone = nil
	}
	s.mu.Lock()
	s.dropQueueLocked()
	s.state, s.finished = StateClosed, true
	s.mu.Unlock()
	s.signal()
}

// offer gives a live subscriber the records that match; before is the
// position ahead of them. It never blocks, and reports whether the subscriber
// is still live. Called with Feed.mu held.
func (s *Subscriber) offer(before Position, records []*record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil || s.state != StateLive {
		return false
	}
	if s.queue.n == 0 {
		s.taken = before // nothing that matches is between the two
	}
	accepted := false // there is something to be written
	for _, rec := range records {
		if s.filter.Match(rec.Topic, rec.Type) {
			frame, err := s.feed.frameOf(rec, s.shape)
			if err != nil {
				s.endLocked(s.feed.resyncEndingLocked(s, ReasonEncodingFailed, false))
				return false
			}
			if !s.admitLocked(frame, before) {
				return false
			}
			accepted = true
		}
		before = rec.Position()
		if !s.liveTold && before.Seq <= s.liveSeq {
			s.liveHead = before
			accepted = accepted || before.Seq == s.liveSeq
		}
	}
	if accepted {
		s.feed.stats.queueHeld(s.queue.n)
		s.signal()
	}
	return true
}

// admitLocked queues one frame, or makes the subscriber lag: before is where
// it then goes on.
func (s *Subscriber) admitLocked(frame *Frame, before Position) bool {
	size := int64(len(frame.Bytes))
	if !s.queue.fits(1, size) {
		s.lagLocked(before)
		return false
	}
	if total := s.feed.stats.queueBytes.Load() + size; total > s.feed.cfg.QueueBytesTotal && s.queue.n > 0 {
		// All queues together are full. Those that hold more than their share
		// fall back to the log at once.
		if share := s.feed.cfg.QueueBytesTotal / int64(len(s.feed.live)+1); s.queue.bytes+size > share {
			s.dropQueueLocked()
			s.joined = s.joined && s.liveTold // server.live comes after the next attach
			s.lagLocked(s.taken)
			return false
		}
	}
	s.queue.push(frame)
	s.feed.stats.queueBytes.Add(size)
	return true
}

// fallBehind makes a live subscriber lag from a position. Called with
// Feed.mu held.
func (s *Subscriber) fallBehind(from Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == StateLive {
		s.lagLocked(from)
	}
}

func (s *Subscriber) lagLocked(from Position) {
	s.state = StateLagging
	s.resume = from
	s.lagSince = time.Now()
	s.feed.stats.overflows.Add(1)
	s.feed.stats.queueHeld(s.queue.highWater)
	s.signal()
}

func (s *Subscriber) dropQueueLocked() {
	s.feed.stats.queueBytes.Add(-s.queue.clear())
}

// finish sets how the stream ends. The first ending stands, unless a later
// one discards the queue.
func (s *Subscriber) finish(e ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(e)
}

func (s *Subscriber) endLocked(e ending) {
	if s.end != nil && !e.discard {
		return
	}
	s.end = &e
	if e.reason != "" {
		s.feed.stats.resynced(e.reason, time.Now())
	}
	s.signal()
}

func (s *Subscriber) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
