package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"gapless/feed"
	"gapless/feed/feedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store that the test closes at its end.
func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "log.db")
	}
	s, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	feedtest.Run(t, func(t *testing.T, cfg feedtest.Config) feed.Log {
		return open(t, Config{Retention: cfg.Retention, DedupeWindow: cfg.DedupeWindow, Now: cfg.Now})
	})
}

// draft makes a draft with an id of its own.
func draft(n int) feed.Draft {
	return feed.Draft{
		ID: "id-" + strconv.Itoa(n), Type: "made", Topic: fmt.Sprint("t.", n%3),
		Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
	}
}

// fill appends n events with minted ids, in batches.
func fill(t testing.TB, s *Store, topic string, n int) {
	t.Helper()
	for n > 0 {
		drafts := make([]feed.Draft, min(n, feed.MaxBatchEvents))
		for i := range drafts {
			drafts[i] = feed.Draft{ID: "x", Minted: true, Type: "made", Topic: topic, Data: json.RawMessage("1")}
		}
		if _, err := s.Append(t.Context(), drafts); err != nil {
			t.Fatal(err)
		}
		n -= len(drafts)
	}
}
