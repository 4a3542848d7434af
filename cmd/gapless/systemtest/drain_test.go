//go:build linux

package systemtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gapless/feed/lawtest"
)

// A stop in the middle of publishing: each stream gets what was acknowledged, then server.draining, and the program
// ends with 0, and not by force. The full test has 1,000 streams.
func TestStopWithManyStreams(t *testing.T) {
	t.Parallel()
	streams := scaled(500, 1_000)
	g := serve(t, "--drain-timeout", "30s", "--write-timeout", "1m")
	h := &history{}
	ctx := bounded(t)
	clients := herd{t: t}
	busy := newReader(g, h, "busy", "large", "shard.*") // is in the middle of a large event when the stop comes
	busy.receiveBuffer, busy.light = 64<<10, true
	stopping := make(chan struct{})
	readers := []*reader{busy}
	for i := range streams {
		readers = append(readers, newReader(g, h, fmt.Sprintf("r-%d", i), fmt.Sprintf("shard.%d", i%10)))
	}
	for _, r := range readers {
		clients.run(func() error {
			s, err := r.open(ctx)
			for err == nil {
				var rec lawtest.Record
				if rec, err = s.next(); r == busy && rec.Kind == lawtest.KindLive {
					<-stopping
				}
			}
			if !gone(err) {
				return err
			}
			if _, last := r.state(lawtest.KindDraining); last.Kind != lawtest.KindDraining || last.Reason != "shutdown" {
				return fmt.Errorf("%s ended with %s %s, want draining for shutdown", r.name, last.Kind, last.Reason)
			}
			return nil
		})
	}
	eventually(t, "all are live", func() bool { return deliveredToAll(readers, lawtest.KindLive, 1) })

	large := newPublisher(t, g, h, "large", 5<<20, "large")
	large.light = true
	large.must(t, 1, 1)
	topics := make([]string, 10)
	for i := range topics {
		topics[i] = fmt.Sprintf("shard.%d", i)
	}
	p := newPublisher(t, g, h, "p", 64, topics...)
	publish, cease := context.WithCancel(ctx)
	defer cease()
	begun := make(chan struct{})
	clients.run(func() error {
		for range 10 {
			if _, err := p.publish(publish, 10); err != nil {
				return err
			}
		}
		close(begun)
		for {
			if _, err := p.publish(publish, 10); err != nil {
				return nil // the server stops: refused, or no answer
			}
		}
	})
	<-begun
	g.signal(syscall.SIGTERM)
	close(stopping)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	cease()
	clients.wait()
	if strings.Contains(g.stderr.String(), "the drain timeout has passed") {
		t.Error("streams were closed by force")
	}

	var retries []int64
	for _, rec := range h.of("", lawtest.KindDraining) {
		retries = append(retries, rec.RetryMillis)
	}
	slices.Sort(retries)
	if retries[0] < 500 || retries[len(retries)-1] > 60_000 {
		t.Errorf("retry fields are between %d and %d ms", retries[0], retries[len(retries)-1])
	}
	if n := len(slices.Compact(retries)); n < streams/4 {
		t.Errorf("%d streams were given %d different times to come back", streams, n)
	}
	h.judge(t, lawtest.Options{MustReach: true})
}

// What was accepted before a stop is never lost to a client that comes back to a server with an empty memory: it has
// it, or it is told to resync. Several stops, a publisher that never pauses, and clients that follow.
func TestStopsUnderFollowers(t *testing.T) {
	t.Parallel()
	const stops, followers = 3, 8
	g := serve(t, "--reconnect-delay", "500ms", "--retain-events", "100000", "--snapshot-events", "100000")
	h := &history{}
	ctx := bounded(t)
	clients := herd{t: t}
	readers := make([]*reader, followers)
	for i := range followers {
		r := newReader(g, h, fmt.Sprintf("r-%d", i), "work", "end")
		readers[i] = r
		clients.run(func() error { return r.toEnd(ctx) })
	}
	for i := range stops {
		eventually(t, "all are live", func() bool {
			return g.metrics()[`gapless_connections{state="live"}`] == followers
		})
		p := newPublisher(t, g, h, fmt.Sprintf("p%d", i), 64, "work")
		publish, cease := context.WithCancel(ctx)
		enough := make(chan struct{})
		publishing := herd{t: t}
		publishing.run(func() error {
			defer close(enough)
			for range 30 {
				if _, err := p.publish(publish, 5); err != nil {
					return err
				}
			}
			return nil
		})
		<-enough
		publishing.run(func() error {
			for {
				if _, err := p.publish(publish, 5); errors.Is(err, context.Canceled) {
					return nil
				} else if err != nil {
					<-publish.Done()
				}
			}
		})
		g.signal(syscall.SIGTERM)
		if code := g.wait(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		cease()
		publishing.wait()
		g.start()
	}
	eventually(t, "all are live", func() bool { return g.metrics()[`gapless_connections{state="live"}`] == followers })
	newPublisher(t, g, h, "last", 64, "work").end(t)
	clients.wait()
	h.judge(t, lawtest.Options{MustReach: true, SnapshotEvents: 100_000})
}
