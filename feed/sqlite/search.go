package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"

	"gapless/feed"
)

// Search implements [feed.Log]. It looks through the tail first, and only
// then into the file: by the index of topics or, where every topic matches or
// too many do, event by event from the newest on. What is appended meanwhile
// is passed over: it may be on a topic that was not listed, so a reader has to
// get all of it.
func (s *Store) Search(ctx context.Context, search feed.Search) (feed.Found, error) {
	if err := s.enter(); err != nil {
		return feed.Found{}, err
	}
	defer s.leave()
	for {
		if err := ctx.Err(); err != nil {
			return feed.Found{}, unavailable("search", "given up", err)
		}
		s.mu.RLock()
		if err := s.guardErrorLocked("search"); err != nil {
			s.mu.RUnlock()
			return feed.Found{}, err
		}
		in := s.in
		var recent []*feed.Event
		if search.N > 0 {
			recent = s.tail.since(in.oldest)
		}
		s.mu.RUnlock()

		f := finder{search: search, found: feed.Found{Bounds: in.bounds(), After: in.head}, ctx: ctx}
		if search.N <= 0 || f.tail(recent, in) {
			return f.found, nil
		}
		below := in.head.Seq + 1 - uint64(len(recent))
		version, again, err := s.searchFile(&f, in, below)
		if err != nil {
			return feed.Found{}, s.storeError("search", err)
		}
		if !again {
			return f.found, s.settle(ctx, "search", version)
		}
	}
}

// since returns the events in the tail from a seq on.
func (t *tail) since(oldest uint64) []*feed.Event {
	first := max(t.first, oldest)
	events := make([]*feed.Event, 0, t.next-min(first, t.next))
	for seq := first; seq < t.next; seq++ {
		events = append(events, t.ring[seq%tailEvents])
	}
	return events
}

// searchFile goes on below a seq, in one snapshot. It reports that all has to
// be done again where the log has become another since.
func (s *Store) searchFile(f *finder, in instance, below uint64) (version uint64, again bool, err error) {
	r, err := s.reader(f.ctx, "search")
	if err != nil {
		return 0, false, err
	}
	defer s.release(r)
	err = r.raw(func(raw rawConnection) error {
		return raw.snapshot(f.ctx, func(now instance) error {
			version = now.version
			if again = now.epoch != in.epoch || now.oldest > in.head.Seq+1 || now.head.Seq < in.head.Seq; again {
				return nil
			}
			f.found.Oldest = now.oldest
			if f.matched < f.search.N && !f.found.Truncated {
				if err := f.file(raw, below); err != nil {
					return err
				}
			}
			if f.found.After.Seq+1 < now.oldest { // trimmed while the tail was searched
				f.found.After.Seq = now.oldest - 1
			}
			f.found.After.Fence, err = now.fenceAt(f.found.After.Seq, raw.fence)
			return err
		})
	})
	return version, again, err
}

// finder is one search under way.
type finder struct {
	ctx              context.Context
	search           feed.Search
	found            feed.Found
	matched, scanned int
	looked           int // events of the tail
}

// candidate takes the next older event on a topic that matches, and reports
// whether the search is over. The fence of found.After is set at the end.
func (f *finder) candidate(seq uint64, typ string) (over bool) {
	if f.search.ScanLimit > 0 && f.scanned == f.search.ScanLimit {
		f.found.Truncated = true
		return true
	}
	f.scanned++
	if f.search.Filter.MatchType(typ) {
		f.matched++
		f.found.After = feed.Position{Seq: seq - 1}
	}
	return f.matched == f.search.N
}

// tail looks through the newest events. It reports whether that was all there
// is to find, with the fence of the position known.
func (f *finder) tail(recent []*feed.Event, in instance) (done bool) {
	first := in.head.Seq + 1 - uint64(len(recent))
	done, f.looked = first == in.oldest, len(recent)
	for i := len(recent) - 1; i >= 0; i-- {
		if ev := recent[i]; f.search.Filter.MatchTopic(ev.Topic) && f.candidate(ev.Seq, ev.Type) {
			done = true
			break
		}
	}
	switch at := &f.found.After; {
	case at.Seq == in.head.Seq:
		at.Fence = in.head.Fence
	case at.Seq >= first:
		at.Fence = recent[at.Seq-first].Fence
	case at.Seq+1 == in.oldest:
		at.Fence = in.trimmedFence
	default:
		return false
	}
	return done
}

// file looks for candidates below a seq.
func (f *finder) file(raw rawConnection, below uint64) error {
	filter := f.search.Filter
	if filter.AllTopics() {
		_, _, err := f.walk(raw, below, true)
		return err
	}
	if f.looked >= denseFrom && f.scanned*dense >= f.looked {
		next, over, err := f.walk(raw, below, false)
		if over || err != nil {
			return err
		}
		below = next
	}
	topics, ok := filter.ExactTopics()
	if !ok {
		var err error
		if topics, ok, err = f.topics(raw); err != nil {
			return err
		}
	}
	if ok {
		return f.merge(raw, topics, below)
	}
	_, _, err := f.walk(raw, below, true)
	return err
}

const (
	// dense is how many events a walk may pass over for one candidate: an index
	// finds a candidate in the time in which a walk looks at about as many.
	dense = 16
	// denseFrom is how many events have to be looked at to judge that.
	denseFrom = 1024
)

// walk looks at every event below a seq, newest first. To the end, each of
// them counts as a candidate, whatever its topic; else it stops where the
// candidates become rare, and says where to go on.
func (f *finder) walk(raw rawConnection, below uint64, toTheEnd bool) (next uint64, over bool, err error) {
	v := make([]driver.Value, 3)
	row := columns{values: v}
	rows, first := 0, f.scanned
	err = raw.each(`SELECT seq, type, topic FROM events WHERE seq < ? ORDER BY seq DESC`, v, func() error {
		seq, typ, topic := uint64(row.number(0)), row.text(1), row.text(2)
		next = seq
		if rows++; rows%256 == 0 && f.ctx.Err() != nil {
			return f.ctx.Err()
		}
		switch {
		case row.err != nil:
			return row.err
		case f.search.Filter.MatchTopic(topic):
			if over = f.candidate(seq, typ); over {
				return errEnough
			}
		case !toTheEnd && rows > denseFrom+(f.scanned-first)*dense:
			return errEnough
		case toTheEnd && f.search.ScanLimit > 0 && f.scanned == f.search.ScanLimit:
			f.found.Truncated, over = true, true
			return errEnough
		case toTheEnd:
			f.scanned++
		}
		return nil
	}, int64(below))
	if errors.Is(err, errEnough) {
		return next, over, nil
	}
	return next, true, err
}
