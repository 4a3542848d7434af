package feed

import "context"

// Log is an ordered, append-only store of events with a trimmed tail: the one
// authority over order. Every method is safe for concurrent use.
//
// A backend that passes the conformance suite in feedtest is a Log.
//
// Beside those named at each method, errors have [CodeUnavailable] where the
// store fails and the call may succeed later, and
// [CodeRestoreNotFinalized] where its guard keeps it shut: see [Durable].
type Log interface {
	// Append stores the drafts as one batch, all or nothing, with contiguous
	// seqs in commit order, and returns when they are durable. The drafts are
	// normalized and carry an id. A draft whose key (topic, source, id) was
	// stored within the dedupe window is not stored again: its receipt has the
	// first seq and Duplicate set, also for a repeat inside one batch; where
	// its content (type, data, ce) differs, the whole batch fails with
	// [CodeIDConflict]. Drafts with a minted id have no key.
	// Time is set inside the append and never goes back. An append of unknown
	// outcome (a connection lost in mid-commit) is looked up before it is
	// answered; where that fails too, the error has [CodeUnavailable]. A store
	// that was sealed fails with [CodeSealed].
	Append(ctx context.Context, drafts []Draft) (Receipt, error)

	// Read returns, from one snapshot, the bounds, the fence at seq `after`
	// and the events that follow it, in order, up to the limit. It does not
	// block for new events. Where `after` is outside oldest−1..head the page
	// has no events; that is not an error.
	Read(ctx context.Context, after uint64, limit Limit) (Page, error)

	// Search returns, from one snapshot, the position from which a forward
	// read meets the last n events that match, examining at most scanLimit
	// candidates.
	Search(ctx context.Context, search Search) (Found, error)

	// Wait blocks until the log can hold something other than it did at this
	// cursor: head above or below its seq, another epoch. It may return early.
	// The error is ctx's, [ErrClosed], or the guard's.
	Wait(ctx context.Context, at Cursor) error

	// Trim applies the retention now. Append does so too; Trim is for age.
	Trim(ctx context.Context) error

	// Info returns what the log is and what it keeps. It does not block.
	Info() Info

	// Close releases the log; blocked calls return [ErrClosed].
	Close() error
}

// Limit bounds one page. Zero Events asks for the bounds alone; otherwise at
// least one event is returned, whatever its size, if there is one.
type Limit struct {
	Events int
	Bytes  int64 // sum of [Event.Size]
}

// Bounds is what one snapshot of a log says about itself.
type Bounds struct {
	Epoch  Epoch
	Oldest uint64   // head + 1 where the log is empty
	Head   Position // of the last event ever stored in this epoch
}

// Page is the answer of [Log.Read].
type Page struct {
	Bounds
	// Anchor is the fence of the event at the seq read after: also of the last
	// trimmed event, at oldest − 1. Unknown at 0 and outside the log.
	Anchor Fence
	// TrimmedFence is the fence at oldest − 1, unknown where the log never
	// trimmed or does not know it.
	TrimmedFence Fence
	Events       []*Event
}

// Search asks for the last N events that match.
type Search struct {
	Filter    Filter
	N         int
	ScanLimit int // candidates to examine at most; 0: no bound
}

// Found is the answer of [Log.Search].
type Found struct {
	Bounds
	After     Position // read from here; the head where nothing matched
	Truncated bool     // the scan limit cut the search short
}

// Receipt is the answer of [Log.Append]: one entry a draft, in their order.
type Receipt struct {
	Epoch  Epoch
	Events []Appended
}

// Appended is what became of one draft.
type Appended struct {
	Seq       uint64
	ID        string
	Duplicate bool
}

// Info describes a log for status pages and metrics.
type Info struct {
	Store     string // "memory", "sqlite", …
	Retention Retention
	Events    uint64 // retained
	Bytes     int64  // retained, sum of [Event.Size]
}
