//go:build linux

package systemtest_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"gapless/feed/lawtest"
)

// bounds of retention that are tried on every durable store, each with what the log may hold at the end.
var retentions = []struct {
	name string
	args []string
	// over says how far above its bound the log is, as a share.
	over func(t *testing.T, g *gateway) float64
	// sized: the bound says how much the log holds, however fast the machine publishes.
	sized bool
}{
	{"events", []string{"--retain-events", "2000", "--retain-bytes", "0"}, func(t *testing.T, g *gateway) float64 {
		st := g.status()
		return float64(st.HeadSeq-st.OldestSeq+1)/2000 - 1
	}, true},
	{"bytes", []string{"--retain-events", "0", "--retain-bytes", "2MiB"}, func(t *testing.T, g *gateway) float64 {
		return float64(g.status().Bytes)/(2<<20) - 1
	}, true},
	{"age", []string{"--retain-events", "0", "--retain-bytes", "0", "--retain-age", "1s"}, func(t *testing.T, g *gateway) float64 {
		// Nothing is published now, so that the head stays while the other end may go on.
		oldest := g.one("start=all")
		return g.one("start=last:1").Time.Sub(oldest.Time).Seconds() - 1
	}, false},
}

// one reads the first event of a page.
func (g *gateway) one(query string) lawtest.Record {
	g.t.Helper()
	var page struct {
		Events []struct {
			lawtest.Record
			Data json.RawMessage `json:"data"` // in place of the record's, which is text
		} `json:"events"`
	}
	decode(g.t, g.get("/api/v1/events?limit=1&type=tick&"+query), &page)
	if len(page.Events) != 1 {
		g.t.Fatalf("%s: %d events, want one", query, len(page.Events))
	}
	return page.Events[0].Record
}

// plateau publishes without a pause through a store that keeps little, and looks at what it holds and takes on the
// disk: both stop growing. Size is the space that the store takes; it is only judged where sized.
func plateau(t *testing.T, g *gateway, over func(*testing.T, *gateway) float64, sized bool, size func() int64) {
	t.Helper()
	p := newPublisher(t, g, &history{}, "p", 4<<10, "flood.a", "flood.b")
	p.light, p.noisy = true, true
	rounds, events := 12, scaled(1_500, 10_000)
	var sizes []int64
	for range rounds {
		p.must(t, events, 100)
		if share := over(t, g); share > 0.1 {
			t.Errorf("the log is %.0f %% above its bound", 100*share)
		}
		sizes = append(sizes, size())
	}
	t.Logf("sizes on disk, KiB: %v", kib(sizes))
	// Without an end it would grow by almost a half.
	before, last := slices.Max(sizes[:rounds*2/3]), slices.Max(sizes[rounds*2/3:])
	if sized && last > before+before*3/10 {
		t.Errorf("the store took %d KiB within %d events and %d KiB within %d", before>>10, rounds*2/3*events, last>>10, rounds*events)
	}
}

func kib(sizes []int64) (out []int64) {
	for _, s := range sizes {
		out = append(out, s>>10)
	}
	return out
}

// Each bound of retention holds on a SQLite file while it is published into, within a tenth, and the file stops
// growing. So does the write-ahead log beside it, at 48 MiB and what comes while it is begun anew.
func TestRetentionPlateausOnSQLite(t *testing.T) {
	t.Parallel()
	for _, tt := range retentions {
		t.Run(tt.name, func(t *testing.T) {
			store, path := sqliteStore(t)
			g := serve(t, append([]string{"--store", store}, tt.args...)...)
			bytes := func(file string) int64 {
				t.Helper()
				info, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				return info.Size()
			}
			plateau(t, g, tt.over, tt.sized, func() int64 { return bytes(path) })
			if ahead := bytes(path + "-wal"); ahead > 64<<20 {
				t.Errorf("the write-ahead log has %d KiB", ahead>>10)
			}
			trimmed(t, g)
		})
	}
}

// trimmed fails the test where the log still holds its first event, so that nothing was tried.
func trimmed(t *testing.T, g *gateway) {
	t.Helper()
	eventually(t, "the log is trimmed", func() bool { return g.status().OldestSeq > 1 })
	if st := g.status(); st.OldestSeq >= st.HeadSeq {
		t.Errorf("the log holds %d to %d", st.OldestSeq, st.HeadSeq)
	}
}
