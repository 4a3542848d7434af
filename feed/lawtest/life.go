package lawtest

import "slices"

// step is one record of a client, with the subscribe record of its connection.
type step struct {
	index     int
	rec       *Record
	subscribe *Record // nil where the history has none
}

// life is a stretch of a client's records through which its state lasts: from a begin without a cursor, or a
// snapshot, or a live start, to the next one or to a resync. Connections with a cursor go on with the life.
type life struct {
	steps []step
	epoch string // "" until a record names one
	// ended: the last step is a resync.
	ended bool
	// intruded: the life began because the stream changed timeline or start without a resync.
	intruded string
}

// clients returns each client's name, in the order of first appearance, and its records by connection.
func (w *world) clients() ([]string, map[string][]step) {
	var names []string
	steps := make(map[string][]step)
	for i := range w.history {
		rec := &w.history[i]
		if rec.Kind == KindPublish || !rec.Kind.known() {
			continue
		}
		if d := rec.defect(); d != "" {
			w.violate(RuleRecorded, rec, "the record cannot be judged: "+d+".", i)
			continue
		}
		if steps[rec.Client] == nil {
			names = append(names, rec.Client)
		}
		steps[rec.Client] = append(steps[rec.Client], step{index: i, rec: rec})
	}
	for _, s := range steps {
		slices.SortStableFunc(s, func(a, b step) int { return a.rec.Conn - b.rec.Conn })
	}
	return names, steps
}

// orderly checks the shape of each connection and returns the steps that the other rules judge: each with its
// subscribe, and without what comes after a resync or a cut.
func (w *world) orderly(steps []step) []step {
	var out []step
	var subscribe *Record
	var end *step   // the resync or cut of the connection
	var first *step // what the connection has shown already, besides its subscribe
	for i := range steps {
		s := &steps[i]
		if i == 0 || steps[i-1].rec.Conn != s.rec.Conn {
			subscribe, end, first = nil, nil, nil
			if s.rec.Kind != KindSubscribe {
				w.violate(RuleRecorded, s.rec, "the connection does not begin with its subscribe.", s.index)
			}
		} else if s.rec.Kind == KindSubscribe {
			w.violate(RuleRecorded, s.rec, "the connection has a second subscribe.", s.index)
			continue
		}
		switch {
		case end != nil && end.rec.Kind == KindCut:
			w.violate(RuleRecorded, s.rec, "the connection goes on after its cut.", end.index, s.index)
			continue
		case end != nil && s.rec.Kind == KindCut:
			end = s
			continue
		case end != nil:
			w.violate(RuleResync, s.rec, "the connection goes on after its resync.", end.index, s.index)
			continue
		}
		switch s.rec.Kind {
		case KindSubscribe:
			subscribe = s.rec
		case KindResync, KindCut:
			end = s
		case KindConnected:
			if first != nil {
				w.violate(RuleRecorded, s.rec, "connected is not the first frame of its connection.", first.index, s.index)
				continue
			}
		}
		if s.rec.Kind != KindSubscribe {
			first = s
		}
		s.subscribe = subscribe
		out = append(out, *s)
	}
	return out
}

// lives splits a client's orderly steps.
func lives(steps []step) []*life {
	var all []*life
	var current *life
	begin := func(why string) {
		current = &life{intruded: why}
		all = append(all, current)
	}
	for _, s := range steps {
		epoch := s.rec.place().epoch
		switch s.rec.Kind {
		case KindSubscribe:
			at, what := s.rec.asked()
			epoch = at.epoch
			if what != sentPosition || current == nil || current.ended || current.epoch != "" && current.epoch != at.epoch {
				begin("")
			}
		case KindConnected:
			what := sentNothing
			if s.subscribe != nil {
				_, what = s.subscribe.asked()
			}
			switch {
			case what == sentUnservable:
				begin("an unservable cursor was answered by a stream, without a resync")
			case what == sentPosition && (s.rec.Start == "snapshot" || s.rec.Start == "live"):
				begin("a cursor was answered by a new start, without a resync")
			}
		}
		changed := current != nil && current.epoch != "" && epoch != "" && current.epoch != epoch
		switch {
		case current == nil || current.ended:
			begin("")
		case changed && s.rec.Kind != KindResync && s.rec.Kind != KindDraining:
			// A resync names the epoch that begins with it, and draining carries no position.
			begin("the epoch changed without a resync")
		}
		if current.epoch == "" && s.rec.Kind != KindResync {
			current.epoch = epoch
		}
		current.steps = append(current.steps, s)
		current.ended = s.rec.Kind == KindResync
	}
	return all
}
