package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gapless/feed"
)

// reference is a search without an index: candidates are the events on topics
// that match, newest first.
func reference(t *rapid.T, s *Store, search feed.Search) feed.Found {
	page, err := s.Read(t.Context(), s.committed().oldest-1, feed.Limit{Events: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	found := feed.Found{Bounds: page.Bounds, After: page.Head}
	matched, scanned := 0, 0
	for i := len(page.Events) - 1; i >= 0 && matched < search.N; i-- {
		ev := page.Events[i]
		if !search.Filter.MatchTopic(ev.Topic) {
			continue
		}
		if search.ScanLimit > 0 && scanned == search.ScanLimit {
			found.Truncated = true
			break
		}
		scanned++
		if search.Filter.MatchType(ev.Type) {
			matched++
			found.After = feed.Position{Seq: page.Oldest - 1, Fence: page.TrimmedFence}
			if i > 0 {
				found.After = page.Events[i-1].Position()
			}
		}
	}
	return found
}

// TestSearchAgreesWithAWalk compares searches with a walk over all that the
// log retains, while it grows and is trimmed, with a tail of any length.
func TestSearchAgreesWithAWalk(t *testing.T) {
	topics := []string{"a", "a.b", "a.b.c", "a-b", "b.b", "gapless.status", "quiet", "Z.z"}
	types := []string{"x", "y", "z"}
	rapid.Check(t, func(rt *rapid.T) {
		keep := rapid.IntRange(1, 200).Draw(rt, "retention")
		s := open(t, Config{Retention: feed.Retention{Events: uint64(keep)}})
		defer s.Close()
		n := 0
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			if rapid.Bool().Draw(rt, "empty the tail") {
				s.mu.Lock()
				s.tail.reset()
				s.mu.Unlock()
			}
			topic := rapid.SampledFrom(topics)
			drafts := make([]feed.Draft, rapid.IntRange(0, 150).Draw(rt, "events"))
			for i := range drafts {
				n++
				drafts[i] = feed.Draft{ID: fmt.Sprint(n), Minted: true, Type: types[n%7%3], Topic: topic.Draw(rt, "topic"), Data: json.RawMessage("1")}
			}
			if _, err := s.Append(t.Context(), drafts); err != nil {
				rt.Fatal(err)
			}
			patterns := rapid.SliceOfN(rapid.SampledFrom([]string{">", "a", "a.*", "a.>", "*.b", "gapless.>", "quiet", "none", "*"}), 0, 3).Draw(rt, "patterns")
			wanted := rapid.SliceOfN(rapid.SampledFrom(types), 0, 2).Draw(rt, "types")
			byName := rapid.Bool().Draw(rt, "system by name")
			filter, err := feed.NewFilter(patterns, wanted, byName)
			if err != nil {
				rt.Fatal(err)
			}
			search := feed.Search{
				Filter: filter, N: rapid.IntRange(0, keep+1).Draw(rt, "n"),
				ScanLimit: rapid.SampledFrom([]int{0, 0, 1, 10, 100}).Draw(rt, "scan limit"),
			}
			if byName && (len(patterns) == 0 || slices.Contains(patterns, ">")) {
				search.ScanLimit = 0 // this is walked, and a walk counts what it passes over
			}
			got, err := s.Search(t.Context(), search)
			if want := reference(rt, s, search); err != nil || got != want {
				rt.Fatalf("%+v: %+v, %v\nwant %+v", search, got, err, want)
			}
		}
	})
}

// TestAQuietTopicIsFoundAtOnce: among many events and topics, by its name and
// by patterns, with a scan limit that is far below their number.
func TestAQuietTopicIsFoundAtOnce(t *testing.T) {
	s := open(t, Config{})
	n := 0
	publish := func(topic func(n int) string, batches int) {
		for range batches {
			drafts := make([]feed.Draft, feed.MaxBatchEvents)
			for i := range drafts {
				n++
				drafts[i] = feed.Draft{ID: "x", Minted: true, Type: "made", Topic: topic(n), Data: json.RawMessage("1")}
			}
			if _, err := s.Append(t.Context(), drafts); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(func(n int) string { return fmt.Sprintf("quiet.%d.end", n%50) }, 1)
	publish(func(n int) string { return fmt.Sprint("busy.", n%12_000) }, 39)
	for _, pattern := range []string{"quiet.7.end", "quiet.7.*", "quiet.>", "quiet.*.end", "*.7.end"} {
		filter, err := feed.NewFilter([]string{pattern}, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		found, err := s.Search(t.Context(), feed.Search{Filter: filter, N: 5, ScanLimit: 10_000})
		if pattern == "*.7.end" { // more topics than may be listed: cut short, and it says so
			if err != nil || !found.Truncated {
				t.Errorf("%s: %+v, %v, want it truncated", pattern, found, err)
			}
		} else if err != nil || found.Truncated || found.After.Seq < 700 || found.After.Seq >= 1000 || !found.After.Fence.Known() {
			t.Errorf("%s: %+v, %v", pattern, found, err)
		}
		t.Logf("%s: after %d in %v", pattern, found.After.Seq, time.Since(began))
	}
}

func TestPrefixes(t *testing.T) {
	for _, c := range []struct{ patterns, want []string }{
		{[]string{"a"}, []string{"a"}},
		{[]string{"a.*", "a.b.>", "b.>"}, []string{"a.", "b."}},
		{[]string{"*.x", "a"}, []string{""}},
		{[]string{"b", "a.>", "ab"}, []string{"a.", "ab", "b"}},
	} {
		if got := prefixes(c.patterns); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q: %q, want %q", c.patterns, got, c.want)
		}
	}
}
