//go:build linux && e2e

package postgres

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gapless/feed"
)

// TestASearchAgreesWithAWalk compares searches of all kinds with a walk over
// the log: skewed topics, so that windows, lookups of topics and more than one
// step are needed.
func TestASearchAgreesWithAWalk(t *testing.T) {
	s := openStore(t, Config{URL: database(t), Retention: feed.Retention{Events: 9000}})
	rnd := rand.New(rand.NewPCG(1, 2))
	var log []feed.Draft
	for i := range 12_000 {
		topic := "busy.one"
		switch {
		case i%4000 == 100:
			topic = "quiet.x"
		case i < 5000:
			topic = fmt.Sprint("old.", rnd.IntN(300))
		case rnd.IntN(10) == 0:
			topic = fmt.Sprint("many.", rnd.IntN(40))
		case rnd.IntN(50) == 0:
			topic = "gapless.status"
		}
		log = append(log, feed.Draft{ID: "x", Minted: true, Type: fmt.Sprint("type-", rnd.IntN(100)%7), Topic: topic, Data: []byte("1")})
	}
	for from := 0; from < len(log); from += 1000 {
		if _, err := s.Append(patient(t), log[from:from+1000]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		patterns, types []string
		byName          bool
	}{
		{}, {patterns: []string{">"}, byName: true}, {types: []string{"type-3"}}, {types: []string{"none"}},
		{patterns: []string{"busy.one"}}, {patterns: []string{"quiet.x"}}, {patterns: []string{"busy.one", "quiet.x", "many.3"}, types: []string{"type-0"}},
		{patterns: []string{"quiet.*"}}, {patterns: []string{"old.>"}}, {patterns: []string{"old.>", "quiet.x"}, types: []string{"type-1", "type-2"}},
		{patterns: []string{"many.*"}}, {patterns: []string{"*.x"}}, {patterns: []string{"*.one", "old.*"}}, {patterns: []string{"nobody.>"}}, {patterns: []string{"nobody"}},
	} {
		filter, err := feed.NewFilter(q.patterns, q.types, q.byName)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range scaled([]int{1, 100, 100_000}, []int{1, 3, 100, 1024, 100_000}) {
			for _, limit := range scaled([]int{0, 50, 4096, 4500}, []int{0, 1, 50, 4096, 4500, 100_000}) {
				found, err := s.Search(patient(t), feed.Search{Filter: filter, N: n, ScanLimit: limit})
				if err != nil {
					t.Fatal(err)
				}
				after, cut := walked(log[3000:], 3000, filter, n, limit)
				if found.After.Seq != after || found.Truncated != cut || found.Head.Seq != 12_000 || found.Oldest != 3001 {
					t.Errorf("the last %d of %+v within %d: after %d, cut %v; want %d, %v", n, q, limit, found.After.Seq, found.Truncated, after, cut)
				}
				if page, err := s.Read(patient(t), found.After.Seq, feed.Limit{}); err != nil || page.Anchor != found.After.Fence {
					t.Errorf("the position has the fence %q, the log %q", found.After.Fence, page.Anchor)
				}
			}
		}
	}
}

// walked looks at the log newest first. Candidates are the events on topics
// that match.
func walked(log []feed.Draft, before uint64, filter feed.Filter, n, limit int) (after uint64, cut bool) {
	after = before + uint64(len(log))
	matched, scanned := 0, 0
	for i := len(log) - 1; i >= 0 && matched < n; i-- {
		if !filter.MatchTopic(log[i].Topic) {
			continue
		}
		if limit > 0 && scanned == limit {
			return after, true
		}
		if scanned++; filter.MatchType(log[i].Type) {
			matched++
			after = before + uint64(i)
		}
	}
	return after, false
}

// TestMoreTopicsThanCanBeListedAreWalked: what is found is the same.
func TestMoreTopicsThanCanBeListedAreWalked(t *testing.T) {
	s := openStore(t, Config{URL: database(t)})
	for batch := range 12 {
		drafts := make([]feed.Draft, 1000)
		for i := range drafts {
			drafts[i] = feed.Draft{ID: "x", Minted: true, Type: "n", Topic: fmt.Sprint("many.", batch*1000+i), Data: []byte("1")}
		}
		if _, err := s.Append(patient(t), drafts); err != nil {
			t.Fatal(err)
		}
	}
	filter, err := feed.NewFilter([]string{"many.*", "none.>"}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n, limit int
		after    uint64
		cut      bool
	}{{5, 11_000, 11_995, false}, {5, 3, 11_997, true}, {9_000, 11_000, 3_000, false}, {20_000, 11_000, 1_000, true}, {20_000, 0, 0, false}} {
		found, err := s.Search(patient(t), feed.Search{Filter: filter, N: c.n, ScanLimit: c.limit})
		if err != nil || found.After.Seq != c.after || found.Truncated != c.cut {
			t.Errorf("last %d, limit %d: after %d, truncated %v, %v; want %d, %v", c.n, c.limit, found.After.Seq, found.Truncated, err, c.after, c.cut)
		}
	}
}
