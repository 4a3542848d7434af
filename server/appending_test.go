package server_test

import (
	"strings"
	"testing"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// TestAStoreThatTakesNoEvents: a full disk, say. The server is not ready and
// says why, readers are served on, and it finds out by itself when the store
// takes events again.
func TestAStoreThatTakesNoEvents(t *testing.T) {
	log := feedtest.NewLog(0)
	g := start(t, func(o *options) { o.feed.Log = log })
	log.FailAppends(&feed.Error{Code: feed.CodeUnavailable, Msg: "/secret/path: the disk is full"})
	if a := g.do("POST", "/api/v1/events", `{"data":1}`, jsonType); a.status != 503 || a.code() != "unavailable" {
		t.Fatalf("publish: %d %s", a.status, a.body)
	}
	a := g.do("GET", "/readyz", "")
	var p struct{ Code, Reason, Detail string }
	a.decode(t, &p)
	if a.status != 503 || p.Code != "unavailable" || p.Reason != "appends_fail" || strings.Contains(p.Detail, "secret") {
		t.Errorf("/readyz: %d %s", a.status, a.body)
	}
	if a := g.do("GET", "/metrics", ""); !strings.Contains(string(a.body), "\ngapless_ready 0\n") {
		t.Error("gapless_ready is not 0")
	}
	if a := g.do("GET", "/api/v1/events?start=all", ""); a.status != 200 {
		t.Errorf("reading: %d %s", a.status, a.body)
	}
	log.FailAppends(nil)
	eventually(t, "the server is ready again, though nobody published", func() bool {
		return g.do("GET", "/readyz", "").status == 200
	})
}

// TestAStoreThatTakesNoEventsAtTheStart: the server becomes ready by itself.
func TestAStoreThatTakesNoEventsAtTheStart(t *testing.T) {
	log := feedtest.NewLog(0)
	log.FailAppends(&feed.Error{Code: feed.CodeUnavailable, Msg: "the disk is full"})
	g := start(t, func(o *options) { o.feed.Log, o.shut = log, true })
	eventually(t, "the failure is told", func() bool {
		a := g.do("GET", "/readyz", "")
		return a.status == 503 && strings.Contains(string(a.body), `"appends_fail"`)
	})
	select {
	case <-g.ready:
		t.Error("it said that it is ready")
	default:
	}
	log.FailAppends(nil)
	<-g.ready
	if a := g.do("GET", "/readyz", ""); a.status != 200 {
		t.Errorf("/readyz: %d %s", a.status, a.body)
	}
}
