package lawtest

import (
	"fmt"
	"slices"
)

// judgeEvent judges one event: its place, then what it says.
func (r *reader) judgeEvent(s step) {
	at := s.rec.place()
	f, lost := r.w.find(s.rec)
	r.judgePlace(s, at.seq)
	if _, ok := r.seen[at.seq]; !ok {
		r.seen[at.seq] = s.index
	}
	if t := r.w.timelines[at.epoch]; r.lost && !lost && f != nil && at.seq >= t.lostFrom && len(t.lost) > 0 && !r.crossed {
		r.crossed = true
		r.w.violate(RuleGapFree, s.rec, fmt.Sprintf("seq %d is of another history than the client's, with no resync between.", at.seq),
			r.posIndex, f.index, s.index)
	}
	if cursor, ok := parseCursor(s.rec.Cursor); ok && (cursor.epoch != at.epoch || cursor.seq != at.seq) {
		r.w.violate(RuleFaithful, s.rec, fmt.Sprintf("the id of the event says %s-%d, its data %s-%d.",
			cursor.epoch, cursor.seq, at.epoch, at.seq), s.index)
	}
	if !r.repeated(s, f) && !r.misnumbered(s, f) {
		r.judgeContent(s, f)
	}
	r.judgeFilter(s, f)
}

// judgePlace judges where the event stands among those before it, and moves the position.
func (r *reader) judgePlace(s step, seq uint64) {
	if first, ok := r.seen[seq]; ok {
		r.w.violate(RuleUnique, s.rec, fmt.Sprintf("seq %d was delivered before.", seq), first, s.index)
		return
	}
	if seq <= r.start.seq {
		r.w.violate(RuleUnique, s.rec, fmt.Sprintf("seq %d was delivered, though the stream began behind seq %d.", seq, r.start.seq),
			r.start.index, s.index)
		return
	}
	if seq < r.last.seq {
		r.w.violate(RuleOrdered, s.rec, fmt.Sprintf("seq %d came after seq %d.", seq, r.last.seq), r.last.index, s.index)
		return
	}
	if seq <= r.bookmark.seq {
		r.w.violate(RuleBookmarkSound, s.rec, fmt.Sprintf("seq %d came after a bookmark with seq %d.", seq, r.bookmark.seq),
			r.bookmark.index, s.index)
		r.bookmark = mark{}
	}
	if !r.based {
		r.base(r.firstDue()-1, s.index)
	}
	if f, n := r.missing(s, r.pos, seq-1, r.isDue); f != nil {
		r.w.violate(RuleGapFree, s.rec, fmt.Sprintf("seq %d was delivered without %s.", seq, due(f, n)), f.index, r.posIndex, s.index)
	}
	r.last = mark{seq, s.index}
	if seq > r.pos {
		r.pos, r.posIndex = seq, s.index
	}
}

// repeated reports one publish that was delivered under two seqs.
func (r *reader) repeated(s step, f *fact) bool {
	k, ok := s.rec.key()
	if !ok || f != nil && f.key != k {
		return false
	}
	first, ok := r.keys[k]
	if !ok {
		r.keys[k] = s.index
		return false
	}
	a, b := &r.w.history[first], s.rec
	at, again := a.place(), b.place()
	window := r.w.opts.DedupeWindow
	switch {
	case at.seq == again.seq:
		return false // the same delivery again: judgePlace says so
	case window > 0 && b.Time.Sub(a.Time).Abs() >= window:
		r.keys[k] = s.index
		return false
	case r.w.answeredAt(k, sighting{epoch: at.epoch, seq: at.seq}) && r.w.answeredAt(k, sighting{epoch: again.epoch, seq: again.seq}):
		return false // the publishers were answered so: judgeDuplicates decides
	}
	r.w.violate(RuleUnique, b, fmt.Sprintf("%s was delivered as seq %d and again as seq %d.", k.name(), at.seq, again.seq), first, s.index)
	return true
}

