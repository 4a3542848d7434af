package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRefusals(t *testing.T) {
	unready := func(o *options) { o.unready = true }
	full := func(o *options) { o.server.MaxConnections = 1 }
	cases := []struct {
		name, reason string
		change       func(*options)
		before       func(*gateway)
	}{
		{"starting", "not_ready", unready, func(*gateway) {}},
		{"full", "at_capacity", full, func(g *gateway) { g.subscribe("").want("server.connected") }},
		{"draining", "shutdown", func(*options) {}, func(g *gateway) { g.feed.Drain(t.Context()) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := start(t, c.change)
			c.before(g)
			for _, header := range []string{"Accept: text/event-stream", "Accept: text/html, text/event-stream;q=0.5", "Last-Event-ID: garbage"} {
				resp, err := g.client.Do(g.request("GET", "/events", nil, header))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
					t.Fatalf("%s: %s", header, resp.Status)
				}
				s := &stream{t: t, in: bufio.NewReader(resp.Body)}
				b := s.want("server.draining")
				var data struct{ Reason string }
				if err := json.Unmarshal([]byte(b.data), &data); err != nil || data.Reason != c.reason || b.id != "" {
					t.Errorf("%s: %+v, want reason %s and no id", header, b, c.reason)
				}
				wantRetry(t, b, 500, 60000)
				s.wantEnd()
			}
			a := g.do("GET", "/events", "", "Accept: */*")
			if a.status != 503 || a.code() != "not_ready" || a.header.Get("Retry-After") == "" {
				t.Errorf("%d %v %s, want 503", a.status, a.header, a.body)
			}
			if a := g.do("HEAD", "/events", ""); a.status != 200 {
				t.Errorf("HEAD: %d", a.status)
			}
			metrics := string(g.do("GET", "/metrics", "").body)
			if want := fmt.Sprintf("gapless_stream_refusals_total{reason=%q} 4", c.reason); !strings.Contains(metrics, want) {
				t.Errorf("no %s in the metrics", want)
			}
		})
	}
}

func TestCapacityComesBack(t *testing.T) {
	g := start(t, func(o *options) { o.server.MaxConnections = 1 })
	for range 3 {
		var s *stream
		eventually(t, "a stream", func() bool {
			s = g.subscribe("")
			b, ok := s.next()
			return ok && b.event == "server.connected"
		})
		s.close()
	}
}

func TestReadiness(t *testing.T) {
	g := start(t, func(o *options) { o.unready = true })
	a := g.do("GET", "/readyz", "")
	if a.status != 503 || a.code() != "not_ready" || !strings.Contains(string(a.body), "starting") || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := g.do("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	for _, path := range []string{"/api/v1/events"} {
		if a := g.do("GET", path, ""); a.status != 503 || a.code() != "not_ready" {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
		if a := g.do("POST", path, `{}`, jsonType); a.status != 503 || a.code() != "not_ready" || a.header.Get("Retry-After") == "" {
			t.Errorf("POST %s: %d %s", path, a.status, a.body)
		}
	}
	var st struct{ Status, Reason string }
	g.do("GET", "/api/v1/status", "").decode(t, &st)
	if st.Status != "not_ready" || st.Reason != "starting" {
		t.Errorf("%+v", st)
	}
}

func TestDrain(t *testing.T) {
	g := start(t)
	const n = 20
	streams := make([]*stream, n)
	for i := range streams {
		streams[i] = g.subscribe("")
		streams[i].want("server.connected")
	}
	g.publishN(1, 100)
	stopped := make(chan struct{})
	go func() { defer close(stopped); g.stop() }()
	retries := map[string]bool{}
	for _, s := range streams {
		// Nothing that was accepted is lost.
		if got := s.events(100); string(got[99].Data) != `{"n":100}` {
			t.Errorf("the last event is %s", got[99].Data)
		}
		var b block
		for b.event != "server.draining" {
			b, _ = s.next()
		}
		wantRetry(t, b, 500, 60000)
		if b.id != "" || !strings.Contains(b.data, `"reason":"shutdown"`) {
			t.Errorf("%+v", b)
		}
		retries[b.retry] = true
		s.wantEnd()
	}
	if len(retries) < n/2 {
		t.Errorf("%d streams were sent away with %d different retries", n, len(retries))
	}
	<-stopped
	if _, err := net.Dial("tcp", g.addr); err == nil {
		t.Error("the port is still open")
	}
}

// Streams whose clients do not read, and bodies that do not arrive, do not
// keep the server from stopping, however many they are.
func TestDrainTimeout(t *testing.T) {
	g := start(t, func(o *options) { o.drain = 100 * time.Millisecond })
	stuck := g.dial("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	lines := g.dial("POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"c\r\n{\"data\":1}\n\n\r\n")
	var silent []net.Conn
	for range 20 {
		silent = append(silent, g.dial("POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"),
			g.dial("GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"))
	}
	if _, err := stuck.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the line's event", func() bool { return g.head() == 2 })
	begin := time.Now()
	g.stop()
	if took := time.Since(begin); took > patience/5 {
		t.Errorf("stopping took %v", took)
	}
	got, err := io.ReadAll(lines)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503 ") || !strings.Contains(string(got), `"accepted":1`) {
		t.Errorf("NDJSON under way got %q, %v", got, err)
	}
	for _, c := range silent {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection was left open")
		}
	}
}
