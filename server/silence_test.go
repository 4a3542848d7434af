package server_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A body that is announced and never comes keeps no answer back, and its
// connection is not held for ever.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	g := start(t, func(o *options) { o.server.PublishKeys = []string{"key"} })
	type asked struct {
		request string
		c       net.Conn
	}
	var all []asked // at once: each connection is held for a moment
	for _, request := range []string{
		"GET /healthz", "GET /readyz", "GET /metrics", "GET /api/v1/status", "GET /api/v1/events", "GET /events?start=x",
		"HEAD /events", "OPTIONS /events", "DELETE /api/v1/connections/x", "GET /nothing", "PUT /events",
		"POST /nothing", "POST /events", "POST /api/v1/events",
	} {
		for _, framing := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
			all = append(all, asked{request, g.dial(request + " HTTP/1.1\r\nHost: localhost\r\n" + framing + "\r\n\r\n")})
		}
	}
	for _, a := range all {
		method, _, _ := strings.Cut(a.request, " ")
		in := bufio.NewReader(a.c)
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Errorf("%s: %v", a.request, err)
			continue
		}
		if !resp.Close {
			t.Errorf("%s: %s: the connection is to stay", a.request, resp.Status)
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			t.Errorf("%s: %v", a.request, err)
		}
	}
}

// The same with a stream: it begins, it ends, and nothing is left.
func TestStreamWithABodyThatNeverComes(t *testing.T) {
	t.Parallel()
	g := start(t)
	c := g.dial("GET /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, in: bufio.NewReader(resp.Body)}
	s.want("server.connected")
	if !g.feed.Cut(connectionID(t, g.feed)) {
		t.Fatal("not cut")
	}
	for {
		if b, ok := s.next(); !ok {
			break
		} else if b.event == "server.draining" {
			s.wantEnd()
			break
		}
	}
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Errorf("%q %v", b, err)
	}
}
