package feed_test

import (
	"context"
	"fmt"
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

// TestASubscribeBesideTheFirstEventsOfItsTopic: a stream that begins while its
// topic does brings every event of it, however it asks.
func TestASubscribeBesideTheFirstEventsOfItsTopic(t *testing.T) {
	log, err := memory.New(memory.Config{Retention: feed.Retention{Events: 100_000}})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, log, feed.Config{QueueFrames: 2, RingEvents: 4})
	defer r.stop()
	for range 3 {
		drafts := make([]feed.Draft, 1000)
		for i := range drafts {
			drafts[i] = feed.Draft{Type: "other", Topic: fmt.Sprintf("other.%d", i)}
		}
		if _, err := r.feed.Publish(t.Context(), drafts); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 200 {
		job := fmt.Sprintf("job.%d", round)
		var patterns, types []string
		switch round % 5 {
		case 0:
			patterns = []string{job + ".*"}
		case 1:
			patterns = []string{job + ".>", "none.*"}
		case 2:
			patterns = []string{job + ".0", job + ".1", job + ".2"}
		case 3:
			types = []string{job}
		case 4:
			patterns, types = []string{"job.*.*"}, []string{job}
		}
		filter, err := feed.NewFilter(patterns, types, round%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		published := make(chan error, 1)
		go func() {
			for i := range 3 {
				if _, err := r.feed.Publish(t.Context(), []feed.Draft{{Type: job, Topic: fmt.Sprintf("%s.%d", job, i)}}); err != nil {
					published <- err
					return
				}
			}
			published <- nil
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		sub, err := r.feed.Subscribe(ctx, feed.SubscribeOptions{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		var topics []string
		for len(topics) < 3 {
			frames, err := sub.Next(ctx)
			if err != nil {
				t.Fatalf("round %d: %v, only %v came", round, err, topics)
			}
			for _, f := range frames {
				if b := parse(f.Bytes); b.name == job {
					topics = append(topics, fmt.Sprint(b.field("topic")))
				}
			}
		}
		sub.Close()
		cancel()
		if want := fmt.Sprintf("[%s.0 %s.1 %s.2]", job, job, job); fmt.Sprint(topics) != want {
			t.Fatalf("round %d: %v, want %s", round, topics, want)
		}
		if err := <-published; err != nil {
			t.Fatal(err)
		}
	}
}
