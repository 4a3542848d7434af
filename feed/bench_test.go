package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gapless/feed"
	"gapless/feed/memory"
)

// running runs a feed and returns what stops it.
func running(tb testing.TB, f *feed.Feed) (stop func()) {
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	if err := f.WaitReady(ctx); err != nil {
		tb.Fatal(err)
	}
	return func() { cancel(); <-done }
}

// benchFeed is a running feed over a memory log.
func benchFeed(b *testing.B, retention uint64, cfg feed.Config) *feed.Feed {
	log, err := memory.New(memory.Config{Retention: feed.Retention{Events: retention}})
	if err != nil {
		b.Fatal(err)
	}
	cfg.Log = log
	f, err := feed.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(running(b, f))
	return f
}

// payload is 512 bytes of JSON.
func payload() json.RawMessage {
	return json.RawMessage(`{"n":1,"pad":"` + strings.Repeat("x", 496) + `"}`)
}

func publishBatch(b *testing.B, f *feed.Feed, n int) {
	drafts := make([]feed.Draft, n)
	for i := range drafts {
		drafts[i] = feed.Draft{Topic: "t", Data: payload()}
	}
	if _, err := f.Publish(b.Context(), drafts); err != nil {
		b.Fatal(err)
	}
}

// until reads a subscriber until it has had n more events.
func until(b *testing.B, sub *feed.Subscriber, n int) {
	for n > 0 {
		frames, err := sub.Next(b.Context())
		if err != nil {
			b.Error(err)
			return
		}
		for _, frame := range frames {
			if !frame.Control {
				n--
			}
		}
	}
}

// BenchmarkFanOut is one publish until every subscriber has it, each on a
// goroutine of its own. It also shows that the event is encoded once.
func BenchmarkFanOut(b *testing.B) {
	for _, subscribers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			f := benchFeed(b, 4096, feed.Config{})
			var wg, round sync.WaitGroup
			ctx, cancel := context.WithCancel(b.Context())
			for range subscribers {
				sub, err := f.Subscribe(ctx, feed.SubscribeOptions{From: feed.From{Start: feed.Start{Mode: feed.StartLive}}})
				if err != nil {
					b.Fatal(err)
				}
				wg.Go(func() {
					defer sub.Close()
					for {
						frames, err := sub.Next(ctx)
						if err != nil {
							return
						}
						for _, frame := range frames {
							if !frame.Control {
								round.Done()
							}
						}
					}
				})
			}
			b.ReportAllocs()
			before := f.Stats()
			for b.Loop() {
				round.Add(subscribers)
				publishBatch(b, f, 1)
				round.Wait()
			}
			after := f.Stats()
			published := after.EventsPublished - before.EventsPublished
			b.ReportMetric(float64(after.Encodings[feed.Shape{}]-before.Encodings[feed.Shape{}])/float64(published), "encodings/event")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(published)/float64(subscribers), "ns/delivery")
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkEncode is the encoding of one event in each shape, by a snapshot
// of which the ring holds none.
func BenchmarkEncode(b *testing.B) {
	for _, shape := range []feed.Shape{{}, {Format: feed.FormatRaw}} {
		b.Run(shape.String(), func(b *testing.B) {
			f := benchFeed(b, 1024, feed.Config{RingEvents: 1})
			publishBatch(b, f, 512)
			publishBatch(b, f, 512)
			b.ReportAllocs()
			for b.Loop() {
				sub, err := f.Subscribe(b.Context(), feed.SubscribeOptions{Shape: shape})
				if err != nil {
					b.Fatal(err)
				}
				until(b, sub, 1024)
				sub.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/event")
		})
	}
}

// BenchmarkSnapshot is a subscribe that reads 1,024 retained events out of
// the ring, whose frames are ready.
func BenchmarkSnapshot(b *testing.B) {
	f := benchFeed(b, 1024, feed.Config{})
	publishBatch(b, f, 512)
	publishBatch(b, f, 512)
	b.ReportAllocs()
	for b.Loop() {
		sub, err := f.Subscribe(b.Context(), feed.SubscribeOptions{})
		if err != nil {
			b.Fatal(err)
		}
		until(b, sub, 1024)
		sub.Close()
	}
}

// BenchmarkSubscribe is a subscribe at the head, up to server.live.
func BenchmarkSubscribe(b *testing.B) {
	f := benchFeed(b, 1024, feed.Config{})
	publishBatch(b, f, 10)
	b.ReportAllocs()
	for b.Loop() {
		sub, err := f.Subscribe(b.Context(), feed.SubscribeOptions{From: feed.From{Start: feed.Start{Mode: feed.StartLive}}})
		if err != nil {
			b.Fatal(err)
		}
		for range 2 {
			if _, err := sub.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		sub.Close()
	}
}

// BenchmarkLagAndRejoin is a burst of 500 events over a queue of 64: what was
// accepted, the rest from the log, and live again.
func BenchmarkLagAndRejoin(b *testing.B) {
	f := benchFeed(b, 10_000, feed.Config{QueueFrames: 64, RingEvents: 64})
	sub, err := f.Subscribe(b.Context(), feed.SubscribeOptions{From: feed.From{Start: feed.Start{Mode: feed.StartLive}}})
	if err != nil {
		b.Fatal(err)
	}
	defer sub.Close()
	b.ReportAllocs()
	for b.Loop() {
		publishBatch(b, f, 500)
		until(b, sub, 500)
	}
	stats := f.Stats()
	b.ReportMetric(float64(stats.Rejoins)/float64(b.N), "rejoins/op")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/event")
}
