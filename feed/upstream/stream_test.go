package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// The tests of this file read raw bytes from a loopback socket.

func TestEventSizes(t *testing.T) {
	for _, size := range []int{0, 1, 4_096, 65_535, 65_536, 65_537, 1 << 20, 8 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			data := strings.Repeat("0123456789abcde\u00e9", size/17+1)[:size]
			s := newRawServer(t, send(streamHead, "data: "+data+"\nid: 1\n\n"), send(streamHead, "data: next\nid: 2\n\n"))
			wantRun(t, newClient(t, quick(Config{URL: s.url})), message("1", data), message("2", "next"))
			wantStrings(t, "cursors", s.cursors(), "-", "1", "2")
		})
	}
}

func TestManyLinesInOneEvent(t *testing.T) {
	lines := strings.Repeat("data: a\ndata:\ndata\n", 10_000)
	s := newRawServer(t, send(streamHead, lines+"\n"))
	wantRun(t, newClient(t, quick(Config{URL: s.url})), message("", strings.TrimSuffix(strings.Repeat("a\n\n\n", 10_000), "\n")))
}

func TestByteOrderMarkOnlyAtTheStart(t *testing.T) {
	// The mark before event 2 makes its first line an unknown field; the event's other lines count.
	s := newRawServer(t, send(streamHead, "\xEF", "\xBB", "\xBFevent: a\ndata: 1\n\n", "\xEF\xBB\xBFevent: b\ndata: 2\n\n"),
		send(streamHead, "\xEF\xBB\xBFdata: 3\n\n"))
	wantRun(t, newClient(t, quick(Config{URL: s.url})),
		Event{Type: "a", Data: []byte("1")}, message("", "2"), message("", "3"))
}

func TestOneByteWrites(t *testing.T) {
	for _, body := range []string{
		"event: foo\r\ndata: bar\r\n\r\nevent: foo\r\ndata: baz\r\n\r\n",
		"event: foo\rdata: bar\r\revent: foo\rdata: baz\r\r",
		"event: foo\ndata: bar\n\nevent: foo\ndata: baz\n\n",
		"event: foo\r\ndata: bar\n\revent: foo\rdata: baz\r\n\n",
	} {
		s := newRawServer(t, send(append([]string{streamHead}, strings.Split(body, "")...)...))
		wantRun(t, newClient(t, quick(Config{URL: s.url})),
			Event{Type: "foo", Data: []byte("bar")}, Event{Type: "foo", Data: []byte("baz")})
	}
}

func TestEmptyDataIsDelivered(t *testing.T) {
	s := newRawServer(t, send(streamHead, "data:\n\ndata\n\ndata: \n\ndata:\ndata:\n\nevent: x\ndata:\n\n"))
	wantRun(t, newClient(t, quick(Config{URL: s.url})),
		message("", ""), message("", ""), message("", ""), message("", "\n"), Event{Type: "x", Data: []byte{}})
}

func TestDataKeepsItsBytes(t *testing.T) {
	data := "a\u2028b\u0085c\x00\x0b\x0c\x1c\xff  \t{\"n\":12345678901234567890}"
	s := newRawServer(t, send(streamHead, "data: "+data+"\n\n"))
	wantRun(t, newClient(t, quick(Config{URL: s.url})), message("", data))
}

func TestBlocksWithoutDataDeliverNothing(t *testing.T) {
	s := newRawServer(t, send(streamHead, ": hello\n\nretry: 1\n\nevent: x\n\nid: 1\n\n", "id: 2\nevent: y\nretry: 2\n\n"))
	c := newClient(t, quick(Config{URL: s.url}))
	wantRun(t, c)
	wantStrings(t, "cursors", s.cursors(), "-", "2")
}

func TestIDOutlivesBlocksWithoutOne(t *testing.T) {
	s := newRawServer(t,
		send(streamHead, "id: 1\ndata: a\n\ndata: b\n\n: c\n\nid: \x00\ndata: c\n\n"),
		send(streamHead, "data: d\n\n"), // an ID also outlives its connection
	)
	wantRun(t, newClient(t, quick(Config{URL: s.url})),
		message("1", "a"), message("1", "b"), message("1", "c"), message("1", "d"))
	wantStrings(t, "cursors", s.cursors(), "-", "1", "1")
}

func TestEmptyIDResetsTheCursor(t *testing.T) {
	for _, line := range []string{"id:", "id: ", "id"} {
		s := newRawServer(t,
			send(streamHead, "id: 1\ndata: a\n\n", line+"\ndata: b\n\n"),
			send(streamHead, "id: 2\ndata: c\n\n", line+"\n\n"),
		)
		wantRun(t, newClient(t, quick(Config{URL: s.url, LastEventID: "seed"})),
			message("1", "a"), message("", "b"), message("2", "c"))
		wantStrings(t, "cursors after "+line, s.cursors(), "seed", "-", "-")
	}
}

