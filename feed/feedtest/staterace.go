package feedtest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"gapless/feed"
)

// testStateRace uses one store from many goroutines; the race detector and
// the contract look on.
func (s *suite) testStateRace(t *testing.T) {
	const workers, rounds = 8, 12
	for _, kind := range cursorKinds {
		k := s.openStore(t, kind, Config{Retention: feed.Retention{Events: 500}})
		k.fill(1)
		start := k.head()
		k.create("shared", start)
		var won [workers]int
		together(workers, func(i int) {
			mine := fmt.Sprint("own-", i)
			var err error
			do := func(e error) {
				if err == nil {
					err = e
				}
			}
			do(kind.create(k.ctx, k.store, mine, start))
			at := start
			for n := range rounds {
				receipt, e := k.store.Append(k.ctx, []feed.Draft{{ID: fmt.Sprintf("%d-%d", i, n), Type: "made", Topic: "t", Data: json.RawMessage("1")}})
				if do(e); err != nil {
					break
				}
				// What an append returned can be acknowledged at once.
				seq := receipt.Events[0].Seq
				page, e := k.store.Read(k.ctx, seq, feed.Limit{})
				do(e)
				to := feed.Cursor{Epoch: receipt.Epoch, Position: feed.Position{Seq: seq, Fence: page.Anchor}}
				do(kind.move(k.ctx, k.store, mine, at, to))
				at = to
				shared, e := kind.get(k.ctx, k.store, "shared")
				do(e)
				switch e := kind.move(k.ctx, k.store, "shared", shared.cursor, to); {
				case e == nil:
					won[i]++
				case feed.CodeOf(e) != feed.CodeConflict:
					do(e)
				}
				_, e = kind.list(k.ctx, k.store)
				do(e)
				do(k.store.RecordAudit(k.ctx, feed.AuditEntry{Actor: mine, Action: "test", Detail: json.RawMessage(`{}`)}))
				_, e = k.store.Audit(k.ctx, 0, 10)
				do(e)
			}
			do(kind.delete(k.ctx, k.store, mine))
			if err != nil {
				t.Errorf("%s %d: %v", kind.name, i, err)
			}
		})
		if all := k.list(); len(all) != 1 || all[0].name != "shared" {
			t.Errorf("%d %ss are left, want the shared one", len(all), kind.name)
		}
		if total := sum(won[:]); total == 0 || k.get("shared").cursor.Seq <= start.Seq {
			t.Errorf("%d moves of the shared %s succeeded; it is at %s", total, kind.name, k.get("shared").cursor)
		}
	}
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}

// firstOf runs n functions at once and returns which of them succeeded; the
// others must fail with a code.
func firstOf(t *testing.T, n int, code feed.Code, do func(i int) error) []int {
	t.Helper()
	var mu sync.Mutex
	var winners []int
	together(n, func(i int) {
		err := do(i)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			winners = append(winners, i)
		} else if feed.CodeOf(err) != code {
			t.Errorf("%d: %v, want an error of code %s", i, err, code)
		}
	})
	return winners
}
