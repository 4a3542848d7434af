package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"gapless/feed"
)

// call is one method of a log, by name.
type call struct {
	name string
	do   func(ctx context.Context, l feed.Log) error
}

func calls() []call {
	return []call{
		{"append", func(ctx context.Context, l feed.Log) error {
			_, err := l.Append(ctx, []feed.Draft{{ID: "x", Type: "made", Topic: "t", Data: json.RawMessage("1")}})
			return err
		}},
		{"read", func(ctx context.Context, l feed.Log) error {
			_, err := l.Read(ctx, 0, feed.Limit{Events: 1})
			return err
		}},
		{"search", func(ctx context.Context, l feed.Log) error {
			_, err := l.Search(ctx, feed.Search{N: 1})
			return err
		}},
		{"trim", func(ctx context.Context, l feed.Log) error { return l.Trim(ctx) }},
	}
}

func (s *suite) testClose(t *testing.T) {
	t.Run("a blocked wait returns ErrClosed", func(t *testing.T) {
		for range 6 {
			log := s.open(t, Config{})
			log.fill(1)
			at := log.head()
			answers := []<-chan error{log.waiting(at), log.waiting(at)}
			if err := log.log.Close(); err != nil {
				t.Fatal(err)
			}
			for _, answer := range answers {
				// It may have returned early, before the log was closed.
				if err := <-answer; err != nil && !errors.Is(err, feed.ErrClosed) {
					t.Errorf("%v, want %v", err, feed.ErrClosed)
				}
			}
		}
	})

	t.Run("every later call returns ErrClosed", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(3)
		at := log.head()
		if err := log.log.Close(); err != nil {
			t.Fatal(err)
		}
		for _, c := range calls() {
			if err := c.do(log.ctx, log.log); !errors.Is(err, feed.ErrClosed) {
				t.Errorf("%s: %v, want %v", c.name, err, feed.ErrClosed)
			}
		}
		for _, cursor := range []feed.Cursor{at, {}} {
			if err := log.log.Wait(log.ctx, cursor); !errors.Is(err, feed.ErrClosed) {
				t.Errorf("wait: %v, want %v", err, feed.ErrClosed)
			}
		}
		if err := log.log.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
		_ = log.log.Info()
	})

	t.Run("a log can be closed while it is used", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 10}})
		users := append(calls(), call{"wait", func(ctx context.Context, l feed.Log) error { return l.Wait(ctx, feed.Cursor{}) }})
		started := make(chan struct{}, len(users))
		var closed atomic.Bool
		together(len(users)+1, func(i int) {
			if i == len(users) {
				for range users {
					<-started
				}
				if err := log.log.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				closed.Store(true)
				return
			}
			for n := 0; ; n++ {
				if n == 10 {
					started <- struct{}{}
				}
				late := closed.Load()
				err := users[i].do(log.ctx, log.log)
				if late || err != nil {
					if !errors.Is(err, feed.ErrClosed) {
						t.Errorf("%s: %v, want %v", users[i].name, err, feed.ErrClosed)
					}
					if n < 10 {
						started <- struct{}{}
					}
					return
				}
			}
		})
	})
}

func (s *suite) testContext(t *testing.T) {
	t.Run("an append whose context has ended stores nothing", func(t *testing.T) {
		log := s.open(t, Config{})
		ctx, cancel := context.WithCancel(log.ctx)
		cancel()
		d := log.draft()
		if _, err := log.log.Append(ctx, []feed.Draft{d}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		log.wantBounds(1, 0)
		log.wantReceipt(log.append(d), 1)
	})

	t.Run("other calls answer, or return the context's error", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(1)
		ctx, cancel := context.WithCancel(log.ctx)
		cancel()
		for _, c := range calls() {
			if err := c.do(ctx, log.log); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		log.wantBounds(1, 1)
	})

	t.Run("an append that is given up while it runs is whole or absent", func(t *testing.T) {
		log := s.open(t, Config{})
		stored := uint64(0)
		for i := range 50 {
			ctx, cancel := context.WithCancel(log.ctx)
			drafts := make([]feed.Draft, 4)
			for j := range drafts {
				drafts[j] = feed.Draft{ID: fmt.Sprintf("%d-%d", i, j), Type: "made", Topic: "t", Data: json.RawMessage("1")}
			}
			var err error
			together(2, func(half int) {
				if half == 0 {
					_, err = log.log.Append(ctx, drafts)
				} else {
					cancel()
				}
			})
			if err == nil {
				stored++
			}
			// Without an answer, the same batch again settles it.
			if again := log.append(drafts...); again.Events[0].Duplicate != again.Events[3].Duplicate {
				t.Fatalf("half a batch was stored: %+v", again.Events)
			} else if err == nil && !again.Events[0].Duplicate {
				t.Fatalf("an acknowledged batch is not in the log: %+v", again.Events)
			}
		}
		log.wantBounds(1, 200)
		t.Logf("%d of 50 were acknowledged", stored)
	})
}
