package feedtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gapless/feed"
)

// stateCalls are the methods of the state, each with arguments that fit.
func stateCalls(at feed.Cursor) []call {
	with := func(name string, do func(ctx context.Context, s feed.State) error) call {
		return call{name, func(ctx context.Context, l feed.Log) error { return do(ctx, l.(feed.State)) }}
	}
	var list []call
	for _, kind := range cursorKinds {
		list = append(list,
			with("list "+kind.name+"s", func(ctx context.Context, s feed.State) error { _, err := kind.list(ctx, s); return err }),
			with("get "+kind.name, func(ctx context.Context, s feed.State) error { _, err := kind.get(ctx, s, "c"); return err }),
			with("create "+kind.name, func(ctx context.Context, s feed.State) error { return kind.create(ctx, s, "new", at) }),
			with("move "+kind.name, func(ctx context.Context, s feed.State) error { return kind.move(ctx, s, "c", at, at) }),
			with("delete "+kind.name, func(ctx context.Context, s feed.State) error { return kind.delete(ctx, s, "c") }),
		)
	}
	return append(list,
		with("update webhook", func(ctx context.Context, s feed.State) error {
			return s.UpdateWebhook(ctx, feed.Webhook{ID: "c", URL: "https://example.com/", Status: feed.WebhookPaused})
		}),
		with("audit", func(ctx context.Context, s feed.State) error { _, err := s.Audit(ctx, 0, 10); return err }),
		with("record audit", func(ctx context.Context, s feed.State) error {
			return s.RecordAudit(ctx, feed.AuditEntry{Actor: "a", Action: "b", Detail: []byte(`{}`)})
		}),
	)
}

// isRead reports whether a call of stateCalls changes nothing.
func isRead(name string) bool {
	return strings.HasPrefix(name, "list ") || strings.HasPrefix(name, "get ") || name == "audit"
}

func (s *suite) stateOf(t *testing.T) (*subject, feed.Cursor) {
	t.Helper()
	log := s.open(t, Config{})
	log.fill(1)
	at := log.head()
	for _, kind := range cursorKinds {
		if err := kind.create(log.ctx, log.log.(feed.State), "c", at); err != nil {
			t.Fatalf("create %s: %v", kind.name, err)
		}
	}
	return log, at
}

func (s *suite) testStateContext(t *testing.T) {
	t.Run("a call whose context has ended changes nothing", func(t *testing.T) {
		log, at := s.stateOf(t)
		ctx, cancel := context.WithCancel(log.ctx)
		cancel()
		before := log.snapshot()
		for _, c := range stateCalls(at) {
			if err := c.do(ctx, log.log); !errors.Is(err, context.Canceled) && (err != nil || !isRead(c.name)) {
				t.Errorf("%s: %v, want %v", c.name, err, context.Canceled)
			}
		}
		if after := log.snapshot(); after != before {
			t.Errorf("they changed\n%s\nto\n%s", before, after)
		}
	})

	t.Run("a move that is given up while it runs is whole or absent", func(t *testing.T) {
		k := s.openStore(t, consumers, Config{})
		k.fill(30)
		at := k.cursors()
		k.create("c", at[0])
		for next := 1; next < len(at); next++ {
			ctx, cancel := context.WithCancel(k.ctx)
			now := k.get("c").cursor
			var err error
			together(2, func(half int) {
				if half == 0 {
					err = k.kind.move(ctx, k.store, "c", now, at[next])
				} else {
					cancel()
				}
			})
			if got := k.get("c").cursor; got != at[next] && (err == nil || got != now) {
				t.Fatalf("a move from %s to %s answered %v and left it at %s", now, at[next], err, got)
			}
		}
	})
}

func (s *suite) testStateClose(t *testing.T) {
	log, at := s.stateOf(t)
	if err := log.log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range stateCalls(at) {
		if err := c.do(log.ctx, log.log); !errors.Is(err, feed.ErrClosed) {
			t.Errorf("%s: %v, want %v", c.name, err, feed.ErrClosed)
		}
	}
}
