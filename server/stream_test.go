package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/memory"
	"gapless/server"
)

// dial opens a plain connection to the gateway and sends a request's bytes.
func (g *gateway) dial(request string) net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		g.t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// exchange sends a request's bytes and reads until the server closes.
func (g *gateway) exchange(request string) string {
	g.t.Helper()
	b, err := io.ReadAll(g.dial(request))
	if err != nil {
		g.t.Fatal(err)
	}
	return string(b)
}

func TestStreamHead(t *testing.T) {
	g := start(t)
	for _, proto := range []string{"1.0", "1.1"} {
		t.Run(proto, func(t *testing.T) {
			c := g.dial("GET /events HTTP/" + proto + "\r\nHost: localhost\r\nAccept-Encoding: gzip, br, zstd\r\n\r\n")
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() // closing the body would read on to its end
			want := map[string]string{
				"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no",
				"Content-Length": "", "Etag": "", "Content-Encoding": "",
			}
			for name, value := range want {
				if got := resp.Header.Get(name); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
			if resp.StatusCode != 200 || !resp.Close {
				t.Errorf("status %d, close %v; want 200 and close", resp.StatusCode, resp.Close)
			}
			if chunked := len(resp.TransferEncoding) > 0; chunked != (proto == "1.1") {
				t.Errorf("transfer encoding %v", resp.TransferEncoding)
			}
			b, ok, err := readBlock(bufio.NewReader(resp.Body))
			if err != nil || !ok || b.event != "server.connected" {
				t.Fatalf("%+v %v %v", b, ok, err)
			}
			wantRetry(t, b, 1500, 2500)
		})
	}
}

// An idle stream's head and first frame are there before anything is
// published.
func TestIdleStreamSpeaksAtOnce(t *testing.T) {
	g := start(t)
	s := g.subscribe("?topic=nobody.publishes.here")
	s.want("server.connected")
	s.want("server.live")
}

func TestHTTP10StreamsWithoutChunks(t *testing.T) {
	g := start(t)
	c := g.dial("GET /events?start=live HTTP/1.0\r\n\r\n")
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\r\n" {
			break
		}
	}
	s := &stream{t: t, in: in}
	s.want("server.connected")
	s.want("server.live")
	g.publishN(1, 3)
	for i, e := range s.events(3) {
		if string(e.Data) != fmt.Sprintf(`{"n":%d}`, i+1) {
			t.Errorf("event %d: %s", i, e.Data)
		}
	}
	g.stop()
	s.want("server.draining")
	s.wantEnd()
}

