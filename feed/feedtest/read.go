package feedtest

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"gapless/feed"
)

func (s *suite) testRead(t *testing.T) {
	t.Run("an anchored page at every seq", s.testAnchors)

	t.Run("zero events asks for the bounds alone", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(3)
		for after := range uint64(5) {
			page := log.read(after, feed.Limit{Bytes: 1 << 20})
			if len(page.Events) != 0 || page.Oldest != 1 || page.Head.Seq != 3 || page.Anchor.Known() != (after > 0 && after < 4) {
				t.Errorf("after %d: %+v", after, page)
			}
		}
	})

	t.Run("a page has at most so many events", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(20)
		for _, c := range []struct {
			after uint64
			limit int
			want  int
		}{{0, 1, 1}, {0, 19, 19}, {0, 20, 20}, {0, 21, 20}, {5, 7, 7}, {19, 5, 1}, {20, 5, 0}} {
			page := log.read(c.after, feed.Limit{Events: c.limit})
			log.wantFollowing(page, c.after, c.want)
		}
	})

	t.Run("a page has at most so many bytes, and one event whatever its size", func(t *testing.T) {
		log := s.open(t, Config{})
		for _, n := range []int{10, 5000, 10, 10, 9000} {
			d := log.draft()
			d.Data = json.RawMessage(`"` + strings.Repeat("x", n) + `"`)
			log.append(d)
		}
		events := log.all()
		size := func(from, to int) (sum int64) {
			for _, ev := range events[from:to] {
				sum += ev.Size()
			}
			return sum
		}
		for _, c := range []struct {
			after uint64
			bytes int64
			want  int
		}{
			{0, 1, 1}, {0, size(0, 1), 1}, {0, size(0, 2) - 1, 1}, {0, size(0, 2), 2},
			{1, 100, 1}, {2, size(2, 4), 2}, {2, size(2, 5) - 1, 2}, {2, size(2, 5), 3}, {4, 1, 1}, {0, math.MaxInt64, 5}, {0, 0, 5},
		} {
			page := log.read(c.after, feed.Limit{Events: 100, Bytes: c.bytes})
			log.wantFollowing(page, c.after, c.want)
		}
		log.wantFollowing(log.read(0, feed.Limit{Events: 1, Bytes: math.MaxInt64}), 0, 1)
	})

	t.Run("a returned page is not touched by what comes later", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 5}})
		log.fill(5)
		page := log.read(0, feed.Limit{Events: 5})
		var before []feed.Event
		for _, ev := range page.Events {
			held := *ev
			held.Data = slices.Clone(ev.Data)
			before = append(before, held)
		}
		log.fill(20)
		for i, ev := range page.Events {
			was := before[i]
			if ev.Position() != was.Position() || ev.ID != was.ID || !ev.Time.Equal(was.Time) || !bytes.Equal(ev.Data, was.Data) {
				t.Errorf("event %d became %+v, was %+v", i, ev, was)
			}
		}
	})

	t.Run("the slice of a page belongs to its reader", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(5)
		page := log.read(0, feed.Limit{Events: 3})
		clear(page.Events)
		_ = append(page.Events, nil, nil)
		log.wantFollowing(log.read(0, feed.Limit{Events: 5}), 0, 5)
	})
}

// testAnchors reads after every seq, inside the log and outside.
func (s *suite) testAnchors(t *testing.T) {
	log := s.open(t, Config{Retention: feed.Retention{Events: 10}})
	fences := make(map[uint64]feed.Fence)
	for range 25 {
		seq := log.append(log.draft()).Events[0].Seq
		fences[seq] = log.read(seq, feed.Limit{}).Anchor
		if !fences[seq].Known() {
			t.Fatalf("the anchor at the head, %d, is unknown", seq)
		}
	}
	log.wantBounds(16, 25)
	for _, after := range []uint64{0, 1, 13, 14, 15, 16, 17, 20, 24, 25, 26, 27, math.MaxInt64, math.MaxUint64 - 1, math.MaxUint64} {
		page := log.read(after, feed.Limit{Events: 100, Bytes: 1 << 20})
		if page.Oldest != 16 || page.Head != (feed.Position{Seq: 25, Fence: fences[25]}) {
			t.Errorf("after %d: bounds %+v", after, page.Bounds)
		}
		if s.needs(LacksTrimmedFence) && page.TrimmedFence != fences[15] || !page.TrimmedFence.Agrees(fences[15]) {
			t.Errorf("after %d: trimmed fence %q, want %q", after, page.TrimmedFence, fences[15])
		}
		switch {
		case after < 15 || after > 25:
			if page.Anchor.Known() || len(page.Events) != 0 {
				t.Errorf("after %d, outside the log: anchor %q and %d events", after, page.Anchor, len(page.Events))
			}
			continue
		case after == 15:
			if s.needs(LacksTrimmedFence) && page.Anchor != fences[15] || !page.Anchor.Agrees(fences[15]) {
				t.Errorf("at oldest − 1: anchor %q, want %q", page.Anchor, fences[15])
			}
		case page.Anchor != fences[after]:
			t.Errorf("after %d: anchor %q, want %q", after, page.Anchor, fences[after])
		}
		log.wantFollowing(page, after, int(25-after))
		for _, ev := range page.Events {
			if ev.Fence != fences[ev.Seq] {
				t.Errorf("event %d has fence %q, its anchor was %q", ev.Seq, ev.Fence, fences[ev.Seq])
			}
		}
	}
}

// wantFollowing checks that a page has n events, those right behind after.
func (s *subject) wantFollowing(page feed.Page, after uint64, n int) {
	s.Helper()
	want := make([]uint64, n)
	for i := range want {
		want[i] = after + 1 + uint64(i)
	}
	if got := seqs(page.Events); !slices.Equal(got, want) {
		s.Errorf("after %d: events %v, want %v", after, got, want)
	}
}
