package lawtest

import (
	"cmp"
	"slices"
	"sort"
)

// key is what makes two publishes the same one.
type key struct{ topic, source, id string }

// fact is one event that is known to have been in the log.
type fact struct {
	position
	key     key
	typ     string
	payload payload
	index   int // of the record that proves it, -1 for the reference log
}

// timeline is what is known of one epoch.
type timeline struct {
	facts []*fact          // rising seq, complete after newWorld
	bySeq map[uint64]*fact // the same
	// lost are events that the test took out of the log again; lostFrom is the smallest of their seqs.
	lost     map[uint64]*fact
	lostFrom uint64
	// logged says that the reference log has this epoch, from seq logFrom on.
	logged  bool
	logFrom uint64
}

// world is all that the history and the options say, and the verdict.
type world struct {
	history    []Record
	opts       Options
	timelines  map[string]*timeline
	attempts   map[key][]int      // publish records by key, only those with an id
	sightings  map[key][]sighting // where events were seen, by clients and in the reference log
	misplaced  map[int]bool       // acknowledged publishes whose answer is already a violation
	violations []Violation
}

// sighting is an event seen somewhere, by its key.
type sighting struct {
	epoch string
	seq   uint64
	index int // -1 for the reference log
}

func newWorld(history []Record, opts Options) *world {
	w := &world{
		history:   history,
		opts:      opts,
		timelines: make(map[string]*timeline),
		attempts:  make(map[key][]int),
		sightings: make(map[key][]sighting),
		misplaced: make(map[int]bool),
	}
	for i := range opts.Log {
		w.addLogged(&opts.Log[i])
	}
	for i := range history {
		rec := &history[i]
		if rec.defect() != "" {
			continue // judged as such by judgePublishers and judgeReaders
		}
		if k, ok := rec.key(); ok {
			switch rec.Kind {
			case KindPublish:
				w.attempts[k] = append(w.attempts[k], i)
			case KindEvent:
				p := rec.place()
				w.sightings[k] = append(w.sightings[k], sighting{p.epoch, p.seq, i})
			}
		}
	}
	return w
}

// key is the identity of a publish or an event; false where the record does not hold it.
func (r *Record) key() (key, bool) {
	k := key{topic: r.Topic, source: r.Source, id: r.ID}
	if k.topic == "" && r.Kind != KindEvent {
		k.topic = "default"
	}
	return k, k.topic != "" && k.id != ""
}

// timeline returns that of an epoch, made on first use.
func (w *world) timeline(epoch string) *timeline {
	t := w.timelines[epoch]
	if t == nil {
		t = &timeline{bySeq: make(map[uint64]*fact), lost: make(map[uint64]*fact)}
		w.timelines[epoch] = t
	}
	return t
}

// newFact reads an event out of a publish record, an event record, or a line of the reference log.
func newFact(rec *Record, index int) *fact {
	f := &fact{position: rec.place(), typ: rec.Type, payload: rec.payload(), index: index}
	f.key, _ = rec.key()
	if f.typ == "" {
		f.typ = "message"
	}
	return f
}

func (w *world) addLogged(rec *Record) {
	f := newFact(rec, -1)
	t := w.timeline(f.epoch)
	if !t.logged || f.seq < t.logFrom {
		t.logged, t.logFrom = true, f.seq
	}
	t.bySeq[f.seq] = f
	w.sightings[f.key] = append(w.sightings[f.key], sighting{f.epoch, f.seq, -1})
}

// addSeen makes events that only clients saw into facts for the other clients. A reference log needs no such help.
func (w *world) addSeen() {
	for i := range w.history {
		rec := &w.history[i]
		k, ok := rec.key()
		if rec.Kind != KindEvent || rec.defect() != "" || !ok || rec.Type == "" {
			continue
		}
		p := rec.place()
		t := w.timeline(p.epoch)
		if t.logged || t.bySeq[p.seq] != nil || t.lost[p.seq] != nil || w.answered(k, p.epoch) {
			continue
		}
		t.bySeq[p.seq] = newFact(rec, i)
	}
}

// answered says whether publishers know for themselves what became of this key in an epoch.
func (w *world) answered(k key, epoch string) bool {
	return slices.ContainsFunc(w.attempts[k], func(i int) bool {
		rec := &w.history[i]
		return rec.Outcome == OutcomeRefused || rec.Outcome == OutcomeAcknowledged && rec.Epoch == epoch
	})
}

// latestEpoch is where clients have to be in the end.
func (w *world) latestEpoch() string {
	if n := len(w.opts.Log); n > 0 {
		return w.opts.Log[n-1].place().epoch
	}
	var latest string
	for i := range w.history {
		rec := &w.history[i]
		if rec.Kind != KindSubscribe && rec.defect() == "" && !w.misplaced[i] {
			latest = max(latest, rec.place().epoch)
		}
	}
	return latest
}

// sortFacts is called once, when all facts are there.
func (w *world) sortFacts() {
	for _, t := range w.timelines {
		for _, f := range t.bySeq {
			t.facts = append(t.facts, f)
		}
		slices.SortFunc(t.facts, func(a, b *fact) int { return cmp.Compare(a.seq, b.seq) })
	}
}

// between returns the facts with low < seq <= high, rising. On the lost branch they are those that the reader of
// that branch had before it: the common past, then the lost events.
func (w *world) between(epoch string, lost bool, low, high uint64) []*fact {
	t := w.timelines[epoch]
	if t == nil || high <= low {
		return nil
	}
	from := sort.Search(len(t.facts), func(i int) bool { return t.facts[i].seq > low })
	to := sort.Search(len(t.facts), func(i int) bool { return t.facts[i].seq > high })
	if !lost {
		return t.facts[from:to]
	}
	var out []*fact
	for _, f := range t.facts[from:to] {
		if f.seq < t.lostFrom {
			out = append(out, f)
		}
	}
	for _, f := range t.lost {
		if f.seq > low && f.seq <= high {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *fact) int { return cmp.Compare(a.seq, b.seq) })
	return out
}

// find returns the fact at a place that an event record may be, and whether it is a lost one. Where a lost event
// and another had the same place, the record's identity decides.
func (w *world) find(rec *Record) (f *fact, lost bool) {
	p := rec.place()
	t := w.timelines[p.epoch]
	if t == nil {
		return nil, false
	}
	current, gone := t.bySeq[p.seq], t.lost[p.seq]
	if gone != nil && gone.is(rec) && (current == nil || !current.is(rec)) {
		return gone, true
	}
	return current, false
}

// is says whether rec may be a sighting of f: by id where both have one, else by payload.
func (f *fact) is(rec *Record) bool {
	if f.key.id != "" && rec.ID != "" {
		return f.key.id == rec.ID && (rec.Topic == "" || f.key.topic == rec.Topic)
	}
	return f.payload.same(rec.payload())
}
