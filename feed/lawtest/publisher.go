package lawtest

import (
	"fmt"
	"slices"
)

// judgePublishers compares the answers to publishers with each other, with the reference log and with what
// clients saw, and fills the timelines with what was acknowledged.
func (w *world) judgePublishers() {
	for i := range w.history {
		rec := &w.history[i]
		if rec.Kind != KindPublish && rec.Kind.known() {
			continue
		}
		if d := rec.defect(); d != "" {
			w.violate(RuleRecorded, rec, "the record cannot be judged: "+d+".", i)
			continue
		}
		if rec.Outcome == OutcomeAcknowledged {
			w.judgeAnswer(i)
		}
	}
	w.judgeDuplicates()
	if len(w.opts.Log) == 0 {
		w.addSeen()
	}
	w.sortFacts()
}

// judgeAnswer places one acknowledged publish. An answer that contradicts what was seen is reported once, and the
// event is placed where it was seen, so that readers are not blamed for it.
func (w *world) judgeAnswer(i int) {
	rec := &w.history[i]
	f := newFact(rec, i)
	t := w.timeline(rec.Epoch)
	if rec.Lost {
		if rec.Seq > 0 {
			if len(t.lost) == 0 || rec.Seq < t.lostFrom {
				t.lostFrom = rec.Seq
			}
			t.lost[rec.Seq] = f
		}
		return
	}
	if seen, ok := w.seenElsewhere(f, rec.Duplicate); ok {
		if f.seq > 0 || seen.epoch != f.epoch {
			w.misplaced[i] = true
			w.violate(RuleAcknowledged, nil, fmt.Sprintf("%s was answered %v, but is %v%s.",
				f.name(), f.position, position{epoch: seen.epoch, seq: seen.seq}, inLog(seen.index)), i, seen.index)
			if seen.epoch != f.epoch {
				return
			}
		}
		f.seq = seen.seq
	}
	if f.seq == 0 {
		if t.logged && t.logFrom == 1 && f.key.id != "" {
			w.violate(RuleAcknowledged, nil, fmt.Sprintf("%s was acknowledged, but the log does not have it.", f.name()), i)
		}
		return
	}
	other := t.bySeq[f.seq]
	switch {
	case other == nil && t.logged && f.seq >= t.logFrom:
		w.violate(RuleAcknowledged, nil, fmt.Sprintf("%s was acknowledged as seq %d, but the log does not have it.", f.name(), f.seq), i)
	case other == nil:
		t.bySeq[f.seq] = f
	case other.key != f.key && f.key.id != "" && other.key.id != "":
		w.misplaced[i] = true
		w.violate(RuleAcknowledged, nil, fmt.Sprintf("%s was answered seq %d, which is %s%s.",
			f.name(), f.seq, other.name(), inLog(other.index)), other.index, i)
	case other.index < 0:
		// The fence and the time are the log's; the payload is the publisher's, which the log may have changed.
		if !f.payload.same(other.payload) || f.typ != other.typ {
			w.violate(RuleFaithful, nil, fmt.Sprintf("the log has %s with another type or payload than was published.", f.name()), i)
		}
		f.fence, f.key = other.fence, other.key
		t.bySeq[f.seq] = f
	}
}

// seenElsewhere returns where an acknowledged event was seen, if it was seen, and nowhere at the answered place.
// The reference log decides before clients do.
func (w *world) seenElsewhere(f *fact, duplicate bool) (sighting, bool) {
	if f.key.id == "" {
		return sighting{}, false
	}
	var found sighting
	var ok, foreign bool
	for _, s := range w.sightings[f.key] {
		if s.epoch == f.epoch && s.seq == f.seq {
			return sighting{}, false
		}
		if s.epoch != f.epoch && (w.opts.Restored || w.answeredIn(f.key, s.epoch)) {
			continue // served again after a restore, or published again after a restart
		}
		if s.epoch == f.epoch && !duplicate && w.answeredAt(f.key, s) {
			continue // published again after the window
		}
		isForeign := s.epoch != f.epoch
		if !ok || (foreign && !isForeign) {
			found, ok, foreign = s, true, isForeign
		}
	}
	return found, ok
}

// answeredIn says whether some publish of this key may have been stored in an epoch by an answer of its own.
func (w *world) answeredIn(k key, epoch string) bool {
	return slices.ContainsFunc(w.attempts[k], func(i int) bool {
		rec := &w.history[i]
		return rec.Outcome == OutcomeUnknown || rec.Outcome == OutcomeAcknowledged && rec.Epoch == epoch
	})
}

// answeredAt says whether some publish of this key was answered with just this place.
func (w *world) answeredAt(k key, s sighting) bool {
	return slices.ContainsFunc(w.attempts[k], func(i int) bool {
		rec := &w.history[i]
		return rec.Outcome == OutcomeAcknowledged && rec.Epoch == s.epoch && rec.Seq == s.seq
	})
}

// judgeDuplicates compares the answers to repeats of one publish.
func (w *world) judgeDuplicates() {
	first := make(map[int]bool) // indices of first publishes, so that the order of the map does not matter
	for _, indices := range w.attempts {
		byEpoch := make(map[string]int)
		for _, i := range indices {
			rec := &w.history[i]
			if rec.Outcome != OutcomeAcknowledged || rec.Lost {
				continue
			}
			f, ok := byEpoch[rec.Epoch]
			if !ok || (w.history[f].Duplicate && !rec.Duplicate) {
				byEpoch[rec.Epoch] = i
			}
		}
		for _, i := range byEpoch {
			first[i] = true
		}
	}
	for i := range w.history {
		rec := &w.history[i]
		k, ok := rec.key()
		if rec.Kind != KindPublish || rec.Outcome != OutcomeAcknowledged || rec.Lost || !ok || first[i] || rec.defect() != "" {
			continue
		}
		for _, f := range w.attempts[k] {
			if first[f] && w.history[f].Epoch == rec.Epoch {
				w.judgeRepeat(k, f, i)
			}
		}
	}
}

func (w *world) judgeRepeat(k key, first, repeat int) {
	a, b := &w.history[first], &w.history[repeat]
	if w.opts.DedupeWindow > 0 && b.Time.Sub(a.Time).Abs() >= w.opts.DedupeWindow {
		return
	}
	switch {
	case w.misplaced[first] || w.misplaced[repeat]:
	case a.Seq != b.Seq && a.Seq > 0 && b.Seq > 0:
		w.violate(RuleAcknowledged, nil, fmt.Sprintf("%s was answered seq %d and, repeated, seq %d.", k.name(), a.Seq, b.Seq), first, repeat)
	case !b.Duplicate:
		w.violate(RuleAcknowledged, nil, fmt.Sprintf("%s was accepted twice as new.", k.name()), first, repeat)
	case !newFact(a, first).payload.same(b.payload()):
		w.violate(RuleAcknowledged, nil, fmt.Sprintf("%s was acknowledged as a duplicate, with another payload.", k.name()), first, repeat)
	}
}

func inLog(index int) string {
	if index < 0 {
		return " in the log"
	}
	return ""
}

// name is an event in words.
func (f *fact) name() string { return f.key.name() }

func (k key) name() string {
	if k.id == "" {
		return fmt.Sprintf("an event without an id on %s", k.topic)
	}
	return fmt.Sprintf("event %q on %s", k.id, k.topic)
}
