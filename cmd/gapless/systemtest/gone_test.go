//go:build linux

package systemtest_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gapless/feed/lawtest"
)

// Clients that come and vanish, most of them with a reset in the middle of an event, leave nothing behind: no
// goroutine, no file descriptor, no memory. The full test has 10,000 of them.
func TestAbruptDisconnectsLeaveNothing(t *testing.T) {
	t.Parallel()
	const workers = 4
	visits := scaled(2_000, 10_000)
	g := prepare(t)
	g.env = []string{"GOGC=10"} // so that the heap is what is in use, more or less
	g.start()
	h := &history{}
	ctx := bounded(t)
	publish, cease := context.WithCancel(ctx)
	p := newPublisher(t, g, h, "p", 2_000, "flood")
	publishing := herd{t: t}
	publishing.run(func() error {
		for pause(publish, 10*time.Millisecond) {
			if _, err := p.publish(ctx, 2); err != nil {
				return err
			}
		}
		return nil
	})
	var visitor atomic.Int64
	visit := func(n int) {
		clients := herd{t: t}
		for range workers {
			clients.run(func() error {
				for range n / workers {
					if err := vanish(ctx, g, h, int(visitor.Add(1))); err != nil {
						return err
					}
				}
				return nil
			})
		}
		clients.wait()
	}
	visit(200)
	newPublisher(t, g, h, "fill", 2_000, "flood").must(t, 1_024, 128) // what the log retains is in the base
	base := atRest(t, g)
	visit(visits)
	for range scaled(100, 500) {
		g.call(http.MethodHead, "/events", http.StatusOK)
	}
	cease()
	publishing.wait()
	after := atRest(t, g)
	t.Logf("%d visits: base %+v, after %+v", visits, base, after)
	if after.heap > base.heap+4<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", base.heap, after.heap)
	}
	eventually(t, "goroutines and descriptors as before", func() bool {
		now := atRest(t, g)
		return now.goroutines <= base.goroutines+5 && now.descriptors <= base.descriptors+5
	})
	h.judge(t, lawtest.Options{})
}

// vanish is one visit: it ends at once, in the head, in an event, or quietly.
func vanish(ctx context.Context, g *gateway, h *history, n int) error {
	r := newReader(g, h, fmt.Sprintf("v-%d", n), "flood")
	r.start = "last:2"
	s, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer s.abort()
	switch n % 4 {
	case 0: // the request was sent, and that was it
	case 1, 2:
		if err := s.head(); err != nil {
			return err
		}
		return s.discard(n % 3_000)
	case 3:
		if err := s.head(); err != nil {
			return err
		}
		if _, err := s.next(); err != nil {
			return err
		}
		s.close()
	}
	return nil
}

// usage is what a program without clients uses.
type usage struct{ goroutines, descriptors, heap int64 }

// atRest waits until no stream is left, and measures.
func atRest(t *testing.T, g *gateway) usage {
	t.Helper()
	var m metrics
	eventually(t, "no stream is left", func() bool {
		var status struct {
			Connections struct {
				Total int `json:"total"`
			} `json:"connections"`
		}
		decode(t, g.get("/api/v1/status"), &status)
		m = g.metrics()
		return status.Connections.Total == 0 && m.sum(t, "gapless_connections") == 0
	})
	return usage{
		goroutines:  int64(m.sum(t, "go_goroutines")),
		descriptors: int64(m.sum(t, "process_open_fds")),
		heap:        int64(m.sum(t, "go_memstats_heap_alloc_bytes")),
	}
}

// A peer that vanishes without a word, so that nothing it is sent is ever acknowledged, is forgotten; and meanwhile
// the heartbeats of all the others go on.
func TestHalfOpenPeersAreForgotten(t *testing.T) {
	t.Parallel()
	const silence = "2s" // more than two heartbeats, so that it is this that ends the connection
	g := serve(t, "--heartbeat", "200ms", "--write-timeout", silence)
	h := &history{}
	ctx := bounded(t)
	healthy := newReader(g, h, "healthy", "quiet")
	watch, cease := context.WithCancel(ctx)
	clients := herd{t: t}
	clients.run(func() error {
		err := healthy.follow(watch, func(lawtest.Record) bool { return false })
		if watch.Err() != nil {
			return nil
		}
		return err
	})
	gone := newReader(g, h, "gone", "quiet")
	s, err := gone.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are there", func() bool { return len(g.connections()) == 2 })
	before, _ := healthy.state(lawtest.KindHeartbeat)
	if err := blackhole(s); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the peer is forgotten", func() bool { return len(g.connections()) == 1 })
	during, _ := healthy.state(lawtest.KindHeartbeat)
	// Ten would be on time. A server that waits for the dead peer sends none.
	if n := during - before; n < 4 {
		t.Errorf("%d heartbeats reached the other client while one peer was dead, want at least 4", n)
	}
	cease()
	clients.wait()
	if healthy.conns != 1 {
		t.Errorf("the healthy client made %d connections, want 1", healthy.conns)
	}
	h.judge(t, lawtest.Options{})
}

// blackhole makes the kernel drop all that arrives for the connection, unacknowledged: what a peer looks like whose
// cable was pulled.
func blackhole(s *stream) error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	if err != nil {
		return err
	}
	return set
}

// More clients than file descriptors: those that do not fit wait, the program neither ends nor spins, and once some
// have left there is room again.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	const limit, wanted = 256, 300
	g := prepare(t)
	g.shell = fmt.Sprintf("ulimit -n %d", limit)
	g.start()
	h := &history{}
	ctx := bounded(t)
	p := newPublisher(t, g, h, "p", 64, "news")
	p.must(t, 1, 1) // on a connection that it keeps

	var streams []*stream
	for i := range wanted {
		s, err := newReader(g, h, fmt.Sprintf("r-%d", i), "news", "end").dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	eventually(t, "the descriptors have run out", func() bool {
		return g.descriptors() == limit
	})
	used := g.cpu()
	pause(ctx, 2*time.Second)
	if used = g.cpu() - used; used > 600*time.Millisecond {
		t.Errorf("it used %v of processor time in 2 s without descriptors", used)
	}
	select {
	case <-g.exited:
		t.Fatal("the program has ended")
	default:
	}

	for _, s := range streams[:wanted/2] {
		s.abort()
	}
	late := newReader(g, h, "late", "news", "end")
	clients := herd{t: t}
	clients.run(func() error { return late.toEnd(ctx) })
	for _, s := range streams[wanted/2:] {
		clients.run(func() error {
			err := s.head()
			for err == nil && !s.cut {
				var rec lawtest.Record
				if rec, err = s.next(); err == nil && rec.Type == "end" {
					s.close()
				}
			}
			return err
		})
	}
	eventually(t, "the others are there", func() bool {
		return len(h.of("", lawtest.KindLive)) == wanted/2+1
	})
	p.must(t, 3, 1)
	p.end(t)
	clients.wait()
	if late.conns != 1 {
		t.Errorf("the late client made %d connections, want 1", late.conns)
	}
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.judge(t, lawtest.Options{})
}
