package lawtest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// judgeSubscribe takes the cursor that a client sends as its position: it will get nothing from before it.
func (r *reader) judgeSubscribe(s step) {
	at, what := s.rec.asked()
	if what != sentPosition {
		return
	}
	if !r.based {
		r.base(at.seq, s.index)
		r.start = mark{at.seq, s.index}
		return
	}
	if f, n := r.missing(s, r.pos, at.seq, r.wasSeen); f != nil {
		r.w.violate(RuleGapFree, s.rec, fmt.Sprintf("the client resumed behind seq %d without having got %s.",
			at.seq, due(f, n)), f.index, r.posIndex, s.index)
	}
	// A client may step back, though what it then gets again are repeats.
	r.pos, r.posIndex, r.bookmark = at.seq, s.index, mark{}
}

// begin takes the start of a stream for a client that had no position.
func (r *reader) begin(s step) {
	since := s.rec.place().seq
	if s.rec.Cursor == "" {
		since = s.rec.SinceSeq
	}
	if s.rec.Start != "snapshot" {
		r.base(since, s.index)
		r.start = mark{since, s.index}
		return
	}
	if r.snapshotWhole(s) {
		oldest := max(s.rec.OldestSeq, r.w.opts.Oldest[r.life.epoch])
		r.base(oldest-1, s.index)
	} else if first := r.firstDue(); first > 0 {
		r.base(first-1, s.index)
	}
	if since > 0 {
		r.advance(s)
	}
}

// snapshotWhole says whether a snapshot must hold all that the log held: it was not cut short by its bound.
func (r *reader) snapshotWhole(s step) bool {
	if s.rec.OldestSeq == 0 || s.rec.Truncated || s.subscribe == nil {
		return false
	}
	bound := r.w.opts.SnapshotEvents
	if n, ok := strings.CutPrefix(s.subscribe.Start, "last:"); ok {
		bound, _ = strconv.Atoi(n) // unreadable: 0, which makes the snapshot a short one
	} else if s.subscribe.Start == "all" {
		bound = math.MaxInt
	}
	// The snapshot ends at the latest at the head that server.live names.
	head := uint64(math.MaxUint64)
	for _, l := range r.life.steps {
		if l.rec.Kind == KindLive && l.rec.HeadSeq > 0 {
			head = l.rec.HeadSeq
			break
		}
	}
	count := 0
	for seq := range r.due {
		if seq <= head {
			count++
		}
	}
	return count < bound
}

func (r *reader) firstDue() uint64 {
	var first uint64
	for seq := range r.due {
		if first == 0 || seq < first {
			first = seq
		}
	}
	return first
}

// judgeMark judges a bookmark by itself and against the events before it.
func (r *reader) judgeMark(s step) bool {
	rec, at := s.rec, s.rec.place()
	if rec.Cursor == "" {
		return true
	}
	cursor, _ := parseCursor(rec.Cursor)
	var message string
	switch {
	case cursor.epoch != at.epoch:
		message = fmt.Sprintf("the id of %s is of epoch %s, its data of epoch %s.", rec.Kind, cursor.epoch, at.epoch)
	case rec.HeadSeq > 0 && at.seq > rec.HeadSeq:
		message = fmt.Sprintf("%s has seq %d, beyond the head %d that it names.", rec.Kind, at.seq, rec.HeadSeq)
	case rec.Kind == KindConnected && rec.SinceSeq > 0 && at.seq != rec.SinceSeq:
		message = fmt.Sprintf("the id of connected has seq %d, its data since_seq %d.", at.seq, rec.SinceSeq)
	case rec.Kind == KindConnected && r.based && at.seq < r.pos,
		rec.Kind != KindConnected && at.seq < r.last.seq:
		message = fmt.Sprintf("%s goes back to seq %d, behind what the client has.", rec.Kind, at.seq)
	default:
		return true
	}
	before := s.index
	switch {
	case rec.Kind == KindConnected && r.based:
		before = r.posIndex
	case r.last.seq > 0:
		before = r.last.index
	}
	r.w.violate(RuleBookmarkSound, rec, message, before, s.index)
	return false
}

// advance moves the position to a bookmark and looks for events that it passes.
func (r *reader) advance(s step) {
	at := s.rec.place()
	if s.rec.Cursor == "" {
		return
	}
	if !r.based {
		r.base(at.seq, s.index)
	}
	if at.seq <= r.pos {
		return
	}
	r.bookmark = mark{at.seq, s.index}
	if f, n := r.missing(s, r.pos, at.seq, r.wasSeen); f != nil {
		r.w.violate(RuleBookmarkSound, s.rec, fmt.Sprintf("%s has seq %d, beyond %s.", s.rec.Kind, at.seq, due(f, n)), f.index, s.index)
		r.bookmark = mark{}
	}
	r.pos, r.posIndex = at.seq, s.index
}
