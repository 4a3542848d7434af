package memory

import (
	"time"

	"gapless/feed"
)

// entry is an event, and when it was stored by a clock whose jumps do not
// matter: the age of an event is not read off its time.
type entry struct {
	*feed.Event
	stored time.Time
}

// ring is a first-in, first-out buffer of events, grown on demand.
type ring struct {
	events []entry
	first  int
	n      int
}

func (r *ring) get(i int) entry { return r.events[(r.first+i)%len(r.events)] }

func (r *ring) push(ev entry) {
	if r.n == len(r.events) {
		events := make([]entry, max(64, 2*len(r.events)))
		for i := range r.n {
			events[i] = r.get(i)
		}
		r.events, r.first = events, 0
	}
	r.events[(r.first+r.n)%len(r.events)] = ev
	r.n++
}

func (r *ring) shift() {
	r.events[r.first] = entry{}
	r.first = (r.first + 1) % len(r.events)
	r.n--
}
