package feedtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func (s *suite) testAppend(t *testing.T) {
	t.Run("an empty log has oldest 1 and head 0", func(t *testing.T) {
		log := s.open(t, Config{})
		page := log.read(0, feed.Limit{Events: 10})
		if page.Oldest != 1 || page.Head != (feed.Position{}) || len(page.Events) != 0 {
			t.Errorf("%+v", page)
		}
		if page.Anchor.Known() || page.TrimmedFence.Known() {
			t.Errorf("anchor %q and trimmed fence %q, want both unknown", page.Anchor, page.TrimmedFence)
		}
		cursor := feed.Cursor{Epoch: page.Epoch, Position: feed.Position{Seq: 1}}
		if _, err := feed.ParseCursor(cursor.String()); err != nil {
			t.Errorf("epoch %q is no ULID", page.Epoch)
		}
	})

	t.Run("an event comes back as it was stored", func(t *testing.T) {
		log := s.open(t, Config{})
		drafts := exotic()
		receipt := log.append(drafts...)
		events := log.all()
		if len(events) != len(drafts) {
			t.Fatalf("%d events for %d drafts", len(events), len(drafts))
		}
		for i, ev := range events {
			d, a := drafts[i], receipt.Events[i]
			if ev.Seq != a.Seq || a.Duplicate {
				t.Errorf("event %d: seq %d, receipt %+v", i, ev.Seq, a)
			}
			if ev.ID != d.ID || ev.Type != d.Type || ev.Topic != d.Topic || ev.Source != d.Source ||
				!bytes.Equal(ev.Data, d.Data) || !bytes.Equal(ev.CE, d.CE) {
				t.Errorf("event %d came back as\n%+v\nwas\n%+v", i, ev, d)
			}
			if fence, ok := feed.ParseFence(ev.Fence.String()); !ok || fence != ev.Fence {
				t.Errorf("event %d: fence %q", i, ev.Fence)
			}
			if ev.Time.IsZero() || !ev.Time.Equal(ev.Time.Truncate(feed.TimeUnit)) {
				t.Errorf("event %d: time %v is not in units of %v", i, ev.Time, feed.TimeUnit)
			}
		}
	})

	t.Run("a large payload comes back whole", func(t *testing.T) {
		log := s.open(t, Config{})
		d := log.draft()
		d.Data = json.RawMessage(`"` + strings.Repeat("0123456789abcdef", 1<<16) + `"`)
		log.append(d)
		if got := log.all()[0].Data; !bytes.Equal(got, d.Data) {
			t.Errorf("%d bytes came back, %d went in", len(got), len(d.Data))
		}
	})

	t.Run("a thousand large events come back whole", s.testLarge)

	t.Run("a batch gets contiguous seqs in the order of its drafts", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 2000}})
		epoch, head := log.bounds().Epoch, uint64(0)
		for _, n := range []int{1, 3, feed.MaxBatchEvents, 1} {
			drafts := log.drafts(n)
			receipt := log.append(drafts...)
			if receipt.Epoch != epoch {
				t.Errorf("the receipt is of epoch %s, the log of %s", receipt.Epoch, epoch)
			}
			for i, a := range receipt.Events {
				if a.Seq != head+1+uint64(i) || a.Duplicate {
					t.Fatalf("batch of %d behind %d: entry %d is %+v", n, head, i, a)
				}
			}
			head += uint64(n)
		}
		log.wantBounds(1, head)
		for i, ev := range log.all() {
			if ev.Seq != uint64(i)+1 || ev.ID != fmt.Sprint("id-", i+1) {
				t.Fatalf("event %d is %d, %q", i, ev.Seq, ev.ID)
			}
		}
	})

	t.Run("a batch is stored whole or not at all", func(t *testing.T) {
		log := s.open(t, Config{})
		taken := log.draft()
		log.append(taken)
		fresh, other := log.draft(), taken
		other.Data = json.RawMessage(`"other"`)
		log.conflict(fresh, other, log.draft())
		log.wantBounds(1, 1)
		// Nor did the batch take the ids of its other drafts.
		fresh.Data = json.RawMessage(`"changed"`)
		if a := log.append(fresh).Events[0]; a.Duplicate || a.Seq != 2 {
			t.Errorf("an id of a refused batch: %+v, want it stored as 2", a)
		}
	})

	t.Run("an append is seen by a read that begins after it", func(t *testing.T) {
		log := s.open(t, Config{})
		for range 50 {
			seq := log.append(log.draft()).Events[0].Seq
			if page := log.read(seq-1, feed.Limit{Events: 1}); page.Head.Seq < seq || len(page.Events) != 1 {
				t.Fatalf("event %d was appended; a read then sees head %d and %d events", seq, page.Head.Seq, len(page.Events))
			}
		}
	})

	t.Run("every event has a fence of its own", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 1000}})
		log.append(log.drafts(1000)...)
		seen := make(map[feed.Fence]uint64)
		for _, ev := range log.all() {
			if first, ok := seen[ev.Fence]; ok || !ev.Fence.Known() {
				t.Fatalf("events %d and %d have the fence %q", first, ev.Seq, ev.Fence)
			}
			seen[ev.Fence] = ev.Seq
		}
	})

	t.Run("an append leaves its drafts alone", func(t *testing.T) {
		log := s.open(t, Config{})
		drafts := log.drafts(3)
		before := slices.Clone(drafts)
		log.append(drafts...)
		for i := range drafts {
			if fmt.Sprint(drafts[i]) != fmt.Sprint(before[i]) {
				t.Errorf("draft %d is now %+v, was %+v", i, drafts[i], before[i])
			}
		}
		clear(drafts) // the slice is the caller's again
		if got := log.all()[1].ID; got != before[1].ID {
			t.Errorf("the log lost event 2: its id is %q", got)
		}
	})
}

