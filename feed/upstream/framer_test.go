package upstream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// framesOf feeds stream to a framer in the given chunk sizes, over and over.
func framesOf(t testing.TB, f *framer, stream string, sizes ...int) []string {
	t.Helper()
	var frames []string
	for i := 0; stream != ""; i++ {
		n := min(sizes[i%len(sizes)], len(stream))
		chunk := []byte(stream[:n])
		stream = stream[n:]
		for len(chunk) > 0 {
			used, frame, err := f.next(chunk)
			if err != nil {
				t.Fatal(err)
			}
			if used == 0 {
				t.Fatal("framer makes no progress")
			}
			chunk = chunk[used:]
			if frame != nil {
				frames = append(frames, string(frame))
			}
		}
	}
	return frames
}

func ignoreRetry(time.Duration) {}

func alive() error { return nil }

func TestFrameForm(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"default type", "data: a\n\n", "data: a\nevent: e\nid: =\n\n"},
		{"all fields", "id: 7\nevent: t\nretry: 0900\ndata: a\n\n", "data: a\nevent: et\nretry: 900\nid: =7\n\n"},
		{"no colon", "id\nevent\ndata\n\n", "data\nevent: e\nid: =\n\n"},
		{"no space, two spaces", "data:a\ndata:  b\n\n", "data:a\ndata:  b\nevent: e\nid: =\n\n"},
		{"comments and unknown fields", ": c\ndata: a\nfoo: b\n:\nDATA: c\n\n", "data: a\nevent: e\nid: =\n\n"},
		{"id only moves the cursor", "event: t\nid: 7\n\n", "event: c\nid: =7\n\n"},
		{"same id only does nothing", "id: 7\ndata: a\n\nid: 7\n\n", "data: a\nevent: e\nid: =7\n\n"},
		{"retry, type or comment only", "retry: 5\n\nevent: t\n\n: c\n\n\n\n", ""},
		{"type does not outlive its block", "event: t\n\ndata: a\n\n", "data: a\nevent: e\nid: =\n\n"},
		{"id with NUL", "id: 7\x00\ndata: a\n\n", "data: a\nevent: e\nid: =\n\n"},
		{"id that no header can hold", "id: 7\x1b[0m\ndata: a\n\n", "data: a\nevent: e\nid: =\n\n"},
		{"id with tab and UTF-8", "id: \t\u00e9\ndata: a\n\n", "data: a\nevent: e\nid: =\t\u00e9\n\n"},
		{"nothing after the last block", "data: a\n\nid: 9\ndata: b\n", "data: a\nevent: e\nid: =\n\n"},
		{"byte order mark", "\xEF\xBB\xBFdata: a\n\n", "data: a\nevent: e\nid: =\n\n"},
		{"half a byte order mark is a field name", "\xEF\xBBdata: a\ndata: b\n\n", "data: b\nevent: e\nid: =\n\n"},
		{"two byte order marks", "\xEF\xBB\xBF\xEF\xBB\xBFdata: a\ndata: b\n\n", "data: b\nevent: e\nid: =\n\n"},
	} {
		for _, eol := range []string{"\n", "\r", "\r\n"} {
			for _, size := range []int{1, 2, 3, 1 << 20} {
				f := newFramer("", 1<<20, ignoreRetry)
				got := strings.Join(framesOf(t, f, strings.ReplaceAll(tt.in, "\n", eol), size), "")
				if got != tt.want {
					t.Errorf("%s, line end %q, chunks of %d:\n got %q\nwant %q", tt.name, eol, size, got, tt.want)
				}
			}
		}
	}
}

func TestFrameCompletesAtItsLastByte(t *testing.T) {
	// The LF after a final CR must not be waited for: it may never come.
	for _, in := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r", "data: a\n\r"} {
		f := newFramer("", 100, ignoreRetry)
		if frames := framesOf(t, f, in, 1); len(frames) != 1 {
			t.Errorf("%q: %d frames, want 1", in, len(frames))
		}
	}
}

