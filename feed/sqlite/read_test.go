package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gapless/feed"
)

// TestMemoryAndFileAnswerAlike: a page from the tail, from the file, and from
// both is the same page.
func TestMemoryAndFileAnswerAlike(t *testing.T) {
	s := open(t, Config{Retention: feed.Retention{Events: 300}})
	for n := range 500 {
		d := draft(n)
		d.Source = strings.Repeat("s\x00", n%3)
		d.Data = json.RawMessage(`"` + strings.Repeat("d", n*13%2000) + `"`)
		if n%5 == 0 {
			d.CE = json.RawMessage(`{"subject":"s"}`)
		}
		if _, err := s.Append(t.Context(), []feed.Draft{d}); err != nil {
			t.Fatal(err)
		}
	}
	whole := s.tail
	rapid.Check(t, func(rt *rapid.T) {
		after := rapid.Uint64Range(190, 505).Draw(rt, "after")
		limit := feed.Limit{Events: rapid.IntRange(0, 40).Draw(rt, "events"), Bytes: rapid.Int64Range(0, 20_000).Draw(rt, "bytes")}
		cut := rapid.Uint64Range(201, 501).Draw(rt, "the tail begins at")
		read := func(tail tail) string {
			s.mu.Lock()
			s.tail = tail
			s.mu.Unlock()
			page, err := s.Read(t.Context(), after, limit)
			if err != nil {
				rt.Fatal(err)
			}
			text := fmt.Sprintf("%+v %q %q", page.Bounds, page.Anchor, page.TrimmedFence)
			for _, ev := range page.Events {
				text += fmt.Sprintf("\n%+v", *ev)
			}
			return text
		}
		part := whole
		for part.first < cut {
			part.drop()
		}
		want := read(tail{})
		for name, tail := range map[string]tail{"memory": whole, "both": part} {
			if got := read(tail); got != want {
				rt.Fatalf("from %s: %s\nfrom the file: %s", name, got, want)
			}
		}
	})
}

// TestTailIsBounded: by events and by bytes, with the newest always in it.
func TestTailIsBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var tl tail
		head := uint64(0)
		for range rapid.IntRange(1, 12).Draw(rt, "pushes") {
			bytes := rapid.SampledFrom([]int{1, 1000, 100_000, tailBytes}).Draw(rt, "bytes")
			events := make([]*feed.Event, rapid.IntRange(0, 2000).Draw(rt, "events"))
			data := make([]byte, bytes)
			for i := range events {
				head++
				events[i] = &feed.Event{Seq: head, Data: data}
			}
			oldest := head + 1 - min(head, rapid.Uint64Range(0, 20_000).Draw(rt, "retained"))
			tl.push(events, max(oldest, tl.first))
			held, sum := 0, int64(0)
			for _, ev := range tl.ring {
				if ev != nil {
					held++
					sum += ev.Size()
				}
			}
			if uint64(held) != tl.next-tl.first || sum != tl.bytes || held > tailEvents || held > 1 && sum > tailBytes {
				rt.Fatalf("%d events, %d bytes are held, from %d to %d, said to be %d bytes", held, sum, tl.first, tl.next, tl.bytes)
			}
			if head > 0 && oldest <= head && held > 0 && (tl.get(head) == nil || tl.get(tl.first).Seq != tl.first || tl.get(head+1) != nil || tl.get(tl.first-1) != nil) {
				rt.Fatalf("it does not hold %d to %d", tl.first, head)
			}
		}
	})
}
