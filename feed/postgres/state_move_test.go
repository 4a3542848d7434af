//go:build linux && e2e

package postgres

import (
	"testing"

	"gapless/feed"
)

func TestAMoveWaitsForNoAppend(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	b := begin(t, s)
	holder := dial(t, url)
	exec(t, holder, "begin")
	exec(t, holder, "select from gapless.instance for update") // as an append does
	if err := s.MoveConsumer(patient(t), "behind", b.cursors[4], b.cursors[5]); err != nil {
		t.Error(err)
	}
	exec(t, holder, "rollback")
	if c, err := s.Consumer(t.Context(), "behind"); err != nil || c.Cursor != b.cursors[5] {
		t.Errorf("it is %+v, %v", c, err)
	}
}

// Whichever comes first: the cursor ends at the head of the new epoch, and
// what was acknowledged before is where it was reset from.
func TestAMoveBesideAFinalizeIsBeforeItOrRefused(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	b := begin(t, s)
	holder, look := dial(t, url), dial(t, url)
	for round, finalizeFirst := range []bool{true, false} {
		before, err := s.Consumer(t.Context(), "behind")
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.Read(t.Context(), 0, feed.Limit{})
		if err != nil {
			t.Fatal(err)
		}
		to := feed.Cursor{Epoch: page.Epoch, Position: page.Head}
		exec(t, holder, "begin")
		exec(t, holder, "select from gapless.consumers where name = 'behind' for update")
		finalized, moved := make(chan error, 1), make(chan error, 1)
		calls := []func(){
			func() {
				go func() { _, err := s.Finalize(patient(t), feed.FinalizeOptions{Actor: "ann"}); finalized <- err }()
			},
			func() { go func() { moved <- s.MoveConsumer(patient(t), "behind", before.Cursor, to) }() },
		}
		if !finalizeFirst {
			calls[0], calls[1] = calls[1], calls[0]
		}
		for i, call := range calls {
			call()
			eventually(t, "it waits", func() bool { return scan[int](t, look, waitingForLocks) == i+1 })
		}
		exec(t, holder, "rollback")
		if err := <-finalized; err != nil {
			t.Fatal(err)
		}
		err = <-moved
		after, e := s.Consumer(t.Context(), "behind")
		if e != nil {
			t.Fatal(e)
		}
		if after.Cursor.Epoch == page.Epoch || after.Cursor.Seq != b.shared {
			t.Errorf("round %d: it is at %s", round, after.Cursor)
		}
		switch {
		case err == nil && after.ResetFrom != to:
			t.Errorf("round %d: it was acknowledged up to %s, and reset from %s", round, to, after.ResetFrom)
		case err != nil && (feed.CodeOf(err) != feed.CodeEpochChanged || after.ResetFrom != before.Cursor):
			t.Errorf("round %d: %v; it was at %s, and reset from %s", round, err, before.Cursor, after.ResetFrom)
		}
		if err := s.MoveConsumer(t.Context(), "behind", after.Cursor, after.Cursor); err != nil {
			t.Fatal(err)
		}
	}
}

// The guard looks beside each move as well, and takes over where it may.
func TestAMoveSettlesTheGuard(t *testing.T) {
	url := database(t)
	b := begin(t, open(t, url, quiet))
	exec(t, dial(t, url), "update gapless.instance set timeline = timeline + 1")
	strict := open(t, url, quiet)
	if err := strict.MoveConsumer(patient(t), "behind", b.cursors[4], b.cursors[5]); feed.CodeOf(err) != feed.CodeRestoreNotFinalized {
		t.Errorf("strict: %v", err)
	}
	off := open(t, url, quiet, func(cfg *Config) { cfg.Guard = feed.GuardOff })
	if err := off.MoveConsumer(patient(t), "behind", b.cursors[4], b.cursors[5]); err != nil {
		t.Errorf("off: %v", err)
	}
	if err := strict.MoveConsumer(patient(t), "behind", b.cursors[5], b.cursors[6]); err != nil {
		t.Errorf("strict, once the identity was taken over: %v", err)
	}
}