// TestCutAtEveryByte cuts a stream at each offset in each way a stream can end. The server resumes after the cursor
// that it is given, so the sum is right only if nothing partial was delivered and no ID was taken over early or late.
func TestCutAtEveryByte(t *testing.T) {
	blocks := []string{
		"\xEF\xBB\xBFid: 1\nevent: first\ndata: a\ndata: b\n\n",
		"event: second\ndata: c\nid: 2\n\n",
		": comment\n\nretry: 0\nid: 3\n\n",
		"data: d\nid: 4\n\n",
	}
	after := map[string]int{"-": 0, "1": 1, "2": 2, "3": 3, "4": 4}
	want := []Event{
		{ID: "1", Type: "first", Data: []byte("a\nb")},
		{ID: "2", Type: "second", Data: []byte("c")},
		message("4", "d"),
	}
	chunkedHead := strings.Replace(streamHead, "Connection: close", "Transfer-Encoding: chunked", 1)
	ends := map[string]func(cut string) script{
		"clean": func(cut string) script { return send(streamHead, cut) },
		"no last chunk": func(cut string) script {
			if cut == "" {
				return send(chunkedHead)
			}
			return send(fmt.Sprintf("%s%x\r\n%s\r\n", chunkedHead, len(cut), cut))
		},
		"reset": func(cut string) script {
			return func(c net.Conn, req *http.Request) {
				send(streamHead, cut)(c, req)
				_ = c.(*net.TCPConn).SetLinger(0) // close sends RST; what it destroys is sent again after the cursor
			}
		},
	}
	for _, eol := range []string{"\n", "\r\n", "\r"} {
		for end, cutScript := range ends {
			t.Run(fmt.Sprintf("%q/%s", eol, end), func(t *testing.T) {
				full := strings.ReplaceAll(strings.Join(blocks, ""), "\n", eol)
				var scripts []script
				rest := func(c net.Conn, req *http.Request) {
					from, ok := after[cursorOf(req)]
					if !ok {
						t.Errorf("cursor %q was never sent", cursorOf(req))
					}
					send(streamHead, strings.ReplaceAll(strings.Join(blocks[from:], ""), "\n", eol))(c, req)
				}
				for off := range len(full) + 1 {
					scripts = append(scripts, cutScript(full[:off]), rest, send(noContent))
				}
				s := newRawServer(t, scripts...)
				for off := range len(full) + 1 {
					client := newClient(t, quick(Config{URL: s.url}))
					events, err := collect(t, client)
					if !errors.Is(err, ErrNoContent) {
						t.Fatalf("cut at %d: %v", off, err)
					}
					wantEvents(t, events, want)
					if client.LastEventID() != "4" {
						t.Fatalf("cut at %d: cursor %q, want 4", off, client.LastEventID())
					}
				}
			})
		}
	}
}

func TestCursorAtEveryCut(t *testing.T) {
	full := "id: 1\r\ndata: a\r\n\r\ndata: b\r\nid: 2\r\n\r\nid:\r\ndata: c\r\n\r\n"
	for off := range len(full) + 1 {
		want := interpret(full[:off], "seed")
		mem := &memTransport{answers: []answer{stream(full[:off])}}
		client := newClient(t, quick(Config{Transport: mem, LastEventID: "seed"}))
		wantRun(t, client, want.events...)
		if client.LastEventID() != want.id {
			t.Fatalf("cut at %d: cursor %q, want %q", off, client.LastEventID(), want.id)
		}
	}
}

func TestEndlessLineIsBounded(t *testing.T) {
	part := strings.Repeat("x", 16<<10)
	endless := func(start string) script {
		return func(c net.Conn, _ *http.Request) {
			_, err := io.WriteString(c, streamHead+"id: 1\ndata: a\n\n"+start)
			for n := 0; err == nil && n < 4096; n++ {
				_, err = io.WriteString(c, part)
			}
			if err == nil {
				t.Errorf("%q: the client read 64 MiB of one line", start)
			}
		}
	}
	for _, start := range []string{"data: ", "unknown: ", "id: ", "event: ", "unknown"} {
		s := newRawServer(t, endless(start))
		client := newClient(t, quick(Config{URL: s.url, MaxEventBytes: 100_000}))
		events, err := collect(t, client)
		if !errors.Is(err, ErrEventTooLarge) {
			t.Fatalf("%q: Run returned %v, want ErrEventTooLarge", start, err)
		}
		wantEvents(t, events, []Event{message("1", "a")})
		wantStrings(t, "cursor", []string{client.LastEventID()}, "1")
	}
}

func TestEventAtTheBoundPassesTheLibrary(t *testing.T) {
	// The worst frame: an ID as large as an event may be, then an event as large as it may be.
	const limit = 1 << 20
	id, data := strings.Repeat("i", limit-5), strings.Repeat("d", limit-7)
	mem := &memTransport{answers: []answer{stream("id: " + id + "\n\ndata: " + data + "\n\n")}}
	wantRun(t, newClient(t, quick(Config{Transport: mem, MaxEventBytes: limit})), message(id, data))
}

func TestEventArrivesBeforeTheNextIsSent(t *testing.T) {
	seen := make(chan struct{})
	s := newRawServer(t, func(c net.Conn, _ *http.Request) {
		_, _ = io.WriteString(c, streamHead)
		for i := range 3 {
			_, _ = fmt.Fprintf(c, "id: %d\r\ndata: x\r\n\r", i) // the last LF is still missing
			<-seen
			_, _ = io.WriteString(c, "\n")
		}
	})
	client := newClient(t, quick(Config{URL: s.url}))
	err := client.Run(t.Context(), func(context.Context, Event) error {
		seen <- struct{}{}
		return nil
	})
	if !errors.Is(err, ErrNoContent) {
		t.Fatal(err)
	}
}
