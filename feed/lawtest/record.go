package lawtest

import (
	"fmt"
	"time"
)

// Kind says what a [Record] is about.
type Kind string

const (
	// KindSubscribe is a client about to open a connection: filter, start and the cursor it sends.
	KindSubscribe Kind = "subscribe"
	// KindConnected is the frame server.connected.
	KindConnected Kind = "connected"
	// KindEvent is one event handed to the application.
	KindEvent Kind = "event"
	// KindLive is the frame server.live.
	KindLive Kind = "live"
	// KindHeartbeat is the frame heartbeat.
	KindHeartbeat Kind = "heartbeat"
	// KindResync is the frame resync_required.
	KindResync Kind = "resync"
	// KindDraining is the frame server.draining.
	KindDraining Kind = "draining"
	// KindCut is the end of a connection, as the client noticed it.
	KindCut Kind = "cut"
	// KindPublish is one event that a publisher sent, with the answer it got.
	KindPublish Kind = "publish"
)

// known says whether k is one of the kinds above.
func (k Kind) known() bool {
	switch k {
	case KindSubscribe, KindConnected, KindEvent, KindLive, KindHeartbeat,
		KindResync, KindDraining, KindCut, KindPublish:
		return true
	}
	return false
}

// Outcome is what a publisher knows about an event after it sent it.
type Outcome string

const (
	// OutcomeAcknowledged: the server answered that the event is stored.
	OutcomeAcknowledged Outcome = "acknowledged"
	// OutcomeRefused: the server answered that the event is not stored.
	OutcomeRefused Outcome = "refused"
	// OutcomeUnknown: no answer, or one that leaves it open. The event may be stored or not.
	OutcomeUnknown Outcome = "unknown"
)

// CutBy says who ended a connection.
type CutBy string

const (
	// CutBySelf: the client closed it.
	CutBySelf CutBy = "self"
	// CutByPeer: the server or something between closed it, cleanly or not.
	CutByPeer CutBy = "peer"
)

// Record is one thing that a client or a publisher saw. Each field names the kinds that use it; the zero value
// of a field means "not recorded", and what is not recorded is not judged.
type Record struct {
	Kind Kind `json:"kind"`

	// Time is, for an event and in a reference log, the event's own time; for every other kind, when it happened.
	Time time.Time `json:"time,omitzero"`

	// Client names the application state that frames go to: one page, one worker. All kinds but publish.
	Client string `json:"client,omitempty"`
	// Conn numbers the connections of a client in the order in which it opened them, from 1. All kinds but publish.
	Conn int `json:"conn,omitempty"`

	// Cursor is, for subscribe, the cursor sent (of header and query, the one that wins; a bare number is read
	// with Epoch); for frames, the last event ID in force after the frame, which a client would send next.
	Cursor string `json:"cursor,omitempty"`
	// Epoch, Seq and Fence say which event: event, and for publish what the answer says (Seq 0: an answer that
	// names no seq, as for a stream of lines). Epoch alone: every frame that carries it in its data.
	Epoch string `json:"epoch,omitempty"`
	Seq   uint64 `json:"seq,omitempty"`
	Fence string `json:"fence,omitempty"`

	// Topics (patterns; none means ">") and Types (none means all) are the filter: subscribe.
	Topics []string `json:"topics,omitempty"`
	Types  []string `json:"types,omitempty"`
	// Raw is format=raw: subscribe, and on event: Data is the text itself and not JSON.
	Raw bool `json:"raw,omitempty"`
	// Unnamed is named=false: subscribe.
	Unnamed bool `json:"unnamed,omitempty"`

	// Start is what was asked (subscribe: snapshot, all, live, last:n) or answered (connected: snapshot, resume, live).
	Start string `json:"start,omitempty"`
	// SinceSeq, OldestSeq and HeadSeq are the numbers in a control frame's data.
	SinceSeq  uint64 `json:"since_seq,omitempty"`
	OldestSeq uint64 `json:"oldest_seq,omitempty"`
	HeadSeq   uint64 `json:"head_seq,omitempty"`
	// Truncated: connected, where the search back for a snapshot was cut short.
	Truncated bool `json:"truncated,omitempty"`

	// ID, Source (CloudEvents), Topic and Type identify an event: event, publish. A publish without topic or
	// type is read with the defaults, "default" and "message".
	ID     string `json:"id,omitempty"`
	Source string `json:"source,omitempty"`
	Topic  string `json:"topic,omitempty"`
	Type   string `json:"type,omitempty"`

	// Data is the payload as JSON text (see [TextData] for text payloads), or for a Raw event the text.
	Data string `json:"data,omitempty"`
	// DataHash may stand for Data: [HashJSON], or for a Raw event [HashText].
	DataHash string `json:"data_hash,omitempty"`
	// TextHash accompanies DataHash on publish, for readers with format=raw: [HashText] of what they get.
	TextHash string `json:"text_hash,omitempty"`

	// Outcome, Status (HTTP) and Duplicate are the answer: publish.
	Outcome   Outcome `json:"outcome,omitempty"`
	Status    int     `json:"status,omitempty"`
	Duplicate bool    `json:"duplicate,omitempty"`
	// Lost: publish, where the test itself took the event out of the log again (rolled the log back behind it).
	Lost bool `json:"lost,omitempty"`

	// Reason is the reason of a resync or of draining.
	Reason string `json:"reason,omitempty"`
	// By says who cut: cut.
	By CutBy `json:"by,omitempty"`
	// RetryMillis is the retry: field that came with the frame, in milliseconds.
	RetryMillis int64 `json:"retry_ms,omitempty"`
}

// defect names what makes a record impossible to judge, or "".
func (r *Record) defect() string {
	if !r.Kind.known() {
		return fmt.Sprintf("kind %q is unknown", string(r.Kind))
	}
	if r.Kind == KindPublish {
		switch r.Outcome {
		case OutcomeAcknowledged:
			if r.Epoch == "" {
				return "an acknowledged publish names no epoch"
			}
		case OutcomeRefused, OutcomeUnknown:
		default:
			return fmt.Sprintf("outcome %q is unknown", string(r.Outcome))
		}
		return ""
	}
	if r.Client == "" || r.Conn < 1 {
		return "client or connection number is missing"
	}
	if r.Kind == KindSubscribe {
		return ""
	}
	if r.Cursor != "" {
		if _, ok := parseCursor(r.Cursor); !ok {
			return fmt.Sprintf("the last event ID %q is no cursor", r.Cursor)
		}
	} else if r.Kind == KindEvent && (r.Epoch == "" || r.Seq == 0) {
		return "an event has neither a cursor nor epoch and seq"
	}
	return ""
}
