package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of one event and of one batch.
const (
	MaxDataBytes   = 16 << 20 // payload of one event, as compact JSON
	MaxIDBytes     = 128
	MaxTypeBytes   = 128
	MaxTopicBytes  = 255
	MaxTopicTokens = 16
	MaxBatchEvents = 1000
	MaxDataDepth   = 1000 // nested arrays and objects; decoders give up beyond some depth
)

// Defaults of a draft's optional fields.
const (
	DefaultTopic = "default"
	DefaultType  = "message"
)

// SystemTopic is the first token of the topics that only the server publishes.
const SystemTopic = "gapless"

// Event is one published and stored event. It is immutable once the log holds
// it: the log, the ring and every reader share one value.
type Event struct {
	Seq    uint64 // from 1, contiguous inside an epoch, in commit order
	Fence  Fence  // says which event the seq means
	ID     string // the publisher's id, or a ULID minted at publish
	Time   time.Time
	Type   string
	Topic  string
	Source string          // CloudEvents source; part of the idempotency key
	Data   json.RawMessage // compact JSON; a text payload is a JSON string
	CE     json.RawMessage // CloudEvents attributes, a JSON object, or nil
}

// Position returns the event's place in its epoch.
func (e *Event) Position() Position { return Position{Seq: e.Seq, Fence: e.Fence} }

// Size is the number of bytes by which retention accounts the event: its
// variable parts and a flat cost for the rest.
func (e *Event) Size() int64 {
	return size(e.ID, e.Type, e.Topic, e.Source, e.Data, e.CE)
}

func size(id, typ, topic, source string, data, ce json.RawMessage) int64 {
	const flat = 160
	return int64(len(id)+len(typ)+len(topic)+len(source)+len(data)+len(ce)) + flat
}

// Draft is an event before the log has numbered it.
type Draft struct {
	ID     string // empty: the feed mints a ULID
	Type   string // empty: "message"
	Topic  string // empty: "default"
	Source string
	Data   json.RawMessage // any JSON text; empty: null
	CE     json.RawMessage
	// Minted: the feed made the id up, so that no publisher can repeat it.
	Minted bool
}

// size is what [Event.Size] will be.
func (d *Draft) size() int64 {
	return size(d.ID, d.Type, d.Topic, d.Source, d.Data, d.CE)
}

// TextData turns a text payload into event data (a JSON string). It fails
// with [CodeInvalid] where the text is not UTF-8.
func TextData(text []byte) (json.RawMessage, error) {
	if !utf8.Valid(text) {
		return nil, invalid("publish", "the payload is not valid UTF-8")
	}
	return appendJSONString(make([]byte, 0, len(text)+2), string(text)), nil
}

// Normalize checks the draft, fills its defaults and compacts its data into
// memory of its own. It does not refuse reserved names: see [Draft.Reserved].
func (d *Draft) Normalize() error {
	if d.Type == "" {
		d.Type = DefaultType
	}
	if d.Topic == "" {
		d.Topic = DefaultTopic
	}
	if d.ID != "" && !validID(d.ID) {
		return invalid("publish", "id: want 1 to 128 printable ASCII characters")
	}
	if !validSource(d.Source) {
		return invalid("publish", "source: want at most 2,048 bytes of UTF-8 without control characters")
	}
	if !validType(d.Type) {
		return invalid("publish", fmt.Sprintf("type: %q does not match [A-Za-z0-9._:/-]{1,128}", clip(d.Type)))
	}
	if err := ValidateTopic(d.Topic); err != nil {
		return err
	}
	data, err := compactData(d.Data)
	if err != nil {
		return err
	}
	d.Data = data
	if len(d.CE) > 0 {
		if d.CE, err = compactData(d.CE); err != nil {
			return err
		}
	}
	return nil
}