func TestRetryCountsWhenItsLineIsComplete(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want time.Duration
	}{
		{"retry: 1500\n", 1500 * time.Millisecond}, {"retry: 1500", unset}, {"retry: 0\n", 0}, {"retry\n", unset},
		{"retry: 1.5\n", unset}, {"retry: 1e3\n", unset}, {"retry: -5\n", unset}, {"retry:  5\n", unset},
		{"retry: 5\nretry: x\n", 5 * time.Millisecond}, {"retry: 99999999999999999999999\n", maxWait},
	} {
		got := unset
		framesOf(t, newFramer("", 100, func(d time.Duration) { got = d }), tt.in, 1)
		if got != tt.want {
			t.Errorf("%q: %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestEventSizeBound(t *testing.T) {
	const limit = 100
	feed := func(in string, size int) (*framer, error) {
		f := newFramer("", limit, ignoreRetry)
		for b := []byte(in); len(b) > 0; {
			n := min(size, len(b))
			used, _, err := f.next(b[:n])
			if err != nil {
				return f, err
			}
			b = b[used:]
		}
		return f, nil
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct {
		name, in string
		tooLarge bool
	}{
		{"one line, exact", "data: " + x(limit-7) + "\n\n", false},
		{"one line, one more", "data: " + x(limit-6) + "\n\n", true},
		{"several fields, exact", "id: 12\ndata: " + x(limit-14) + "\n\n", false},
		{"several fields, one more", "id: 12\ndata: " + x(limit-13) + "\n\n", true},
		{"many short lines", strings.Repeat("data\n", limit/5+1) + "\n", true},
		{"the bound is per event", strings.Repeat("data: "+x(limit-7)+"\n\n", 3), false},
		{"endless data line", "data: " + x(50*limit), true},
		{"endless unknown field", x(50 * limit), true},
		{"endless id", "id: " + x(50*limit), true},
		{"long comment line", ":" + x(50*limit) + "\ndata: a\n\n", false},
		{"comments without end", strings.Repeat(": ping\n", limit) + "data: a\n\n", false},
		{"unknown fields without end", strings.Repeat("foo: bar\n", limit) + "data: a\n\n", false},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			f, err := feed(tt.in, size)
			if got := errors.Is(err, ErrEventTooLarge); got != tt.tooLarge {
				t.Errorf("%s, chunks of %d: error %v, want too large: %v", tt.name, size, err, tt.tooLarge)
			}
			if held := cap(f.line) + cap(f.frame) + cap(f.typ); held > 8*limit {
				t.Errorf("%s, chunks of %d: %d bytes held at a bound of %d", tt.name, size, held, limit)
			}
		}
	}
}

func TestLargeBuffersAreNotKept(t *testing.T) {
	f := newFramer("", 8<<20, ignoreRetry)
	framesOf(t, f, "data: "+strings.Repeat("x", 1<<20)+"\n\ndata: a\n\n", chunkBytes)
	if held := cap(f.line) + cap(f.frame); held > 2*keepBytes {
		t.Errorf("%d bytes held after a large event", held)
	}
}

func TestFilterReadsOneFrameAtATime(t *testing.T) {
	in := strings.Repeat("data: a\n\n", 100) + ": comment\n\n" + strings.Repeat("id: 1\ndata: b\r\n\r\n", 100)
	f := newFilter(io.NopCloser(strings.NewReader(in)), newFramer("", 1000, ignoreRetry), nil, alive)
	buf := make([]byte, 1<<20)
	for i := range 200 {
		n, err := f.Read(buf)
		if err != nil || bytes.Count(buf[:n], []byte("\n\n")) != 1 || !bytes.HasSuffix(buf[:n], []byte("\n\n")) {
			t.Fatalf("read %d: %q, %v, want one frame", i, buf[:n], err)
		}
	}
	if n, err := f.Read(buf); n != 0 || err != io.EOF {
		t.Fatalf("after the last frame: %d, %v, want 0, EOF", n, err)
	}
}

func TestFilterGivesWhatCameBeforeAnError(t *testing.T) {
	errCut := errors.New("cut")
	// The same Read that fails also brings bytes.
	src := iotest.DataErrReader(io.MultiReader(strings.NewReader("data: a\n\nid: 2\ndata: b"), iotest.ErrReader(errCut)))
	f := newFilter(io.NopCloser(src), newFramer("", 1000, ignoreRetry), nil, alive)
	got, err := io.ReadAll(f)
	if string(got) != "data: a\nevent: e\nid: =\n\n" || err != errCut {
		t.Fatalf("got %q, %v", got, err)
	}
	if n, err := f.Read(nil); n != 0 || err != nil {
		t.Fatalf("empty read: %d, %v", n, err)
	}
}
