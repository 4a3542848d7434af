package feed

import (
	"context"
	"time"
)

// pumpLimit bounds how much the pump reads, encodes and offers at once, and
// so for how long it holds Feed.mu.
var pumpLimit = Limit{Events: 256, Bytes: 4 << 20}

// pump reads what follows the last event that it offered, again and again,
// until ctx ends. It is the one goroutine that moves Feed.offered.
func (f *Feed) pump(ctx context.Context) {
	const firstPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	pause := firstPause
	for ctx.Err() == nil {
		more, err := f.pumpOnce(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			f.logFailed(err)
			sleep(ctx, pause)
			pause = min(2*pause, longestPause)
			continue
		}
		pause = firstPause
		if more {
			continue
		}
		// A wait that fails or returns early only brings the next read forward;
		// the poll catches changes that no wake-up announces.
		bounded, cancel := context.WithTimeout(ctx, f.cfg.PollInterval)
		err = f.cfg.Log.Wait(bounded, f.position())
		cancel()
		if err != nil && bounded.Err() == nil {
			f.logFailed(err)
			sleep(ctx, pause)
		}
	}
}

// pumpOnce reads one page and offers it. More means that the log holds more.
func (f *Feed) pumpOnce(ctx context.Context) (more bool, err error) {
	at := f.position()
	limit := pumpLimit
	if at.Epoch == "" {
		limit = Limit{} // the first look: take the head as it is
	}
	page, err := f.cfg.Log.Read(ctx, at.Seq, limit)
	if err != nil {
		return false, err
	}
	if at.Epoch == "" {
		f.begin(page)
		return true, nil
	}
	switch page.follows(at) {
	case followsEpochChanged:
		f.reset(ReasonEpochChanged, page)
		return true, nil
	case followsReset:
		f.reset(ReasonLogReset, page)
		return true, nil
	case followsTrimmed:
		f.skip(page)
		return true, nil
	}
	f.offer(page)
	return len(page.Events) > 0 && page.Events[len(page.Events)-1].Seq < page.Head.Seq, nil
}

// follow says how a page stands to the position that it was read after.
type follow uint8

const (
	followsOn           follow = iota // its events are the next ones
	followsEpochChanged               // it is of another epoch
	followsReset                      // the log was rolled back: the position means another event, or none
	followsTrimmed                    // the log no longer holds what came next
)

// follows is the anchored read's check: epoch, bounds, the fence at the
// position, and contiguous seqs from there on.
func (p *Page) follows(at Cursor) follow {
	switch {
	case p.Epoch != at.Epoch:
		return followsEpochChanged
	case at.Seq > p.Head.Seq:
		return followsReset
	case at.Seq < p.Oldest-1:
		return followsTrimmed
	case !p.Anchor.Agrees(at.Fence):
		return followsReset
	}
	for i, ev := range p.Events {
		if ev.Seq != at.Seq+1+uint64(i) {
			return followsReset
		}
	}
	return followsOn
}

// position is the pump's own: the cursor up to which it has offered.
func (f *Feed) position() Cursor {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Cursor{Epoch: f.epoch, Position: f.offered}
}

// begin takes the log's head as the place from which to offer.
func (f *Feed) begin(page Page) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rebaseLocked(page)
	if f.phase == phaseStarting {
		f.phase = phaseServing
	}
	f.notifyLocked()
}

func (f *Feed) rebaseLocked(page Page) {
	f.logErr = nil
	f.epoch = page.Epoch
	f.bounds = page.Bounds
	f.offered = page.Head
	f.ring.reset(page.Head)
	f.gate.advance(page.Head.Seq, true)
}

// reset ends every stream: the log under them is no longer the one that they
// read. What their queues hold may be of the lost branch and is dropped.
func (f *Feed) reset(reason Reason, page Page) {
	f.cfg.Logger.Warn().Str("reason", string(reason)).Str("epoch", string(page.Epoch)).
		Uint64("head_seq", page.Head.Seq).Msg("the log changed under the feed: all streams resync")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rebaseLocked(page)
	f.resets++
	for _, s := range f.subscribers {
		s.finish(f.resyncEndingLocked(s, reason, true))
	}
	clear(f.live)
	f.notifyLocked()
}

// skip jumps over events that were trimmed before the pump could read them.
// Live subscribers find out for themselves whether that concerns them: their
// position is kept, and the log no longer holds it.
func (f *Feed) skip(page Page) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.live {
		s.fallBehind(f.offered)
	}
	clear(f.live)
	f.bounds = page.Bounds
	f.offered = Position{Seq: page.Oldest - 1, Fence: page.TrimmedFence}
	f.ring.reset(f.offered)
	f.gate.advance(f.offered.Seq, false)
	f.notifyLocked()
}

// offer encodes a page's events for the shapes in use and offers them to
// every live subscriber, never blocking.
func (f *Feed) offer(page Page) {
	records := make([]*record, len(page.Events))
	for i, ev := range page.Events {
		records[i] = &record{Event: ev, epoch: page.Epoch}
	}
	f.encode(records)

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.logErr != nil {
		f.logErr = nil
		f.notifyLocked()
	}
	f.bounds = page.Bounds
	f.ring.trim(page.Oldest)
	if len(records) == 0 {
		return
	}
	before := f.offered
	for _, rec := range records {
		f.ring.push(rec)
	}
	f.offered = records[len(records)-1].Position()
	for s := range f.live {
		if !s.offer(before, records) {
			delete(f.live, s)
		}
	}
	f.gate.advance(f.offered.Seq, false)
	f.notifyLocked()
}

// encode does the work of encoding before Feed.mu is taken. A shape that
// comes into use meanwhile is encoded where it is first needed.
func (f *Feed) encode(records []*record) {
	f.mu.Lock()
	inUse := f.shapesInUse
	f.mu.Unlock()
	for i, n := range inUse {
		if n == 0 {
			continue
		}
		for _, rec := range records {
			if _, hidden := f.hidden[rec.Type]; !hidden {
				// A failure is met again where the frame is offered.
				_, _ = f.frameOf(rec, shapeAt(i))
			}
		}
	}
}

// frameOf returns a record's frame, and logs the first failure to make it.
func (f *Feed) frameOf(rec *record, shape Shape) (*Frame, error) {
	return rec.frame(shape, func(frame *Frame, err error) {
		f.stats.encoded(shape, frame, err)
		if err != nil {
			f.cfg.Logger.Error().Err(err).Uint64("seq", rec.Seq).Str("id", clip(rec.ID)).Str("type", clip(rec.Type)).
				Str("shape", shape.String()).Msg("an event cannot be encoded")
		}
	})
}

func (f *Feed) logFailed(err error) {
	f.stats.logErrors.Add(1)
	f.mu.Lock()
	first := f.logErr == nil || CodeOf(f.logErr) != CodeOf(err)
	f.logErr = err
	f.mu.Unlock()
	switch {
	case !first:
	case CodeOf(err) == CodeRestoreNotFinalized:
		f.cfg.Logger.Error().Err(err).Msg("the store is not served before an operator says what happened to it")
	default:
		f.cfg.Logger.Warn().Err(err).Msg("the log does not answer; trying again")
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
