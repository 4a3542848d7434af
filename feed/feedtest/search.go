package feedtest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"gapless/feed"
)

// searched is what a search is made for.
type searched struct {
	patterns, types []string
	byName          bool
}

func (q searched) filter(t *testing.T) feed.Filter {
	t.Helper()
	f, err := feed.NewFilter(q.patterns, q.types, q.byName)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var everything = searched{}

func (s *suite) testSearch(t *testing.T) {
	t.Run("an empty log is searched in vain", func(t *testing.T) {
		log := s.open(t, Config{})
		for _, n := range []int{0, 1, 5} {
			log.wantFound(everything, n)
		}
	})

	t.Run("the last n that match", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 30}})
		topics := []string{"a.x", "a.y", "b.x", "a.x.deep", "gapless.status", "c", "a.x"}
		for i := range 45 { // 16 to 45 are retained
			typ := []string{"even", "odd"}[i%2]
			if i == 17 {
				typ = "rare"
			}
			log.append(feed.Draft{ID: fmt.Sprint(i), Type: typ, Topic: topics[i%len(topics)], Data: json.RawMessage("1")})
		}
		log.wantBounds(16, 45)
		for _, q := range []searched{
			everything,
			{patterns: []string{">"}},
			{patterns: []string{">"}, byName: true},
			{patterns: []string{"gapless.>", "c"}, byName: true},
			{patterns: []string{"a.x"}},
			{patterns: []string{"a.*"}},
			{patterns: []string{"a.>"}},
			{patterns: []string{"*.x", "c", "a.x"}},
			{types: []string{"rare"}},
			{types: []string{"odd", "rare"}},
			{patterns: []string{"b.>"}, types: []string{"even"}},
			{patterns: []string{"nobody"}},
			{patterns: []string{"a.x"}, types: []string{"never"}},
		} {
			for _, n := range []int{0, 1, 2, 3, 5, 29, 30, 31, math.MaxInt} {
				log.wantFound(q, n)
			}
		}
	})

	t.Run("an event that was trimmed is not found", func(t *testing.T) {
		log := s.open(t, Config{Retention: feed.Retention{Events: 3}})
		log.append(feed.Draft{ID: "gone", Type: "gone", Topic: "gone", Data: json.RawMessage("1")})
		log.fill(2)
		log.wantFound(searched{patterns: []string{"gone"}}, 1)
		log.fill(1)
		log.wantFound(searched{patterns: []string{"gone"}}, 1)
		log.wantFound(searched{types: []string{"gone"}}, 1)
		log.wantFound(everything, 5)
	})

	t.Run("the scan limit cuts a search short and says so", func(t *testing.T) {
		log := s.open(t, Config{})
		rare := searched{types: []string{"rare"}}
		for i := range 20 { // 2 and 15 are rare; every event is a candidate
			typ := "common"
			if i == 1 || i == 14 {
				typ = "rare"
			}
			log.append(feed.Draft{ID: fmt.Sprint(i), Type: typ, Topic: "t", Data: json.RawMessage("1")})
		}
		for _, c := range []struct {
			query     searched
			n, limit  int
			after     uint64
			truncated bool
		}{
			{rare, 1, 5, 20, true},  // 16 to 20 were seen
			{rare, 1, 6, 14, false}, // 15 is the sixth
			{rare, 2, 6, 14, true},  // one of two
			{rare, 2, 18, 14, true}, // 3 to 20 were seen
			{rare, 2, 19, 1, false},
			{rare, 3, 20, 1, false}, // all were seen
			{rare, 3, 100, 1, false},
			{rare, 3, 0, 1, false}, // no bound
			{everything, 5, 5, 15, false},
			{everything, 6, 5, 15, true},
			{everything, 0, 5, 20, false},
		} {
			found := log.search(c.query, c.n, c.limit)
			if found.After.Seq != c.after || found.Truncated != c.truncated {
				t.Errorf("the last %d of %+v within %d candidates: after %d, truncated %v; want %d, %v",
					c.n, c.query, c.limit, found.After.Seq, found.Truncated, c.after, c.truncated)
			}
			log.wantPosition(found)
		}
	})
}

func (s *subject) search(q searched, n, scanLimit int) feed.Found {
	s.Helper()
	found, err := s.log.Search(s.ctx, feed.Search{Filter: q.filter(s.T), N: n, ScanLimit: scanLimit})
	if err != nil {
		s.Fatalf("search: %v", err)
	}
	return found
}

// wantFound searches, and compares with a walk over all that the log holds:
// the seq from which a read meets the last n matches, and not one more.
func (s *subject) wantFound(q searched, n int) {
	s.Helper()
	found := s.search(q, n, 0)
	filter := q.filter(s.T)
	var matches []uint64
	for _, ev := range s.all() {
		if filter.Match(ev.Topic, ev.Type) {
			matches = append(matches, ev.Seq)
		}
	}
	want := matches[len(matches)-min(n, len(matches)):]
	var got []uint64
	for _, seq := range matches {
		if seq > found.After.Seq {
			got = append(got, seq)
		}
	}
	if !slices.Equal(got, want) || found.Truncated {
		s.Errorf("the last %d of %+v: from %d on a read meets %v (truncated %v), want %v", n, q, found.After.Seq, got, found.Truncated, want)
	}
	if len(want) == 0 && found.After != found.Head {
		s.Errorf("the last %d of %+v: nothing matches, so read from the head, not from %+v", n, q, found.After)
	}
	s.wantPosition(found)
}

// wantPosition checks that the position lies in the log, with its own fence.
func (s *subject) wantPosition(found feed.Found) {
	s.Helper()
	page := s.read(found.After.Seq, feed.Limit{})
	if found.Bounds != page.Bounds {
		s.Errorf("found in %+v, the log has %+v", found.Bounds, page.Bounds)
	}
	if found.After.Seq < page.Oldest-1 || found.After.Seq > page.Head.Seq || found.After.Fence != page.Anchor {
		s.Errorf("position %+v in a log of %d to %d, anchor %q", found.After, page.Oldest, page.Head.Seq, page.Anchor)
	}
}
