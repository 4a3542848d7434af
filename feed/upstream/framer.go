package upstream

import (
	"bytes"
	"strconv"
	"time"

	sse "github.com/r3labs/sse/v2"
)

// The frames that go through the library are written so that it cannot read them wrongly. Each is a block of
// LF lines:
//
//	data: …        the event's data lines as they came, comments and unknown fields left out
//	event: eTYPE   or "event: c" for a block without data, which only moves the cursor
//	retry: MS      where the block has one
//	id: =ID        always, with the mark "=", since the library takes an empty id for none
//
// No line is empty and the type is never empty, so that each frame becomes exactly one event of the library.
const (
	markEvent  = 'e'
	markCursor = 'c'
	markID     = '='

	// frameOverhead is more than the marks and field names add to what was received.
	frameOverhead = 4 << 10
	// keepBytes is how large a buffer may be to be kept for the next event.
	keepBytes = 64 << 10
)

const bom = "\xEF\xBB\xBF"

// framer interprets an event stream (WHATWG HTML, section 9.2.6), however it is cut into chunks.
// One goroutine uses it.
//
// It leaves the standard in two points. The last event ID that it is made with counts until a block sets
// another, as in browsers. And an ID that cannot be sent back in a header is ignored like one with NUL.
type framer struct {
	max     int
	onRetry func(time.Duration)

	started bool   // past the place of the byte order mark
	mark    int    // bytes of it seen
	afterCR bool   // an LF that comes now belongs to the line end before
	comment bool   // inside a comment line, which is not kept
	line    []byte // start of a line that a chunk border has cut

	frame   []byte // data lines of the block, later the whole frame
	given   bool   // frame has been given on; what is in it is the last block's
	hasData bool
	typ     []byte
	id      string // the standard's last event ID buffer
	sentID  string // the ID of the last frame
	retry   time.Duration
	size    int // bytes of this block's field lines
}

// newFramer returns a framer for a stream that resumes at id. onRetry hears of every valid retry field as soon as its
// line is complete, since the standard lets it count at once.
func newFramer(id string, maxEventBytes int, onRetry func(time.Duration)) *framer {
	return &framer{max: maxEventBytes, onRetry: onRetry, id: id, sentID: id, retry: unset}
}

// next reads b up to the end of the first frame that completes in it. It returns how much of b it has used,
// and the frame or nil; the frame is valid until the next call. The one error is ErrEventTooLarge.
func (f *framer) next(b []byte) (used int, frame []byte, err error) {
	if f.given {
		f.reset()
	}
	for used < len(b) {
		if !f.started {
			used += f.skipBOM(b[used:])
			continue
		}
		if f.afterCR {
			f.afterCR = false
			if b[used] == '\n' {
				used++
				continue
			}
		}
		rest := b[used:]
		end := bytes.IndexAny(rest, "\r\n")
		if end < 0 {
			return len(b), nil, f.extend(rest)
		}
		used += end + 1
		f.afterCR = rest[end] == '\r'
		if frame, err = f.endLine(rest[:end]); frame != nil || err != nil {
			return used, frame, err
		}
	}
	return used, nil, nil
}

// skipBOM reads the place where a byte order mark may stand: the very start of the stream. What only began
// like one is the start of the first line.
func (f *framer) skipBOM(b []byte) int {
	for i, c := range b {
		if c != bom[f.mark] {
			f.line = append(f.line, bom[:f.mark]...)
			f.started = true
			return i
		}
		if f.mark++; f.mark == len(bom) {
			f.started = true
			return i + 1
		}
	}
	return len(b)
}

// extend keeps part, which a chunk border has cut off from the rest of its line.
func (f *framer) extend(part []byte) error {
	if err := f.checkSize(part); err != nil {
		return err
	}
	if !f.comment {
		f.line = append(f.line, part...)
	}
	return nil
}

// checkSize refuses a line that goes on with part if it makes its block too large. It notes where a comment begins.
func (f *framer) checkSize(part []byte) error {
	if len(f.line) == 0 && len(part) > 0 && part[0] == ':' {
		f.comment = true
	}
	if f.comment || len(part) == 0 {
		return nil
	}
	if f.size+len(f.line)+len(part)+1 > f.max {
		return ErrEventTooLarge
	}
	return nil
}

// endLine interprets a line whose last part is part. It returns the frame that the line completes, or nil.
func (f *framer) endLine(part []byte) ([]byte, error) {
	if err := f.checkSize(part); err != nil {
		return nil, err
	}
	if f.comment {
		f.comment = false
		return nil, nil
	}
	line := part
	if len(f.line) > 0 {
		f.line = append(f.line, part...)
		line = f.line
	}
	if len(line) == 0 {
		return f.endBlock(), nil
	}
	f.field(line)
	f.line = emptied(f.line)
	return nil, nil
}

func (f *framer) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		f.frame = append(append(f.frame, line...), '\n')
		f.hasData = true
	case "event":
		f.typ = append(f.typ[:0], value...)
	case "id":
		if sendable(string(value)) {
			f.id = string(value)
		}
	case "retry":
		if retry, ok := parseRetry(value); ok {
			f.retry = retry
			f.onRetry(retry)
		}
	default:
		return
	}
	f.size += len(line) + 1
}

// endBlock returns the frame of a block that is complete, nil for a block that changes nothing.
func (f *framer) endBlock() []byte {
	if !f.hasData && f.id == f.sentID {
		f.reset()
		return nil
	}
	f.frame = append(f.frame, "event: "...)
	if f.hasData {
		f.frame = append(append(f.frame, markEvent), f.typ...)
	} else {
		f.frame = append(f.frame, markCursor)
	}
	if f.retry != unset {
		f.frame = append(f.frame, "\nretry: "...)
		f.frame = strconv.AppendInt(f.frame, f.retry.Milliseconds(), 10)
	}
	f.frame = append(append(f.frame, "\nid: "...), markID)
	f.frame = append(append(f.frame, f.id...), "\n\n"...)
	f.sentID = f.id
	f.given = true
	return f.frame
}

// reset forgets the block, not the last event ID.
func (f *framer) reset() {
	f.frame, f.typ = emptied(f.frame), emptied(f.typ)
	f.given, f.hasData, f.retry, f.size = false, false, unset, 0
}

// emptied returns b without content, and without its memory if that is large.
func emptied(b []byte) []byte {
	if cap(b) > keepBytes {
		return nil
	}
	return b[:0]
}

// decode reads the library's event of a frame. deliver is false for a frame that only moves the cursor.
func decode(m *sse.Event) (ev Event, deliver bool, err error) {
	if len(m.ID) == 0 || m.ID[0] != markID || len(m.Event) == 0 {
		return Event{}, false, errForm
	}
	ev = Event{ID: string(m.ID[1:]), Type: string(m.Event[1:]), Data: m.Data}
	if ev.Type == "" {
		ev.Type = defaultType
	}
	if ev.Data == nil {
		ev.Data = []byte{}
	}
	ev.Retry, _ = parseRetry(m.Retry)
	return ev, m.Event[0] == markEvent, nil
}
