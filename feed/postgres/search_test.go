package postgres

import (
	"slices"
	"testing"

	"gapless/feed"
)

// TestRangesHoldWhatMatches: every topic that a pattern matches lies in one of
// its ranges, and in no two of them.
func TestRangesHoldWhatMatches(t *testing.T) {
	topics := []string{"a", "a.b", "a.b.c", "a.bb", "a-b", "a_b.c", "A.b", "ab", "ab.c", "b", "z.z.z", "gapless.status", "0", "-", "_"}
	for _, patterns := range [][]string{
		{">"}, {"*"}, {"a"}, {"a", "a.b"}, {"a.*"}, {"a.>"}, {"a.b.>", "a.>"}, {"a.*.c", "ab.>", "b"}, {"*.b"}, {"a", ">"}, {"z.z.*", "0"}, {"gapless.>", "-"},
	} {
		filter, err := feed.NewFilter(patterns, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		spans := ranges(slices.Clone(patterns))
		for _, topic := range topics {
			in := 0
			for _, s := range spans {
				if s.from <= topic && topic < s.to {
					in++
				}
			}
			if in > 1 || filter.MatchTopic(topic) && in == 0 {
				t.Errorf("%v: %q lies in %d of %q", patterns, topic, in, spans)
			}
		}
	}
	if spans := ranges([]string{"a.b.*"}); spans[0].from <= "a.bb" && "a.bb" < spans[0].to || len(spans) != 1 {
		t.Errorf("a range is wider than its pattern: %q", spans)
	}
}
