package server_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func shutGateway(t *testing.T) (*durableLog, *gateway) {
	d := newDurable(t)
	if _, err := d.Append(t.Context(), []feed.Draft{{Type: "a", Topic: "t", ID: "x", Data: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	d.tripped = true
	g := start(t, d.serve, func(o *options) { o.shut = true })
	eventually(t, "the guard's word", func() bool { return g.do("GET", "/readyz", "").code() == "restore_not_finalized" })
	return d, g
}

// A store that its guard keeps shut: nothing is served, everybody learns why,
// and an operator's word opens it.
func TestAStoreThatIsShut(t *testing.T) {
	d, g := shutGateway(t)
	waitsLong := func(what string, a answer) {
		t.Helper()
		seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != 503 || a.code() != "restore_not_finalized" || !strings.Contains(string(a.body), trippedMessage) || err != nil || seconds < 30 || seconds > 60 {
			t.Errorf("%s: %d, Retry-After %q: %s", what, a.status, a.header.Get("Retry-After"), a.body)
		}
	}
	ready := g.do("GET", "/readyz", "")
	waitsLong("readyz", ready)
	var p struct{ Reason string }
	if ready.decode(t, &p); p.Reason != "restore_not_finalized" {
		t.Errorf("readyz: reason %q", p.Reason)
	}
	waitsLong("publish", g.do("POST", "/api/v1/events", `{"data":1}`, jsonType))
	waitsLong("publish of lines", g.do("POST", "/api/v1/events", `{"data":1}`+"\n", "Content-Type: application/x-ndjson"))
	waitsLong("catch up", g.do("GET", "/api/v1/events", ""))
	waitsLong("a stream for curl", g.do("GET", "/events", ""))
	s := g.subscribe("")
	b := s.want("server.draining")
	wantRetry(t, b, 30_000, 60_000)
	var data struct{ Reason string }
	if err := json.Unmarshal([]byte(b.data), &data); err != nil || data.Reason != "not_ready" {
		t.Errorf("%+v", b)
	}
	s.wantEnd()
	if a := g.do("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	page := statusPageOf(t, g)
	if page.Status != "not_ready" || page.Reason != trippedMessage || page.Restore == nil || page.Restore.Finalized || page.Restore.Guard != "strict" {
		t.Errorf("%+v", page)
	}
	if page.Epoch != "01KB7Q3V9W8ZJ4M2T6R5N0XYCD" || page.OldestSeq != 1 || page.HeadSeq != 1 || page.RetainedEvents != 1 {
		t.Errorf("the log of a shut store: %+v", page)
	}
	wantMetric(t, g, "gapless_store_restore_not_finalized 1")
	wantMetric(t, g, "gapless_ready 0")
	var status feed.RestoreStatus
	g.do("GET", "/api/v1/admin/restore", "").decode(t, &status)
	if status.Finalized || status.Cause != trippedMessage {
		t.Errorf("%+v", status)
	}
	select {
	case <-g.ready:
		t.Error("the server called itself ready")
	default:
	}

	if a := g.do("POST", "/api/v1/admin/restore/finalize", `{"actor":"me"}`, jsonType); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	select {
	case <-g.ready:
	case <-time.After(patience):
		t.Fatal("the server did not become ready")
	}
	if a := g.do("GET", "/readyz", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if page := statusPageOf(t, g); page.Status != "ready" || !page.Restore.Finalized {
		t.Errorf("%+v", page)
	}
	wantMetric(t, g, "gapless_store_restore_not_finalized 0")
	g.publish(`{"data":1}`)
	if len(d.final) != 1 || d.final[0].Actor != "me" || d.final[0].DryRun {
		t.Errorf("%+v", d.final)
	}
}

// A guard that trips under a running server stops it at once.
func TestAGuardThatTripsLater(t *testing.T) {
	d := newDurable(t)
	g := start(t, d.serve, func(o *options) { o.feed.PollInterval = 10 * time.Millisecond })
	g.publish(`{"data":1}`)
	d.set(func(d *durableLog) { d.tripped = true })
	eventually(t, "the guard's word", func() bool { return g.do("GET", "/readyz", "").code() == "restore_not_finalized" })
	d.set(func(d *durableLog) { d.tripped = false })
	eventually(t, "service", func() bool { return g.do("GET", "/readyz", "").status == 200 })
	g.publish(`{"data":2}`)
}

// A sealed store is served to its readers, also by a server that starts on it;
// publishers learn that it takes nothing.
func TestASealedStore(t *testing.T) {
	d := newDurable(t)
	if _, err := d.Append(t.Context(), []feed.Draft{{Type: "a", Topic: "t", ID: "x", Data: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	d.sealed = true
	g := start(t, d.serve) // gets ready
	s := g.subscribe("?start=all")
	s.want("server.connected")
	s.want("a")
	s.want("server.live")
	a := g.do("POST", "/api/v1/events", `{"data":1}`, jsonType)
	if a.status != 503 || a.code() != "sealed" || !strings.Contains(string(a.body), "a final backup has sealed the store") || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if page := statusPageOf(t, g); !page.Sealed || page.Status != "ready" {
		t.Errorf("%+v", page)
	}
	wantMetric(t, g, "gapless_store_sealed 1")
}

// What the store's guard sees is asked for now and then only, however often
// the pages are polled.
func TestPollingDoesNotAskTheStoreEachTime(t *testing.T) {
	d := newDurable(t)
	d.outbox = feed.OutboxStats{Moved: 7, Parked: 2}
	g := start(t, d.serve)
	for range 20 {
		statusPageOf(t, g)
		wantMetric(t, g, "gapless_store_outbox_moved_total 7")
		wantMetric(t, g, "gapless_store_outbox_parked_total 2")
	}
	d.set(func(d *durableLog) {
		if d.asked == 0 || d.asked > 10 {
			t.Errorf("the store was asked %d times by 40 requests", d.asked)
		}
	})
}

// A store that hangs, and heeds no context, keeps neither the status page nor
// a scrape: one look waits for it, and pages have what it said before.
func TestAStoreThatHangsKeepsNoPage(t *testing.T) {
	d := newDurable(t)
	d.hangs = make(chan struct{})
	g := start(t, d.serve)
	for range 10 {
		if page := statusPageOf(t, g); page.Restore != nil || page.Status != "ready" {
			t.Errorf("%+v", page)
		}
		wantMetric(t, g, "gapless_store_sealed 0")
	}
	d.set(func(d *durableLog) {
		if d.asked != 1 {
			t.Errorf("the store was asked %d times", d.asked)
		}
		d.sealed = true
	})
	close(d.hangs)
	eventually(t, "the store's word", func() bool { return statusPageOf(t, g).Sealed })
}

// A client that leaves says nothing about the store: what it answers stands
// all the same, for the next page.
func TestAPageThatIsGivenUpDoesNotCountAsAsked(t *testing.T) {
	d := newDurable(t)
	d.sealed, d.hangs = true, make(chan struct{})
	g := start(t, d.serve)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		if resp, err := g.client.Do(g.request("GET", "/api/v1/status", nil).WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "the question", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.asked == 1
	})
	leave()
	<-left
	close(d.hangs)
	eventually(t, "the store's word", func() bool { return statusPageOf(t, g).Sealed })
	d.set(func(d *durableLog) {
		if d.asked != 1 {
			t.Errorf("the store was asked %d times", d.asked)
		}
	})
}

// With a drain delay, a stop first says that it is not ready, and serves on.
func TestDrainDelay(t *testing.T) {
	g := start(t, func(o *options) { o.server.DrainDelay = 2 * time.Second })
	s := g.subscribe("?start=live")
	s.want("server.connected")
	s.want("server.live")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.stop()
	}()
	var a answer
	eventually(t, "a 503", func() bool { a = g.do("GET", "/readyz", ""); return a.status == 503 })
	var p struct{ Reason string }
	if a.decode(t, &p); p.Reason != "shutdown" {
		t.Errorf("%s", a.body)
	}
	if page := statusPageOf(t, g); page.Status != "draining" {
		t.Errorf("%+v", page)
	}
	g.publish(`{"type":"late","data":1}`)
	s.want("late")
	g.subscribe("").want("server.connected")
	<-stopped
	s.want("server.draining")
}

type shortStatus struct {
	Status, Reason string
	Sealed         bool
	Restore        *struct {
		Guard     string
		Finalized bool
	}
	Epoch          string
	OldestSeq      int `json:"oldest_seq"`
	HeadSeq        int `json:"head_seq"`
	RetainedEvents int `json:"retained_events"`
}

func statusPageOf(t *testing.T, g *gateway) shortStatus {
	t.Helper()
	var page shortStatus
	g.do("GET", "/api/v1/status", "").decode(t, &page)
	return page
}

func wantMetric(t *testing.T, g *gateway, line string) {
	t.Helper()
	if metrics := string(g.do("GET", "/metrics", "").body); !strings.Contains(metrics, "\n"+line+"\n") {
		t.Errorf("no %s in the metrics", line)
	}
}
