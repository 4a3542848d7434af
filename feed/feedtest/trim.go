package feedtest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func (s *suite) testTrim(t *testing.T) {
	t.Run("an append keeps the count", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 3}})
		for head := uint64(1); head <= 8; head++ {
			log.append(log.draft())
			log.trim()
			log.wantBounds(max(head, 3)-2, head)
			log.wantInfo()
		}
	})

	t.Run("of a batch above the count the end is kept", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 3}})
		log.fill(2)
		log.append(log.drafts(8)...)
		log.trim()
		log.wantBounds(8, 10)
		log.wantTrimmed(s)
	})

	t.Run("trimming again changes nothing", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 3}})
		log.trim()
		log.wantBounds(1, 0)
		log.fill(5)
		before := log.read(2, feed.Limit{})
		for range 3 {
			log.trim()
		}
		if after := log.read(2, feed.Limit{}); after.Bounds != before.Bounds || after.TrimmedFence != before.TrimmedFence {
			t.Errorf("%+v became %+v", before, after)
		}
	})

	t.Run("the fence of the last trimmed event is kept", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 4}})
		for range 12 {
			log.append(log.draft())
			log.wantTrimmed(s)
		}
	})

	t.Run("a large count is kept, and at most a twentieth more", s.testLargeCount)
	if s.needs(LacksByteBound) {
		t.Run("an append keeps the bytes", s.testByteBound)
		t.Run("many bytes are kept, and at most a twentieth more", s.testManyBytes)
	}
	if s.needs(LacksAgeBound, LacksClock) {
		t.Run("what is too old goes", s.testAgeBound)
		t.Run("a log that was trimmed empty keeps its head", s.testTrimmedEmpty)
		t.Run("every bound holds", s.testAllBounds)
	}
}

// sized makes a draft of which the event has the given size.
func (s *subject) sized(size int64) feed.Draft {
	d := s.draft()
	d.Data = nil
	flat := (&feed.Event{ID: d.ID, Type: d.Type, Topic: d.Topic}).Size()
	d.Data = json.RawMessage(`"` + strings.Repeat("x", int(size-flat)-2) + `"`)
	return d
}

func (s *suite) testByteBound(t *testing.T) {
	log := s.open(t, Config{Retention: feed.Retention{Bytes: 3000}})
	for _, c := range []struct {
		size         int64
		oldest, head uint64
	}{
		{1000, 1, 1}, {1000, 1, 2}, {1000, 1, 3}, // 3,000 in all
		{300, 2, 4}, {700, 2, 5}, // 3,000 again
		{2000, 4, 6}, // 300 + 700 + 2,000
		{9000, 7, 7}, // alone above the bound: kept
		{300, 8, 8},  // until the next one comes
		{2700, 8, 9}, // 3,000
	} {
		log.append(log.sized(c.size))
		log.wantBounds(c.oldest, c.head)
		log.wantInfo()
		log.trim()
		log.wantBounds(c.oldest, c.head)
	}
	log.wantTrimmed(s)
}

func (s *suite) testLargeCount(t *testing.T) {
	const keep, batch = 1000, 130
	log := s.open(t, Config{Retention: feed.Retention{Events: keep}})
	for head := uint64(batch); head <= 4*keep; head += batch {
		log.append(log.drafts(batch)...)
		b := log.bounds()
		if n := head + 1 - b.Oldest; b.Head.Seq != head || n < min(head, keep) || n > keep+keep/20 {
			t.Fatalf("of %d events %d to %d are kept, want %d to %d of them", head, b.Oldest, b.Head.Seq, keep, keep+keep/20)
		}
		log.wantTrimmed(s)
	}
	log.trim()
	if b := log.bounds(); b.Head.Seq+1-b.Oldest < keep {
		t.Errorf("after a trim %d to %d are kept, want %d", b.Oldest, b.Head.Seq, keep)
	}
	log.wantInfo()
}

