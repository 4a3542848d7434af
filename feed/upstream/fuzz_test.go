package upstream

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// chunked reads s in pieces of the given sizes, over and over.
func chunked(s string, sizes []int) io.Reader {
	i := 0
	return readerFunc(func(p []byte) (int, error) {
		if s == "" {
			return 0, io.EOF
		}
		n := min(sizes[i%len(sizes)], len(s), len(p))
		i++
		copy(p, s[:n])
		s = s[n:]
		return n, nil
	})
}

func addSeeds(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "data: a\n\n", "\xEF\xBB\xBFdata: a\n\n\xEF\xBB\xBFdata: b\n\n", "\xEF\xBBdata: a\n\n",
		"event: foo\r\ndata: bar\r\n\r\n", "data: a\r\rdata: b\n\rdata: c\r\n\r\n", "data\n\ndata\ndata\n\ndata:\n\n",
		"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", "id: 1\n\nid: 2\x00\n\nid: 3\x7f\n\n: c\n\nretry: 5\n\n",
		"retry: 10\nretry: x\ndata: a\n\nretry: 99999999999999999999\n\n", "data: a\n\nid: 9\ndata: cut", "retry: 7\ndata",
		"event: e\nevent:\ndata: \x00\xff\u2028\u0085\n\n", "data:  a\ndata:\tb\n data: c\ndata : d\n\n",
		"id: =\n\nevent: c\ndata: a\n\n",
		"event: server.live\ndata: {\"head_seq\":4}\nid: 01KB7Q3V9W8ZJ4M2T6R5N0XYCD-42-7K3M9Q2P\n\n",
	} {
		f.Add(seed, []byte{1})
		f.Add(seed, []byte{2, 0, 9})
	}
}

// sizesOf returns chunk sizes from 1 up.
func sizesOf(cuts []byte) []int {
	sizes := []int{1}
	for _, c := range cuts {
		sizes = append(sizes, int(c)+1)
	}
	return sizes
}

// FuzzFilter: however a stream is cut into chunks, the filter gives the same frames on, and they mean what the
// standard's own procedure says that the stream means.
func FuzzFilter(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, in string, cuts []byte) {
		filtered := func(sizes ...int) (string, time.Duration) {
			retry := unset
			framer := newFramer("seed", 1<<20, func(d time.Duration) { retry = d })
			out, err := io.ReadAll(newFilter(io.NopCloser(chunked(in, sizes)), framer, nil, alive))
			if err != nil {
				t.Fatal(err)
			}
			return string(out), retry
		}
		whole, retry := filtered(len(in) + 1)
		for _, sizes := range [][]int{{1}, sizesOf(cuts)} {
			if parts, r := filtered(sizes...); parts != whole || r != retry {
				t.Fatalf("chunks of %v: %q, retry %v\nwhole: %q, retry %v", sizes, parts, r, whole, retry)
			}
		}

		want := interpret(in, "seed")
		if retry != want.retry {
			t.Fatalf("retry %v, want %v", retry, want.retry)
		}
		cursor := "seed"
		var events []Event
		// A frame is a block of the standard too, but for its marks and for cursor frames, which have no data.
		for frame := range strings.SplitAfterSeq(whole, "\n\n") {
			if frame == "" {
				continue
			}
			typ, _, _ := strings.Cut(frame[strings.LastIndex(frame, "event: ")+len("event: "):], "\n")
			read := interpret(frame, "")
			cursor = strings.TrimPrefix(read.id, "=")
			if (typ[0] == markEvent) != (len(read.events) == 1) || read.id[0] != markID {
				t.Fatalf("frame %q means %+v", frame, read)
			}
			for _, ev := range read.events {
				ev.ID = cursor
				if ev.Type = ev.Type[1:]; ev.Type == "" {
					ev.Type = "message"
				}
				events = append(events, ev)
			}
		}
		wantEvents(t, events, want.events)
		if cursor != want.id {
			t.Fatalf("cursor %q, want %q", cursor, want.id)
		}
	})
}

// FuzzClient: what a client's handler gets through filter and library, and the cursor after it, are what the
// standard's procedure gives.
func FuzzClient(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, in string, cuts []byte) {
		want := interpret(in, "seed")
		sizes := sizesOf(cuts)
		mem := &memTransport{answers: []answer{streamOf(func(*http.Request) io.Reader { return chunked(in, sizes) })}}
		client := newClient(t, quick(Config{Transport: mem, LastEventID: "seed", MaxFloor: time.Nanosecond}))
		wantRun(t, client, want.events...)
		if client.LastEventID() != want.id {
			t.Fatalf("cursor %q, want %q", client.LastEventID(), want.id)
		}
	})
}
