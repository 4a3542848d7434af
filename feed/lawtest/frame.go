package lawtest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Frame is one block of an event stream that was dispatched.
type Frame struct {
	// LastEventID is the last event ID in force when the block was dispatched: what a client sends next.
	LastEventID string
	// Type is the event field, "message" where there was none.
	Type string
	// Data is the data lines, joined by LF.
	Data string
	// RetryMillis is the last retry field since the block before, in milliseconds; 0 where there was none.
	RetryMillis int64
}

// FrameReader reads an event stream by the rules of the WHATWG HTML standard, section 9.2.6, and by nothing else:
// a block counts only at its blank line and only with data; lines end at LF, CR or CRLF; one byte order mark at
// the very start goes; an id with NUL, a retry that is not all digits, unknown fields and comments are ignored.
// It keeps no more than the block being read, of any size. It is not safe for concurrent use.
type FrameReader struct {
	in     *bufio.Reader
	skipLF bool // the last line ended at CR: an LF that follows belongs to it
	begun  bool

	// Buffers of the block being read.
	id      string
	typ     string
	data    strings.Builder
	hasData bool
	retry   int64
}

// NewFrameReader reads from r. lastEventID is where the client stands: browsers carry it over into a new
// connection, so that a block without an id keeps it.
func NewFrameReader(r io.Reader, lastEventID string) *FrameReader {
	return &FrameReader{in: bufio.NewReader(r), id: lastEventID}
}

// Next blocks until a block is complete and returns it. The error is [io.EOF] at a clean end of r and r's own
// error at any other; a block that the end cut is not delivered.
func (f *FrameReader) Next() (Frame, error) {
	for {
		line, err := f.line()
		if err != nil {
			return Frame{}, err
		}
		if line != "" {
			f.field(line)
			continue
		}
		frame := Frame{LastEventID: f.id, Type: f.typ, Data: strings.TrimSuffix(f.data.String(), "\n")}
		dispatch := f.hasData
		f.typ, f.hasData = "", false
		f.data.Reset()
		if !dispatch {
			continue
		}
		if frame.Type == "" {
			frame.Type = "message"
		}
		frame.RetryMillis, f.retry = f.retry, 0
		return frame, nil
	}
}

// line returns the next line without its end. A CR ends a line at once: waiting for a byte that may be LF would
// hold back a complete block of a live stream.
func (f *FrameReader) line() (string, error) {
	var line []byte
	for {
		c, err := f.in.ReadByte()
		if err != nil {
			return "", err
		}
		if c == '\n' && f.skipLF {
			f.skipLF = false
			continue
		}
		f.skipLF = c == '\r'
		if c != '\n' && c != '\r' {
			line = append(line, c)
			continue
		}
		if !f.begun {
			f.begun = true
			line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
		}
		return decodeUTF8(line), nil
	}
}

func (f *FrameReader) field(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "event":
		f.typ = value
	case "data":
		f.data.WriteString(value)
		f.data.WriteByte('\n')
		f.hasData = true
	case "id":
		if !strings.Contains(value, "\x00") {
			f.id = value
		}
	case "retry":
		if value == "" || strings.Trim(value, "0123456789") != "" {
			return
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if errors.Is(err, strconv.ErrRange) {
			n = math.MaxInt64
		}
		f.retry = n
	}
}

// decodeUTF8 replaces each maximal part of an invalid sequence by U+FFFD, as the WHATWG decoder does.
func decodeUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		out.WriteRune(r)
		if r == utf8.RuneError && n == 1 {
			n = invalidPrefix(b)
		}
		b = b[n:]
	}
	return out.String()
}

// invalidPrefix is how many bytes one U+FFFD stands for: those that begin a sequence which then breaks off.
func invalidPrefix(b []byte) int {
	if b[0] < 0xC2 || b[0] > 0xF4 {
		return 1
	}
	size := 2
	switch {
	case b[0] >= 0xF0:
		size = 4
	case b[0] >= 0xE0:
		size = 3
	}
	low, high := byte(0x80), byte(0xBF)
	switch b[0] {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	n := 1
	for n < size && n < len(b) && b[n] >= low && b[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	return n
}
