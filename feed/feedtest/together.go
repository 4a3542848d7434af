package feedtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gapless/feed"
)

// testTogether lets appends run at once, as a log may commit some of them as
// one: what becomes of one batch must not depend on its neighbours.
func (s *suite) testTogether(t *testing.T) {
	t.Run("eight appenders commit in one order", func(t *testing.T) { s.testConcurrentAppends(t, 8, 25) })
	t.Run("sixty-four appenders commit in one order", func(t *testing.T) { s.testConcurrentAppends(t, 64, 8) })

	t.Run("a conflict fails its own batch alone", func(t *testing.T) {
		const appenders, rounds = 16, 10
		log := s.open(t, Config{})
		taken := log.draft()
		log.append(taken)
		taken.Data = json.RawMessage(`"other"`)
		together(appenders, func(i int) {
			for n := range rounds {
				drafts := own(i, n, 3)
				if i%4 == 0 {
					drafts[1] = taken
				}
				receipt, err := log.log.Append(log.ctx, drafts)
				switch {
				case i%4 == 0 && (err == nil || feed.CodeOf(err) != feed.CodeIDConflict):
					t.Errorf("a batch with a conflict: %v, want an error of code %s", err, feed.CodeIDConflict)
				case i%4 != 0 && err != nil:
					t.Errorf("a batch without a conflict: %v", err)
				case err == nil && receipt.Events[2].Seq != receipt.Events[0].Seq+2:
					t.Errorf("another batch lies inside this one: %+v", receipt.Events)
				}
			}
		})
		log.wantBounds(1, 1+appenders*3/4*rounds*3)
		for _, ev := range log.all()[1:] {
			if i := 0; strings.HasPrefix(ev.ID, "own-") {
				if _, err := fmt.Sscanf(ev.ID, "own-%d-", &i); err != nil || i%4 == 0 {
					t.Fatalf("event %d, %q, is of a batch that was refused", ev.Seq, ev.ID)
				}
			}
		}
	})

	t.Run("of several contents under one new id one is stored", func(t *testing.T) {
		const appenders = 6
		log := s.open(t, Config{})
		for round := range 15 {
			draft := log.draft()
			winners := firstOf(t, appenders, feed.CodeIDConflict, func(i int) error {
				d := draft
				d.Data = json.RawMessage(fmt.Sprint(i))
				_, err := log.log.Append(log.ctx, []feed.Draft{{ID: fmt.Sprint("beside-", round, "-", i), Type: "made", Topic: "t", Data: d.Data}, d})
				return err
			})
			if len(winners) != 1 {
				t.Fatalf("%v of them were stored", winners)
			}
			log.wantBounds(1, uint64(2*round+2))
			if ev := log.read(uint64(2*round+1), feed.Limit{Events: 1}).Events[0]; string(ev.Data) != fmt.Sprint(winners[0]) {
				t.Errorf("%d was told that it is stored; the log holds the content of %s", winners[0], ev.Data)
			}
		}
	})

	t.Run("an append that is given up takes nobody with it", func(t *testing.T) {
		const appenders, rounds = 8, 20
		log := s.open(t, Config{})
		together(appenders, func(i int) {
			for n := range rounds {
				ctx, cancel := context.WithCancel(log.ctx)
				if i%2 == 0 {
					go cancel()
				}
				if _, err := log.log.Append(ctx, own(i, n, 2)); err != nil && ctx.Err() == nil {
					t.Errorf("append: %v", err)
				}
				cancel()
			}
		})
		stored := make(map[string]uint64)
		for _, ev := range log.all() {
			stored[ev.ID] = ev.Seq
		}
		for i := range appenders {
			for n := range rounds {
				first, second := stored[fmt.Sprintf("own-%d-%d-0", i, n)], stored[fmt.Sprintf("own-%d-%d-1", i, n)]
				if first == 0 && i%2 != 0 || second != first+1 && first != second {
					t.Errorf("batch %d of appender %d is at %d and %d", n, i, first, second)
				}
			}
		}
	})
}