// exotic is drafts at the edges of what is valid.
func exotic() []feed.Draft {
	ascii := make([]byte, 0, 95)
	for c := byte(0x20); c < 0x7f; c++ {
		ascii = append(ascii, c)
	}
	topic := strings.Repeat("AZaz09_-.", feed.MaxTopicTokens)
	drafts := []feed.Draft{
		{ID: string(ascii), Type: "a.b:c/d_e-F9", Topic: strings.TrimSuffix(topic, ".")},
		{ID: strings.Repeat("i", feed.MaxIDBytes), Type: strings.Repeat("t", feed.MaxTypeBytes), Topic: strings.Repeat("t", feed.MaxTopicBytes)},
		{ID: "source", Source: "https://example.org/ü?q='\"%", CE: json.RawMessage(`{"subject":"s","n":1}`)},
		{ID: "minted", Minted: true},
	}
	for i, data := range []string{
		`null`, `""`, `{}`, `[]`, `true`, `-0.10e+05`, `123456789012345678901234567890`, `{"b":1,"a":2,"a":3}`,
		`"a\r\nb\u0000\u2028\ud83d\ude00"`, "\"\u2028\u0085ünï\U0001F600\ufeff\"", `"'; DROP TABLE event; --"`, `"%s$1\\"`,
	} {
		drafts = append(drafts, feed.Draft{ID: fmt.Sprint("data-", i), Data: json.RawMessage(data)})
	}
	for i := range drafts {
		if err := drafts[i].Normalize(); err != nil {
			panic(fmt.Sprintf("draft %d: %v", i, err)) // the suite's own mistake
		}
	}
	return drafts
}

func (s *suite) testTime(t *testing.T) {
	t.Run("time never goes back", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(100)
		last := time.Time{}
		for _, ev := range log.all() {
			if ev.Time.Before(last) {
				t.Fatalf("event %d has time %v, the one before %v", ev.Seq, ev.Time, last)
			}
			last = ev.Time
		}
	})
	if !s.needs(LacksClock) {
		return
	}
	t.Run("time is the store's clock, or the previous time where that is later", func(t *testing.T) {
		clock := newClock()
		log := s.open(t, Config{Now: clock.Now})
		want := []time.Time{}
		for _, step := range []time.Duration{0, time.Second, -time.Hour, 30 * time.Minute, 31 * time.Minute, -time.Microsecond, 1500 * time.Nanosecond} {
			clock.move(step)
			log.append(log.draft())
			now := clock.Now().Truncate(feed.TimeUnit)
			if n := len(want); n > 0 && now.Before(want[n-1]) {
				now = want[n-1]
			}
			want = append(want, now)
		}
		for i, ev := range log.all() {
			if !ev.Time.Equal(want[i]) {
				t.Errorf("event %d has time %v, want %v", ev.Seq, ev.Time, want[i])
			}
		}
	})
}
