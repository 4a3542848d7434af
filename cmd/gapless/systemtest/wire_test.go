//go:build linux

package systemtest_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gapless/feed/lawtest"
)

// A stream is never compressed, whatever the client takes: nothing that gathers bytes may hold an event back.
func TestStreamsAreNotCompressed(t *testing.T) {
	t.Parallel()
	g := serve(t)
	h := &history{}
	ctx := bounded(t)
	r := newReader(g, h, "r", "news", "end")
	r.header = "Accept-Encoding: gzip, br, zstd\r\n"
	s, err := r.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, name := range []string{"Content-Encoding", "Content-Length"} {
		if value := s.resp.Header.Get(name); value != "" {
			t.Errorf("the head has %s: %s", name, value)
		}
	}
	until(t, s, lawtest.KindLive)
	p := newPublisher(t, g, h, "p", 64, "news")
	for range 3 {
		p.must(t, 1, 1)
		until(t, s, lawtest.KindEvent) // each one before the next is published
	}
	h.judge(t, lawtest.Options{MustReach: true})
}

// A client of HTTP/1.0 gets no chunks, and its stream ends with the connection.
func TestHTTP10Clients(t *testing.T) {
	t.Parallel()
	g := serve(t)
	h := &history{}
	ctx := bounded(t)
	p := newPublisher(t, g, h, "p", 64, "news")
	clients := herd{t: t}
	for i := range 2 {
		r := newReader(g, h, fmt.Sprintf("r-%d", i), "news", "end")
		r.version = "HTTP/1.0"
		s, err := r.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if len(s.resp.TransferEncoding) > 0 {
			t.Errorf("the head has Transfer-Encoding: %s", s.resp.TransferEncoding)
		}
		until(t, s, lawtest.KindLive)
		clients.run(s.drain)
	}
	p.must(t, 10, 3)
	eventually(t, "everything is delivered", func() bool { return len(h.of("", lawtest.KindEvent)) == 20 })
	for _, c := range g.connections() {
		g.call(http.MethodDelete, "/api/v1/connections/"+c.ID, http.StatusNoContent)
	}
	clients.wait()
	h.judge(t, lawtest.Options{MustReach: true})
}

// A second request that is already in the stream's connection breaks nothing.
func TestPipelinedRequestDoesNotBreakAStream(t *testing.T) {
	t.Parallel()
	g := serve(t)
	h := &history{}
	r := newReader(g, h, "r", "news", "end")
	s, err := r.dial(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	second := "GET /healthz HTTP/1.1\r\nHost: " + g.addr + "\r\n\r\n"
	if _, err := io.WriteString(s.conn, second); err != nil {
		t.Fatal(err)
	}
	if err := s.head(); err != nil {
		t.Fatal(err)
	}
	until(t, s, lawtest.KindLive)
	if _, err := io.WriteString(s.conn, second); err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, g, h, "p", 64, "news")
	for range 3 {
		p.must(t, 1, 1)
		until(t, s, lawtest.KindEvent)
	}
	h.judge(t, lawtest.Options{MustReach: true})
}

// Heartbeats every millisecond, beside events of a mebibyte: no frame is ever written inside another.
func TestHeartbeatsNeverCutAFrame(t *testing.T) {
	t.Parallel()
	const events = 2
	g := serve(t, "--heartbeat", "1ms")
	h := &history{}
	ctx := bounded(t)
	clients := herd{t: t}
	fast, slow := newReader(g, h, "fast", "large", "end"), newReader(g, h, "slow", "large", "end")
	slow.rate = 4 << 20
	clients.run(func() error { return fast.toEnd(ctx) })
	clients.run(func() error { return slow.toEnd(ctx) })
	both := func(kind lawtest.Kind, n int) func() bool {
		return func() bool { return deliveredToAll([]*reader{fast, slow}, kind, n) }
	}
	eventually(t, "both are live", both(lawtest.KindLive, 1))
	p := newPublisher(t, g, h, "p", 1<<20, "large")
	for i := range events {
		p.must(t, 1, 1)
		eventually(t, "both have event "+strconv.Itoa(i), both(lawtest.KindEvent, i+1))
		heartbeats, _ := slow.state(lawtest.KindHeartbeat)
		eventually(t, "heartbeats go on", both(lawtest.KindHeartbeat, heartbeats+1))
	}
	p.end(t)
	clients.wait()
	h.judge(t, lawtest.Options{MustReach: true})
}

