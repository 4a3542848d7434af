package lawtest

import (
	"fmt"
	"math"
	"slices"
)

// reader walks through one life of a client and judges each step.
type reader struct {
	w    *world
	life *life
	lost bool // the life is one of the branch that the test took out of the log

	// due are all events that the life will have shown by its end; seen those so far, with the record's index.
	due  map[uint64]bool
	seen map[uint64]int
	keys map[key]int

	// Everything that matches up to pos counts as judged; posIndex is the record that put it there. Not based:
	// the life has no position yet.
	based    bool
	pos      uint64
	posIndex int
	// start is the position from which the life begins, 0 for a snapshot; last is the greatest event so far.
	start, last mark
	// bookmark is the furthest one since the last event; cleared once it was found unsound.
	bookmark mark
	crossed  bool // the step from the lost branch to the other was reported
}

// mark is a seq and the record that says it.
type mark struct {
	seq   uint64
	index int
}

// judgeReaders judges every client.
func (w *world) judgeReaders() {
	latest := w.latestEpoch()
	names, byClient := w.clients()
	for _, name := range names {
		steps := w.orderly(byClient[name])
		if len(steps) == 0 {
			continue
		}
		var r *reader
		previous := -1
		for _, l := range lives(steps) {
			if l.intruded != "" {
				w.violate(RuleResync, l.steps[0].rec, l.intruded+".", previous, l.steps[0].index)
			}
			r = w.newReader(l)
			for _, s := range l.steps {
				r.judge(s)
			}
			previous = l.steps[len(l.steps)-1].index
		}
		if w.opts.MustReach {
			r.judgeEnd(latest)
		}
	}
}

func (w *world) newReader(l *life) *reader {
	r := &reader{w: w, life: l, due: make(map[uint64]bool), seen: make(map[uint64]int), keys: make(map[key]int)}
	t := w.timelines[l.epoch]
	for _, s := range l.steps {
		switch s.rec.Kind {
		case KindEvent:
			r.due[s.rec.place().seq] = true
			if _, lost := w.find(s.rec); lost {
				r.lost = true
			}
		case KindResync:
			if t != nil && len(t.lost) > 0 && (s.rec.Reason == "log_reset" || s.rec.Reason == "history_changed") {
				r.lost = true
			}
		}
	}
	return r
}

func (r *reader) judge(s step) {
	switch s.rec.Kind {
	case KindSubscribe:
		r.judgeSubscribe(s)
	case KindConnected:
		if r.judgeMark(s) && !r.based {
			r.begin(s)
		} else {
			r.advance(s)
		}
	case KindEvent:
		r.judgeEvent(s)
	case KindLive, KindHeartbeat:
		if r.judgeMark(s) {
			r.advance(s)
		}
	case KindDraining:
		if s.rec.place().seq > r.pos {
			r.advance(s)
		}
	case KindResync:
		r.judgeResync(s)
	}
}

// base gives the life its first position.
func (r *reader) base(seq uint64, index int) {
	r.based, r.pos, r.posIndex = true, seq, index
}

// judgeResync judges the frame itself; orderly has judged that it is the last.
func (r *reader) judgeResync(s step) {
	rec := s.rec
	if !slices.Contains(resyncReasons(), rec.Reason) {
		r.w.violate(RuleResync, rec, fmt.Sprintf("the reason %q is not one of the protocol's.", rec.Reason), s.index)
	}
	if rec.Cursor == "" {
		return
	}
	cursor, _ := parseCursor(rec.Cursor)
	switch {
	case cursor.epoch != rec.place().epoch:
		r.w.violate(RuleResync, rec, fmt.Sprintf("the id is of epoch %s, the data of epoch %s.", cursor.epoch, rec.Epoch), s.index)
	case cursor.seq != 0 && (s.subscribe == nil || s.subscribe.Start != "live"):
		r.w.violate(RuleResync, rec, fmt.Sprintf("the id has seq %d, so that the client does not begin anew.", cursor.seq), s.index)
	}
}

// resyncReasons is the list of the protocol.
func resyncReasons() []string {
	return []string{"cursor_expired", "cursor_ahead", "epoch_missing", "epoch_changed", "history_changed",
		"cursor_invalid", "lagged", "encoding_failed", "log_reset"}
}

// judgeEnd demands that the last life ends at the head of the latest epoch.
func (r *reader) judgeEnd(latest string) {
	s := r.life.steps[len(r.life.steps)-1]
	low, known := r.pos, r.based
	switch {
	case r.life.epoch != latest || r.life.ended:
		low, known = 0, true
	case r.lost:
		low, r.lost = r.w.timelines[latest].lostFrom-1, false
	case !known && s.subscribe != nil && s.subscribe.Start != "live":
		known = true
	}
	if !known {
		return
	}
	r.life.epoch = latest
	if f, n := r.missing(s, low, math.MaxUint64, func(uint64) bool { return false }); f != nil {
		r.w.violate(RuleAcknowledged, s.rec, fmt.Sprintf("the client ended without %s of epoch %s.", due(f, n), latest), f.index, s.index)
	}
}

// missing returns the first of the events in (low, high] that the step's filter asks for and that have does not
// hold, and how many there are.
func (r *reader) missing(s step, low, high uint64, have func(seq uint64) bool) (first *fact, n int) {
	if s.subscribe == nil {
		return nil, 0
	}
	for _, f := range r.w.between(r.life.epoch, r.lost, low, high) {
		if have(f.seq) || slices.Contains(r.w.opts.HiddenTypes, f.typ) || !s.subscribe.wants(f.key.topic, f.typ) {
			continue
		}
		if n++; first == nil {
			first = f
		}
	}
	return first, n
}

func (r *reader) wasSeen(seq uint64) bool { _, ok := r.seen[seq]; return ok }

func (r *reader) isDue(seq uint64) bool { return r.due[seq] }

// due is n missing events in words.
func due(f *fact, n int) string {
	if n == 1 {
		return fmt.Sprintf("seq %d, %s", f.seq, f.name())
	}
	return fmt.Sprintf("%d events from seq %d on, %s", n, f.seq, f.name())
}
