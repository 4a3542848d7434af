package feed

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"
)

// Format says what the `data:` of an event's frame holds.
type Format uint8

const (
	// FormatEnvelope is the JSON envelope: seq, epoch, id, time, type, topic,
	// data, and ce where there is one.
	FormatEnvelope Format = iota
	// FormatRaw is the payload itself: text as published, a JSON string as its
	// decoded text, other JSON compact.
	FormatRaw
)

// String returns the name on the wire.
func (f Format) String() string {
	if f == FormatRaw {
		return "raw"
	}
	return "envelope"
}

// ParseFormat reads the name on the wire; empty is the envelope.
func ParseFormat(s string) (Format, error) {
	switch s {
	case "", "envelope":
		return FormatEnvelope, nil
	case "raw":
		return FormatRaw, nil
	}
	return 0, invalid("subscribe", "format: want envelope or raw")
}

// Shape is what frames are encoded once for: a format, with or without the
// `event:` line that names the type.
type Shape struct {
	Format  Format
	Unnamed bool
}

const shapes = 4

func (s Shape) index() int {
	i := int(s.Format) * 2
	if s.Unnamed {
		i++
	}
	return i
}

func shapeAt(i int) Shape { return Shape{Format: Format(i / 2), Unnamed: i%2 == 1} }

// String returns "envelope", "raw", "envelope_unnamed" or "raw_unnamed".
func (s Shape) String() string {
	if s.Unnamed {
		return s.Format.String() + "_unnamed"
	}
	return s.Format.String()
}

// Frame is one block of an SSE stream, from its first field to its blank
// line. It is immutable and shared by every connection.
//
// Layout (`id:` last, since some clients take an id over when its line comes):
//
//	event: <type>\n    unless the shape is unnamed
//	data: <line>\n     once or more
//	id: <cursor>\n
//	\n
type Frame struct {
	Position
	Bytes   []byte
	Control bool // belongs to one connection, is no event

	// record, where it is shared, stays to be found for as long as somebody
	// holds this frame.
	record *record
}

var errNotEncodable = errors.New("the stored event breaks the rules of the wire")

// encode builds the frame of one event. It fails where a foreign writer left
// something in the log that no frame can carry.
func encode(ev *Event, epoch Epoch, shape Shape) (*Frame, error) {
	if err := encodable(ev); err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(ev.Data)+len(ev.CE)+len(ev.ID)+len(ev.Topic)+2*len(ev.Type)+256)
	if !shape.Unnamed {
		b = append(b, "event: "...)
		b = append(b, ev.Type...)
		b = append(b, '\n')
	}
	if shape.Format == FormatRaw {
		payload, err := rawPayload(ev.Data)
		if err != nil {
			return nil, err
		}
		b = appendDataLines(b, payload)
	} else {
		b = append(b, "data: "...)
		b = appendEnvelope(b, ev, epoch, Cursor{})
		b = append(b, '\n')
	}
	b = appendID(b, Cursor{Epoch: epoch, Position: ev.Position()})
	return &Frame{Position: ev.Position(), Bytes: b}, nil
}

// encodable reports, as an error, that a stored event breaks the rules of the
// wire: a foreign writer may leave anything in a log.
func encodable(ev *Event) error {
	switch {
	case !validID(ev.ID), !validType(ev.Type), ValidateTopic(ev.Topic) != nil, !ev.Fence.Known():
		return errNotEncodable
	case !validStored(ev.Data), len(ev.CE) > 0 && !validStored(ev.CE):
		return errNotEncodable
	}
	return nil
}

// validStored reports whether data is JSON text on one line.
func validStored(data []byte) bool {
	for _, c := range data {
		if c < 0x20 {
			return false
		}
	}
	return utf8.Valid(data) && json.Valid(data)
}

// rawPayload is the text of a JSON string, and other JSON as it is.
func rawPayload(data json.RawMessage) ([]byte, error) {
	if data[0] != '"' {
		return data, nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// appendEnvelope appends the event as JSON on one line. With a cursor whose
// epoch is set, the envelope carries it: catch-up pages have no `id:` line.
func appendEnvelope(b []byte, ev *Event, epoch Epoch, cursor Cursor) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, ev.Seq, 10)
	b = append(b, `,"epoch":"`...)
	b = append(b, epoch...)
	b = append(b, `","id":`...)
	b = appendJSONString(b, ev.ID)
	b = append(b, `,"time":"`...)
	b = ev.Time.UTC().AppendFormat(b, TimeFormat)
	b = append(b, `","type":"`...)
	b = append(b, ev.Type...)
	b = append(b, `","topic":"`...)
	b = append(b, ev.Topic...)
	b = append(b, `","data":`...)
	b = append(b, ev.Data...)
	if len(ev.CE) > 0 {
		b = append(b, `,"ce":`...)
		b = append(b, ev.CE...)
	}
	if cursor.Epoch != "" {
		b = append(b, `,"cursor":"`...)
		b = cursor.append(b)
		b = append(b, '"')
	}
	return append(b, '}')
}

// TimeFormat is how event times are written: RFC 3339 in UTC, microseconds.
const TimeFormat = "2006-01-02T15:04:05.000000Z07:00"

// TimeUnit is the resolution of event times.
const TimeUnit = time.Microsecond

// appendDataLines splits text at LF, CR and CRLF into `data:` lines; a client
// joins them with LF. An empty text is one empty line, and is delivered.
func appendDataLines(b, text []byte) []byte {
	b = append(b, "data: "...)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\r', '\n':
			if c == '\r' && i+1 < len(text) && text[i+1] == '\n' {
				i++
			}
			b = append(b, "\ndata: "...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '\n')
}

// appendID ends a frame.
func appendID(b []byte, c Cursor) []byte {
	b = append(b, "id: "...)
	b = c.append(b)
	return append(b, '\n', '\n')
}

// appendJSONString quotes valid UTF-8 text as JSON, escaping only what JSON
// demands.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
