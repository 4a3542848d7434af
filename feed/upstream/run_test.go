package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

const three = "id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n"

// endlessly repeats events until its request ends, so that events are under way whenever a handler stops.
func endlessly(*http.Request) io.Reader {
	return readerFunc(func(p []byte) (int, error) { return copy(p, "id: 9\ndata: more\n\n"), nil })
}

func TestHandlersErrorEndsRunBeforeItsEvent(t *testing.T) {
	defer goleak.VerifyNone(t)
	errHandler := errors.New("disk full")
	mem := &memTransport{answers: []answer{
		streamOf(func(req *http.Request) io.Reader { return io.MultiReader(strings.NewReader(three), endlessly(req)) }),
		stream("id: 2\ndata: b\n\nid: 3\ndata: c\n\n"),
	}}
	client := newClient(t, quick(Config{Transport: mem}))
	var got []string
	handle := func(_ context.Context, ev Event) error {
		got = append(got, string(ev.Data))
		if len(got) == 2 {
			return errHandler
		}
		return nil
	}
	if err := client.Run(t.Context(), handle); err != errHandler {
		t.Fatalf("Run returned %v, want the handler's error as it is", err)
	}
	if client.LastEventID() != "1" {
		t.Fatalf("cursor %q, want 1", client.LastEventID())
	}
	// The next Run gets the event again.
	if err := client.Run(t.Context(), handle); !errors.Is(err, ErrNoContent) {
		t.Fatal(err)
	}
	wantStrings(t, "events", got, "a", "b", "b", "c")
	wantStrings(t, "cursors", mem.cursors(), "-", "1", "3")
}

func TestCursorMovesAfterTheHandler(t *testing.T) {
	mem := &memTransport{answers: []answer{stream(three + "id: 4\n\n")}}
	client := newClient(t, quick(Config{Transport: mem, LastEventID: "0"}))
	var during []string
	err := client.Run(t.Context(), func(context.Context, Event) error {
		during = append(during, client.LastEventID())
		return nil
	})
	if !errors.Is(err, ErrNoContent) {
		t.Fatal(err)
	}
	wantStrings(t, "cursor during the handler", during, "0", "1", "2")
	wantStrings(t, "cursor at the end", []string{client.LastEventID()}, "4")
}

func TestCancelInsideTheHandler(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	mem := &memTransport{answers: []answer{streamOf(endlessly)}}
	client := newClient(t, quick(Config{Transport: mem}))
	n := 0
	err := client.Run(ctx, func(got context.Context, _ Event) error {
		if n++; n == 5 {
			cancel()
			if got != ctx {
				t.Error("the handler's context is not Run's")
			}
		}
		return nil
	})
	if err != context.Canceled || n != 5 {
		t.Fatalf("Run returned %v after %d events, want 5", err, n)
	}
	// The event was handled, so it counts.
	wantStrings(t, "cursor", []string{client.LastEventID()}, "9")
}

func TestHandlerThatPanicsOrExitsLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, leave := range map[string]func(){"panic": func() { panic("handler") }, "exit": runtime.Goexit} {
		mem := &memTransport{answers: []answer{streamOf(endlessly)}}
		client := newClient(t, quick(Config{Transport: mem}))
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			_ = client.Run(t.Context(), func(context.Context, Event) error {
				leave()
				return nil
			})
		}()
		if got := <-done; (name == "panic") != (got == "handler") {
			t.Errorf("%s: recovered %v", name, got)
		}
		if client.LastEventID() != "" {
			t.Errorf("%s: cursor moved to %q", name, client.LastEventID())
		}
		// The client can run again.
		if _, err := collect(t, client); !errors.Is(err, ErrNoContent) {
			t.Errorf("%s: next Run returned %v", name, err)
		}
	}
}

