package memory

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"gapless/feed"
)

// TestIDsAreForgottenAfterTheWindow: a burst of ids takes memory for the
// window, and gives it back.
func TestIDsAreForgottenAfterTheWindow(t *testing.T) {
	const ids, batch = 50_000, 500
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	log := open(t, Config{DedupeWindow: time.Minute, Retention: feed.Retention{Events: 1}, Now: func() time.Time { return now }})
	before := heapBytes()
	for n := 0; n < ids; n += batch {
		drafts := make([]feed.Draft, batch)
		for i := range drafts {
			drafts[i] = feed.Draft{ID: fmt.Sprint(n + i), Type: "made", Topic: "t", Data: json.RawMessage("1")}
		}
		if _, err := log.Append(t.Context(), drafts); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Millisecond)
	}
	if len(log.dedupe.seen) != ids {
		t.Fatalf("%d ids are remembered, want %d", len(log.dedupe.seen), ids)
	}
	full := heapBytes() - before

	now = now.Add(time.Minute)
	if err := log.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(log.dedupe.seen) != 0 || len(log.dedupe.order) != log.dedupe.first {
		t.Errorf("%d ids are remembered after the window, want none", len(log.dedupe.seen))
	}
	if left := heapBytes() - before; left > full/10 {
		t.Errorf("%d of %d bytes are still held after the window", left, full)
	}
	runtime.KeepAlive(log)
}

// TestIDsAreForgottenInTheirOrder: half of a steady stream of ids is always
// remembered, and its memory stays bounded.
func TestIDsAreForgottenInTheirOrder(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	log := open(t, Config{DedupeWindow: 3 * time.Second, Now: func() time.Time { return now }})
	for range 20_000 {
		fill(t, log, "t", 1)
		now = now.Add(time.Millisecond)
	}
	d := &log.dedupe
	if n := len(d.seen); n != 3000 {
		t.Errorf("%d ids are remembered, want those of 3,000 milliseconds", n)
	}
	if len(d.order)-d.first != len(d.seen) || cap(d.order) > 16*1024 {
		t.Errorf("%d of %d places are in use, for %d ids", len(d.order)-d.first, cap(d.order), len(d.seen))
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
