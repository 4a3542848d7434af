package postgres

import (
	"context"
	"sync"

	"gapless/feed"
)

// knowledge is what this process knows of the log: from the last snapshot
// that it took part in, and from notifications, which only say that another
// look is worth it.
type knowledge struct {
	mu      sync.Mutex
	looked  bool // what follows is known
	at      feed.Cursor
	oldest  uint64
	bytes   int64
	changed chan struct{} // closed at the next change; nil: nobody waits
	tripped error         // what the guard says, as of the last look; every wait ends with it
	closed  bool

	clock  uint64 // counts snapshots begun and taken up
	set    uint64 // the clock when what is known was taken up
	judged uint64 // the clock when the guard's word was taken up
	hints  uint64 // notifications so far
	heeded uint64 // of those, the ones that a snapshot taken up began after

	waiting int           // calls of Wait that block
	wanted  chan struct{} // has a token where somebody began to wait
}

// mark is when a snapshot began.
type mark struct{ clock, hints uint64 }

func (k *knowledge) init() { k.wanted = make(chan struct{}, 1) }

// mark is taken before a snapshot.
func (k *knowledge) mark() mark {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clock++
	return mark{clock: k.clock, hints: k.hints}
}

// observe takes up what a snapshot showed, and what the guard says to it: nil,
// or its refusal, and then nothing else counts. It reports whether the guard
// changed its mind. Snapshots can end in another order than they were taken
// in: one that began before the last knowledge came and contradicts it, or
// shows less, is only a reason to look again.
func (k *knowledge) observe(before mark, in *instance, refusal error) (news bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if news = (refusal == nil) != (k.tripped == nil); news {
		k.hints++
		k.wakeLocked()
		if before.clock <= k.judged {
			return false
		}
	}
	k.tripped = refusal
	k.clock++
	k.judged = k.clock
	if refusal == nil {
		k.takeLocked(before, in)
	}
	return news
}

func (k *knowledge) takeLocked(before mark, in *instance) {
	at := feed.Cursor{Epoch: in.Epoch, Position: in.Head}
	newer := before.clock > k.set
	if k.looked && !newer && (at.Epoch != k.at.Epoch || at.Seq < k.at.Seq) {
		if at.Epoch != k.at.Epoch {
			k.hints++
			k.wakeLocked()
		}
		return
	}
	moved := !k.looked || at != k.at
	k.looked, k.at, k.oldest, k.bytes = true, at, in.Oldest, in.Total-in.TrimmedTotal
	k.clock++
	k.set = k.clock
	k.heeded = max(k.heeded, before.hints)
	if moved {
		k.wakeLocked()
	}
}

// hint takes up a notification: another process changed the log. Where it
// says no more than what is known, it is passed over.
func (k *knowledge) hint(at feed.Cursor) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looked && at.Epoch == k.at.Epoch && at.Seq <= k.at.Seq {
		return
	}
	k.hints++
	k.wakeLocked()
}

// doubt makes every waiter look again.
func (k *knowledge) doubt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hints++
	k.wakeLocked()
}

func (k *knowledge) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.wakeLocked()
}

func (k *knowledge) wakeLocked() {
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

// seen is the last event that this process saw at the head.
func (k *knowledge) seen() (at feed.Cursor, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at, k.looked
}

func (k *knowledge) retained() (events uint64, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.looked {
		return 0, 0
	}
	return k.at.Seq + 1 - k.oldest, k.bytes
}

// idle reports whether nobody waits.
func (k *knowledge) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiting == 0
}

// Wait implements [feed.Log]. While the database does not answer it blocks:
// what it holds cannot have been read either.
func (s *Store) Wait(ctx context.Context, at feed.Cursor) error {
	return s.known.wait(ctx, at)
}

func (k *knowledge) wait(ctx context.Context, at feed.Cursor) error {
	for {
		k.mu.Lock()
		switch {
		case k.closed:
			k.mu.Unlock()
			return feed.ErrClosed
		case k.tripped != nil:
			defer k.mu.Unlock()
			return k.tripped
		case k.looked && (at.Epoch != k.at.Epoch || at.Seq != k.at.Seq || !at.Fence.Agrees(k.at.Fence)), k.hints != k.heeded:
			k.mu.Unlock()
			return nil
		}
		if k.changed == nil {
			k.changed = make(chan struct{})
		}
		changed := k.changed
		k.waiting++
		k.mu.Unlock()
		select {
		case k.wanted <- struct{}{}:
		default:
		}
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		k.mu.Lock()
		k.waiting--
		k.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
