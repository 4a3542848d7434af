package feed

import (
	"context"
	"errors"
	"time"
)

// replayLimit bounds what one look at the ring or one read of the log brings
// to one subscriber.
var replayLimit = Limit{Events: 1024, Bytes: 1 << 20}

// replayRetry is the pause after a failed read of the log.
const replayRetry = 250 * time.Millisecond

// step is what came of one look at the ring or the log.
type step struct {
	frames   []*Frame        // to be written
	again    bool            // something changed: look at once
	advanced <-chan struct{} // look again when the pump has moved
	retryIn  time.Duration   // look again after this: the log failed, or held nothing new
}

// replay moves a replaying subscriber on: into the live set where the ring
// holds all that it lacks and its queue takes that, else by one page of the
// ring or of the log.
func (s *Subscriber) replay(ctx context.Context) step {
	f := s.feed
	f.mu.Lock()
	index, fence, covered := f.ring.after(s.pos)
	switch {
	case f.epoch != s.epoch:
		defer f.mu.Unlock()
		return s.endReplayLocked(ReasonEpochChanged)
	case !covered:
		limit := replayLimit
		if s.pos.Seq > f.offered.Seq {
			// Ahead of the pump: it goes live when that has come. Until then it only
			// looks whether the log still is the one that it has read.
			limit = Limit{}
		}
		advanced := f.advancedLocked()
		f.mu.Unlock()
		next := s.replayLog(ctx, limit)
		if next.retryIn > 0 {
			next.advanced = advanced
		}
		return next
	case !fence.Agrees(s.pos.Fence):
		defer f.mu.Unlock()
		return s.endReplayLocked(ReasonLogReset)
	}
	s.pos.Fence = fence
	records := make([]*record, min(f.ring.n-index, replayLimit.Events))
	raw := false
	for i := range records {
		records[i] = f.ring.get(index + i)
		raw = raw || s.filter.Match(records[i].Topic, records[i].Type) && !records[i].encoded(s.shape)
	}
	if raw {
		f.mu.Unlock()
		s.encode(records)
		return step{again: true}
	}
	attached := index+len(records) == f.ring.n && s.attachLocked(records)
	f.mu.Unlock()
	if attached {
		return step{again: true}
	}
	return s.page(records)
}

// encode makes the frames of the records that match, outside of every lock.
// The first reader of a shape does so for all that come after it.
func (s *Subscriber) encode(records []*record) {
	for _, rec := range records {
		if s.filter.Match(rec.Topic, rec.Type) {
			// A failure is met again, and handled, where the frame is used.
			_, _ = s.feed.frameOf(rec, s.shape)
		}
	}
}

// replayLog reads one page of the log, or its bounds alone.
func (s *Subscriber) replayLog(ctx context.Context, limit Limit) step {
	f := s.feed
	// A log that hangs must not keep the heartbeat back.
	bounded, cancel := context.WithTimeout(ctx, max(f.cfg.Heartbeat, time.Second))
	defer cancel()
	page, err := f.cfg.Log.Read(bounded, s.pos.Seq, limit)
	if err != nil {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			f.logFailed(err)
		}
		return step{retryIn: replayRetry}
	}
	verdict := page.follows(Cursor{Epoch: s.epoch, Position: s.pos})
	if verdict == followsTrimmed && s.fresh && page.Oldest-1 <= s.snapshot {
		// Nothing was delivered yet, so the snapshot just begins later. What was
		// published since the subscribe is no part of it.
		s.pos = Position{Seq: page.Oldest - 1, Fence: page.TrimmedFence}
		return step{again: true}
	}
	if verdict != followsOn {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch verdict {
		case followsEpochChanged:
			return s.endReplayLocked(ReasonEpochChanged)
		case followsTrimmed:
			return s.endReplayLocked(ReasonLagged)
		default:
			return s.endReplayLocked(ReasonLogReset)
		}
	}
	s.pos.Fence = page.Anchor
	if len(page.Events) == 0 {
		// Look again even if the pump does not move: a log that was rolled back
		// to where the pump stands is nothing new to it.
		return step{retryIn: f.cfg.PollInterval}
	}
	return s.page(s.recordsOf(page))
}

