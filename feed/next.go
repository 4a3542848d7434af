package feed

import (
	"context"
	"errors"
	"time"
)

// ErrEnded is what [Subscriber.Next] returns after the last frame.
var ErrEnded = errors.New("the stream has ended")

// Bounds of what one call of Next returns; one frame may be larger.
const (
	batchFrames = 256
	batchBytes  = 128 << 10
)

// Next blocks until there is something to write and returns it: frames of
// events, or one control frame. Calling Next again says that the frames
// before were written; only then does the bookmark pass them. The slice is
// valid until the next call, the frames for ever.
//
// A served stream begins with server.connected and ends with
// resync_required or server.draining, after which Next returns [ErrEnded]; a
// stream that cannot be served has just that last frame. Any other error is
// ctx's.
func (s *Subscriber) Next(ctx context.Context) ([]*Frame, error) {
	s.acknowledge()
	for {
		frames, state, err := s.pending()
		if len(frames) > 0 || err != nil {
			return frames, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var next step
		if state == StateReplaying {
			if next = s.replay(ctx); len(next.frames) > 0 {
				return s.launch(next.frames), nil
			}
		}
		if !next.again {
			s.wait(ctx, next)
		}
		if time.Since(s.lastWrite) >= s.feed.cfg.Heartbeat {
			if frame := s.heartbeat(); frame != nil {
				return s.control(frame), nil
			}
		}
	}
}

// acknowledge takes note that what Next returned before was written.
func (s *Subscriber) acknowledge() {
	s.mu.Lock()
	written := s.flight
	s.flight = flight{}
	if written.events > 0 {
		s.bookmark = written.upTo
		s.delivered += written.events
	}
	s.mu.Unlock()
	clear(s.batch) // the frames are not kept for the sake of one connection
	if written.any {
		s.lastWrite = time.Now()
	}
	if written.events > 0 {
		s.feed.stats.deliveries.Add(written.events)
		s.feed.stats.deliveredBytes.Add(written.bytes)
	}
}

// pending takes what is ready without reading the log: the greeting, queued
// frames, server.live, the last frame. It also moves a subscriber whose queue
// is drained from lagging to replaying.
func (s *Subscriber) pending() ([]*Frame, SubscriberState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.finished:
		return nil, StateClosed, ErrEnded
	case s.end != nil && s.end.discard:
		s.dropQueueLocked()
		return s.lastLocked(), StateClosed, nil
	case s.greeting != nil:
		frame := s.greeting
		s.greeting = nil
		return s.controlLocked(frame), s.state, nil
	case s.liveDueLocked():
		s.liveTold = true
		s.bookmark = s.liveHead
		frame := bookmarkFrame(TypeLive, Cursor{Epoch: s.epoch, Position: s.liveHead}, s.liveHead.Seq)
		return s.controlLocked(frame), s.state, nil
	case s.queue.n > 0:
		return s.takeLocked(), s.state, nil
	case s.end != nil:
		return s.lastLocked(), StateClosed, nil
	case s.state == StateLagging:
		s.state = StateReplaying
		s.pos = s.resume
		s.feed.stats.drained(time.Since(s.lagSince))
	}
	return nil, s.state, nil
}

// liveDueLocked: everything up to the head that was fixed at the attach is
// offered and written, and server.live has not told so yet.
func (s *Subscriber) liveDueLocked() bool {
	if !s.joined || s.liveTold || s.liveHead.Seq < s.liveSeq {
		return false
	}
	return s.queue.n == 0 || s.queue.peek().Seq > s.liveSeq
}

// takeLocked moves frames from the queue into the batch, stopping where
// server.live belongs.
func (s *Subscriber) takeLocked() []*Frame {
	s.batch = s.batch[:0]
	size := int64(0)
	for s.queue.n > 0 && len(s.batch) < batchFrames {
		frame := s.queue.peek()
		if len(s.batch) > 0 && (size+int64(len(frame.Bytes)) > batchBytes || s.liveDueLocked()) {
			break
		}
		s.queue.pop()
		size += int64(len(frame.Bytes))
		s.batch = append(s.batch, frame)
	}
	s.taken = s.batch[len(s.batch)-1].Position
	s.feed.stats.queueBytes.Add(-size)
	s.flight = flight{upTo: s.taken, events: uint64(len(s.batch)), bytes: uint64(size), any: true}
	return s.batch
}

// launch hands out replayed frames.
func (s *Subscriber) launch(frames []*Frame) []*Frame {
	fl := flight{upTo: frames[len(frames)-1].Position, events: uint64(len(frames)), any: true}
	for _, frame := range frames {
		fl.bytes += uint64(len(frame.Bytes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flight = fl
	return frames
}

func (s *Subscriber) control(frame *Frame) []*Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.controlLocked(frame)
}

func (s *Subscriber) controlLocked(frame *Frame) []*Frame {
	s.batch = append(s.batch[:0], frame)
	s.flight = flight{any: true}
	return s.batch
}

func (s *Subscriber) lastLocked() []*Frame {
	s.finished = true
	s.state = StateClosed
	return s.controlLocked(s.end.frame)
}

// heartbeat returns a heartbeat at the bookmark: the scan position while
// replaying, everything offered while live. It returns nil where something
// else is to be written.
func (s *Subscriber) heartbeat() *Frame {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.end != nil || s.finished || s.queue.n > 0 || s.liveDueLocked():
		return nil
	case s.state == StateLive:
		s.bookmark = f.offered
	case s.state == StateReplaying:
		s.bookmark = s.pos
		s.fresh = s.fresh && s.pos.Seq == 0 // the client holds a position now
	default:
		return nil
	}
	f.stats.heartbeats.Add(1)
	return bookmarkFrame(TypeHeartbeat, Cursor{Epoch: s.epoch, Position: s.bookmark}, max(f.bounds.Head.Seq, s.bookmark.Seq))
}

// wait blocks until something may be pending, the step's own event, the next
// heartbeat, or ctx's end.
func (s *Subscriber) wait(ctx context.Context, next step) {
	d := s.feed.cfg.Heartbeat - time.Since(s.lastWrite)
	if next.retryIn > 0 {
		d = min(d, next.retryIn)
	}
	if d <= 0 {
		return
	}
	if cap(s.batch) > 16 {
		s.batch = nil // an idle connection holds no memory
	}
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	select {
	case <-s.wake:
	case <-next.advanced:
	case <-s.timer.C:
	case <-ctx.Done():
	}
	s.timer.Stop()
}
