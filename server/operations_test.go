package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func TestLongPoll(t *testing.T) {
	g := start(t)
	cursor := wantPage(t, g.do("GET", "/api/v1/events?start=live", "")).Cursor
	answers := make(chan answer)
	go func() {
		answers <- g.do("GET", "/api/v1/events?wait=60s&topic=t&cursor="+cursor, "")
	}()
	for {
		// Whatever comes first: the poll sees the event.
		g.publish(`{"topic":"other"}`)
		g.publishN(1, 1)
		select {
		case a := <-answers:
			if p := wantPage(t, a); len(p.Events) == 0 || p.Events[0].Topic != "t" {
				t.Errorf("%s", a.body)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestLongPollEndsEmpty(t *testing.T) {
	g := start(t)
	for _, wait := range []string{"20ms", "0.02", "0"} {
		p := wantPage(t, g.do("GET", "/api/v1/events?start=live&wait="+wait, ""))
		if len(p.Events) != 0 || p.Cursor == "" {
			t.Errorf("%+v", p)
		}
	}
}

func TestDrainEndsLongPolls(t *testing.T) {
	g := start(t)
	answers := make(chan answer)
	go func() { answers <- g.do("GET", "/api/v1/events?start=live&wait=60", "") }()
	// The poll may come before or after the drain begins; it ends either way.
	g.stopAfter(20 * time.Millisecond)
	if a := <-answers; a.status != 200 && a.status != 503 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func (g *gateway) stopAfter(d time.Duration) {
	time.Sleep(d)
	g.stop()
}

func TestCatchUpPaging(t *testing.T) {
	g := start(t)
	p := g.publishN(1, 25)
	g.publish(`{"topic":"other"}`)
	var got []string
	query := "?topic=t&limit=10"
	for pages := 0; ; pages++ {
		page := wantPage(t, g.do("GET", "/api/v1/events"+query, ""))
		for _, e := range page.Events {
			got = append(got, string(e.Data))
		}
		if !page.HasMore {
			if page.LastSeq != page.HeadSeq {
				t.Errorf("at %d of %d: last_seq moves past what is filtered", page.LastSeq, page.HeadSeq)
			}
			break
		}
		if pages%2 == 0 {
			query = fmt.Sprintf("?topic=t&limit=10&since_seq=%d&epoch=%s", page.LastSeq, p.Epoch)
		} else {
			query = "?topic=t&limit=10&cursor=" + page.Cursor
		}
	}
	if len(got) != 25 || got[0] != `{"n":1}` || got[24] != `{"n":25}` {
		t.Errorf("%v", got)
	}
}

func TestConnections(t *testing.T) {
	g := start(t)
	s := g.subscribe("?topic=a.*&topic=b&type=n&format=raw&named=false&start=live", "User-Agent: tester/1")
	var connected struct {
		ID string `json:"connection_id"`
	}
	if err := json.Unmarshal([]byte(s.want("server.connected").data), &connected); err != nil {
		t.Fatal(err)
	}
	s.want("server.live")
	g.publish(`{"topic":"b","type":"n","data":1}`)
	if b := s.want(""); b.data != "1" {
		t.Errorf("%+v", b)
	}
	type connection struct {
		ID, Remote, State, Format, Bookmark string
		UserAgent                           string `json:"user_agent"`
		Topics, Types                       []string
		Named                               bool
		Since                               time.Time
		Lag, Delivered                      uint64
	}
	var list struct{ Connections []connection }
	eventually(t, "the delivery", func() bool {
		g.do("GET", "/api/v1/connections", "").decode(t, &list)
		return len(list.Connections) == 1 && list.Connections[0].Delivered == 1
	})
	c := list.Connections[0]
	if c.ID != connected.ID || !strings.HasPrefix(c.Remote, "127.0.0.1:") || c.UserAgent != "tester/1" || c.State != "live" ||
		c.Format != "raw" || c.Named || fmt.Sprint(c.Topics, c.Types) != "[a.* b] [n]" || c.Lag != 0 ||
		!strings.HasPrefix(c.Bookmark, g.publishN(1, 1).Epoch+"-2-") || time.Since(c.Since) > time.Minute {
		t.Errorf("%+v", c)
	}
	if a := g.do("DELETE", "/api/v1/connections/"+c.ID, ""); a.status != 204 || len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	b := s.want("server.draining")
	if !strings.Contains(b.data, `"reason":"cut"`) || b.id != "" {
		t.Errorf("%+v", b)
	}
	wantRetry(t, b, 500, 1000)
	s.wantEnd()
	eventually(t, "the end", func() bool { return g.do("DELETE", "/api/v1/connections/"+c.ID, "").status == 404 })
	g.do("GET", "/api/v1/connections", "").decode(t, &list)
	if len(list.Connections) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestStatus(t *testing.T) {
	g := start(t, func(o *options) {
		o.server.Version, o.server.Node = "v1.2.3", "node-a"
		o.log.Retention = feed.Retention{Events: 5, Bytes: 1 << 20, Age: time.Hour}
		o.feed.SnapshotEvents = 77
		o.feed.Heartbeat = 1500 * time.Millisecond
	})
	p := g.publishN(1, 9)
	s := g.subscribe("", "Last-Event-ID: x")
	s.want("resync_required")
	s.wantEnd()
	live := g.subscribe("")
	live.events(5)
	var st map[string]any
	eventually(t, "the numbers", func() bool {
		st = nil
		g.do("GET", "/api/v1/status", "").decode(t, &st)
		return st["delivered_total"] == 5.0 && st["connections"].(map[string]any)["live"] == 1.0
	})
	for name, want := range map[string]any{
		"version": "v1.2.3", "node": "node-a", "status": "ready", "reason": "", "store": "memory", "epoch": p.Epoch,
		"oldest_seq": 6.0, "head_seq": 10.0, "retained_events": 5.0, "published_total": 10.0,
		"heartbeat_ms": 1500.0, "snapshot_events": 77.0,
	} {
		if st[name] != want {
			t.Errorf("%s: %v, want %v", name, st[name], want)
		}
	}
	if r := st["retention"].(map[string]any); r["events"] != 5.0 || r["bytes"] != 1048576.0 || r["age_seconds"] != 3600.0 {
		t.Errorf("retention %v", r)
	}
	if r := st["resyncs"].(map[string]any); r["cursor_invalid"] != 1.0 || r["lagged"] != 0.0 {
		t.Errorf("resyncs %v", r)
	}
	if r, _ := st["last_resync"].(map[string]any); r["reason"] != "cursor_invalid" {
		t.Errorf("last_resync %v", r)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	g := start(t)
	for _, path := range []string{"/", "/nothing", "/example", "/dashboard/app.js", "/openapi.yaml", "/events/", "/api/v1", "/api/v1/consumers/x"} {
		for _, method := range []string{"GET", "POST", "OPTIONS", "PROPFIND"} {
			a := g.do(method, path, "")
			if a.code() != "not_found" && a.code() != "method_not_allowed" || a.status != 404 && a.status != 405 {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"/nothing", "/%65vents"} {
		for _, method := range []string{"GET", "PROPFIND", "OPTIONS"} {
			if a := g.do(method, path, ""); a.status != 404 || a.code() != "not_found" {
				t.Errorf("%s %s: %d %s, want 404", method, path, a.status, a.body)
			}
		}
	}
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/api/v1/connections/a%2fb", "DELETE, OPTIONS"},
		{"PROPFIND", "/events", "GET, HEAD, OPTIONS"},
		{"POST", "/events", "GET, HEAD, OPTIONS"},
		{"DELETE", "/api/v1/events", "GET, HEAD, POST, OPTIONS"},
		{"PUT", "/api/v1/events", "GET, HEAD, POST, OPTIONS"},
		{"GET", "/api/v1/connections/x", "DELETE, OPTIONS"},
		{"POST", "/healthz", "GET, HEAD, OPTIONS"},
	} {
		a := g.do(c.method, c.path, "")
		if a.status != 405 || a.code() != "method_not_allowed" || a.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d %s, Allow %q", c.method, c.path, a.status, a.body, a.header.Get("Allow"))
		}
	}
	if a := g.do("OPTIONS", "/api/v1/events", ""); a.status != 204 || a.header.Get("Allow") != "GET, HEAD, POST, OPTIONS" {
		t.Errorf("%d %v", a.status, a.header)
	}
}

func TestPagesArePassedThrough(t *testing.T) {
	say := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if _, err := w.Write([]byte(text + r.URL.Path)); err != nil {
				t.Error(err)
			}
		})
	}
	g := start(t, func(o *options) {
		o.server.Dashboard, o.server.Example, o.server.OpenAPI = say("D"), say("E"), []byte("openapi: 3.0.3\n")
	})
	for path, want := range map[string]string{
		"/": "D/", "/dashboard/app.js": "D/dashboard/app.js", "/example": "E/example", "/openapi.yaml": "openapi: 3.0.3\n",
	} {
		if a := g.do("GET", path, ""); a.status != 200 || string(a.body) != want {
			t.Errorf("%s: %d %q", path, a.status, a.body)
		}
	}
}

// What a page's handler does not have is a problem as everywhere.
func TestMissingPagesAreProblems(t *testing.T) {
	g := start(t, func(o *options) { o.server.Dashboard = http.NotFoundHandler() })
	for _, method := range []string{"GET", "HEAD"} {
		if a := g.do(method, "/dashboard/nothing.js", ""); a.status != 404 || method == "GET" && a.code() != "not_found" {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
}

// A handler that panics answers 500 and leaves the server standing.
func TestPanic(t *testing.T) {
	g := start(t, func(o *options) {
		o.server.Example = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })
	})
	got := g.exchange("GET /example HTTP/1.0\r\nHost: localhost\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.0 500 ") || !strings.Contains(got, `"code":"internal"`) || strings.Contains(got, "broken") {
		t.Errorf("%q", got)
	}
	if a := g.do("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("%d", a.status)
	}
}