// Reserved reports, as an error of [CodeInvalid], that the draft's type or
// topic belongs to the server.
func (d *Draft) Reserved() error {
	if reservedType(d.Type) {
		return invalid("publish", fmt.Sprintf("type: %q is reserved", d.Type))
	}
	if isSystemTopic(d.Topic) {
		return invalid("publish", fmt.Sprintf("topic: %q is reserved, as all topics under %q", clip(d.Topic), SystemTopic))
	}
	return nil
}

// compactData checks that raw is one JSON text that every client can take
// over (RFC 8259 in UTF-8, no lone surrogates: RFC 7493 section 2.1), and
// returns it without white space. Numbers, key order and repeated keys stay.
func compactData(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("null"), nil
	}
	if !utf8.Valid(raw) {
		return nil, invalid("publish", "data: not valid UTF-8")
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, raw); err != nil {
		return nil, &Error{Code: CodeInvalid, Op: "publish", Msg: "data: not valid JSON", Err: err}
	}
	// A copy of its own size: white space would stay allocated with the event,
	// and no retention would count it.
	data := bytes.Clone(buf.Bytes())
	if len(data) > MaxDataBytes {
		return nil, &Error{Code: CodeTooLarge, Op: "publish", Msg: fmt.Sprintf("data: %d bytes, at most %d are taken", len(data), MaxDataBytes)}
	}
	if depth(data) > MaxDataDepth {
		return nil, invalid("publish", fmt.Sprintf("data: nested more than %d deep", MaxDataDepth))
	}
	if hasLoneSurrogate(data) {
		return nil, invalid("publish", `data: a lone surrogate escape (\ud800 to \udfff) is no Unicode character`)
	}
	return data, nil
}

// depth returns how deep valid JSON is nested.
func depth(data []byte) (deepest int) {
	open := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			open++
			deepest = max(deepest, open)
		case '}', ']':
			open--
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return deepest
}

// hasLoneSurrogate reports whether valid JSON holds a \u escape of one half
// of a surrogate pair without its other half.
func hasLoneSurrogate(data []byte) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 {
			return false
		}
		if data[i+1] != 'u' {
			data = data[i+2:]
			continue
		}
		unit := hex4(data[i+2:])
		data = data[i+6:]
		switch {
		case unit >= 0xdc00 && unit <= 0xdfff:
			return true
		case unit >= 0xd800 && unit <= 0xdbff:
			if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
				return true
			}
			if low := hex4(data[2:]); low < 0xdc00 || low > 0xdfff {
				return true
			}
			data = data[6:]
		}
	}
}

// hex4 reads four hex digits that the JSON scanner has already checked.
func hex4(b []byte) (v uint32) {
	for _, c := range b[:4] {
		v <<= 4
		switch {
		case c <= '9':
			v |= uint32(c - '0')
		case c <= 'F':
			v |= uint32(c - 'A' + 10)
		default:
			v |= uint32(c - 'a' + 10)
		}
	}
	return v
}

// validSource refuses control characters: no URI has them, and not every store
// can keep a NUL.
func validSource(source string) bool {
	control := func(c rune) bool { return c < 0x20 || c == 0x7f }
	return len(source) <= 2048 && utf8.ValidString(source) && !strings.ContainsFunc(source, control)
}

func validID(id string) bool {
	if len(id) == 0 || len(id) > MaxIDBytes {
		return false
	}
	for i := range len(id) {
		if id[i] < 0x20 || id[i] > 0x7e {
			return false
		}
	}
	return true
}

func validType(t string) bool {
	if len(t) == 0 || len(t) > MaxTypeBytes {
		return false
	}
	for i := range len(t) {
		c := t[i]
		if !isTokenByte(c) && c != '.' && c != ':' && c != '/' {
			return false
		}
	}
	return true
}

// isTokenByte reports whether c is one of [A-Za-z0-9_-].
func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// reservedType reports whether t names a control frame, or an event that
// would fire a page's onerror or onopen.
func reservedType(t string) bool {
	switch t {
	case TypeConnected, TypeLive, TypeHeartbeat, TypeResync, TypeDraining, TypeStatus, "error", "open":
		return true
	}
	return false
}

// clip shortens foreign text for an error message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