// own makes the drafts of one batch of one appender.
func own(appender, batch, n int) []feed.Draft {
	drafts := make([]feed.Draft, n)
	for i := range drafts {
		id := fmt.Sprintf("own-%d-%d-%d", appender, batch, i)
		drafts[i] = feed.Draft{ID: id, Type: "made", Topic: fmt.Sprint("own.", appender), Data: json.RawMessage(`"` + id + `"`)}
	}
	return drafts
}

func (s *suite) testConcurrentAppends(t *testing.T, appenders, batches int) {
	log := s.open(t, Config{Retention: feed.Retention{Events: 5000}})
	var mu sync.Mutex
	acknowledged := make(map[uint64]string)
	together(appenders, func(i int) {
		last := uint64(0)
		for b := range batches {
			receipt, err := log.log.Append(log.ctx, own(i, b, 1+(i+b)%5))
			if err != nil {
				t.Errorf("append: %v", err)
				return
			}
			if receipt.Events[0].Seq <= last {
				t.Errorf("a batch that began after %d was acknowledged got %d", last, receipt.Events[0].Seq)
			}
			mu.Lock()
			for j, a := range receipt.Events {
				if a.Seq != receipt.Events[0].Seq+uint64(j) {
					t.Errorf("another batch lies inside this one: %+v", receipt.Events)
				}
				if first, ok := acknowledged[a.Seq]; ok {
					t.Errorf("seq %d was given to %q and %q", a.Seq, first, a.ID)
				}
				acknowledged[a.Seq] = a.ID
				last = a.Seq
			}
			mu.Unlock()
		}
	})
	log.wantBounds(1, uint64(len(acknowledged)))
	last := time.Time{}
	fences := make(map[feed.Fence]bool)
	for _, ev := range log.all() {
		if acknowledged[ev.Seq] != ev.ID || string(ev.Data) != `"`+ev.ID+`"` {
			t.Fatalf("seq %d holds %q, %s; it was acknowledged for %q", ev.Seq, ev.ID, ev.Data, acknowledged[ev.Seq])
		}
		if ev.Time.Before(last) {
			t.Errorf("event %d has time %v, the one before %v", ev.Seq, ev.Time, last)
		}
		if last = ev.Time; fences[ev.Fence] {
			t.Errorf("event %d has the fence of another, %s", ev.Seq, ev.Fence)
		}
		fences[ev.Fence] = true
	}
}

// testLarge appends 16 MiB at once and reads them by pages of 1 MiB.
func (s *suite) testLarge(t *testing.T) {
	const size, page = 16 << 10, 1 << 20
	log := s.open(t, Config{Retention: feed.Retention{Events: 2000}})
	drafts := log.drafts(feed.MaxBatchEvents)
	for i := range drafts {
		drafts[i].Data = json.RawMessage(`"` + strings.Repeat(string(rune('a'+i%26)), size) + `"`)
	}
	log.append(drafts...)
	after := uint64(0)
	for after < uint64(len(drafts)) {
		events := log.read(after, feed.Limit{Events: len(drafts), Bytes: page}).Events
		total := int64(0)
		for _, ev := range events {
			if after++; ev.Seq != after || ev.ID != drafts[after-1].ID || !bytes.Equal(ev.Data, drafts[after-1].Data) {
				t.Fatalf("event %d came back as %d, %q, with %d bytes", after, ev.Seq, ev.ID, len(ev.Data))
			}
			total += ev.Size()
		}
		if total > page || total <= page-size-300 && after < uint64(len(drafts)) {
			t.Fatalf("a page up to %d has %d bytes in %d events, at most %d were asked for", after, total, len(events), page)
		}
	}
	if n := len(log.read(0, feed.Limit{Events: len(drafts)}).Events); n != len(drafts) {
		t.Errorf("without a bound on bytes a page has %d events, want %d", n, len(drafts))
	}
}
