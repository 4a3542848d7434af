package upstream

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sse "github.com/r3labs/sse/v2"
	cenkalti "gopkg.in/cenkalti/backoff.v1"
)

// The tests of this file show each fault of the client library as it is without this package, and then that it is
// met. Where the first half fails after an update of the library, a precaution here may have become needless.

// bare runs the library by itself for one connection and returns what its handler got.
func bare(t *testing.T, mem *memTransport, options ...func(*sse.Client)) (*sse.Client, []*sse.Event, error) {
	t.Helper()
	lib := sse.NewClient("http://stream.test/", options...)
	lib.Connection = &http.Client{Transport: mem}
	if lib.ReconnectStrategy == nil {
		lib.ReconnectStrategy = &cenkalti.StopBackOff{}
	}
	var events []*sse.Event
	err := lib.SubscribeWithContext(t.Context(), "", func(m *sse.Event) { events = append(events, m) })
	return lib, events, err
}

func TestLibraryMisreadsStreams(t *testing.T) {
	large := strings.Repeat("x", 65_536)
	for _, tt := range []struct {
		name, in string
		bare     []string // the library's events as type|id|data
		want     []Event
	}{
		{"a line above 64 KiB ends the stream", "data: " + large + "\n\n", nil, []Event{message("", large)}},
		{"a partial event at the end is delivered, with its id", "id: 1\ndata: a\n\nid: 2\ndata: b",
			[]string{"|1|a", "|2|b"}, []Event{message("1", "a")}},
		{"a comment after an id is an event", "id: 1\ndata: a\n\n: c\n\n", []string{"|1|a", "|1|"},
			[]Event{message("1", "a")}},
		{"a block without data is an event", "event: x\n\nretry: 5\n\nid: 1\n\n", []string{"x||", "||", "|1|"}, nil},
		{"empty data is dropped", "data:\n\n", nil, []Event{message("", "")}},
		{"an empty id does not reset", "id: 1\ndata: a\n\nid:\ndata: b\n\n", []string{"|1|a", "|1|b"},
			[]Event{message("1", "a"), message("", "b")}},
		{"an id with NUL is taken", "id: 1\x00\ndata: a\n\n", []string{"|1\x00|a"}, []Event{message("", "a")}},
		{"a byte order mark swallows the first field", "\xEF\xBB\xBFdata: a\n\n", nil, []Event{message("", "a")}},
		{"mixed line ends do not end a block", "data: a\n\rdata: b\n\n", []string{"||a\nb"},
			[]Event{message("", "a"), message("", "b")}},
		{"field names without colon do not count", "id: 1\ndata: a\n\nevent: x\nevent\nid\ndata: b\n\n",
			[]string{"|1|a", "x|1|b"}, []Event{message("1", "a"), message("", "b")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, got, err := bare(t, &memTransport{answers: []answer{stream(tt.in)}})
			var seen []string
			for _, m := range got {
				seen = append(seen, string(m.Event)+"|"+string(m.ID)+"|"+string(m.Data))
			}
			if strings.Join(seen, "; ") != strings.Join(tt.bare, "; ") {
				t.Errorf("library: %.200q, %v; expected its fault: %.200q", seen, err, tt.bare)
			}
			if strings.Contains(tt.in, large) && !errors.Is(err, bufio.ErrTooLong) {
				t.Errorf("library: %v, expected ErrTooLong", err)
			}
			wantRun(t, newClient(t, quick(Config{Transport: &memTransport{answers: []answer{stream(tt.in)}}})), tt.want...)
		})
	}
}

func TestLibraryEndsOnACleanEnd(t *testing.T) {
	mem := &memTransport{answers: []answer{stream("data: a\n\n"), stream("data: b\n\n")}}
	if _, events, err := bare(t, mem); err != nil || len(events) != 1 || len(mem.requests) != 1 {
		t.Errorf("library: %v, %d events, %d requests", err, len(events), len(mem.requests))
	}
	mem = &memTransport{answers: []answer{stream("data: a\n\n"), stream("data: b\n\n")}}
	wantRun(t, newClient(t, quick(Config{Transport: mem})), message("", "a"), message("", "b"))
}

func TestLibraryResendsAResetCursor(t *testing.T) {
	const in = "id: 1\ndata: a\n\nid:\ndata: b\n\n"
	lib, _, _ := bare(t, &memTransport{answers: []answer{stream(in)}})
	if id, _ := lib.LastEventID.Load().([]byte); string(id) != "1" {
		t.Errorf("library: cursor %q, expected the old one", id)
	}
	mem := &memTransport{answers: []answer{stream(in)}}
	wantRun(t, newClient(t, quick(Config{Transport: mem})), message("1", "a"), message("", "b"))
	wantStrings(t, "cursors", mem.cursors(), "-", "-")
}

