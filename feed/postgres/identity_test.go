package postgres

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
)

func on(system uint64, timeline, database uint32, epoch feed.Epoch) *instance {
	id := identity{System: system, Timeline: timeline, Database: database}
	return &instance{Epoch: epoch, Oldest: 1, Identity: id, Found: id}
}

// TestAFormerPrimaryIsRefused by a process that ran on a later timeline of the
// same cluster, until it is led there again or an operator has finalized it.
func TestAFormerPrimaryIsRefused(t *testing.T) {
	const first, second, third = feed.Epoch("01"), feed.Epoch("02"), feed.Epoch("03")
	for _, mode := range []feed.GuardMode{feed.GuardStrict, feed.GuardVerify, feed.GuardOff} {
		s := &Store{cfg: Config{Guard: mode}}
		s.guard.init()
		s.known.init()
		s.resets.last = time.Now() // there is no pool
		for i, step := range []struct {
			in      *instance
			refused bool
		}{
			{on(1, 1, 5, first), false},
			{on(1, 2, 5, second), false}, // a failover that was finalized
			{on(1, 1, 5, first), true},
			{on(1, 3, 5, second), false}, // one that was adopted
			{on(1, 2, 5, second), true},
			{on(1, 1, 5, first), true},
			{on(1, 3, 5, second), false},
			{on(1, 1, 5, "00"), true},   // of an epoch that it has never met
			{on(1, 1, 5, third), false}, // an operator says that this is it
			{on(1, 1, 5, third), false},
			{on(2, 1, 5, third), false}, // another cluster
			{on(1, 1, 5, first), false}, // is as new to it as any
		} {
			step.in.taken = s.known.mark()
			if got := feed.CodeOf(s.saw("test", step.in)) == feed.CodeRestoreNotFinalized; got != (step.refused && mode != feed.GuardOff) {
				t.Errorf("%s, step %d: refused is %v", mode, i, got)
			}
		}
	}
}

// blockingLog holds up whoever writes the first line.
type blockingLog struct {
	once      sync.Once
	hit, goOn chan struct{}
}

func (l *blockingLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("restore status")) {
		l.once.Do(func() { close(l.hit); <-l.goOn })
	}
	return len(p), nil
}

// TestTheGuardTurnsInOneStep: however long it takes to say so, the last look
// counts.
func TestTheGuardTurnsInOneStep(t *testing.T) {
	log := &blockingLog{hit: make(chan struct{}), goOn: make(chan struct{})}
	s := &Store{cfg: Config{Guard: feed.GuardStrict}, log: zerolog.New(log)}
	s.guard.init()
	s.known.init()
	s.resets.last = time.Now() // there is no pool
	bad, good := on(2, 1, 5, "01"), on(2, 1, 5, "01")
	bad.Identity.System = 1
	done := make(chan struct{})
	go func() { defer close(done); bad.taken = s.known.mark(); _ = s.saw("test", bad) }()
	<-log.hit
	good.taken = s.known.mark()
	_ = s.saw("test", good)
	close(log.goOn)
	<-done
	if s.known.tripped != nil {
		t.Errorf("waits end with %v", s.known.tripped)
	}
}

func TestSeldomIsAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seldom
		n := 0
		for range 25 {
			s.now(func() { n++ })
			time.Sleep(100 * time.Millisecond)
		}
		if n != 3 {
			t.Errorf("%d times in 2.5 s", n)
		}
	})
}
