//go:build linux

package systemtest_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// A server that is killed and starts anew with an empty memory, on the same port, tells each returning client once to
// resync, and then gives it a snapshot; nobody loops, and each ends with the list that the new log has. The new
// log's numbers are lower than the old ones, so that a client that filtered by number would see nothing.
func TestRestartAfterAKill(t *testing.T) {
	t.Parallel()
	const pages = 50
	g := serve(t, "--reconnect-delay", "500ms")
	h := &history{}
	ctx := bounded(t)
	p := newPublisher(t, g, h, "before", 64, "orders.eu", "orders.us")
	p.must(t, 40, 10)

	clients := herd{t: t}
	lists := make([][]string, pages)
	readers := make([]*reader, pages)
	for i := range pages {
		r := newReader(g, h, fmt.Sprintf("page-%d", i))
		readers[i] = r
		clients.run(func() error {
			return r.follow(ctx, func(rec lawtest.Record) bool {
				switch {
				case rec.Kind == lawtest.KindConnected && rec.Start == "snapshot":
					lists[i] = nil // the one line that a page with state needs
				case rec.Kind == lawtest.KindEvent:
					lists[i] = append(lists[i], rec.ID)
				}
				return rec.Type == "end"
			})
		})
	}
	eventually(t, "all pages have everything", func() bool { return deliveredToAll(readers, lawtest.KindEvent, 41) }) // 40 and server.status
	g.kill()
	g.start()
	// They are all back before anything is published: the new log has its server.status alone.
	eventually(t, "all pages have been told", func() bool { return deliveredToAll(readers, lawtest.KindEvent, 41+1) })
	p = newPublisher(t, g, h, "after", 64, "orders.eu", "orders.us")
	p.must(t, 20, 10)
	eventually(t, "all pages have everything", func() bool { return deliveredToAll(readers, lawtest.KindEvent, 41+21) })
	p.end(t)
	clients.wait()

	log := g.log()
	var want []string
	for _, rec := range log {
		want = append(want, rec.ID)
	}
	for i, r := range readers {
		resyncs := h.of(r.name, lawtest.KindResync)
		if len(resyncs) != 1 || resyncs[0].Reason != "epoch_changed" {
			t.Errorf("%s was told to resync %v, want once for epoch_changed", r.name, resyncs)
		}
		// One before the restart, one that ends with the resync, one with the snapshot.
		if n := len(h.of(r.name, lawtest.KindSubscribe)); n != 3 {
			t.Errorf("%s made %d requests, want 3", r.name, n)
		}
		if !slices.Equal(lists[i], want) {
			t.Errorf("%s shows %v, the log has %v", r.name, lists[i], want)
		}
	}
	h.judge(t, lawtest.Options{MustReach: true, Log: log})
}

// deliveredToAll reports whether every reader got so many frames of a kind, over all its connections.
func deliveredToAll(readers []*reader, kind lawtest.Kind, frames int) bool {
	return !slices.ContainsFunc(readers, func(r *reader) bool {
		n, _ := r.state(kind)
		return n < frames
	})
}

// Clients that a stop sends away come back over the whole time that the server names, and not together. The full
// test has 1,000 of them.
func TestReconnectsAreSpread(t *testing.T) {
	t.Parallel()
	clientsN := scaled(300, 1_000)
	g := serve(t, "--reconnect-delay", "2s")
	h := &history{}
	ctx := bounded(t)
	clients := herd{t: t}
	for i := range clientsN {
		r := newReader(g, h, fmt.Sprintf("r-%d", i), "quiet")
		clients.run(func() error {
			return r.follow(ctx, func(rec lawtest.Record) bool {
				return rec.Kind == lawtest.KindConnected && r.conns > 1 && rec.Start == "snapshot"
			})
		})
	}
	eventually(t, "all are live", func() bool { return len(h.of("", lawtest.KindLive)) == clientsN })
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	g.start()
	clients.wait()

	var retries, arrivals []int64
	for _, rec := range h.of("", lawtest.KindDraining) {
		retries = append(retries, rec.RetryMillis)
	}
	for i := range clientsN {
		// The second connection is the first that the new server has.
		for _, rec := range h.of(fmt.Sprintf("r-%d", i), lawtest.KindSubscribe) {
			if rec.Conn == 2 {
				arrivals = append(arrivals, rec.Time.UnixMilli())
			}
		}
	}
	if len(retries) != clientsN || len(arrivals) != clientsN {
		t.Fatalf("%d clients were told when to come back, and %d came, want %d", len(retries), len(arrivals), clientsN)
	}
	for what, times := range map[string][]int64{"retry fields": retries, "arrivals": arrivals} {
		slices.Sort(times)
		buckets := map[int64]int{}
		fullest := 0
		for _, ms := range times {
			buckets[(ms-times[0])/250]++
			fullest = max(fullest, buckets[(ms-times[0])/250])
		}
		width := time.Duration(times[len(times)-1]-times[0]) * time.Millisecond
		t.Logf("%s: over %v, at most %d of %d in 250 ms", what, width, fullest, clientsN)
		if width < time.Second || fullest > clientsN/2 {
			t.Errorf("%s are not spread: over %v, %d of %d in one quarter of a second", what, width, fullest, clientsN)
		}
	}
	var delays []int64
	for _, rec := range h.of("", lawtest.KindConnected) {
		delays = append(delays, rec.RetryMillis)
	}
	slices.Sort(delays)
	if n := len(slices.Compact(delays)); n < clientsN/10 {
		t.Errorf("server.connected names %d different times to %d clients", n, clientsN)
	}
	h.judge(t, lawtest.Options{})
}
