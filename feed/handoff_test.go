package feed_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/memory"
)

// TestTheHandoffUnderAPublisherThatNeverPauses resumes 1,000 times while
// events are published flat out: each stream goes on exactly where the one
// before was cut, wherever that was.
func TestTheHandoffUnderAPublisherThatNeverPauses(t *testing.T) {
	const readers, resumes = 8, 1000
	log, err := memory.New(memory.Config{Retention: feed.Retention{Events: 1_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, log, feed.Config{QueueFrames: 64, RingEvents: 256})
	defer r.stop()
	r.batch(1000)

	var stop atomic.Bool
	var publishing, reading sync.WaitGroup
	publishing.Go(func() {
		drafts := make([]feed.Draft, 3)
		for i := range drafts {
			drafts[i] = feed.Draft{Type: "n", Topic: "t.0"}
		}
		for !stop.Load() {
			if _, err := r.feed.Publish(t.Context(), drafts); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for n := range readers {
		reading.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(n)))
			last, cursor := uint64(0), "0"
			opts := feed.SubscribeOptions{From: feed.From{Start: feed.Start{Mode: feed.StartAll}}}
			for range resumes / readers {
				at, err := feed.ParseCursor(cursor)
				if err != nil {
					t.Error(err)
					return
				}
				opts.Cursor = at
				sub, err := r.feed.Subscribe(t.Context(), opts)
				if err != nil {
					t.Error(err)
					return
				}
				for range rnd.IntN(4) {
					frames, err := sub.Next(t.Context())
					if err != nil {
						t.Error(err)
						break
					}
					for _, f := range frames {
						b := parse(f.Bytes)
						if b.name == "n" {
							if b.seq() != last+1 {
								t.Errorf("reader %d: seq %d after %d", n, b.seq(), last)
								stop.Store(true)
							}
							last = b.seq()
						} else if f.Seq > last {
							t.Errorf("reader %d: %s at %d, but the last event was %d", n, b.name, f.Seq, last)
						}
						cursor = b.id
					}
				}
				sub.Close()
			}
		})
	}
	reading.Wait()
	stop.Store(true)
	publishing.Wait()
}

// TestTheSeamsOfTheHandoff publishes one event exactly when a stream has
// reached one before, at, and one after the seam between replay and live.
func TestTheSeamsOfTheHandoff(t *testing.T) {
	for _, steps := range []int{0, 1, 2, 3} {
		for _, ring := range []int{1, 3, 100} {
			inMemory(t, feed.Retention{Events: 1000}, feed.Config{RingEvents: ring}, func(r *rig) {
				r.publish(1, 10)
				time.Sleep(time.Millisecond)
				rd := r.subscribe(r.at(string(r.feed.Status().Epoch) + "-7"))
				for range steps {
					rd.step()
				}
				r.publish(11, 11)
				rd.drain()
				r.publish(12, 12)
				rd.drain()
				rd.wantSeqs(upTo(8, 12))
				rd.close()
			})
		}
	}
}
