package upstream

import "time"

// defaultType is the type of an event whose block names none.
const defaultType = "message"

// Event is one event of the stream, as the HTML standard's event stream interpretation gives it
// (WHATWG HTML, section 9.2.6). It belongs to the handler that receives it.
type Event struct {
	// ID is the last event ID after this event's block: its own, or the one that an earlier block set, also
	// on an earlier connection. Empty if there is none or if the server has reset it.
	ID string
	// Type is the block's event field, "message" where it has none or an empty one.
	Type string
	// Data is the block's data lines, joined with LF. Never nil; empty if the one data line was empty. The
	// bytes are the server's: they are not checked to be UTF-8.
	Data []byte
	// Retry is the reconnection time that this block set, 0 if it set none.
	Retry time.Duration
}
