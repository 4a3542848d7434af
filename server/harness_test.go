package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/memory"
	"gapless/server"
)

// patience bounds every wait of a test: only a failure takes so long.
const patience = 20 * time.Second

// options are what a test changes before its gateway starts.
type options struct {
	log     memory.Config
	feed    feed.Config
	server  server.Config
	drain   time.Duration
	unready bool // the feed does not run
	shut    bool // the feed runs, and the test does not wait until it serves
}

// gateway is a feed and its server on a loopback port.
type gateway struct {
	t      *testing.T
	feed   *feed.Feed
	server *server.Server
	addr   string
	client *http.Client
	ready  chan struct{} // closed by OnReady
	stop   func()        // drains; returns when Serve has
}

func start(t *testing.T, change ...func(*options)) *gateway {
	t.Helper()
	o := options{drain: 5 * time.Second}
	o.log.Retention = feed.Retention{Events: 1024}
	o.feed.Heartbeat = time.Minute
	for _, c := range change {
		c(&o)
	}
	log, err := memory.New(o.log)
	if err != nil {
		t.Fatal(err)
	}
	if o.feed.Log == nil {
		o.feed.Log = log
	}
	f, err := feed.New(o.feed)
	if err != nil {
		t.Fatal(err)
	}
	o.server.Feed = f
	ready := make(chan struct{})
	o.server.OnReady = func() { close(ready) }
	s, err := server.New(o.server)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, feed: f, server: s, addr: ln.Addr().String(), ready: ready}
	g.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * patience}

	feedCtx, endFeed := context.WithCancel(context.Background())
	serveCtx, endServe := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if !o.unready {
		wg.Go(func() { f.Run(feedCtx) })
	}
	wg.Go(func() {
		defer endFeed()
		if err := s.Serve(serveCtx, ln, o.drain); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	var once sync.Once
	g.stop = func() {
		once.Do(func() {
			endServe()
			wg.Wait()
			if err := log.Close(); err != nil {
				t.Errorf("closing the log: %v", err)
			}
		})
	}
	t.Cleanup(g.stop)
	if !o.unready && !o.shut {
		select {
		case <-ready:
		case <-time.After(patience):
			t.Fatal("the server did not become ready")
		}
	}
	return g
}

// answer is a whole HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// decode reads the answer's JSON.
func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
}

// code is the problem's code, "" where the answer is none.
func (a answer) code() string {
	var p struct{ Code string }
	if a.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Code
}

// do sends a request; headers come as "Name: value".
func (g *gateway) do(method, path, body string, headers ...string) answer {
	g.t.Helper()
	return g.send(g.request(method, path, strings.NewReader(body), headers...))
}

func (g *gateway) request(method, path string, body io.Reader, headers ...string) *http.Request {
	g.t.Helper()
	req, err := http.NewRequest(method, "http://"+g.addr+path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	return req
}

func (g *gateway) send(req *http.Request) answer {
	g.t.Helper()
	resp, err := g.client.Do(req)
	if err != nil {
		g.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: b}
	validate(g.t, g.server.Handler(), req, a)
	return a
}

const jsonType = "Content-Type: application/json"

// published is what a publish answers.
type published struct {
	Epoch  string
	Events []struct {
		Seq       uint64
		ID        string
		Duplicate bool
	}
}

// publish publishes a JSON body, which must succeed.
func (g *gateway) publish(body string) published {
	g.t.Helper()
	a := g.do("POST", "/api/v1/events", body, jsonType)
	if a.status != http.StatusCreated {
		g.t.Fatalf("publish: %d %s", a.status, a.body)
	}
	var p published
	a.decode(g.t, &p)
	return p
}

// publishN publishes n events {"n":from…} of topic t and type n, in one batch.
func (g *gateway) publishN(from, n int) published {
	g.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"type":"n","topic":"t","data":{"n":%d}}`, from+i)
	}
	return g.publish("[" + b.String()[1:] + "]")
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// idle closes the default client's connections, which other people's code
// leaves open.
func (g *gateway) idle() { http.DefaultTransport.(*http.Transport).CloseIdleConnections() }
