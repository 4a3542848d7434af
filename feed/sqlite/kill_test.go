package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"gapless/feed"
)

// TestKilledInMidAppend kills a process with eight publishers, again and
// again. Every event that was acknowledged is in the log, under its seq; the
// log has no hole; its epoch and fences stay, so that no reader has to begin
// again; and the guard is content.
func TestKilledInMidAppend(t *testing.T) {
	const enough = 150
	rounds := scaled(8, 20)
	path := filepath.Join(t.TempDir(), "log.db")
	var last feed.Bounds
	for round := range rounds {
		c := startChild(t, "append", path)
		acknowledged := make(map[uint64]string)
		for len(acknowledged) < enough+7*round {
			line := c.line()
			var seq uint64
			var id string
			if n, _ := fmt.Sscanf(line, "%d %s", &seq, &id); n != 2 {
				t.Fatalf("round %d: the child says %q", round, line)
			}
			acknowledged[seq] = id
		}
		c.kill()

		s := open(t, Config{Path: path, Retention: feed.Retention{Events: 5000}})
		if cause := s.guardCause(); cause != "" {
			t.Fatalf("round %d: the guard shuts the store: %s", round, cause)
		}
		if err := s.Check(t.Context(), nil); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		s.mu.Lock()
		s.tail.reset() // from the file
		s.mu.Unlock()
		page, err := s.Read(t.Context(), last.Head.Seq, feed.Limit{Events: 5000})
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 && (page.Epoch != last.Epoch || page.Anchor != last.Head.Fence) {
			t.Fatalf("round %d: %s, fence %q at the old head, want %s, %q", round, page.Epoch, page.Anchor, last.Epoch, last.Head.Fence)
		}
		for _, ev := range page.Events {
			if id, ok := acknowledged[ev.Seq]; ok && id != ev.ID {
				t.Fatalf("round %d: event %d is %q, was acknowledged as %q", round, ev.Seq, ev.ID, id)
			}
			delete(acknowledged, ev.Seq)
		}
		if len(acknowledged) > 0 {
			t.Fatalf("round %d: acknowledged and not in the log: %v", round, acknowledged)
		}
		// A retry of what was stored last is known.
		ev := page.Events[len(page.Events)-1]
		receipt, err := s.Append(t.Context(), []feed.Draft{{ID: ev.ID, Type: ev.Type, Topic: ev.Topic, Data: ev.Data}})
		if err != nil || !receipt.Events[0].Duplicate || receipt.Events[0].Seq != ev.Seq {
			t.Fatalf("round %d: a retry of %d got %+v, %v", round, ev.Seq, receipt.Events, err)
		}
		last = page.Bounds
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