// shareBytes is the size from which an event's frames are worth being looked
// up beside other readers': below, encoding costs no more than that.
const shareBytes = 4 << 10

// recordsOf returns a page's records: the ring's where it has them, else those
// that other readers hold of large events.
func (s *Subscriber) recordsOf(page Page) []*record {
	f := s.feed
	records := make([]*record, len(page.Events))
	f.mu.Lock()
	for i, ev := range page.Events {
		records[i] = f.ring.find(page.Epoch, ev.Position())
	}
	f.mu.Unlock()
	for i, ev := range page.Events {
		switch {
		case records[i] != nil:
		case ev.Size() >= shareBytes && s.filter.Match(ev.Topic, ev.Type):
			records[i] = f.replayed.of(ev, page.Epoch)
		default:
			records[i] = &record{Event: ev, epoch: page.Epoch}
		}
	}
	return records
}

// attachLocked puts the records that match into the queue and the subscriber
// into the live set, if the queue takes them all. Called with Feed.mu held,
// with all records up to Feed.offered: whatever the pump reads next is
// offered, so nothing is missed and nothing comes twice.
func (s *Subscriber) attachLocked(records []*record) bool {
	f := s.feed
	frames := make([]*Frame, 0, len(records))
	size := int64(0)
	for _, rec := range records {
		if !s.filter.Match(rec.Topic, rec.Type) {
			continue
		}
		frame, err := f.frameOf(rec, s.shape)
		if err != nil {
			if rec.Seq <= s.snapshot {
				continue
			}
			return false
		}
		frames = append(frames, frame)
		size += int64(len(frame.Bytes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil || s.finished || !s.queue.fits(len(frames), size) && len(frames) > 0 ||
		len(frames) > 0 && f.stats.queueBytes.Load()+size > f.cfg.QueueBytesTotal {
		return false
	}
	for _, frame := range frames {
		s.queue.push(frame)
	}
	f.stats.queueBytes.Add(size)
	f.stats.queueHeld(s.queue.n)
	s.fresh = false
	s.state = StateLive
	s.taken = s.pos
	f.live[s] = struct{}{}
	s.joined = true
	if !s.liveTold {
		s.liveSeq = max(f.offered.Seq, s.joinAt)
		s.liveHead = f.offered
	}
	if !s.lagSince.IsZero() {
		s.lagSince = time.Time{}
		f.stats.rejoins.Add(1)
	}
	return true
}

// page returns the frames of the records that match, up to a batch, and ends
// the stream behind them where the next one cannot be encoded.
func (s *Subscriber) page(records []*record) step {
	frames, failed := s.frames(records)
	if failed {
		s.feed.mu.Lock()
		s.endReplayLocked(ReasonEncodingFailed)
		s.feed.mu.Unlock()
	}
	s.batch = frames
	if len(frames) == 0 {
		return step{again: true}
	}
	s.fresh = false
	return step{frames: frames}
}

// frames collects a batch and moves the scan position behind it. Failed: the
// next event that matches cannot be encoded, and the snapshot is over.
func (s *Subscriber) frames(records []*record) (frames []*Frame, failed bool) {
	frames = s.batch[:0]
	size := 0
	for _, rec := range records {
		if s.filter.Match(rec.Topic, rec.Type) {
			frame, err := s.feed.frameOf(rec, s.shape)
			switch {
			case err == nil:
				if len(frames) > 0 && (len(frames) == batchFrames || size+len(frame.Bytes) > batchBytes) {
					return frames, false
				}
				frames = append(frames, frame)
				size += len(frame.Bytes)
			case rec.Seq > s.snapshot:
				return frames, true
			}
		}
		s.pos = rec.Position()
	}
	return frames, false
}

// endReplayLocked sets the last frame. Called with Feed.mu held.
func (s *Subscriber) endReplayLocked(reason Reason) step {
	s.finish(s.feed.resyncEndingLocked(s, reason, false))
	return step{again: true}
}
