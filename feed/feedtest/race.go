package feedtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"gapless/feed"
)

// testRace lets appends and trims run against reads and searches: each answer
// must come from one snapshot.
func (s *suite) testRace(t *testing.T) {
	t.Run("every page is one snapshot", func(t *testing.T) {
		w := s.world(t)
		w.while(func(rnd *rand.Rand, last *feed.Bounds) {
			after := uint64(0)
			if spread := last.Head.Seq + 3 - last.Oldest; last.Oldest > 3 {
				after = last.Oldest - 3 + rnd.Uint64N(spread+3)
			}
			limit := feed.Limit{Events: rnd.IntN(12)}
			page, err := w.log.log.Read(w.log.ctx, after, limit)
			if err != nil {
				t.Errorf("read: %v", err)
				return
			}
			w.checkBounds(page.Bounds, last)
			w.checkPage(page, after, limit.Events)
		})
	})
	t.Run("every search is one snapshot", func(t *testing.T) {
		w := s.world(t)
		w.while(func(rnd *rand.Rand, last *feed.Bounds) {
			found, err := w.log.log.Search(w.log.ctx, feed.Search{N: rnd.IntN(30)})
			if err != nil {
				t.Errorf("search: %v", err)
				return
			}
			w.checkBounds(found.Bounds, last)
			if found.After.Seq < found.Oldest-1 || found.After.Seq > found.Head.Seq {
				t.Errorf("position %d in a log of %d to %d", found.After.Seq, found.Oldest, found.Head.Seq)
			}
			w.checkFence(found.After)
		})
	})
	// The topic is new to the log: whatever the search looked up before the
	// append, it must not step over the event that came with it.
	t.Run("a search beside the first event of its topic", func(t *testing.T) {
		log := s.open(t, Config{})
		topics := make([]feed.Draft, 2000)
		for i := range topics {
			topics[i] = log.draft()
			topics[i].Topic = fmt.Sprint("other.", i)
		}
		for batch := range slices.Chunk(topics, feed.MaxBatchEvents) {
			log.append(batch...)
		}
		for round := range 100 {
			filter := searched{patterns: []string{fmt.Sprintf("job.%d.*", round)}}.filter(t)
			draft := log.draft()
			draft.Topic = fmt.Sprintf("job.%d.begin", round)
			stored := make(chan uint64, 1)
			go func() {
				receipt, err := log.log.Append(log.ctx, []feed.Draft{draft})
				if err != nil {
					t.Errorf("append: %v", err)
					receipt.Events = make([]feed.Appended, 1)
				}
				stored <- receipt.Events[0].Seq
			}()
			found, err := log.log.Search(log.ctx, feed.Search{Filter: filter, N: 10})
			if seq := <-stored; err != nil || found.After.Seq >= seq {
				t.Fatalf("round %d: read after %d of head %d, but the event is %d (%v)", round, found.After.Seq, found.Head.Seq, seq, err)
			}
		}
	})
}

// world is a log that changes while it is read, and the fences seen in it.
type world struct {
	*testing.T
	log    *subject
	fences sync.Map // seq → fence
}

const raceRetention = 20

func (s *suite) world(t *testing.T) *world {
	return &world{T: t, log: s.open(t, Config{Retention: feed.Retention{Events: raceRetention}})}
}

// while looks at the log again and again from three goroutines, until two
// appenders and a trimmer are done.
func (w *world) while(look func(rnd *rand.Rand, last *feed.Bounds)) {
	const appenders, batches, readers = 2, 100, 3
	var running atomic.Int32
	running.Store(appenders)
	trims := make(chan struct{}, appenders*batches)
	together(appenders+readers+1, func(i int) {
		switch {
		case i < appenders:
			defer func() {
				if running.Add(-1) == 0 {
					close(trims)
				}
			}()
			for b := range batches {
				if b%4 == i {
					trims <- struct{}{}
				}
				drafts := make([]feed.Draft, 1+b%4)
				for j := range drafts {
					drafts[j] = feed.Draft{ID: fmt.Sprintf("%d-%d-%d", i, b, j), Type: "made", Topic: "t", Data: json.RawMessage("1")}
				}
				if _, err := w.log.log.Append(w.log.ctx, drafts); err != nil {
					w.Errorf("append: %v", err)
					return
				}
			}
		case i == appenders:
			for range trims {
				if err := w.log.log.Trim(w.log.ctx); err != nil {
					w.Errorf("trim: %v", err)
					return
				}
				w.log.log.Info()
			}
		default:
			rnd := rand.New(rand.NewPCG(uint64(i), 0))
			last := feed.Bounds{Oldest: 1}
			for running.Load() > 0 && !w.Failed() {
				look(rnd, &last)
				runtime.Gosched() // the appenders need the few processors too
			}
			look(rnd, &last)
		}
	})
}

// checkBounds checks bounds by themselves, and against the reader's last.
func (w *world) checkBounds(b feed.Bounds, last *feed.Bounds) {
	if b.Oldest > b.Head.Seq+1 || b.Head.Seq+1-b.Oldest > raceRetention+8 {
		w.Errorf("oldest %d, head %d", b.Oldest, b.Head.Seq)
	}
	if b.Oldest < last.Oldest || b.Head.Seq < last.Head.Seq || last.Epoch != "" && b.Epoch != last.Epoch {
		w.Errorf("the log went back from %+v to %+v", *last, b)
	}
	if (b.Head.Seq > 0) != b.Head.Fence.Known() {
		w.Errorf("head %+v", b.Head)
	}
	w.checkFence(b.Head)
	*last = b
}

func (w *world) checkPage(page feed.Page, after uint64, limit int) {
	inside := after+1 >= page.Oldest && after <= page.Head.Seq
	want := 0
	if inside {
		want = int(min(page.Head.Seq-after, uint64(limit)))
	}
	if len(page.Events) != want {
		w.Errorf("after %d in a log of %d to %d: %d events, want %d", after, page.Oldest, page.Head.Seq, len(page.Events), want)
	}
	for i, ev := range page.Events {
		if ev.Seq != after+1+uint64(i) {
			w.Errorf("event %d of a page after %d has seq %d", i, after, ev.Seq)
		}
		if string(ev.Data) != "1" || ev.Type != "made" {
			w.Errorf("event %d is not what was stored: %+v", ev.Seq, ev)
		}
		w.checkFence(ev.Position())
	}
	if page.Anchor.Known() && !inside || inside && after >= page.Oldest && !page.Anchor.Known() {
		w.Errorf("after %d in a log of %d to %d: anchor %q", after, page.Oldest, page.Head.Seq, page.Anchor)
	}
	w.checkFence(feed.Position{Seq: after, Fence: page.Anchor})
	w.checkFence(feed.Position{Seq: page.Oldest - 1, Fence: page.TrimmedFence})
}

// checkFence compares a fence, where it is known, with the first one that was
// seen at its seq.
func (w *world) checkFence(p feed.Position) {
	if !p.Fence.Known() {
		return
	}
	if first, _ := w.fences.LoadOrStore(p.Seq, p.Fence); first != p.Fence {
		w.Errorf("seq %d has fence %q, and had %q", p.Seq, p.Fence, first)
	}
}