func TestRunWaitsForItsConnection(t *testing.T) {
	errHandler := errors.New("disk full")
	var closed atomic.Bool
	mem := &memTransport{answers: []answer{func(req *http.Request) (*http.Response, error) {
		resp, err := stream("")(req)
		body := io.MultiReader(strings.NewReader(three), until(req, 0))
		resp.Body = closeFunc{body, func() {
			runtime.Gosched()
			closed.Store(true)
		}}
		return resp, err
	}}}
	err := newClient(t, quick(Config{Transport: mem})).Run(t.Context(), func(context.Context, Event) error { return errHandler })
	if err != errHandler || !closed.Load() {
		t.Fatalf("Run returned %v, body closed: %v", err, closed.Load())
	}
}

func TestOneRunAtATime(t *testing.T) {
	mem := &memTransport{answers: []answer{stream("data: a\n\n")}}
	client := newClient(t, quick(Config{Transport: mem}))
	nothing := func(context.Context, Event) error { return nil }
	err := client.Run(t.Context(), func(ctx context.Context, _ Event) error { return client.Run(ctx, nothing) })
	if err != ErrRunning {
		t.Fatalf("second Run returned %v, want ErrRunning", err)
	}
	if err := client.Run(t.Context(), nil); !errors.Is(err, ErrConfig) {
		t.Fatalf("Run without a handler returned %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	requests := len(mem.requests)
	if err := client.Run(ctx, nothing); err != context.Canceled || len(mem.requests) != requests {
		t.Fatalf("Run on an ended context returned %v and made a request", err)
	}
}

func TestStates(t *testing.T) {
	var got []string
	mem := &memTransport{answers: []answer{refused, stream("data: a\n\n"), status(503)}}
	client := newClient(t, quick(Config{Transport: mem, OnState: func(s State) { got = append(got, s.String()) }}))
	err := client.Run(t.Context(), func(context.Context, Event) error {
		got = append(got, "event")
		return nil
	})
	if !errors.Is(err, ErrNoContent) {
		t.Fatal(err)
	}
	wantStrings(t, "states", got,
		"connecting", "waiting", "connecting", "open", "event", "waiting", "connecting", "waiting", "connecting", "ended")
	if s := State(0).String(); s != "state(0)" {
		t.Errorf("unknown state is %q", s)
	}
}

func TestSecretsAndPayloadsStayOutOfTheLog(t *testing.T) {
	var log bytes.Buffer
	s := newRawServer(t, send(streamHead, "id: secret-id\ndata: secret-data\n\n"),
		send("HTTP/1.1 503 No\r\n\r\n"), send("broken\r\n\r\n"), send(""))
	client := newClient(t, quick(Config{
		URL:    strings.Replace(s.url, "http://", "http://u:secret-password@", 1) + "?token=secret-token",
		Header: http.Header{"X-Key": {"secret-key"}}, Logger: zerolog.New(&log).Level(zerolog.DebugLevel),
	}))
	_, err := collect(t, client)
	if !errors.Is(err, ErrNoContent) {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "reconnecting"); n < 4 {
		t.Errorf("%d reconnects in the log, want 4 or more", n)
	}
	if strings.Contains(log.String()+err.Error(), "secret") {
		t.Errorf("a secret is in the log: %s", log.String())
	}
}

func TestEventsBelongToTheHandler(t *testing.T) {
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, "event: t%d\ndata: %d %s\nid: %d\n\n", i, i, strings.Repeat("x", i), i)
	}
	mem := &memTransport{answers: []answer{stream(in.String())}}
	events, err := collect(t, newClient(t, quick(Config{Transport: mem})))
	if !errors.Is(err, ErrNoContent) || !reflect.DeepEqual(events, interpret(in.String(), "").events) {
		t.Fatalf("%v, %q", err, events)
	}
}

func TestOwnTransportLeavesNoConnectionBehind(t *testing.T) {
	closed := make(chan error, 1)
	s := newRawServer(t, func(c net.Conn, _ *http.Request) {
		// The answer leaves the connection open, for a next request.
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := io.Copy(io.Discard, c)
		closed <- err
	})
	if _, err := collect(t, newClient(t, quick(Config{URL: s.url}))); !errors.Is(err, ErrForbidden) {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Errorf("the client kept the connection: %v", err)
	}
}
