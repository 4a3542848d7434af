package memory

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gapless/feed"
	"gapless/feed/feedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	log, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestConformance(t *testing.T) {
	feedtest.Run(t, func(t *testing.T, cfg feedtest.Config) feed.Log { return open(t, Config(cfg)) })
}

func TestEveryLogHasAnEpochOfItsOwn(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	seen := make(map[feed.Epoch]bool)
	for range 100 { // in one millisecond of the clock, too
		log := open(t, Config{Now: func() time.Time { return now }})
		page, err := log.Read(t.Context(), 0, feed.Limit{})
		if err != nil || seen[page.Epoch] {
			t.Fatalf("epoch %s again, or %v", page.Epoch, err)
		}
		seen[page.Epoch] = true
	}
}

func TestDefaults(t *testing.T) {
	log := open(t, Config{})
	want := feed.Info{Store: "memory", Retention: feed.Retention{Events: 1024, Bytes: 256 << 20}}
	if got := log.Info(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if log.cfg.DedupeWindow != 10*time.Minute {
		t.Errorf("window %v", log.cfg.DedupeWindow)
	}
}

func TestNegativeBoundsAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{DedupeWindow: -1}, {Retention: feed.Retention{Age: -1}}, {Retention: feed.Retention{Bytes: -1}},
	} {
		if _, err := New(cfg); feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("%+v: %v, want an error of code %s", cfg, err, feed.CodeInvalid)
		}
	}
}

func TestAClosedLogHoldsNothing(t *testing.T) {
	log := open(t, Config{})
	fill(t, log, "t", 10)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if info := log.Info(); info.Events != 0 || info.Bytes != 0 {
		t.Errorf("%+v", info)
	}
}

// fill appends n events of which the ids are their seqs.
func fill(t *testing.T, log *Log, topic string, n int) {
	t.Helper()
	for range n {
		id := strconv.FormatUint(log.head.Seq+1, 10)
		if _, err := log.Append(t.Context(), []feed.Draft{{ID: id, Type: "made", Topic: topic, Data: json.RawMessage("1")}}); err != nil {
			t.Fatal(err)
		}
	}
}
