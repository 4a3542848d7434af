package memory

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"gapless/feed"
)

// TestTopicIndexAgreesWithAWalk compares searches with a walk over all that
// the log retains, while it grows and is trimmed.
func TestTopicIndexAgreesWithAWalk(t *testing.T) {
	topics := []string{"a", "a.b", "a.b.c", "b.b", "gapless.status", "quiet"}
	types := []string{"x", "y", "z"}
	rapid.Check(t, func(rt *rapid.T) {
		keep := rapid.IntRange(1, 200).Draw(rt, "retention")
		log := open(t, Config{Retention: feed.Retention{Events: uint64(keep)}})
		n := 0
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			topic := rapid.SampledFrom(topics)
			for range rapid.IntRange(0, 150).Draw(rt, "events") {
				n++
				d := feed.Draft{ID: fmt.Sprint(n), Type: types[n%7%3], Topic: topic.Draw(rt, "topic"), Data: json.RawMessage("1")}
				if _, err := log.Append(t.Context(), []feed.Draft{d}); err != nil {
					rt.Fatal(err)
				}
			}
			patterns := rapid.SliceOfN(rapid.SampledFrom([]string{">", "a", "a.*", "a.>", "*.b", "gapless.>", "quiet", "none"}), 0, 3).Draw(rt, "patterns")
			wanted := rapid.SliceOfN(rapid.SampledFrom(types), 0, 2).Draw(rt, "types")
			filter, err := feed.NewFilter(patterns, wanted, rapid.Bool().Draw(rt, "system by name"))
			if err != nil {
				rt.Fatal(err)
			}
			search := feed.Search{
				Filter: filter, N: rapid.IntRange(0, keep+1).Draw(rt, "n"),
				ScanLimit: rapid.SampledFrom([]int{0, 0, 1, 10, 100}).Draw(rt, "scan limit"),
			}
			got, err := log.Search(t.Context(), search)
			if want := walk(log, search); err != nil || got != want {
				rt.Fatalf("%+v in %d events: %+v, %v\nwant %+v", search, log.events.n, got, err, want)
			}
		}
		checkIndex(rt, log)
	})
}

// walk is a search without the index: candidates are the events on topics
// that match.
func walk(log *Log, search feed.Search) feed.Found {
	found := feed.Found{Bounds: log.boundsLocked(), After: log.head}
	matched, scanned := 0, 0
	for i := log.events.n - 1; i >= 0 && matched < search.N; i-- {
		ev := log.events.get(i)
		if !search.Filter.MatchTopic(ev.Topic) {
			continue
		}
		if search.ScanLimit > 0 && scanned == search.ScanLimit {
			found.Truncated = true
			break
		}
		scanned++
		if search.Filter.Match(ev.Topic, ev.Type) {
			matched++
			found.After = log.positionLocked(ev.Seq - 1)
		}
	}
	return found
}

// checkIndex checks that the index lists what is retained and no more.
func checkIndex(t *rapid.T, log *Log) {
	listed := 0
	for topic, s := range log.topics {
		listed += len(s.list) - s.first
		if len(s.list) == s.first {
			t.Fatalf("topic %q has no event and is still listed", topic)
		}
		for _, seq := range s.list[s.first:] {
			if ev := log.events.get(int(seq - log.boundsLocked().Oldest)); ev.Topic != topic {
				t.Fatalf("event %d is on %q and listed under %q", seq, ev.Topic, topic)
			}
		}
	}
	if listed != log.events.n {
		t.Fatalf("%d events are listed, %d retained", listed, log.events.n)
	}
}

// TestAForgottenTopicTakesNoMemory: a topic goes with its last event.
func TestAForgottenTopicTakesNoMemory(t *testing.T) {
	log := open(t, Config{Retention: feed.Retention{Events: 5}})
	for n := range 1000 {
		fill(t, log, fmt.Sprint("t.", n), 1)
	}
	if len(log.topics) != 5 {
		t.Errorf("%d topics are listed for 5 events", len(log.topics))
	}
	fill(t, log, "one", 10_000)
	if s := log.topics["one"]; len(log.topics) != 1 || cap(s.list) > 512 {
		t.Errorf("%d topics, a list of %d for 5 events", len(log.topics), cap(s.list))
	}
}

// TestManyTopicsAreWalked: above the limit of topics the search walks the
// events, newest first, and finds the same.
func TestManyTopicsAreWalked(t *testing.T) {
	log := open(t, Config{Retention: feed.Retention{Events: 50_000}})
	drafts := make([]feed.Draft, 1000)
	for batch := range 12 {
		for i := range drafts {
			drafts[i] = feed.Draft{ID: "x", Minted: true, Type: "n", Topic: "many." + strconv.Itoa(batch*1000+i), Data: []byte("1")}
		}
		if _, err := log.Append(t.Context(), drafts); err != nil {
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
	}{{5, 11_000, 11_995, false}, {5, 3, 11_995, false}, {9_000, 11_000, 3_000, false}, {20_000, 11_000, 1_000, true}, {20_000, 0, 0, false}} {
		if c.limit == 3 {
			c.after, c.cut = 11_997, true
		}
		found, err := log.Search(t.Context(), feed.Search{Filter: filter, N: c.n, ScanLimit: c.limit})
		if err != nil || found.After.Seq != c.after || found.Truncated != c.cut || found.Head.Seq != 12_000 {
			t.Errorf("last %d, limit %d: after %d, truncated %v, %v; want %d, %v", c.n, c.limit, found.After.Seq, found.Truncated, err, c.after, c.cut)
		}
	}
}
