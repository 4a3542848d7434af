package feedtest

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"gapless/feed"
)

// head is the cursor at the log's head.
func (s *subject) head() feed.Cursor {
	s.Helper()
	b := s.bounds()
	return feed.Cursor{Epoch: b.Epoch, Position: b.Head}
}

// waiting starts a wait and returns what will carry its answer.
func (s *subject) waiting(at feed.Cursor) <-chan error {
	answer := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		answer <- s.log.Wait(s.ctx, at)
	}()
	<-started
	runtime.Gosched()
	return answer
}

func (s *suite) testWait(t *testing.T) {
	t.Run("it returns at once where the log is not at the cursor", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(3)
		at := log.head()
		below, above, foreign, none := at, at, at, feed.Cursor{}
		below.Position = feed.Position{Seq: 2}
		above.Position = feed.Position{Seq: 4}
		foreign.Epoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
		for name, cursor := range map[string]feed.Cursor{"head above it": below, "head below it": above, "another epoch": foreign, "no cursor": none} {
			if err := log.log.Wait(log.ctx, cursor); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})

	t.Run("it returns on an append", func(t *testing.T) {
		log := s.open(t, Config{})
		for range 20 {
			answer := log.waiting(log.head())
			log.append(log.draft())
			if err := <-answer; err != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("it returns when its context ends", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(1)
		ctx, cancel := context.WithCancel(log.ctx)
		cancel()
		// It may return early, but a log at rest that always did would make the
		// feed spin.
		for range 100 {
			if err := log.log.Wait(ctx, log.head()); errors.Is(err, context.Canceled) {
				return
			} else if err != nil {
				t.Fatalf("%v, want %v", err, context.Canceled)
			}
		}
		t.Error("it does not block at the head")
	})

	t.Run("it blocks until its deadline where nothing happens", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(1)
		for range 100 {
			ctx, cancel := context.WithTimeout(log.ctx, 5*time.Millisecond)
			err := log.log.Wait(ctx, log.head())
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				return
			} else if err != nil {
				t.Fatalf("%v, want %v", err, context.DeadlineExceeded)
			}
		}
		t.Error("it does not block at the head")
	})

	t.Run("a repeat or a refused batch loses no later wake-up", func(t *testing.T) {
		log := s.open(t, Config{})
		d := log.draft()
		log.append(d)
		answer := log.waiting(log.head())
		log.append(d)
		other := d
		other.Type = "other"
		log.conflict(other)
		log.append(log.draft())
		if err := <-answer; err != nil {
			t.Fatal(err)
		}
	})

	t.Run("no wake-up is lost in a race with appends", func(t *testing.T) {
		const followers, events = 4, 300
		log := s.open(t, Config{Retention: feed.Retention{Events: 1000}})
		drafts := log.drafts(events)
		start := log.head()
		together(followers+1, func(i int) {
			if i == followers {
				for _, d := range drafts {
					if _, err := log.log.Append(log.ctx, []feed.Draft{d}); err != nil {
						t.Errorf("append: %v", err)
						return
					}
					if d.ID[len(d.ID)-1] == '0' {
						runtime.Gosched()
					}
				}
				return
			}
			for at := start; at.Seq < events; {
				if err := log.log.Wait(log.ctx, at); err != nil {
					t.Errorf("waiting at %d: %v", at.Seq, err)
					return
				}
				page, err := log.log.Read(log.ctx, at.Seq, feed.Limit{Events: 100})
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				if n := len(page.Events); n > 0 {
					at.Position = page.Events[n-1].Position()
				}
			}
		})
	})
}
