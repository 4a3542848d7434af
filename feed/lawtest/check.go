package lawtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rule names one clause of the law; the package documentation states each in full.
type Rule string

const (
	// RuleOrdered: seq rises.
	RuleOrdered Rule = "ordered"
	// RuleUnique: nothing is delivered twice.
	RuleUnique Rule = "unique"
	// RuleGapFree: nothing between two positions is left out.
	RuleGapFree Rule = "gap-free"
	// RuleFaithful: what is delivered is what was published.
	RuleFaithful Rule = "faithful"
	// RuleAcknowledged: what was acknowledged is in the log, at the place that was answered, and reaches the head's readers.
	RuleAcknowledged Rule = "acknowledged"
	// RuleBookmarkSound: no bookmark lies beyond an event that is still due.
	RuleBookmarkSound Rule = "bookmark-sound"
	// RuleAsked: nothing is delivered that the filter leaves out.
	RuleAsked Rule = "asked"
	// RuleResync: a resync is well formed, ends its connection, and is the only way to another timeline.
	RuleResync Rule = "resync"
	// RuleRecorded: the history is one that can be judged.
	RuleRecorded Rule = "recorded"
)

// Options is what the checker cannot learn from the history.
type Options struct {
	// MustReach demands that each client, at the end, stands at the head of the latest epoch: of Log where that is
	// given, else of the greatest epoch in the history (epochs compare as strings, as ULIDs do).
	MustReach bool
	// Log is the reference list of the log, read after the last answer to a publisher: one Record for each event,
	// with the fields of KindEvent, client and connection left empty. For an epoch that it has, it is complete from
	// its first event on.
	Log []Record
	// SnapshotEvents is how many matching events a snapshot holds at most. 0 means the protocol's 1,024.
	SnapshotEvents int
	// Oldest is, for an epoch, the smallest seq that the log never trimmed. Needed only where retention trims while
	// snapshots begin; without it a snapshot must hold what the log held when its server.connected was written.
	Oldest map[string]uint64
	// DedupeWindow is how long a publisher's id stays taken. 0 means for the whole history.
	DedupeWindow time.Duration
	// HiddenTypes are never delivered to anyone.
	HiddenTypes []string
	// Restored allows events that were acknowledged in one epoch to be served in another, as after a restore.
	Restored bool
}

// Violation is one breach of the law.
type Violation struct {
	Rule Rule
	// Client and Conn say at whom; empty and 0 where no client is concerned.
	Client string
	Conn   int
	// Message is one sentence.
	Message string
	// Records are the indices in the history of the records that together prove it, rising.
	Records []int
}

// String is the violation in one line.
func (v Violation) String() string {
	where := "publishers"
	if v.Client != "" {
		where = fmt.Sprintf("client %s, connection %d", v.Client, v.Conn)
	}
	return fmt.Sprintf("%s: %s: %s (records %v)", v.Rule, where, v.Message, v.Records)
}

// Excerpt is the records that prove v, as lines of a history with their indices.
func (v Violation) Excerpt(history []Record) string {
	var out strings.Builder
	for _, i := range v.Records {
		rec := NewRecorder(&out)
		fmt.Fprintf(&out, "%d: ", i)
		if err := rec.Record(history[i]); err != nil {
			fmt.Fprintf(&out, "%v\n", err)
		}
	}
	return out.String()
}

// Check judges a history and returns what breaks the law, nil where nothing does. It looks at its arguments only,
// changes nothing, and gives the same answer for the same input: violations come in the order of the record that
// completes their proof.
func Check(history []Record, opts Options) []Violation {
	if opts.SnapshotEvents == 0 {
		opts.SnapshotEvents = 1024
	}
	w := newWorld(history, opts)
	w.judgePublishers()
	w.judgeReaders()
	slices.SortStableFunc(w.violations, func(a, b Violation) int {
		return cmp.Or(
			cmp.Compare(last(a.Records), last(b.Records)),
			slices.Compare(a.Records, b.Records),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return w.violations
}

// last is the greatest of rising indices, or that of no record at all.
func last(indices []int) int {
	if len(indices) == 0 {
		return -1
	}
	return indices[len(indices)-1]
}

// violate notes a violation, proved by the records at indices; a negative index stands for the reference log.
func (w *world) violate(rule Rule, at *Record, message string, indices ...int) {
	v := Violation{Rule: rule, Message: message}
	if at != nil {
		v.Client, v.Conn = at.Client, at.Conn
	}
	for _, i := range indices {
		if i >= 0 && !slices.Contains(v.Records, i) {
			v.Records = append(v.Records, i)
		}
	}
	slices.Sort(v.Records)
	w.violations = append(w.violations, v)
}
