package feed

import "time"

// Retention is how much a log keeps. A zero field bounds nothing. The log
// trims from the oldest end until every bound holds; an event that alone
// exceeds the byte bound is kept until the next one comes.
type Retention struct {
	Events uint64        // count
	Bytes  int64         // sum of [Event.Size]
	Age    time.Duration // by the event's time
}

// trimInterval is how often age needs a look: often enough to stay within a
// tenth of the bound, and at most once a minute.
func (r Retention) trimInterval() time.Duration {
	if r.Age <= 0 {
		return 0
	}
	return min(max(r.Age/20, 10*time.Millisecond), time.Minute)
}