func TestHTTP2Streams(t *testing.T) {
	log, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f, err := feed.New(feed.Config{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); f.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	if err := f.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(server.Config{Feed: f})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(s.Handler())
	ts.EnableHTTP2 = true
	ts.StartTLS()
	defer ts.Close()
	resp, err := ts.Client().Get(ts.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.Header.Get("Connection") != "" || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %v", resp.Proto, resp.Header)
	}
	st := &stream{t: t, in: bufio.NewReader(resp.Body)}
	st.want("server.connected")
	st.want("server.live")
	for i := range 3 {
		post, err := ts.Client().Post(ts.URL+"/api/v1/events", "application/json", strings.NewReader(fmt.Sprintf(`{"data":%d}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		post.Body.Close()
		if post.StatusCode != 201 {
			t.Fatal(post.Status)
		}
		if e := st.events(1)[0]; string(e.Data) != fmt.Sprint(i) {
			t.Errorf("got %s, want %d", e.Data, i)
		}
	}
	if !f.Cut(connectionID(t, f)) {
		t.Fatal("not cut")
	}
	st.want("server.draining")
	st.wantEnd()
	// The connection itself stays.
	again, err := ts.Client().Get(ts.URL + "/healthz")
	if err != nil || again.ProtoMajor != 2 {
		t.Fatalf("%v %v", again, err)
	}
	again.Body.Close()
}

func connectionID(t *testing.T, f *feed.Feed) string {
	t.Helper()
	subs := f.Subscribers()
	if len(subs) != 1 {
		t.Fatalf("%d subscribers, want one", len(subs))
	}
	return subs[0].ID
}

func TestHeadAnswersTheHeadAndEnds(t *testing.T) {
	g := start(t)
	got := g.exchange("HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.Contains(got, "Content-Type: text/event-stream\r\n") || !strings.HasSuffix(got, "\r\n\r\n") {
		t.Errorf("%q", got)
	}
	for _, path := range []string{"/api/v1/events", "/api/v1/status", "/api/v1/connections", "/healthz", "/readyz", "/metrics"} {
		if a := g.do("HEAD", path, ""); a.status != 200 || len(a.body) != 0 {
			t.Errorf("HEAD %s: %d %q", path, a.status, a.body)
		}
	}
}

// An end is the last chunk and a FIN, also where the client has sent bytes
// that nobody reads: closing with those would send a reset.
func TestEndIsNoReset(t *testing.T) {
	g := start(t)
	c := g.dial("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n" + strings.Repeat("more bytes, unread\r\n", 1000))
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "event: server.live") {
			break
		}
	}
	if !g.feed.Cut(connectionID(t, g.feed)) {
		t.Fatal("not cut")
	}
	rest, err := io.ReadAll(in)
	if err != nil {
		t.Fatalf("%v after %q", err, rest)
	}
	if !strings.Contains(string(rest), `"reason":"cut"`) || !strings.HasSuffix(string(rest), "\r\n0\r\n\r\n") {
		t.Errorf("the stream ends with %q", rest)
	}
}

func TestFormatsAndNames(t *testing.T) {
	g := start(t)
	g.publish(`[{"type":"a.b","topic":"x","data":{"k": 1}},{"type":"c","topic":"x","data":"two\nlines"}]`)
	cases := []struct {
		query  string
		events []string
		data   []string // "": an envelope
	}{
		{"topic=x", []string{"a.b", "c"}, []string{"", ""}},
		{"topic=x&named=false", []string{"", ""}, []string{"", ""}},
		{"topic=x&format=raw", []string{"a.b", "c"}, []string{`{"k":1}`, "two\nlines"}},
		{"topic=x&format=raw&named=false", []string{"", ""}, []string{`{"k":1}`, "two\nlines"}},
		{"type=c", []string{"c"}, []string{""}},
		{"type=c&type=a.b&topic=y&topic=*", []string{"a.b", "c"}, []string{"", ""}},
		{"topic=x.>", nil, nil},
		{"topic=gapless.*&format=raw", []string{"server.status"}, []string{`{"status":"ready","node":""}`}},
		{"topic=gapless.status&named=false", []string{""}, []string{""}},
		{"named=false", []string{"", ""}, []string{"", ""}}, // nothing under gapless.
		{"format=raw&topic=>", []string{"a.b", "c"}, []string{`{"k":1}`, "two\nlines"}},
	}
	for _, c := range cases {
		t.Run(c.query, func(t *testing.T) {
			s := g.subscribe("?" + c.query)
			s.t = t
			defer s.close()
			s.want("server.connected")
			for i, event := range c.events {
				b := s.want(event)
				if c.data[i] == "" {
					if !strings.HasPrefix(b.data, `{"seq":`) {
						t.Errorf("no envelope: %q", b.data)
					}
				} else if b.data != c.data[i] {
					t.Errorf("data %q, want %q", b.data, c.data[i])
				}
			}
			s.want("server.live")
		})
	}
}

// Small and large frames of one batch leave in their order.
func TestFramesOfAllSizesKeepTheirOrder(t *testing.T) {
	g := start(t)
	sizes := []int{1, 40_000, 2, 3, 16_000, 500, 16_384, 1, 100_000, 90_000, 1, 1}
	var batch []string
	for _, n := range sizes {
		batch = append(batch, `{"topic":"s","data":"`+strings.Repeat("x", n)+`"}`)
	}
	g.publish("[" + strings.Join(batch, ",") + "]")
	for i, e := range g.subscribe("?topic=s").events(len(sizes)) {
		if len(e.Data) != sizes[i]+2 {
			t.Errorf("event %d has %d bytes, want %d", i, len(e.Data)-2, sizes[i])
		}
	}
}

func TestHeartbeat(t *testing.T) {
	g := start(t, func(o *options) { o.feed.Heartbeat = 20 * time.Millisecond })
	s := g.subscribe("?topic=quiet")
	s.want("server.connected")
	s.want("server.live")
	p := g.publishN(1, 5)
	head := fmt.Sprintf("%s-%d-", p.Epoch, p.Events[4].Seq)
	for range 500 {
		// The bookmark moves past what others are sent.
		if b := s.want("heartbeat"); strings.HasPrefix(b.id, head) && b.hasData {
			return
		}
	}
	t.Errorf("no heartbeat reached %s", head)
}
