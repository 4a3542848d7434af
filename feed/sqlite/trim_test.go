package sqlite

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

// TestBoundsHoldWithTheirSlack: large bounds are exceeded by a twentieth at
// most, and by nothing after Trim.
func TestBoundsHoldWithTheirSlack(t *testing.T) {
	const keepEvents = 2000
	s := open(t, Config{Retention: feed.Retention{Events: keepEvents}})
	for n := range 80 {
		fill(t, s, "t", 1+n*7%100)
		if got := s.Info().Events; got > keepEvents*21/20 {
			t.Fatalf("%d events are kept, want at most %d", got, keepEvents*21/20)
		}
	}
	if err := s.Trim(t.Context()); err != nil || s.Info().Events != keepEvents {
		t.Errorf("%d events are kept after Trim (%v), want %d", s.Info().Events, err, keepEvents)
	}

	s = open(t, Config{Retention: feed.Retention{Events: 500}})
	for n := range 30 {
		fill(t, s, "t", 1+n*7%100)
		if got, want := s.Info().Events, min(500, s.committed().head.Seq); got != want {
			t.Fatalf("%d events are kept, want %d: a small bound has no slack", got, want)
		}
	}

	const keepBytes = 2 << 20
	s = open(t, Config{Retention: feed.Retention{Bytes: keepBytes}})
	for n := range 200 {
		drafts := []feed.Draft{{ID: "x", Minted: true, Type: "t", Topic: "t", Data: json.RawMessage(`"` + strings.Repeat("x", 1000*(1+n%90)) + `"`)}}
		if _, err := s.Append(t.Context(), drafts); err != nil {
			t.Fatal(err)
		}
		if got := s.Info().Bytes; got > keepBytes*21/20 {
			t.Fatalf("%d bytes are kept, want at most %d", got, keepBytes*21/20)
		}
	}
	if err := s.Trim(t.Context()); err != nil || s.Info().Bytes > keepBytes || s.Info().Bytes < keepBytes*9/10 {
		t.Errorf("%d bytes are kept after Trim (%v), want nearly %d", s.Info().Bytes, err, keepBytes)
	}
}

// TestALargeBacklogGoesInSteps: no transaction deletes more than a step, and
// appends go on beside a Trim.
func TestALargeBacklogGoesInSteps(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	s := open(t, Config{Retention: feed.Retention{Age: time.Hour}, Now: func() time.Time { return now }})
	const events = 3*trimMost + 500
	fill(t, s, "t", events)
	now = now.Add(2 * time.Hour)

	before := s.committed()
	fill(t, s, "t", 1)
	after := s.committed()
	if trimmed := after.oldest - before.oldest; trimmed == 0 || trimmed > trimSome+2 {
		t.Errorf("an append trimmed %d events, want some, and at most %d", trimmed, trimSome+2)
	}
	steps := 0
	for more := true; more; steps++ {
		var err error
		oldest := s.committed().oldest
		if more, err = s.trimStep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if trimmed := s.committed().oldest - oldest; trimmed > trimMost {
			t.Errorf("a step trimmed %d events, want at most %d", trimmed, trimMost)
		}
	}
	if in := s.committed(); in.events() != 1 || steps < 3 {
		t.Errorf("%d events are left after %d steps, want 1 after at least 3", in.events(), steps)
	}
}

// TestTheFilesStopGrowing: under constant publishing the database and its
// write-ahead log reach a size and keep it, with every event on a topic of
// its own as well.
func TestTheFilesStopGrowing(t *testing.T) {
	for _, topics := range []int{1, 1 << 30} {
		t.Run(fmt.Sprint(topics > 1), func(t *testing.T) {
			const pages = 256
			s := open(t, Config{Retention: feed.Retention{Events: scaled[uint64](2000, 4000)}, checkpointPages: pages})
			n := 0
			publish := func(batches int) (database, wal int64) {
				for range batches {
					drafts := make([]feed.Draft, 1000)
					for i := range drafts {
						n++
						drafts[i] = feed.Draft{ID: "x", Minted: true, Type: "t", Topic: fmt.Sprint("t.", n%topics), Data: payload}
					}
					if _, err := s.Append(t.Context(), drafts); err != nil {
						t.Fatal(err)
					}
					wal = max(wal, size(t, s.place.path+"-wal"))
				}
				return size(t, s.place.path), wal
			}
			warm := scaled(5, 25)
			publish(warm)
			plateau, _ := publish(warm)
			database, wal := publish(2 * warm)
			t.Logf("the database has %d bytes, the write-ahead log had at most %d", database, wal)
			if database > plateau*11/10 {
				t.Errorf("the database grew from %d to %d bytes", plateau, database)
			}
			// A group of a thousand writes some 400 pages, or more with an index page
			// for each event; a checkpoint may be late by what is written while it runs.
			if most := int64(restartFactor*pages+16*pages) * 4200; wal > most {
				t.Errorf("the write-ahead log grew to %d bytes, want at most %d", wal, most)
			}
		})
	}
}

// scaled is the first value, or with GAPLESS_LONG=1 the second.
func scaled[T any](short, full T) T {
	if os.Getenv("GAPLESS_LONG") == "1" {
		return full
	}
	return short
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
