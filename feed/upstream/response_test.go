package upstream

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAnswersThatEndARun(t *testing.T) {
	for _, tt := range []struct {
		name string
		head string
		want error
	}{
		{"204", "204 No Content\r\n", ErrNoContent},
		{"401", "401 Unauthorized\r\nContent-Type: text/event-stream\r\n", ErrUnauthorized},
		{"403", "403 Forbidden\r\n", ErrForbidden},
		{"404", "404 Not Found\r\n", ErrNotFound},
		{"410", "410 Gone\r\n", ErrNotFound},
		{"400", "400 Bad Request\r\n", ErrStatus},
		{"205", "205 Reset Content\r\n", ErrStatus},
		{"206", "206 Partial Content\r\nContent-Type: text/event-stream\r\n", ErrStatus},
		{"302 to nowhere", "302 Found\r\n", ErrStatus},
		{"304", "304 Not Modified\r\n", ErrStatus},
		{"HTML", "200 OK\r\nContent-Type: text/html\r\n", ErrContentType},
		{"no type", "200 OK\r\n", ErrContentType},
		{"almost the type", "200 OK\r\nContent-Type: text/event-streams\r\n", ErrContentType},
		{"an encoding nobody asked for",
			"200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: br\r\n", ErrContentEncoding},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := "data: no event\nid: 2\n\n"
			if strings.HasPrefix(tt.head, "20") && tt.head[2] > '3' || strings.HasPrefix(tt.head, "304") {
				body = ""
			}
			s := newRawServer(t,
				send(streamHead, "data: a\nid: 1\n\n"),
				send("HTTP/1.1 "+tt.head+"Connection: close\r\n\r\n", body),
				send(streamHead, "data: not reached\n\n"))
			client := newClient(t, quick(Config{URL: s.url}))
			events, err := collect(t, client)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Run returned %v, want %v", err, tt.want)
			}
			var refusal *ResponseError
			if !errors.As(err, &refusal) || refusal.Status == 0 {
				t.Fatalf("no ResponseError in %v", err)
			}
			if strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the URL is in %q", err)
			}
			wantEvents(t, events, []Event{message("1", "a")})
			wantStrings(t, "cursors", s.cursors(), "-", "1")
		})
	}
}

func TestAnswersThatAreTriedAgain(t *testing.T) {
	for _, code := range []int{408, 425, 429, 500, 502, 503, 504, 599} {
		mem := &memTransport{answers: []answer{
			status(code, "Content-Type", "text/html"), refused, stream("data: a\nid: 1\n\n"),
			status(code), stream("data: b\n\n"),
		}}
		wantRun(t, newClient(t, quick(Config{Transport: mem, LastEventID: "0"})), message("1", "a"), message("1", "b"))
		wantStrings(t, "cursors", mem.cursors(), "0", "0", "0", "1", "1", "1")
	}
}

func TestContentTypeVariants(t *testing.T) {
	for _, kind := range []string{
		"text/event-stream", "Text/Event-Stream", "text/event-stream;charset=utf-8",
		"text/event-stream ; charset=UTF-8", "text/event-stream;", "text/event-stream; broken",
	} {
		s := newRawServer(t, send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "+kind+"\r\n\r\ndata: a\n\n"))
		wantRun(t, newClient(t, quick(Config{URL: s.url})), message("", "a"))
	}
}

func TestRefusalCarriesTheProblemsDetail(t *testing.T) {
	head := "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n"
	for _, tt := range []struct{ body, want string }{
		{`{"title":"Bad Request","detail":"topic: \u001b[31mempty token"}`, "topic: \x1b[31mempty token"},
		{`{"title":"Bad Request"}`, "Bad Request"},
		{`{"title`, ""},
		{`{"title":"` + strings.Repeat("x", 2*problemBytes) + `"}`, ""},
	} {
		s := newRawServer(t, send(head, tt.body))
		_, err := collect(t, newClient(t, quick(Config{URL: s.url})))
		var refusal *ResponseError
		if !errors.As(err, &refusal) || refusal.Detail != tt.want {
			t.Fatalf("%.40q: %v, want detail %q", tt.body, err, tt.want)
		}
		if strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("a control character of the server is in the error's text: %q", err)
		}
	}
}

