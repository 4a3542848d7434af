package memory

import "gapless/feed"

// ring is a first-in, first-out buffer of events, grown on demand.
type ring struct {
	events []*feed.Event
	first  int
	n      int
}

func (r *ring) get(i int) *feed.Event { return r.events[(r.first+i)%len(r.events)] }

func (r *ring) push(ev *feed.Event) {
	if r.n == len(r.events) {
		events := make([]*feed.Event, max(64, 2*len(r.events)))
		for i := range r.n {
			events[i] = r.get(i)
		}
		r.events, r.first = events, 0
	}
	r.events[(r.first+r.n)%len(r.events)] = ev
	r.n++
}

func (r *ring) shift() {
	r.events[r.first] = nil
	r.first = (r.first + 1) % len(r.events)
	r.n--
}
