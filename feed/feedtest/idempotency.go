package feedtest

import (
	"encoding/json"
	"testing"
	"time"

	"gapless/feed"
)

func (s *suite) testIdempotency(t *testing.T) {
	t.Run("a repeat answers the first seq and stores nothing", func(t *testing.T) {
		log := s.open(t, Config{})
		log.fill(2)
		d := log.draft()
		log.append(d)
		log.fill(2)
		for range 3 {
			if a := log.append(d).Events[0]; !a.Duplicate || a.Seq != 3 {
				t.Errorf("%+v, want a duplicate of 3", a)
			}
		}
		log.wantBounds(1, 5)
	})

	t.Run("a repeat inside one batch is a duplicate too", func(t *testing.T) {
		log := s.open(t, Config{})
		a, b := log.draft(), log.draft()
		log.wantReceipt(log.append(a, b, a, a), 1, 2, -1, -1)
		log.wantBounds(1, 2)
	})

	t.Run("only what is new in a batch is numbered", func(t *testing.T) {
		log := s.open(t, Config{})
		old := log.drafts(2)
		log.append(old...)
		log.wantReceipt(log.append(log.draft(), old[1], log.draft(), old[0], log.draft()), 3, -2, 4, -1, 5)
		log.wantBounds(1, 5)
	})

	t.Run("a batch of repeats alone stores nothing", func(t *testing.T) {
		log := s.open(t, Config{})
		drafts := log.drafts(3)
		log.append(drafts...)
		log.wantReceipt(log.append(drafts...), -1, -2, -3)
		log.wantBounds(1, 3)
	})

	t.Run("another topic or source is another key", func(t *testing.T) {
		log := s.open(t, Config{})
		base := feed.Draft{ID: "1", Type: "made", Topic: "a", Source: "s", Data: json.RawMessage("1")}
		drafts := []feed.Draft{base, base, base, base, base}
		drafts[1].Topic = "b"
		drafts[2].Source = ""
		drafts[3].Source = "s1" // its parts, written one after another, are those of the next
		drafts[3].ID = "2"
		drafts[4].Source = "s"
		drafts[4].ID = "12"
		log.wantReceipt(log.append(drafts...), 1, 2, 3, 4, 5)
		log.wantReceipt(log.append(drafts...), -1, -2, -3, -4, -5)
	})

	t.Run("other content under a key is a conflict", func(t *testing.T) {
		log := s.open(t, Config{})
		d := log.draft()
		d.CE = json.RawMessage(`{"a":1}`)
		log.append(d)
		for what, change := range map[string]func(*feed.Draft){
			"type":  func(d *feed.Draft) { d.Type = "other" },
			"data":  func(d *feed.Draft) { d.Data = json.RawMessage(`{"n":2}`) },
			"ce":    func(d *feed.Draft) { d.CE = json.RawMessage(`{"a":2}`) },
			"no ce": func(d *feed.Draft) { d.CE = nil },
		} {
			t.Run(what, func(t *testing.T) {
				other := d
				change(&other)
				log.conflict(other)
			})
		}
		t.Run("inside one batch", func(t *testing.T) {
			a := log.draft()
			b := a
			b.Data = json.RawMessage(`"b"`)
			log.conflict(a, b)
		})
		log.wantReceipt(log.append(d), -1)
	})

	t.Run("a minted id has no key", func(t *testing.T) {
		log := s.open(t, Config{})
		published := log.draft()
		minted := published
		minted.Minted = true
		minted.Data = json.RawMessage(`"minted"`)
		log.wantReceipt(log.append(minted, minted, published, minted, published), 1, 2, 3, 4, -3)
		log.wantReceipt(log.append(published, minted), -3, 5)
	})

	t.Run("eight publishers of one id store it once", func(t *testing.T) {
		log := s.open(t, Config{})
		for range 20 {
			d := log.draft()
			receipts := make([]feed.Receipt, 8)
			together(len(receipts), func(i int) {
				var err error
				if receipts[i], err = log.log.Append(log.ctx, []feed.Draft{d}); err != nil {
					t.Errorf("append: %v", err)
				}
			})
			if t.Failed() {
				return
			}
			stored := 0
			for _, r := range receipts {
				if !r.Events[0].Duplicate {
					stored++
				}
				if r.Events[0].Seq != receipts[0].Events[0].Seq {
					t.Fatalf("receipts name %d and %d", r.Events[0].Seq, receipts[0].Events[0].Seq)
				}
			}
			if stored != 1 {
				t.Fatalf("%d of the receipts say that they stored it", stored)
			}
		}
		log.wantBounds(1, 20)
	})

	t.Run("the window outlives the retention", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 2}})
		d := log.draft()
		log.append(d)
		log.fill(5)
		log.wantBounds(5, 6)
		log.wantReceipt(log.append(d), -1)
		d.Type = "other"
		log.conflict(d)
	})

	if s.needs(LacksClock, LacksExpiry) {
		t.Run("an id is free again after the window", s.testWindow)
	}
}

func (s *suite) testWindow(t *testing.T) {
	for _, keep := range []uint64{100, 1} { // with the event retained, and trimmed
		clock := newClock()
		log := s.open(t, Config{DedupeWindow: time.Hour, Retention: feed.Retention{Events: keep}, Now: clock.Now})
		d := log.draft()
		log.append(d)
		clock.move(20 * time.Minute)
		late := log.draft()
		log.append(late)
		clock.move(39 * time.Minute)
		log.wantReceipt(log.append(d), -1) // does not lengthen the window
		clock.move(2 * time.Minute)
		d.Data = json.RawMessage(`"new content"`)
		log.wantReceipt(log.append(d, late), 3, -2)
		clock.move(40 * time.Minute)
		log.trim()
		log.wantReceipt(log.append(d, late), -3, 4)
	}
}

// wantReceipt checks a receipt against seqs; a negative one is a duplicate.
func (s *subject) wantReceipt(r feed.Receipt, want ...int) {
	s.Helper()
	for i, a := range r.Events {
		seq := want[i]
		if seq < 0 {
			seq = -seq
		}
		if a.Seq != uint64(seq) || a.Duplicate != (want[i] < 0) {
			s.Errorf("entry %d of the receipt is %+v, want %d", i, a, want[i])
		}
	}
}