// A cursor one behind the head of a log of many events gets one event, and not a scan from the oldest end that gives
// up before it is there.
func TestACursorNearTheHeadOfALongLog(t *testing.T) {
	t.Parallel()
	const events = 10_050
	g := serve(t, "--retain-events", "20000", "--scan-limit", "1000")
	h := &history{}
	ctx := bounded(t)
	p := newPublisher(t, g, h, "p", 8, "long")
	p.light = true
	p.must(t, events, 1_000)
	var page struct {
		Events []struct {
			Seq    uint64 `json:"seq"`
			Cursor string `json:"cursor"`
		} `json:"events"`
	}
	decode(t, g.get("/api/v1/events?start=last:2&topic=long"), &page)
	r := newReader(g, h, "r", "long", "end")
	r.light = true
	r.cursor = page.Events[0].Cursor
	s, err := r.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	until(t, s, lawtest.KindLive)
	if got := h.of("r", lawtest.KindEvent); len(got) != 1 || got[0].Seq != page.Events[1].Seq {
		t.Errorf("got %d events before server.live, want the last one alone", len(got))
	}
	h.judge(t, lawtest.Options{MustReach: true})
}

// The block that ends a stream early has no id. A client keeps the one before, and resumes from there.
func TestABlockWithoutAnIDKeepsTheCursor(t *testing.T) {
	t.Parallel()
	g := serve(t, "--reconnect-delay", "500ms")
	h := &history{}
	ctx := bounded(t)
	p := newPublisher(t, g, h, "p", 64, "news")
	p.must(t, 3, 3)
	r := newReader(g, h, "r", "news", "end")
	clients := herd{t: t}
	clients.run(func() error { return r.toEnd(ctx) })
	eventually(t, "the client is live", func() bool { return len(h.of("r", lawtest.KindLive)) == 1 })
	g.call(http.MethodDelete, "/api/v1/connections/"+g.connections()[0].ID, http.StatusNoContent)
	eventually(t, "the client is told to leave", func() bool { return len(h.of("r", lawtest.KindDraining)) == 1 })
	p.must(t, 3, 3)
	p.end(t)
	clients.wait()
	if draining := h.of("r", lawtest.KindDraining)[0]; draining.Cursor != h.of("r", lawtest.KindSubscribe)[1].Cursor || draining.Reason != "cut" {
		t.Errorf("the client resumed with another cursor than it had: %+v", draining)
	}
	if n := len(h.of("r", lawtest.KindEvent)); n != 7 {
		t.Errorf("%d events, want 3 before, 3 while away, and the end", n)
	}
	h.judge(t, lawtest.Options{MustReach: true})
}

// The ids that a client sends back have letters, digits and hyphens only, and are short, so that no browser asks
// first whether it may send them; one that asks all the same is answered.
func TestCursorsNeedNoPreflight(t *testing.T) {
	t.Parallel()
	g := serve(t, "--heartbeat", "50ms")
	h := &history{}
	ctx := bounded(t)
	newPublisher(t, g, h, "p", 64, "news").must(t, 3, 3)
	s, err := newReader(g, h, "r", "news", "end").open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	until(t, s, lawtest.KindHeartbeat)
	stale := newReader(g, h, "stale", "news", "end")
	stale.cursor = cursorOf(h.of("r", lawtest.KindConnected)[0].Epoch, 1_000)
	if err := stale.follow(ctx, func(rec lawtest.Record) bool { return rec.Kind == lawtest.KindResync }); err != nil {
		t.Fatal(err)
	}
	safe, seen := regexp.MustCompile(`^[0-9A-Z-]{1,63}$`), 0
	for _, rec := range h.all() {
		if rec.Kind == lawtest.KindPublish || rec.Kind == lawtest.KindSubscribe || rec.Kind == lawtest.KindCut {
			continue
		}
		if seen++; !safe.MatchString(rec.Cursor) {
			t.Errorf("the id of %s is %q", rec.Kind, rec.Cursor)
		}
	}
	if seen < 7 { // connected, 3 events, live, heartbeat, resync
		t.Errorf("%d frames", seen)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, "http://"+g.addr+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Origin", "http://localhost:3000")
	req.Header.Set("Access-Control-Request-Method", "GET")
	req.Header.Set("Access-Control-Request-Headers", "last-event-id")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if allowed := resp.Header.Get("Access-Control-Allow-Headers"); resp.StatusCode != http.StatusNoContent ||
		resp.Header.Get("Access-Control-Allow-Origin") == "" || !strings.Contains(strings.ToLower(allowed), "last-event-id") {
		t.Errorf("the preflight is answered by %s %v", resp.Status, resp.Header)
	}
	h.judge(t, lawtest.Options{})
}