// misnumbered reports an event that its publisher was told to be at another place, or not to be at all.
func (r *reader) misnumbered(s step, f *fact) bool {
	k, ok := s.rec.key()
	if !ok || f != nil && f.key == k {
		return false
	}
	at := s.rec.place()
	var told string
	proof := -1
	for _, i := range r.w.attempts[k] {
		rec := &r.w.history[i]
		switch {
		case rec.Outcome == OutcomeUnknown,
			rec.Outcome == OutcomeAcknowledged && rec.Epoch == at.epoch && (rec.Seq == at.seq || rec.Seq == 0),
			rec.Outcome == OutcomeAcknowledged && rec.Epoch != at.epoch && r.w.opts.Restored:
			return false
		case rec.Outcome == OutcomeRefused && proof < 0:
			told, proof = "that it is refused", i
		case rec.Outcome == OutcomeAcknowledged:
			told, proof = fmt.Sprintf("that it is seq %d of epoch %s", rec.Seq, rec.Epoch), i
		}
	}
	if proof < 0 {
		return false
	}
	r.w.violate(RuleAcknowledged, s.rec, fmt.Sprintf("%s was delivered as seq %d of epoch %s, but its publisher was told %s.",
		k.name(), at.seq, at.epoch, told), proof, s.index)
	return true
}

// judgeContent compares the event with what was published.
func (r *reader) judgeContent(s step, f *fact) {
	if f != nil {
		if what := f.differs(s.rec); what != "" {
			r.w.violate(RuleFaithful, s.rec, fmt.Sprintf("seq %d was delivered with another %s than was published.", f.seq, what), f.index, s.index)
			return
		}
		if f.index < 0 || r.w.history[f.index].Kind == KindPublish {
			return
		}
		// Only clients saw it so far, and they agree.
	}
	at := s.rec.place()
	if t := r.w.timelines[at.epoch]; t != nil && t.logged && at.seq >= t.logFrom {
		r.w.violate(RuleFaithful, s.rec, fmt.Sprintf("seq %d was delivered, but the log does not have it.", at.seq), s.index)
		return
	}
	k, ok := s.rec.key()
	if !ok || len(r.w.attempts[k]) == 0 {
		return
	}
	// Nobody knows which place the publish got, but what it said is known.
	what := ""
	for _, i := range r.w.attempts[k] {
		published := newFact(&r.w.history[i], i)
		published.fence = ""
		if what = published.differs(s.rec); what == "" {
			return
		}
	}
	r.w.violate(RuleFaithful, s.rec, fmt.Sprintf("%s was delivered with another %s than was published.", k.name(), what),
		r.w.attempts[k][0], s.index)
}

// differs names the first part in which a delivered event is not the fact, or "". What either side does not know
// does not differ.
func (f *fact) differs(rec *Record) string {
	for _, part := range []struct{ name, published, delivered string }{
		{"id", f.key.id, rec.ID},
		{"topic", f.key.topic, rec.Topic},
		{"source", f.key.source, rec.Source},
		{"type", f.typ, rec.Type},
		{"fence", f.fence, rec.place().fence},
	} {
		if part.published != "" && part.delivered != "" && part.published != part.delivered {
			return part.name
		}
	}
	if !f.payload.same(rec.payload()) {
		return "payload"
	}
	return ""
}

// judgeFilter reports an event that the subscription leaves out. Its topic and type are those that were
// published, so that a delivery with a wrong topic is not reported twice.
func (r *reader) judgeFilter(s step, f *fact) {
	topic, typ := s.rec.Topic, s.rec.Type
	if f != nil {
		topic, typ = f.key.topic, f.typ
	}
	if s.subscribe == nil || topic == "" || typ == "" && len(s.subscribe.Types) > 0 {
		return
	}
	if !s.subscribe.wants(topic, typ) || slices.Contains(r.w.opts.HiddenTypes, typ) {
		r.w.violate(RuleAsked, s.rec, fmt.Sprintf("an event of type %s on %s was delivered, which the subscription leaves out.", typ, topic), s.index)
	}
}