func (s *suite) testManyBytes(t *testing.T) {
	const keep, size = 1 << 20, 10_000
	log := s.open(t, Config{Retention: feed.Retention{Bytes: keep}})
	for head := range uint64(250) {
		log.append(log.sized(size))
		b := log.bounds()
		kept := int64(head+2-b.Oldest) * size
		if most := int64(keep + keep/20); kept > most || b.Oldest > 1 && kept <= keep-size {
			t.Fatalf("%d to %d are kept, %d bytes; want more than %d and at most %d", b.Oldest, b.Head.Seq, kept, keep-size, most)
		}
	}
	log.wantTrimmed(s)
	log.wantInfo()
}

func (s *suite) testAgeBound(t *testing.T) {
	clock := newClock()
	log := s.open(t, Config{Retention: feed.Retention{Age: time.Hour}, Now: clock.Now})
	log.fill(3)
	clock.move(30 * time.Minute)
	log.fill(2)
	clock.move(29 * time.Minute)
	log.trim()
	log.wantBounds(1, 5)
	clock.move(2 * time.Minute)
	log.trim()
	log.wantBounds(4, 5)
	log.wantTrimmed(s)
	clock.move(30 * time.Minute)
	log.append(log.draft()) // an append trims too
	log.wantBounds(6, 6)
	log.wantTrimmed(s)
	log.wantInfo()
}

func (s *suite) testTrimmedEmpty(t *testing.T) {
	clock := newClock()
	log := s.open(t, Config{Retention: feed.Retention{Age: time.Hour}, Now: clock.Now})
	log.fill(3)
	head := log.bounds().Head
	clock.move(2 * time.Hour)
	log.trim()
	page := log.read(3, feed.Limit{Events: 10})
	if page.Oldest != 4 || page.Head != head || len(page.Events) != 0 {
		t.Fatalf("%+v, want oldest 4, head %+v, no events", page, head)
	}
	if s.needs(LacksTrimmedFence) && (page.Anchor != head.Fence || page.TrimmedFence != head.Fence) {
		t.Errorf("anchor %q and trimmed fence %q, want %q", page.Anchor, page.TrimmedFence, head.Fence)
	}
	log.wantFound(everything, 3)
	log.wantInfo()
	if a := log.append(log.draft()).Events[0]; a.Seq != 4 {
		t.Errorf("the next event is %d, want 4", a.Seq)
	}
	log.wantBounds(4, 4)
	log.wantTrimmed(s)
}

func (s *suite) testAllBounds(t *testing.T) {
	if !s.needs(LacksByteBound) {
		return
	}
	clock := newClock()
	log := s.open(t, Config{Retention: feed.Retention{Events: 5, Bytes: 3000, Age: time.Hour}, Now: clock.Now})
	for range 7 {
		log.append(log.sized(300))
	}
	log.wantBounds(3, 7) // by count
	clock.move(50 * time.Minute)
	log.append(log.sized(2200))
	log.wantBounds(6, 8) // by bytes
	clock.move(20 * time.Minute)
	log.trim()
	log.wantBounds(8, 8) // by age
	log.wantTrimmed(s)
}

// wantTrimmed checks what the log says at oldest − 1, against the fences that
// it gave earlier where the test kept them: here, that the anchor there and
// the trimmed fence are one, known once something was trimmed.
func (s *subject) wantTrimmed(suite *suite) {
	s.Helper()
	oldest := s.bounds().Oldest
	page := s.read(oldest-1, feed.Limit{Events: 1})
	if page.Anchor != page.TrimmedFence {
		s.Errorf("at oldest − 1 the anchor is %q, the trimmed fence %q", page.Anchor, page.TrimmedFence)
	}
	if suite.needs(LacksTrimmedFence) && page.TrimmedFence.Known() != (oldest > 1) {
		s.Errorf("oldest is %d, the trimmed fence %q", oldest, page.TrimmedFence)
	}
}

// wantInfo checks what Info says of the log's contents.
func (s *subject) wantInfo() {
	s.Helper()
	info := s.log.Info()
	events, bytes := uint64(0), int64(0)
	for _, ev := range s.all() {
		events++
		bytes += ev.Size()
	}
	if info.Events != events || info.Bytes != bytes {
		s.Errorf("info says %d events, %d bytes; the log holds %d, %d", info.Events, info.Bytes, events, bytes)
	}
}