func TestLibraryMovesItsCursorBeforeTheHandler(t *testing.T) {
	lib := sse.NewClient("http://stream.test/")
	lib.Connection = &http.Client{Transport: &memTransport{answers: []answer{stream("id: 1\ndata: a\n\n")}}}
	lib.ReconnectStrategy = &cenkalti.StopBackOff{}
	_ = lib.SubscribeWithContext(t.Context(), "", func(*sse.Event) {
		if id, _ := lib.LastEventID.Load().([]byte); string(id) != "1" {
			t.Errorf("library: cursor %q in the handler, expected 1", id)
		}
	})
	client := newClient(t, quick(Config{Transport: &memTransport{answers: []answer{stream("id: 1\ndata: a\n\n")}}}))
	_ = client.Run(t.Context(), func(context.Context, Event) error {
		wantStrings(t, "cursor in the handler", []string{client.LastEventID()}, "")
		return nil
	})
}

func TestLibraryDoesNotCheckTheContentType(t *testing.T) {
	html := func(req *http.Request) (*http.Response, error) {
		resp, err := stream("data: a\n\n")(req)
		resp.Header.Set("Content-Type", "text/html")
		return resp, err
	}
	if _, events, _ := bare(t, &memTransport{answers: []answer{html}}); len(events) != 1 {
		t.Errorf("library: %d events of an HTML page", len(events))
	}
	events, err := collect(t, newClient(t, quick(Config{Transport: &memTransport{answers: []answer{html}}})))
	if len(events) != 0 || !errors.Is(err, ErrContentType) {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// tries is a backoff of the library that waits d, n times.
type tries struct {
	n int
	d time.Duration
}

func (*tries) Reset() {}

func (b *tries) NextBackOff() time.Duration {
	if b.n--; b.n < 0 {
		return cenkalti.Stop
	}
	return b.d
}

func TestLibraryRetriesWhatIsFinal(t *testing.T) {
	for _, code := range []int{204, 401, 403, 404} {
		mem := &memTransport{answers: []answer{status(code), status(code), status(code)}}
		_, _, _ = bare(t, mem, func(c *sse.Client) { c.ReconnectStrategy = &tries{n: 2} })
		if len(mem.requests) != 3 {
			t.Errorf("library: %d requests after %d", len(mem.requests), code)
		}
		mem = &memTransport{answers: []answer{status(code), status(code), status(code)}}
		if _, err := collect(t, newClient(t, quick(Config{Transport: mem}))); !final(err) || len(mem.requests) != 1 {
			t.Errorf("%v after %d requests", err, len(mem.requests))
		}
	}
}

func TestLibrarysBackoffGivesUp(t *testing.T) {
	// That this package's does not is TestRunNeverGivesUp.
	var answers []answer
	for range 1000 {
		answers = append(answers, refused)
	}
	synctest.Test(t, func(t *testing.T) {
		_, _, err := bare(t, &memTransport{answers: answers}, func(c *sse.Client) {
			c.ReconnectStrategy = cenkalti.NewExponentialBackOff()
		})
		if !errors.Is(err, errRefused) {
			t.Errorf("library: %v, expected it to give up", err)
		}
	})
}

func TestLibrarysBackoffIgnoresCancel(t *testing.T) {
	// That this package's ends at once is TestCancelEndsEveryStateAtOnce.
	synctest.Test(t, func(t *testing.T) {
		lib := sse.NewClient("http://stream.test/")
		lib.Connection = &http.Client{Transport: &memTransport{answers: []answer{refused}}}
		lib.ReconnectStrategy = &tries{n: 1, d: time.Hour}
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		start := time.Now()
		_ = lib.SubscribeWithContext(ctx, "", func(*sse.Event) {})
		if passed := time.Since(start); passed != time.Hour {
			t.Errorf("library: ended after %v, expected the whole hour", passed)
		}
	})
}

func TestLibraryLeavesARefusedBodyOpen(t *testing.T) {
	// That this package closes it is TestRefusedBodyIsClosed.
	var closed atomic.Bool
	mem := &memTransport{answers: []answer{func(req *http.Request) (*http.Response, error) {
		resp, err := stream("")(req)
		resp.Body = closeFunc{strings.NewReader(""), func() { closed.Store(true) }}
		return resp, err
	}}}
	_, _, _ = bare(t, mem, func(c *sse.Client) {
		c.ResponseValidator = func(*sse.Client, *http.Response) error { return errRefused }
	})
	if closed.Load() {
		t.Error("library: the refused body was closed")
	}
}
