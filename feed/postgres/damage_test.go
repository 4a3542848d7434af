//go:build linux && e2e

package postgres

import (
	"strings"
	"testing"

	"gapless/feed"
)

// TestALogThatLacksAnEventIsNotServedThere: an answer without the event, or
// without its fence, would agree with every cursor.
func TestALogThatLacksAnEventIsNotServedThere(t *testing.T) {
	for what, damage := range map[string]string{
		"no event":       "delete from gapless.events where seq = 5",
		"no fence":       "update gapless.events set fence = 'lower123' where seq = 5",
		"no trimmed one": "update gapless.instance set trimmed_fence = ''",
	} {
		t.Run(what, func(t *testing.T) {
			url := database(t)
			s := open(t, url, quiet, func(cfg *Config) { cfg.Retention = feed.Retention{Events: 8} })
			at := grow(t, s, 10)
			for name, seq := range map[string]int{"c": 3, "trimmed": 2} {
				if err := s.CreateConsumer(t.Context(), feed.Consumer{Name: name, Cursor: at[seq-1]}); err != nil {
					t.Fatal(err)
				}
			}
			exec(t, dial(t, url), damage)
			calls := map[string]func() error{
				"read behind it": func() error { _, err := s.Read(t.Context(), 5, feed.Limit{Events: 3}); return err },
				"read to it":     func() error { _, err := s.Read(t.Context(), 3, feed.Limit{Events: 9}); return err },
				"read at it":     func() error { _, err := s.Read(t.Context(), 4, feed.Limit{Events: 1}); return err },
				"search":         func() error { _, err := s.Search(t.Context(), feed.Search{N: 5}); return err },
				"move":           func() error { return s.MoveConsumer(t.Context(), "c", at[2], at[4]) },
				"create":         func() error { return s.CreateConsumer(t.Context(), feed.Consumer{Name: "n", Cursor: at[4]}) },
			}
			if what == "no trimmed one" {
				delete(calls, "move")
				delete(calls, "create")
				calls["search"] = func() error { _, err := s.Search(t.Context(), feed.Search{N: 9}); return err }
				calls["create at it"] = func() error { return s.CreateConsumer(t.Context(), feed.Consumer{Name: "n", Cursor: at[1]}) }
				calls["move at it"] = func() error { return s.MoveConsumer(t.Context(), "trimmed", at[1], at[1]) }
			}
			for name, call := range calls {
				if err := call(); feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "damaged") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if status, err := s.RestoreStatus(t.Context()); err != nil || len(status.Skips) != 2 {
				t.Errorf("the status is %+v, %v", status, err)
			}
		})
	}
}
