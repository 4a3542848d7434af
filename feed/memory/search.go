package memory

import (
	"context"

	"gapless/feed"
)

// walkChunk is how many events a walk looks at between two looks at the log.
const walkChunk = 4096

// Search implements [feed.Log]. It holds the lock for short times only: what
// it finds is of the head that it began at.
func (l *Log) Search(_ context.Context, search feed.Search) (feed.Found, error) {
	l.mu.RLock()
	closed := l.closed
	found := feed.Found{Bounds: l.boundsLocked(), After: l.head}
	l.mu.RUnlock()
	if closed {
		return feed.Found{}, feed.ErrClosed
	}
	if search.N <= 0 {
		return found, nil
	}
	if topics, ok := l.matching(search.Filter, search.ScanLimit); ok {
		l.searchTopics(search, topics, &found)
	} else {
		l.walk(search, &found)
	}
	return found, nil
}

// searchTopics merges the lists of topics that match, from their ends. What
// was appended since found's bounds were taken is passed over: it may be on a
// topic that matches and is not listed, so the replay has to bring all of it.
func (l *Log) searchTopics(search feed.Search, topics []string, found *feed.Found) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	oldest := l.boundsLocked().Oldest
	candidates := l.candidatesLocked(topics)
	for matched, scanned := 0, 0; matched < search.N; {
		seq, ok := candidates.next()
		switch {
		case !ok:
			return
		case seq > found.Head.Seq:
			continue
		case search.ScanLimit > 0 && scanned == search.ScanLimit:
			found.Truncated = true
			return
		}
		scanned++
		if search.Filter.MatchType(l.events.get(int(seq - oldest)).Type) {
			matched++
			found.After = l.positionLocked(seq - 1)
		}
	}
}

// walk looks at every event, newest first.
func (l *Log) walk(search feed.Search, found *feed.Found) {
	matched, scanned := 0, 0
	for seq := found.Head.Seq; ; {
		events, before := l.upTo(seq, min(walkChunk, max(search.N-matched, 64)))
		if len(events) == 0 {
			return
		}
		for i := len(events) - 1; i >= 0; i-- {
			if search.ScanLimit > 0 && scanned == search.ScanLimit {
				found.Truncated = true
				return
			}
			scanned++
			if !search.Filter.Match(events[i].Topic, events[i].Type) {
				continue
			}
			if found.After = before; i > 0 {
				found.After = events[i-1].Position()
			}
			if matched++; matched == search.N {
				return
			}
		}
		seq = before.Seq
	}
}

// upTo returns the last n retained events up to a seq, in order, and the
// position before them.
func (l *Log) upTo(seq uint64, n int) (events []*feed.Event, before feed.Position) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	oldest := l.boundsLocked().Oldest
	if l.closed || seq < oldest || seq > l.head.Seq {
		return nil, feed.Position{}
	}
	last := int(seq - oldest)
	first := max(0, last-n+1)
	events = make([]*feed.Event, 0, last-first+1)
	for i := first; i <= last; i++ {
		events = append(events, l.events.get(i).Event)
	}
	return events, l.positionLocked(events[0].Seq - 1)
}
