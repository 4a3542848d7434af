//go:build linux

package systemtest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// A flood reaches healthy readers whole beside readers that never read, read slowly, or stop for a while, and the
// publisher hardly notices. Each of the slow ones comes to the head in the end, without a gap: it caught up, or was
// cut by the write deadline and came back with its cursor, or was told to resync. 20 healthy readers share the flood;
// the slow ones ask for a part of it, and for bulk that no socket holds. The full test: a flood of 20,000 events for
// which everybody asks, and one that stops for 10 s.
func TestSlowReadersCostNobodyElse(t *testing.T) {
	const batch, healthyReaders, bulk = 100, 20, 400
	events := scaled(4_000, 20_000)
	g := serve(t, "--retain-events", "100000", "--queue-frames", "256", "--queue-bytes", "256KiB",
		"--write-timeout", scaled("2s", "10s"), "--reconnect-delay", "500ms", "--snapshot-events", "100000")
	h := &history{}
	topics := make([]string, healthyReaders)
	for i := range topics {
		topics[i] = fmt.Sprintf("flood.%d", i)
	}
	p := newPublisher(t, g, h, "p", 512, topics...)
	ctx := bounded(t)

	healthy := herd{t: t}
	for i := range healthyReaders {
		r := newReader(g, h, fmt.Sprintf("healthy-%d", i), scaled(topics[i], "flood.>"), "end")
		healthy.run(func() error {
			err := r.toEnd(ctx)
			if r.conns != 1 {
				return fmt.Errorf("%s was cut: it made %d connections", r.name, r.conns)
			}
			return err
		})
	}
	eventually(t, "live readers", func() bool { return g.metrics()[`gapless_connections{state="live"}`] == healthyReaders })
	alone := p.must(t, events/4, batch)

	wanted := []string{scaled(topics[0], "flood.>"), "bulk", "end"}
	never := newReader(g, h, "never", wanted...)
	never.receiveBuffer, never.light = 4<<10, true
	crawling := newReader(g, h, "crawling", wanted...)
	crawling.receiveBuffer, crawling.rate, crawling.light = 4<<10, 10_000, true
	pausing := newReader(g, h, "pausing", wanted...)
	pausing.receiveBuffer, pausing.light = 64<<10, true

	slow := herd{t: t}
	first, err := never.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	stalled := make(chan struct{}) // closed when the reader that never reads may look at what it has
	slow.run(func() error {
		<-stalled
		if err := first.drain(); err != nil {
			return err
		}
		return never.toEnd(ctx)
	})
	crawl, cease := context.WithCancel(ctx)
	slow.run(func() error {
		if err := crawling.toEnd(crawl); err != nil && crawl.Err() == nil {
			return err
		}
		crawling.rate, crawling.receiveBuffer = 0, 0
		return crawling.toEnd(ctx)
	})
	slow.run(func() error {
		frames := 0
		return pausing.follow(ctx, func(rec lawtest.Record) bool {
			if frames++; frames == bulk/4 {
				pause(ctx, scaled(3*time.Second, 10*time.Second))
			}
			return rec.Type == "end"
		})
	})
	eventually(t, "the slow readers", func() bool { return len(g.connections()) == healthyReaders+3 })
	heavy := newPublisher(t, g, h, "heavy", 8<<10, "bulk")
	heavy.light = true
	var beside []time.Duration
	for round := range events / batch {
		if round%(events/batch/10) == 0 {
			heavy.must(t, bulk/10, bulk) // more at once than a queue takes
		}
		beside = append(beside, p.must(t, batch, batch)...)
	}
	p.end(t)
	healthy.wait()

	if g.metrics().sum(t, "gapless_queue_overflows_total") == 0 {
		t.Error("no queue was full: nobody was slow")
	}

	// All the healthy ones are through; now the slow ones may catch up.
	eventually(t, "the reader that never reads is cut", func() bool {
		return g.metrics()[`gapless_stream_write_errors_total{kind="timeout"}`] >= 1
	})
	close(stalled)
	cease()
	slow.wait()
	h.judge(t, lawtest.Options{MustReach: true, SnapshotEvents: 100_000})

	before, with := median(alone), median(beside)
	t.Logf("a batch of %d events took %v without, %v with slow readers (medians)", batch, before, with)
	if with > 5*max(before, 2*time.Millisecond) {
		t.Errorf("publishing took %v beside slow readers, %v without", with, before)
	}
	for _, r := range []*reader{never, crawling, pausing} {
		resyncs, _ := r.state(lawtest.KindResync)
		t.Logf("%s: %d connections, %d resyncs", r.name, r.conns, resyncs)
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// Readers that stall cost the memory of their queues, and no more. The log has dropped their events meanwhile: those
// that read on are told so, and so are those that come back with their cursor.
func TestStalledReadersCostTheirQueues(t *testing.T) {
	t.Parallel()
	const stalled, readOn, retained, queueBytes = 30, 2, 700, 256 << 10
	g := serve(t, "--retain-events", fmt.Sprint(retained), "--queue-frames", "4096", "--queue-bytes", "256KiB",
		"--write-timeout", "5m", "--reconnect-delay", "500ms", "--snapshot-events", fmt.Sprint(retained))
	h := &history{}
	p := newPublisher(t, g, h, "p", 2048, "flood")
	p.light = true
	ctx := bounded(t)

	// The log, the ring and the garbage of publishing are in the base.
	p.must(t, 2*retained, 100)
	base := g.memory("VmHWM")

	var streams []*stream
	for i := range stalled {
		r := newReader(g, h, fmt.Sprintf("stalled-%d", i), "flood", "end")
		r.receiveBuffer, r.start, r.light = 4<<10, "live", true
		s, err := r.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	beside := newReader(g, h, "beside", "mark", "end")
	watching := herd{t: t}
	watching.run(func() error { return beside.toEnd(ctx) })
	eventually(t, "a reader beside them is live", func() bool { n, _ := beside.state(lawtest.KindLive); return n == 1 })
	mark := newPublisher(t, g, h, "mark", 64, "mark")
	for i := range 4 {
		p.must(t, retained, 100)
		mark.must(t, 1, 1)
		// Nobody waits for those that stall, for as long as they may.
		eventually(t, "the reader beside them goes on", func() bool {
			return deliveredToAll([]*reader{beside}, lawtest.KindEvent, i+1)
		})
	}
	peak := g.memory("VmHWM")
	bound := base + stalled*queueBytes + 32<<20
	t.Logf("memory: %d KiB before, %d KiB at most with %d stalled readers, bound %d KiB", base>>10, peak>>10, stalled, bound>>10)
	if peak > bound {
		t.Errorf("%d stalled readers took %d bytes, want at most %d", stalled, peak-base, bound-base)
	}
	m := g.metrics()
	if held := m["gapless_queue_bytes"]; held == 0 || held > stalled*queueBytes {
		t.Errorf("the queues hold %.0f bytes, want some, and at most %d", held, stalled*queueBytes)
	}

	clients := herd{t: t}
	for i, s := range streams {
		clients.run(func() error {
			want := "cursor_expired"
			if i < readOn {
				want = "lagged"
				if err := s.drain(); err != nil {
					return err
				}
			} else {
				s.abort()
				err := s.r.follow(ctx, func(rec lawtest.Record) bool { return rec.Kind == lawtest.KindResync })
				if err != nil {
					return err
				}
			}
			if _, last := s.r.state(lawtest.KindResync); last.Kind != lawtest.KindResync || last.Reason != want {
				return fmt.Errorf("%s ended with %s %s, want a resync for %s", s.r.name, last.Kind, last.Reason, want)
			}
			return s.r.toEnd(ctx)
		})
	}
	eventually(t, "all are told", func() bool { return g.metrics().sum(t, "gapless_resyncs_total") == stalled })
	p.end(t) // behind the head from which they go on
	clients.wait()
	watching.wait()
	h.judge(t, lawtest.Options{MustReach: true, SnapshotEvents: retained})
}

// One large event passes a write deadline that is far shorter than it takes. It is more than the socket holds. The full
// one is 8 MiB at 100 kB/s.
func TestALargeEventReachesAThrottledReader(t *testing.T) {
	t.Parallel()
	size, rate := scaled(5<<20, 8<<20), scaled(1_250_000, 100_000)
	// Such a slow reader acknowledges a whole receive buffer at a time, about once a second.
	g := serve(t, "--write-timeout", scaled("1s", "3s"))
	h := &history{}
	ctx := bounded(t)
	r := newReader(g, h, "throttled", "large", "end")
	r.receiveBuffer, r.rate = 64<<10, rate
	done := make(chan error, 1)
	go func() { done <- r.toEnd(ctx) }()
	eventually(t, "the reader is live", func() bool { n, _ := r.state(lawtest.KindLive); return n == 1 })
	p := newPublisher(t, g, h, "p", size, "large")
	p.must(t, 1, 1)
	p.end(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r.conns != 1 {
		t.Errorf("the reader made %d connections, want 1", r.conns)
	}
	h.judge(t, lawtest.Options{MustReach: true})
}

// A burst that no queue holds costs nobody a resync while the log holds it.
func TestABurstWithinRetentionCostsNoResync(t *testing.T) {
	t.Parallel()
	const readers, events = 8, 1_000
	g := serve(t, "--retain-events", "20000", "--queue-frames", "64")
	h := &history{}
	ctx := bounded(t)
	clients := herd{t: t}
	for i := range readers {
		r := newReader(g, h, fmt.Sprintf("r-%d", i), "burst", "end")
		clients.run(func() error { return r.toEnd(ctx) })
	}
	eventually(t, "all readers are live", func() bool { return g.metrics()[`gapless_connections{state="live"}`] == readers })
	p := newPublisher(t, g, h, "p", 32, "burst")
	p.must(t, events, 500)
	p.end(t)
	clients.wait()
	m := g.metrics()
	if n := m.sum(t, "gapless_resyncs_total"); n != 0 {
		t.Errorf("%.0f readers were told to resync, want none", n)
	}
	if n := m.sum(t, "gapless_queue_overflows_total"); n == 0 {
		t.Error("no queue was full: the burst was none")
	}
	h.judge(t, lawtest.Options{MustReach: true})
}

// A long replay goes on while events are published, at the pace of a slow reader, and takes no memory of its length.
// The full one is 100,000 events behind.
func TestALongReplayWhilePublishing(t *testing.T) {
	t.Parallel()
	behind := scaled(3_000, 100_000)
	g := serve(t, "--retain-events", "1000000", "--retain-bytes", "0", "--queue-bytes", "256KiB", "--snapshot-events", "1000000")
	h := &history{}
	ctx := bounded(t)
	p := newPublisher(t, g, h, "p", 256, "long")
	p.light = true
	p.must(t, behind, 500)
	base := g.memory("VmHWM")

	r := newReader(g, h, "behind", "long", "end")
	r.rate, r.receiveBuffer, r.light = 1_000_000, 64<<10, true
	publish, cease := context.WithCancel(ctx)
	clients := herd{t: t}
	clients.run(func() error {
		for pause(publish, 10*time.Millisecond) {
			if _, err := p.publish(ctx, 1); err != nil {
				return err
			}
		}
		p.end(t)
		return nil
	})
	err := r.follow(ctx, func(rec lawtest.Record) bool {
		if rec.Kind == lawtest.KindLive {
			cease() // it has caught up with a publisher that did not wait
		}
		return rec.Type == "end"
	})
	cease()
	clients.wait()
	if err != nil || r.conns != 1 {
		t.Fatalf("the replay took %d connections: %v", r.conns, err)
	}
	if peak := g.memory("VmHWM"); peak > base+32<<20 {
		t.Errorf("the replay took %d KiB", (peak-base)>>10)
	}
	h.judge(t, lawtest.Options{MustReach: true, SnapshotEvents: 1_000_000})
}
