package server_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"gapless/feed"
	"gapless/feed/memory"
	"gapless/server"
)

func TestPublishKeys(t *testing.T) {
	g := start(t, func(o *options) { o.server.PublishKeys = []string{"first-key", "second-key"} })
	g.subscribe("").want("server.connected")
	id := connectionID(t, g.feed)
	requests := []struct{ method, path, body string }{
		{"POST", "/api/v1/events", "{}"},
		{"GET", "/api/v1/connections", ""},
		{"HEAD", "/api/v1/connections", ""},
		{"DELETE", "/api/v1/connections/" + id, ""},
	}
	auths := []struct {
		header, code string
		status       int
	}{
		{"X: y", "unauthorized", 401},
		{"Authorization: Bearer", "unauthorized", 401},
		{"Authorization: Basic first-key", "unauthorized", 401},
		{"Authorization: Bearer wrong", "forbidden", 403},
		{"Authorization: Bearer first-ke", "forbidden", 403},
		{"Authorization: Bearer first-key2", "forbidden", 403},
		{"Authorization: Bearer first-key second-key", "forbidden", 403},
		{"Authorization: Bearer first-key", "", 0},
		{"Authorization: bearer  second-key", "", 0},
	}
	for _, r := range requests {
		for _, auth := range auths {
			a := g.do(r.method, r.path, r.body, jsonType, auth.header)
			switch {
			case auth.status == 0 && (a.status == 401 || a.status == 403):
				t.Errorf("%s %s with %q: %d", r.method, r.path, auth.header, a.status)
			case auth.status != 0 && (a.status != auth.status || r.method != "HEAD" && a.code() != auth.code):
				t.Errorf("%s %s with %q: %d %s, want %d", r.method, r.path, auth.header, a.status, a.body, auth.status)
			}
			if a.status == 401 && a.header.Get("WWW-Authenticate") != `Bearer realm="gapless"` {
				t.Errorf("WWW-Authenticate %q", a.header.Get("WWW-Authenticate"))
			}
		}
	}
	// With a key, neither host nor origin matter; reading needs none.
	if a := g.do("POST", "/api/v1/events", "{}", jsonType, "Authorization: Bearer first-key", "Host: example.com", "Origin: https://example.org"); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"/api/v1/events", "/api/v1/status", "/healthz", "/readyz", "/metrics"} {
		if a := g.do("GET", path, ""); a.status != 200 {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

// A page on the web must not publish to a developer's machine: neither from
// its own origin, nor under a name that it makes resolve to 127.0.0.1.
func TestUnkeyedWritesAreLocal(t *testing.T) {
	cases := []struct {
		host, origin string
		allowed      bool
	}{
		{"", "", true},
		{"localhost", "", true},
		{"LOCALHOST.:8080", "", true},
		{"app.localhost:8080", "", true},
		{"127.0.0.1:8080", "", true},
		{"127.9.9.9", "", true},
		{"[::1]:8080", "", true},
		{"[::1]", "", true},
		{"evil.example", "", false},
		{"evil.example:8080", "", false},
		{"localhost.evil.example", "", false},
		{"127.0.0.1.evil.example", "", false},
		{"10.0.0.1:8080", "", false},
		{"0.0.0.0:8080", "", false},
		{"localhost:8080", "http://localhost:8080", true},
		{"localhost:8080", "http://localhost:9090", false},
		{"localhost:8080", "http://127.0.0.1:8080", false},
		{"localhost:8080", "https://evil.example", false},
		{"localhost:8080", "null", false},
		{"localhost:8080", "https://localhost:8080", false},
		{"localhost:8080", "foo://localhost:8080", false},
		{"localhost:8080", "http://a@localhost:8080", false},
		{"localhost:8080", "//localhost:8080", false},
		{".localhost", "", false},
		{"localhost:8080", "http://localhost:5173", false}, // may read, see below
		{"evil.example:8080", "http://evil.example:8080", false},
		{"localhost:8080", "foo://localhost:8080", false},
		{"localhost:8080", "//localhost:8080", false},
		{"localhost:8080", "http://a@localhost:8080", false},
	}
	cors := func(o *options) { o.server.CORSOrigins = []string{"http://localhost:5173"} }
	g := start(t, cors)
	open := start(t, cors, func(o *options) { o.server.Open = true })
	for _, c := range cases {
		headers := []string{jsonType}
		if c.host != "" {
			headers = append(headers, "Host: "+c.host)
		}
		if c.origin != "" {
			headers = append(headers, "Origin: "+c.origin)
		}
		for _, r := range []struct {
			method, path string
			done         int
		}{{"POST", "/api/v1/events", 201}, {"DELETE", "/api/v1/connections/x", 404}, {"GET", "/api/v1/connections", 200}} {
			a := g.do(r.method, r.path, "{}", headers...)
			if c.allowed && a.status != r.done {
				t.Errorf("%s to %q from %q: %d %s", r.method, c.host, c.origin, a.status, a.body)
			}
			if !c.allowed && (a.status != 403 || a.code() != "forbidden" || !strings.Contains(string(a.body), "--publish-key")) {
				t.Errorf("%s to %q from %q: %d %s, want 403 that says what to set", r.method, c.host, c.origin, a.status, a.body)
			}
			if a := open.do(r.method, r.path, "{}", headers...); a.status != r.done {
				t.Errorf("open: %s to %q from %q: %d", r.method, c.host, c.origin, a.status)
			}
		}
		if a := g.do("GET", "/api/v1/events", "", headers...); a.status != 200 {
			t.Errorf("reading from %q: %d", c.host, a.status)
		}
	}
}

func TestCORS(t *testing.T) {
	patterns := []string{"http://localhost:*", "https://app.example", "https://port.example:8443"}
	g := start(t, func(o *options) { o.server.CORSOrigins = patterns })
	allowed := []string{"http://localhost:3000", "http://localhost", "https://app.example", "https://port.example:8443"}
	others := []string{
		"https://localhost:3000", "http://localhost.evil.example", "http://localhost:3000.evil.example", "http://localhost:x",
		"https://app.example:444", "https://app.example.evil", "https://sub.app.example", "http://app.example",
		"https://port.example", "null", "", "http://localhost:3000/path", "http://user@localhost:3000",
	}
	paths := []string{"/events", "/api/v1/events", "/api/v1/status", "/nothing"}
	for _, path := range paths {
		for _, method := range []string{"HEAD", "GET", "OPTIONS"} {
			if method == "GET" && path == "/events" {
				continue // HEAD stands for it
			}
			for _, origin := range allowed {
				a := g.do(method, path, "", "Origin: "+origin)
				if a.header.Get("Access-Control-Allow-Origin") != origin || a.header.Get("Vary") != "Origin" || a.header.Get("Access-Control-Allow-Credentials") != "" {
					t.Errorf("%s %s from %q: %v", method, path, origin, a.header)
				}
			}
			for _, origin := range others {
				a := g.do(method, path, "", "Origin: "+origin)
				if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("Vary") != "Origin" {
					t.Errorf("%s %s from %q: %v", method, path, origin, a.header)
				}
			}
		}
	}
	a := g.do("OPTIONS", "/events", "", "Origin: http://localhost:3000", "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: last-event-id")
	if a.status != 204 || a.header.Get("Access-Control-Allow-Methods") != "GET, HEAD, OPTIONS" ||
		!strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Last-Event-ID") || a.header.Get("Access-Control-Max-Age") == "" {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
	if a := g.do("POST", "/api/v1/events", "{}", jsonType, "Origin: http://localhost:3000"); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a write's answer may be read: %v", a.header)
	}
	// An event stream too: a cross-origin reconnect without the header kills it.
	s := g.subscribe("", "Origin: https://app.example")
	if got := s.resp.Header.Get("Access-Control-Allow-Origin"); got != "https://app.example" {
		t.Errorf("stream: %q", got)
	}

	anyone := start(t, func(o *options) { o.server.CORSOrigins = []string{"*"} })
	if a := anyone.do("GET", "/api/v1/status", "", "Origin: https://x.example"); a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%v", a.header)
	}
	nobody := start(t)
	if a := nobody.do("GET", "/api/v1/status", "", "Origin: http://localhost:1"); a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", a.header)
	}
}

