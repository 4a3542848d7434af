package feedtest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"gapless/feed"
)

// testSearchFar searches many events on many topics for what lies far back:
// with GAPLESS_LONG=1 50,000 events on 5,000 topics.
func (s *suite) testSearchFar(t *testing.T) {
	total, topics := 20_000, 2000
	if os.Getenv("GAPLESS_LONG") == "1" {
		total, topics = 50_000, 5000
	}
	log := s.open(t, Config{Retention: feed.Retention{Events: 2 * uint64(total)}})
	drafts := make([]feed.Draft, total) // seq − 1
	for i := range drafts {
		d := feed.Draft{ID: fmt.Sprint(i), Minted: true, Type: "made", Topic: fmt.Sprint("loud.", i%3), Data: json.RawMessage("1")}
		switch {
		case i == 99 || i == 199:
			d.Topic = "quiet.one"
		case i%5 == 0:
			d.Topic = fmt.Sprintf("many.%d.x", i/5%topics)
		}
		if i == 50 {
			d.Type = "rare"
		}
		drafts[i] = d
	}
	for batch := range slices.Chunk(drafts, feed.MaxBatchEvents) {
		log.append(batch...)
	}

	far := func(name string, q searched, limits ...int) {
		t.Run(name, func(t *testing.T) {
			on := *log
			on.T = t
			for _, n := range []int{1, 3, 700} {
				for _, limit := range limits {
					on.wantFar(drafts, q, n, limit)
				}
			}
		})
	}
	far("a quiet topic", searched{patterns: []string{"quiet.one"}}, 1, 2, 10)
	far("a quiet topic by a pattern", searched{patterns: []string{"quiet.*", "quiet.>"}}, 1, 2, 10_000)
	far("a quiet topic by its last token", searched{patterns: []string{"*.one"}}, 10_000)
	far("a topic that nobody published on", searched{patterns: []string{"quiet", "quiet.one.more", "z"}}, 1, 10_000)
	far("a pattern that nothing matches", searched{patterns: []string{"many.*.y"}}, 10_000)
	far("many topics by a pattern", searched{patterns: []string{"many.*.x"}}, topics+1000, 4*topics)
	far("many topics, and a quiet one", searched{patterns: []string{"many.>", "quiet.one"}}, topics+1000, 4*topics)
	far("a rare type on many topics", searched{patterns: []string{"many.>"}, types: []string{"rare"}}, total/5-11, total/5-10)
	far("a rare type on a loud topic", searched{patterns: []string{"loud.0"}, types: []string{"rare"}}, 1000)
	far("a rare type on any topic", searched{types: []string{"rare"}}, 1000, total-51, total-50)
	far("any event", everything, 1, 5, 1000)
}

// wantFar searches, and compares with a walk over the drafts: candidates are
// the events on topics that match.
func (s *subject) wantFar(drafts []feed.Draft, q searched, n, limit int) {
	s.Helper()
	filter := q.filter(s.T)
	want, truncated := uint64(len(drafts)), false
	for i, matched, scanned := len(drafts)-1, 0, 0; i >= 0 && matched < n; i-- {
		if !filter.MatchTopic(drafts[i].Topic) {
			continue
		}
		if scanned++; scanned > limit {
			truncated = true
			break
		}
		if filter.MatchType(drafts[i].Type) {
			matched++
			want = uint64(i)
		}
	}
	found := s.search(q, n, limit)
	if found.After.Seq != want || found.Truncated != truncated {
		s.Errorf("the last %d of %+v within %d candidates: after %d, truncated %v; want %d, %v",
			n, q, limit, found.After.Seq, found.Truncated, want, truncated)
	}
	s.wantPosition(found)
}
