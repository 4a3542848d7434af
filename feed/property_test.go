package feed_test

import (
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"gapless/feed"
)

// TestTheLaw runs one writer and several readers through random cuts, stalls,
// reconnects, a log that is slow, fails, is trimmed, is rolled back or gets a
// new epoch, over tiny queues and rings. Whatever happens, each reader's
// client has all that it asked for, in order, once, or it was told to resync;
// and when all is calm again, everybody reaches the head.
func TestTheLaw(t *testing.T) {
	const rounds = 10 // of as many plans as rapid draws: 100, or -rapid.checks
	for range rounds {
		t.Run("plans", func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				p := drawPlan(rt)
				var err error
				synctest.Test(t, func(t *testing.T) { err = p.run(t) })
				if err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

// TestPlansThatBrokeTheLawOnce are kept from earlier failures.
func TestPlansThatBrokeTheLawOnce(t *testing.T) {
	for name, p := range map[string]*plan{
		"a snapshot that gave a bookmark away is trimmed before its first event": {
			keep:    9,
			cfg:     feed.Config{RingEvents: 2, SnapshotEvents: 6},
			readers: []readerPlan{{}},
			acts: []act{
				{kind: actForeign, n: 8}, {kind: actForeign, n: 8}, {kind: actConnect}, {kind: actRead}, {kind: actFail}, {kind: actRead},
				{kind: actSleep, n: 2}, {kind: actRead}, {kind: actHeal}, {kind: actTrim, n: 6}, {kind: actRead, n: 5},
			},
		},
		"a quiet reader falls back behind its own bookmark, which the log no longer holds": {
			inMemory: true,
			keep:     20,
			cfg:      feed.Config{QueueBytesTotal: 600},
			readers:  []readerPlan{{patterns: []string{"b"}, start: feed.Start{Mode: feed.StartLive}}},
			acts: []act{
				{kind: actConnect}, {kind: actRead, n: 5}, {kind: actForeign, n: 8, who: 4}, {kind: actForeign, n: 8, who: 4}, {kind: actForeign, n: 8, who: 4},
				{kind: actSleep, n: 2}, {kind: actRead}, {kind: actForeign, n: 35, who: 4}, {kind: actRead, n: 5},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.cfg.HideTypes = []string{hiddenType}
			synctest.Test(t, func(t *testing.T) {
				if err := p.run(t); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// plan is one run, drawn before it begins.
type plan struct {
	inMemory bool
	keep     int
	cfg      feed.Config
	readers  []readerPlan
	acts     []act
}

type readerPlan struct {
	patterns, types []string
	shape           feed.Shape
	start           feed.Start
}

type act struct {
	kind actKind
	n    int // of what: events, steps, …
	who  int // which reader, topic, …
}

type actKind string

const (
	actPublish  actKind = "publish"
	actForeign  actKind = "another node publishes"
	actRead     actKind = "read"
	actConnect  actKind = "connect"
	actCut      actKind = "cut"
	actTell     actKind = "cut by the operator"
	actSleep    actKind = "sleep"
	actSlow     actKind = "slow log"
	actStale    actKind = "late answers of the log"
	actFail     actKind = "failing log"
	actHeal     actKind = "heal the log"
	actTrim     actKind = "trim"
	actRollback actKind = "roll back"
	actRenew    actKind = "new epoch"
)

var (
	lawTopics   = []string{"a", "a.b", "a.c.d", "b", "gapless.status"}
	lawPatterns = []string{">", "a", "a.>", "*.b", "a.*", "b", "gapless.>"}
	lawTypes    = []string{"x", "y", hiddenType}
)

func drawPlan(t *rapid.T) *plan {
	p := &plan{
		inMemory: rapid.Bool().Draw(t, "memory"),
		keep:     rapid.IntRange(1, 40).Draw(t, "retention"),
	}
	p.cfg = feed.Config{
		HideTypes:       []string{hiddenType},
		QueueFrames:     rapid.IntRange(1, 6).Draw(t, "queue frames"),
		QueueBytes:      rapid.SampledFrom([]int64{300, 1000, 1 << 20}).Draw(t, "queue bytes"),
		QueueBytesTotal: rapid.SampledFrom([]int64{500, 2000, 1 << 20}).Draw(t, "bytes of all queues"),
		RingEvents:      rapid.IntRange(1, 8).Draw(t, "ring events"),
		RingBytes:       rapid.SampledFrom([]int64{300, 1 << 20}).Draw(t, "ring bytes"),
		SnapshotEvents:  rapid.IntRange(1, 6).Draw(t, "snapshot"),
	}
	p.readers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) readerPlan {
		return readerPlan{
			patterns: rapid.SliceOfN(rapid.SampledFrom(lawPatterns), 0, 2).Draw(t, "patterns"),
			types:    rapid.SliceOfN(rapid.SampledFrom(lawTypes[:2]), 0, 1).Draw(t, "types"),
			shape: feed.Shape{
				Format:  rapid.SampledFrom([]feed.Format{feed.FormatEnvelope, feed.FormatRaw}).Draw(t, "format"),
				Unnamed: rapid.Bool().Draw(t, "unnamed"),
			},
			start: feed.Start{
				Mode: rapid.SampledFrom([]feed.StartMode{feed.StartSnapshot, feed.StartAll, feed.StartLive, feed.StartLast}).Draw(t, "start"),
				N:    rapid.IntRange(0, 5).Draw(t, "last"),
			},
		}
	}), 1, 4).Draw(t, "readers")
	kinds := []actKind{
		actPublish, actPublish, actPublish, actPublish, actForeign, actForeign,
		actRead, actRead, actRead, actRead, actRead, actConnect, actConnect, actConnect, actCut, actCut,
		actTell, actSleep, actSlow, actStale, actFail, actHeal, actHeal,
	}
	if !p.inMemory {
		kinds = append(kinds, actTrim, actTrim, actRollback, actRollback, actRenew)
	}
	p.acts = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) act {
		return act{
			kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
			n:    rapid.IntRange(0, 255).Draw(t, "n"),
			who:  rapid.IntRange(0, 3).Draw(t, "who"),
		}
	}), 1, 150).Draw(t, "acts")
	return p
}
