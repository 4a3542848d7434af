package lawtest

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckPassesWhatKeepsTheLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history, opts := simulate(t)
		violations := Check(history, opts)
		for _, v := range violations {
			t.Errorf("%v\n%s", v, v.Excerpt(history))
		}
	})
}

// TestCheckCatchesMutations changes one record of a history that keeps the law so that it is broken.
func TestCheckCatchesMutations(t *testing.T) {
	for _, m := range []struct {
		name   string
		rule   []Rule // one of them must be reported, and nothing else
		mutate func(t *rapid.T, h []Record) []Record
	}{
		{"drop", []Rule{RuleGapFree, RuleBookmarkSound, RuleAcknowledged}, func(t *rapid.T, h []Record) []Record {
			i := choose(t, h, func(i int) bool { return h[i].Kind == KindEvent && passed(h, i) })
			if i < 0 {
				return nil
			}
			return slices.Delete(h, i, i+1)
		}},
		{"repeat", []Rule{RuleUnique}, func(t *rapid.T, h []Record) []Record {
			i := choose(t, h, func(i int) bool { return h[i].Kind == KindEvent })
			if i < 0 {
				return nil
			}
			return slices.Insert(h, i+1, h[i])
		}},
		{"swap", []Rule{RuleOrdered}, func(t *rapid.T, h []Record) []Record {
			i := choose(t, h, func(i int) bool {
				j := following(h, i)
				return h[i].Kind == KindEvent && j > 0 && h[j].Kind == KindEvent && h[j].Conn == h[i].Conn
			})
			if i < 0 {
				return nil
			}
			j := following(h, i)
			h[i], h[j] = h[j], h[i]
			return h
		}},
		{"alter", []Rule{RuleFaithful}, func(t *rapid.T, h []Record) []Record {
			i := choose(t, h, func(i int) bool { return h[i].Kind == KindEvent })
			if i < 0 {
				return nil
			}
			switch rapid.IntRange(0, 3).Draw(t, "part") {
			case 0:
				h[i].Data = `{"n":-1}`
			case 1:
				h[i].Type = "other"
			case 2:
				h[i].Topic = "other"
			default:
				h[i].ID = "other"
			}
			return h
		}},
		{"advance", []Rule{RuleBookmarkSound}, func(t *rapid.T, h []Record) []Record {
			i := choose(t, h, func(i int) bool {
				j := following(h, i)
				return h[i].Kind == KindHeartbeat && j > 0 && h[j].Kind == KindEvent
			})
			if i < 0 {
				return nil
			}
			e := h[following(h, i)]
			h[i].Cursor, h[i].HeadSeq = e.Cursor, max(e.Seq, h[i].HeadSeq)
			return h
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				history, opts := simulate(t)
				mutated := m.mutate(t, slices.Clone(history))
				if mutated == nil {
					t.Skip("a history without such a record") // rapid draws another, and fails if it finds too few
				}
				violations := Check(mutated, opts)
				if len(violations) == 0 {
					t.Fatalf("not caught")
				}
				for _, v := range violations {
					if !slices.Contains(m.rule, v.Rule) {
						t.Errorf("reported as %v\n%s", v, v.Excerpt(mutated))
					}
				}
				if again := Check(mutated, opts); !reflect.DeepEqual(violations, again) {
					t.Errorf("not deterministic: %v, then %v", violations, again)
				}
			})
		})
	}
}

// choose draws an index for which ok holds, or -1.
func choose(t *rapid.T, h []Record, ok func(i int) bool) int {
	var all []int
	for i := range h {
		if ok(i) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return -1
	}
	return rapid.SampledFrom(all).Draw(t, "at")
}

// following returns the index of the client's next record, or -1.
func following(h []Record, i int) int {
	for j := i + 1; j < len(h); j++ {
		if h[j].Client == h[i].Client {
			return j
		}
	}
	return -1
}

// passed says whether the law demands the event at i: the life goes past it, or it is the last one, which must
// reach the head. An event right before a resync or a start without a position is not demanded.
func passed(h []Record, i int) bool {
	for j := following(h, i); j > 0; j = following(h, j) {
		switch h[j].Kind {
		case KindResync:
			return false
		case KindSubscribe:
			_, what := h[j].asked()
			// With the cursor of another epoch only a resync can follow; the position sent passes the event.
			return what == sentPosition
		case KindEvent, KindHeartbeat, KindLive:
			return true
		}
	}
	return true
}
