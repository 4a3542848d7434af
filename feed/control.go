package feed

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// Names of the control frames, and of the stored event that tells that the
// server is ready. They are reserved: nobody can publish them.
const (
	TypeConnected = "server.connected"
	TypeLive      = "server.live"
	TypeHeartbeat = "heartbeat"
	TypeResync    = "resync_required"
	TypeDraining  = "server.draining"
	TypeStatus    = "server.status"
)

// Reason says why a subscriber has to resync.
type Reason string

const (
	// ReasonCursorExpired: the log no longer holds what follows the cursor.
	ReasonCursorExpired Reason = "cursor_expired"
	// ReasonCursorAhead: the cursor is above the head of its own epoch.
	ReasonCursorAhead Reason = "cursor_ahead"
	// ReasonEpochMissing: a seq without the epoch that gives it a meaning.
	ReasonEpochMissing Reason = "epoch_missing"
	// ReasonEpochChanged: the cursor, or the stream, is of another epoch.
	ReasonEpochChanged Reason = "epoch_changed"
	// ReasonHistoryChanged: the cursor's seq now means another event.
	ReasonHistoryChanged Reason = "history_changed"
	// ReasonCursorInvalid: the Last-Event-ID header is no cursor.
	ReasonCursorInvalid Reason = "cursor_invalid"
	// ReasonLagged: the reader fell behind what the log keeps.
	ReasonLagged Reason = "lagged"
	// ReasonEncodingFailed: an event that the reader asked for cannot be sent.
	ReasonEncodingFailed Reason = "encoding_failed"
	// ReasonLogReset: the log was rolled back under the stream.
	ReasonLogReset Reason = "log_reset"
)

// Reasons lists every resync reason.
func Reasons() []Reason {
	return []Reason{
		ReasonCursorExpired, ReasonCursorAhead, ReasonEpochMissing, ReasonEpochChanged, ReasonHistoryChanged,
		ReasonCursorInvalid, ReasonLagged, ReasonEncodingFailed, ReasonLogReset,
	}
}

// DrainReason says why the server ends a stream, or does not begin one.
type DrainReason string

const (
	// DrainShutdown: the server stops.
	DrainShutdown DrainReason = "shutdown"
	// DrainNotReady: the server does not serve yet.
	DrainNotReady DrainReason = "not_ready"
	// DrainCut: an operator cut the connection.
	DrainCut DrainReason = "cut"
	// DrainAtCapacity: the server holds as many streams as it may.
	DrainAtCapacity DrainReason = "at_capacity"
)

// The bounds of `retry:` outside of which browsers clamp, spin or never
// return.
const (
	minRetry = 500 * time.Millisecond
	maxRetry = 60 * time.Second
)

// jitter spreads a delay evenly over ± 25 %, within the bounds.
func jitter(d time.Duration) time.Duration { return retryBetween(d*3/4, d*5/4) }

// retryBetween draws evenly. Where the interval passes a bound it is the
// interval that gives way, never the draw: a crowd on one value would return
// in one wave.
func retryBetween(low, high time.Duration) time.Duration {
	high = min(high, maxRetry)
	low = max(min(low, high*3/4), minRetry)
	high = max(high, low*5/4)
	return low + time.Duration(rand.Float64()*float64(high-low))
}

// control assembles a control frame. A zero retry leaves the line out, a nil
// id too.
func control(name string, retry time.Duration, data []byte, id *Cursor) *Frame {
	b := make([]byte, 0, len(data)+len(name)+128)
	if retry > 0 {
		b = append(b, "retry: "...)
		b = strconv.AppendInt(b, retry.Milliseconds(), 10)
		b = append(b, '\n')
	}
	b = append(b, "event: "...)
	b = append(b, name...)
	b = append(b, "\ndata: "...)
	b = append(b, data...)
	b = append(b, '\n')
	f := &Frame{Control: true}
	if id != nil {
		f.Position = id.Position
		f.Bytes = appendID(b, *id)
	} else {
		f.Bytes = append(b, '\n')
	}
	return f
}

// object builds one flat JSON object; callers pass names and strings that
// need no escape.
type object []byte

func (o object) str(name, value string) object {
	return append(appendJSONString(o.name(name), value), ',')
}

func (o object) num(name string, value uint64) object {
	return append(strconv.AppendUint(o.name(name), value, 10), ',')
}

func (o object) name(name string) object {
	if len(o) == 0 {
		o = append(o, '{')
	}
	o = append(o, '"')
	o = append(o, name...)
	return append(o, '"', ':')
}

func (o object) end() []byte {
	o[len(o)-1] = '}'
	return o
}

// connectedFrame is the first frame of a served stream; its id is the cursor
// from which the stream starts.
func connectedFrame(connectionID string, at Cursor, start string, bounds Bounds, heartbeat, retry time.Duration, truncated bool) *Frame {
	data := object{}.
		str("connection_id", connectionID).
		str("epoch", string(at.Epoch)).
		str("start", start).
		num("since_seq", at.Seq).
		num("oldest_seq", bounds.Oldest).
		num("head_seq", bounds.Head.Seq).
		num("heartbeat_ms", uint64(heartbeat.Milliseconds()))
	if truncated {
		data = append(data.name("truncated"), "true,"...)
	}
	return control(TypeConnected, jitter(retry), data.end(), &at)
}

// bookmarkFrame is a heartbeat or server.live: its id is the bookmark.
func bookmarkFrame(name string, bookmark Cursor, head uint64) *Frame {
	data := object{}.str("epoch", string(bookmark.Epoch)).num("head_seq", head)
	return control(name, 0, data.end(), &bookmark)
}

// resyncFrame is the last frame of a stream that cannot go on. Its id is the
// place where a plain EventSource then begins anew.
func resyncFrame(reason Reason, next Cursor, bounds Bounds, retry time.Duration) *Frame {
	data := object{}.
		num("seq", 0).
		str("reason", string(reason)).
		str("epoch", string(bounds.Epoch)).
		num("oldest_seq", bounds.Oldest).
		num("head_seq", bounds.Head.Seq)
	return control(TypeResync, jitter(retry), data.end(), &next)
}

// drainingFrame announces a planned close. It has no id: the cursor stays.
func drainingFrame(reason DrainReason, epoch Epoch, retry time.Duration) *Frame {
	data := object{}.str("reason", string(reason)).str("epoch", string(epoch))
	return control(TypeDraining, retry, data.end(), nil)
}
