package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

// noContent ends every client of ours for good, so it ends the tests' runs.
const noContent = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"

// script answers one request with raw bytes. The connection is closed when it returns.
type script func(c net.Conn, req *http.Request)

// send returns a script that writes each of parts with a write of its own.
func send(parts ...string) script {
	return func(c net.Conn, _ *http.Request) {
		for _, part := range parts {
			if _, err := io.WriteString(c, part); err != nil {
				return
			}
		}
	}
}

// rawServer runs one script a connection, in order, and answers 204 when there is none left.
type rawServer struct {
	url string

	mu       sync.Mutex
	scripts  []script
	requests []*http.Request
}

func newRawServer(t *testing.T, scripts ...script) *rawServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{url: "http://" + ln.Addr().String() + "/events", scripts: scripts}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		all.Wait()
	})
	return s
}

func (s *rawServer) serve(conn net.Conn) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	s.mu.Lock()
	next := send(noContent)
	if len(s.scripts) > 0 {
		next, s.scripts = s.scripts[0], s.scripts[1:]
	}
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	next(conn, req)
}

// cursors returns the Last-Event-ID of each request so far, "-" where it had none.
func (s *rawServer) cursors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, req := range s.requests {
		ids = append(ids, cursorOf(req))
	}
	return ids
}

func cursorOf(req *http.Request) string {
	if values := req.Header.Values("Last-Event-ID"); len(values) > 0 {
		return strings.Join(values, "|")
	}
	return "-"
}

// answer is one step of a scripted transport.
type answer func(req *http.Request) (*http.Response, error)

// memTransport answers in memory, one answer a request, then 204. It records when each request came.
type memTransport struct {
	mu       sync.Mutex
	answers  []answer
	requests []*http.Request
	times    []time.Time
}

func (m *memTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.requests = append(m.requests, req)
	m.times = append(m.times, time.Now())
	next := status(http.StatusNoContent)
	if len(m.answers) > 0 {
		next, m.answers = m.answers[0], m.answers[1:]
	}
	m.mu.Unlock()
	return next(req)
}

func (m *memTransport) cursors() []string {
	var ids []string
	for _, req := range m.requests {
		ids = append(ids, cursorOf(req))
	}
	return ids
}

// waits returns the durations between the requests.
func (m *memTransport) waits() []time.Duration {
	var ds []time.Duration
	for i := 1; i < len(m.times); i++ {
		ds = append(ds, m.times[i].Sub(m.times[i-1]))
	}
	return ds
}

// status returns an answer without a body. headers are name, value, name, value, …
func status(code int, headers ...string) answer {
	return func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, Request: req,
		}
		for i := 0; i < len(headers); i += 2 {
			resp.Header.Add(headers[i], headers[i+1])
		}
		return resp, nil
	}
}

// stream returns an answer that is an event stream with that body, which ends cleanly.
func stream(body string) answer {
	return streamOf(func(*http.Request) io.Reader { return strings.NewReader(body) })
}

func streamOf(body func(req *http.Request) io.Reader) answer {
	return func(req *http.Request) (*http.Response, error) {
		resp, _ := status(http.StatusOK, "Content-Type", "text/event-stream")(req)
		resp.Body = io.NopCloser(body(req))
		return resp, nil
	}
}

// until blocks a Read until the request is cancelled or d has passed, which is EOF. d 0: only until cancelled.
func until(req *http.Request, d time.Duration) io.Reader {
	return readerFunc(func([]byte) (int, error) {
		var passed <-chan time.Time
		if d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			passed = timer.C
		}
		select {
		case <-req.Context().Done():
			return 0, req.Context().Err()
		case <-passed:
			return 0, io.EOF
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

var errRefused = errors.New("connection refused")

func refused(*http.Request) (*http.Response, error) { return nil, errRefused }

// quick fills in a Config with which nothing waits.
func quick(cfg Config) Config {
	if cfg.URL == "" {
		cfg.URL = "http://stream.test/events"
	}
	if cfg.ReconnectDelay == 0 {
		cfg.ReconnectDelay = time.Millisecond
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func(time.Duration) time.Duration { return 0 }
	}
	return cfg
}

func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// collect runs a client to its end, within a generous bound, and returns what its handler got.
func collect(t testing.TB, c *Client) ([]Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var events []Event
	err := c.Run(ctx, func(_ context.Context, ev Event) error {
		events = append(events, ev)
		return nil
	})
	return events, err
}

// wantRun runs a client on scripts that end in 204 and compares its events.
func wantRun(t testing.TB, c *Client, want ...Event) {
	t.Helper()
	events, err := collect(t, c)
	if !errors.Is(err, ErrNoContent) {
		t.Fatalf("Run returned %v, want ErrNoContent", err)
	}
	wantEvents(t, events, want)
}

func wantEvents(t testing.TB, got, want []Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d\n got %.300q\nwant %.300q", len(got), len(want), got, want)
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("event %d\n got %.300q\nwant %.300q", i, got[i], want[i])
		}
	}
}

func wantStrings(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

// message returns an event of the default type.
func message(id, data string) Event { return Event{ID: id, Type: "message", Data: []byte(data)} }
