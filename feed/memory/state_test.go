package memory

import (
	"encoding/json"
	"fmt"
	"testing"

	"gapless/feed"
	"gapless/feed/feedtest"
)

func TestStateConformance(t *testing.T) {
	feedtest.RunState(t, func(t *testing.T, cfg feedtest.Config) feed.Store { return open(t, Config(cfg)) })
}

// TestTheAuditIsBounded: the oldest entries go, and seqs go on.
func TestTheAuditIsBounded(t *testing.T) {
	log := open(t, Config{})
	for i := range maxAudit + 100 {
		if err := log.RecordAudit(t.Context(), feed.AuditEntry{Action: fmt.Sprint(i), Detail: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := log.Audit(t.Context(), 0, 10_000)
	if err != nil || len(list) != maxAudit {
		t.Fatalf("%d entries, %v; want %d", len(list), err, maxAudit)
	}
	if newest, oldest := list[0], list[maxAudit-1]; newest.Seq != maxAudit+100 || newest.Action != fmt.Sprint(maxAudit+99) || oldest.Seq != 101 {
		t.Errorf("newest %+v, oldest %+v", newest, oldest)
	}
}