func TestConfigIsChecked(t *testing.T) {
	log, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f, err := feed.New(feed.Config{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]server.Config{
		"no feed":           {},
		"negative timeout":  {Feed: f, WriteTimeout: -1},
		"negative body":     {Feed: f, MaxBodyBytes: -1},
		"empty key":         {Feed: f, PublishKeys: []string{""}},
		"key with a space":  {Feed: f, PublishKeys: []string{"a b"}},
		"key with LF":       {Feed: f, PublishKeys: []string{"a\n"}},
		"origin: no scheme": {Feed: f, CORSOrigins: []string{"localhost"}},
		"origin: path":      {Feed: f, CORSOrigins: []string{"http://localhost/"}},
		"origin: two ports": {Feed: f, CORSOrigins: []string{"http://localhost:1:*"}},
		"origin: empty":     {Feed: f, CORSOrigins: []string{""}},
	} {
		if _, err := server.New(cfg); feed.CodeOf(err) != feed.CodeInvalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a request carries in confidence is in no log line.
func TestLogsKeepSecrets(t *testing.T) {
	var logged bytes.Buffer
	g := start(t, func(o *options) {
		o.server.Logger = zerolog.New(zerolog.SyncWriter(&logged))
		o.server.PublishKeys = []string{"hush-key"}
	})
	auth := "Authorization: Bearer hush-key"
	g.do("POST", "/api/v1/events?token=hush-query", `{"data":"hush-payload","id":"hush-id"}`, jsonType, auth)
	g.do("POST", "/api/v1/events", `{"hush-member":1}`, jsonType, auth)
	g.do("POST", "/api/v1/events", `{}`, jsonType, "Authorization: Bearer hush-wrong")
	g.do("GET", "/api/v1/events?cursor=hush-cursor", "")
	g.do("GET", "/events?topic=hush-topic..", "", "Last-Event-ID: hush-last")
	s := g.subscribe("?token=hush-query", "Last-Event-ID: hush-last")
	s.want("resync_required")
	s.wantEnd()
	live := g.subscribe("")
	live.events(1)
	live.close()
	eventually(t, "the end of the streams", func() bool { return g.feed.Status().Total == 0 })
	g.stop()
	text := logged.String()
	if strings.Contains(text, "hush") {
		t.Errorf("a secret is in the log:\n%s", text)
	}
	for _, want := range []string{`"path":"/events"`, `"connection_id":"`, `"delivered":`, `"method":"POST"`, `"status":201`, `"status":403`, `"remote":"127.0.0.1:`, `"message":"ready"`, `"message":"draining"`, `"message":"stopped"`, `"duration_ms":`, `"took_ms":`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the log:\n%s", want, text)
		}
	}
}
