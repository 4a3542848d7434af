package lawtest

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func readFrames(r io.Reader, lastEventID string) ([]Frame, error) {
	var frames []Frame
	for f := NewFrameReader(r, lastEventID); ; {
		frame, err := f.Next()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
		frames = append(frames, frame)
	}
}

func TestFrameReaderFollowsTheStandard(t *testing.T) {
	const bom = "\xEF\xBB\xBF"
	for _, tt := range []struct {
		name, stream string
		want         []Frame
	}{
		{"one block", "event: a\ndata: x\nid: 1\n\n", []Frame{{"1", "a", "x", 0}}},
		{"CR ends lines", "event: a\rdata: x\rid: 1\r\r", []Frame{{"1", "a", "x", 0}}},
		{"CRLF ends lines", "event: a\r\ndata: x\r\nid: 1\r\n\r\n", []Frame{{"1", "a", "x", 0}}},
		{"LF then CR are two line ends", "data: x\n\rdata: y\r\r\n", []Frame{{"", "message", "x", 0}, {"", "message", "y", 0}}},
		{"U+2028, U+0085 and form feed end none", "data: a\u2028b\u0085c\fd\n\n", []Frame{{"", "message", "a\u2028b\u0085c\fd", 0}}},
		{"data lines are joined by LF, one of them is dropped", "data: a\ndata\ndata:\ndata:  b\n\n", []Frame{{"", "message", "a\n\n\n b", 0}}},
		{"empty data is a message", "data:\n\n", []Frame{{"", "message", "", 0}}},
		{"no data is none, but its id and retry count", "event: a\nid: 7\nretry: 900\n\ndata: x\n\n", []Frame{{"7", "message", "x", 900}}},
		{"an id lasts", "id: 1\ndata: x\n\ndata: y\n\nid\ndata: z\n\n", []Frame{{"1", "message", "x", 0}, {"1", "message", "y", 0}, {"", "message", "z", 0}}},
		{"an id with NUL is ignored", "id: 1\nid: 2\x003\ndata: x\n\n", []Frame{{"1", "message", "x", 0}}},
		{"a retry is digits only", "retry: 5x\nretry: -1\nretry: 1e3\nretry:\ndata: x\n\nretry: 99999999999999999999\ndata: y\n\n",
			[]Frame{{"", "message", "x", 0}, {"", "message", "y", 1<<63 - 1}}},
		{"comments and unknown fields are ignored", ": hi\nfoo: bar\nDATA: no\n data: no\ndata: x\n\n", []Frame{{"", "message", "x", 0}}},
		{"the first byte order mark goes", bom + "data: x\n\n" + bom + "data: y\n\n", []Frame{{"", "message", "x", 0}}},
		{"of two at the start one stays", bom + bom + "data: x\ndata: y\n\n", []Frame{{"", "message", "y", 0}}},
		{"a byte order mark before a blank line", bom + "\ndata: x\n\n", []Frame{{"", "message", "x", 0}}},
		{"a block cut before its blank line is none", "data: x\nid: 1\n\ndata: y\nid: 2\n", []Frame{{"1", "message", "x", 0}}},
		{"a block cut in its data is none", "data: x\nid: 1\n\nid: 2\ndata: {", []Frame{{"1", "message", "x", 0}}},
		{"each broken sequence is one U+FFFD", "data: \xE2\x82|\xF0\x9F\x98|\xC0\xAF|\xED\xA0\x80|\xFF\xE2\x82\xAC\n\n",
			[]Frame{{"", "message", "\uFFFD|\uFFFD|\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD|\uFFFD€", 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole":        strings.NewReader(tt.stream),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.stream)),
			} {
				got, err := readFrames(r, "")
				if err != nil || !reflect.DeepEqual(got, tt.want) {
					t.Errorf("%s: got %+v, %v, want %+v", name, got, err, tt.want)
				}
			}
		})
	}
}

// A live stream may stop right after the CR that ends a block; the block must not wait for what follows.
func TestFrameReaderDoesNotWaitBehindCR(t *testing.T) {
	r, w := io.Pipe()
	go func() { // ends when the pipe is closed below
		_, _ = io.WriteString(w, "data: x\r\r")
	}()
	defer r.Close()
	frame, err := NewFrameReader(r, "9").Next()
	if want := (Frame{"9", "message", "x", 0}); err != nil || frame != want {
		t.Errorf("got %+v, %v, want %+v", frame, err, want)
	}
}

func TestFrameReaderCutAtEveryByte(t *testing.T) {
	const block = "retry: 900\nevent: a\ndata: x\nid: 2\n\n"
	for n := range len(block) {
		got, err := readFrames(io.MultiReader(strings.NewReader(block[:n]), iotest.ErrReader(io.ErrUnexpectedEOF)), "1")
		if len(got) != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: got %+v, %v", n, got, err)
		}
	}
}

func TestFrameReaderTakesLargeFrames(t *testing.T) {
	for _, n := range []int{65_535, 65_536, 65_537, 1 << 20} {
		data := strings.Repeat("x", n)
		got, err := readFrames(strings.NewReader("data: "+data+"\n\n"), "")
		if err != nil || len(got) != 1 || got[0].Data != data {
			t.Errorf("%d bytes: %d frames, %v", n, len(got), err)
		}
	}
}