func TestRedirectsAreFollowedWithTheCursor(t *testing.T) {
	for _, code := range []string{
		"301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect",
	} {
		// The redirect's own body and type must not be taken for the stream.
		there := newRawServer(t, send(streamHead, "data: a\nid: 2\n\n"))
		here := newRawServer(t, send("HTTP/1.1 "+code+"\r\nLocation: "+there.url+
			"\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: no\nid: 9\n\n"))
		client := newClient(t, quick(Config{URL: here.url, LastEventID: "1"}))
		wantRun(t, client, message("2", "a"))
		// The next connection asks the configured URL again.
		wantStrings(t, code+": cursors here", here.cursors(), "1", "2")
		wantStrings(t, code+": cursors there", there.cursors(), "1")
	}
}

func TestRedirectLoopIsTriedAgain(t *testing.T) {
	var answers []answer
	for range 10 {
		answers = append(answers, status(302, "Location", "/again"))
	}
	mem := &memTransport{answers: append(answers, stream("data: a\n\n"))}
	wantRun(t, newClient(t, quick(Config{Transport: mem})), message("", "a"))
}

func TestRequestHead(t *testing.T) {
	mem := &memTransport{}
	wantRun(t, newClient(t, quick(Config{
		Transport: mem, LastEventID: "E-1-F", Header: http.Header{"Authorization": {"Bearer k"}, "X-A": {"b"}},
	})))
	got := mem.requests[0]
	for name, want := range map[string]string{
		"Accept": "text/event-stream", "Cache-Control": "no-cache", "Last-Event-Id": "E-1-F",
		"Authorization": "Bearer k", "X-A": "b",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
	if got.Method != http.MethodGet || got.URL.RawQuery != "" {
		t.Errorf("request is %s %s", got.Method, got.URL)
	}
}

func TestCompressedStreamArrivesEventByEvent(t *testing.T) {
	seen := make(chan struct{})
	var conns atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if conns.Add(1) > 1 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if req.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("Accept-Encoding: %q, want gzip", req.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w) // never closed: the stream ends without a trailer
		for _, block := range []string{"data: a\nid: 1\n\n", "data: " + strings.Repeat("b", 100_000) + "\nid: 2\n\n"} {
			_, _ = io.WriteString(zip, block)
			_ = zip.Flush()
			w.(http.Flusher).Flush()
			<-seen
		}
	}))
	defer srv.Close()
	var ids []string
	client := newClient(t, quick(Config{URL: srv.URL}))
	err := client.Run(t.Context(), func(_ context.Context, ev Event) error {
		ids = append(ids, ev.ID)
		seen <- struct{}{}
		return nil
	})
	if !errors.Is(err, ErrNoContent) {
		t.Fatal(err)
	}
	wantStrings(t, "ids", ids, "1", "2")
}

func TestRefusedBodyIsClosed(t *testing.T) {
	for _, code := range []int{200, 204, 400, 404, 503} {
		var closed atomic.Bool
		mem := &memTransport{answers: []answer{func(req *http.Request) (*http.Response, error) {
			resp, err := status(code, "Content-Type", "application/problem+json")(req)
			resp.Body = closeFunc{strings.NewReader("{}"), func() { closed.Store(true) }}
			return resp, err
		}}}
		if _, err := collect(t, newClient(t, quick(Config{Transport: mem}))); err == nil {
			t.Fatal("no error")
		}
		if !closed.Load() {
			t.Errorf("body of a %d was left open", code)
		}
	}
}

type closeFunc struct {
	io.Reader
	close func()
}

func (c closeFunc) Close() error {
	c.close()
	return nil
}
