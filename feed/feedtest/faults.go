package feedtest

import (
	"time"

	"gapless/feed"
)

// FailReads makes every read fail with err, nil none.
func (l *Log) FailReads(err error) { l.change(func() { l.readErr = err }) }

// FailAppends makes every append fail with err, nil none.
func (l *Log) FailAppends(err error) { l.change(func() { l.appendErr = err }) }

// DelayReads makes every read take d.
func (l *Log) DelayReads(d time.Duration) { l.change(func() { l.readDelay = d }) }

// Silence keeps Wait from returning when something changes: the hint is lost.
// Whoever waits when the silence ends is not woken by what happened in it.
func (l *Log) Silence(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = on
}

// Seal makes every append fail as after a final backup; false takes it back.
func (l *Log) Seal(on bool) { l.change(func() { l.sealed = on }) }

// Shut makes every call fail as where a restore was not finalized; false lifts
// that. It wakes those who wait.
func (l *Log) Shut(on bool) { l.change(func() { l.shut = on }) }

// Reads returns how often the log was read.
func (l *Log) Reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

// TrimTo drops the events before seq.
func (l *Log) TrimTo(seq uint64) {
	l.change(func() {
		for len(l.events) > 0 && l.events[0].Seq < seq {
			l.shift()
		}
	})
}

// ForgetTrimmed makes the fence of the last trimmed event unknown, as in a
// store that trims by itself.
func (l *Log) ForgetTrimmed() { l.change(func() { l.trimmed = feed.Fence{} }) }

// Rollback takes the events behind seq back, as a restored disk does: same
// epoch, same fences up to there, and their numbers will be used again.
func (l *Log) Rollback(seq uint64) {
	l.change(func() {
		for len(l.events) > 0 && l.events[len(l.events)-1].Seq > seq {
			l.events = l.events[:len(l.events)-1]
		}
		l.head = feed.Position{Seq: seq}
		if len(l.events) > 0 {
			l.head.Fence = l.events[len(l.events)-1].Fence
		} else if seq > 0 {
			l.head.Fence = l.trimmed
		}
		clear(l.keys)
	})
}

// Renew begins a new epoch and keeps the events, as a finalized restore does.
func (l *Log) Renew() { l.change(func() { l.epoch = newEpoch() }) }

// Foreign stores an event as it is, but for its seq and fence, as a foreign
// writer would: nothing is checked.
func (l *Log) Foreign(ev feed.Event) uint64 {
	var seq uint64
	l.change(func() {
		l.store(&ev)
		seq = ev.Seq
	})
	return seq
}
