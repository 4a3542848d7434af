package lawtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Stream says whose connection a stream of frames is, so that frames become records.
type Stream struct {
	Client string
	Conn   int
	// LastEventID is the cursor with which the client came, if any.
	LastEventID string
	// Raw and Unnamed repeat format=raw and named=false of the subscription.
	Raw     bool
	Unnamed bool
	// HashData keeps hashes in place of payloads, for long histories.
	HashData bool
}

// ParseFrames reads a response body of GET /events frame by frame and hands a record of each to emit, which may
// well be a [Recorder]'s Record. It blocks until the stream ends. It returns nil at a clean end; otherwise the
// error of r (a cut), of emit, or of a frame that is not what the protocol says. It records neither the subscribe
// nor the cut: only the caller knows what it sent and who ended it.
func ParseFrames(r io.Reader, s Stream, emit func(Record) error) error {
	frames := NewFrameReader(r, s.LastEventID)
	for {
		frame, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
		rec, err := s.Record(frame)
		if err != nil {
			return err
		}
		if err := emit(rec); err != nil {
			return err
		}
	}
}

// control is the data of the control frames, all of them together.
type control struct {
	Epoch     string `json:"epoch"`
	Start     string `json:"start"`
	SinceSeq  uint64 `json:"since_seq"`
	OldestSeq uint64 `json:"oldest_seq"`
	HeadSeq   uint64 `json:"head_seq"`
	Truncated bool   `json:"truncated"`
	Reason    string `json:"reason"`
}

// envelope is the data of an event in the envelope format.
type envelope struct {
	Seq   uint64          `json:"seq"`
	Epoch string          `json:"epoch"`
	ID    string          `json:"id"`
	Time  time.Time       `json:"time"`
	Type  string          `json:"type"`
	Topic string          `json:"topic"`
	Data  json.RawMessage `json:"data"`
	CE    struct {
		Source string `json:"source"`
	} `json:"ce"`
}

// Record turns one frame into the record of it. It fails where the data is not the JSON that the frame's type
// promises, or the event field contradicts the envelope.
func (s Stream) Record(f Frame) (Record, error) {
	rec := Record{Client: s.Client, Conn: s.Conn, Cursor: f.LastEventID, RetryMillis: f.RetryMillis}
	switch f.Type {
	case "server.connected":
		rec.Kind = KindConnected
	case "server.live":
		rec.Kind = KindLive
	case "heartbeat":
		rec.Kind = KindHeartbeat
	case "resync_required":
		rec.Kind = KindResync
	case "server.draining":
		rec.Kind = KindDraining
	default:
		rec.Kind = KindEvent
		return s.event(rec, f)
	}
	var c control
	if err := json.Unmarshal([]byte(f.Data), &c); err != nil {
		return Record{}, fmt.Errorf("data of a %s frame: %w", f.Type, err)
	}
	rec.Epoch, rec.Start, rec.Reason = c.Epoch, c.Start, c.Reason
	rec.SinceSeq, rec.OldestSeq, rec.HeadSeq, rec.Truncated = c.SinceSeq, c.OldestSeq, c.HeadSeq, c.Truncated
	return rec, nil
}

func (s Stream) event(rec Record, f Frame) (Record, error) {
	if s.Raw {
		rec.Raw, rec.Data = true, f.Data
		if !s.Unnamed {
			rec.Type = f.Type
		}
		if s.HashData {
			rec.Data, rec.DataHash = "", HashText(f.Data)
		}
		return rec, nil
	}
	var e envelope
	if err := json.Unmarshal([]byte(f.Data), &e); err != nil {
		return Record{}, fmt.Errorf("envelope of event %s: %w", f.LastEventID, err)
	}
	if e.Seq == 0 || e.Epoch == "" || e.ID == "" || e.Topic == "" || e.Type == "" || e.Data == nil {
		return Record{}, fmt.Errorf("envelope of event %s lacks a field: %s", f.LastEventID, f.Data)
	}
	want := e.Type
	if s.Unnamed {
		want = "message"
	}
	if f.Type != want {
		return Record{}, fmt.Errorf("event %s has event field %q, want %q", f.LastEventID, f.Type, want)
	}
	rec.Seq, rec.Epoch, rec.Time = e.Seq, e.Epoch, e.Time
	rec.ID, rec.Source, rec.Topic, rec.Type = e.ID, e.CE.Source, e.Topic, e.Type
	rec.Data = string(e.Data)
	if s.HashData {
		rec.Data, rec.DataHash = "", HashJSON(rec.Data)
	}
	return rec, nil
}
