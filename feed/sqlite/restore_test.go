package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

// fork is a log of which a copy was taken at event 10 and that went on to 20.
// take takes the copy while the store is closed.
func fork(t *testing.T, take func(s *scene)) (s *scene, shared, lost []feed.Cursor) {
	s = newScene(t)
	store := s.open()
	s.append(store, 10, "shared")
	s.close(store)
	take(s)
	store = s.open()
	s.append(store, 10, "lost")
	at := s.cursors(store)
	s.close(store)
	return s, at[:11], at[11:]
}

func TestFileCopiedBackOverAGrownLog(t *testing.T) {
	s, shared, lost := fork(t, func(s *scene) { s.cp(s.path, s.path+".copy") })
	s.cp(s.path+".copy", s.path)
	store := s.open()
	status := s.status(store, true)
	if status.HeadSeq != 10 || status.Found != shared[10].String() || status.Expected != lost[9].String() {
		t.Errorf("the status is %+v", status)
	}
	if !strings.Contains(status.Cause, "10") || !strings.Contains(status.Cause, "20") {
		t.Errorf("the cause does not name both heads: %s", status.Cause)
	}
	s.close(store)
	store = s.open() // shut until somebody says something
	s.status(store, true)
	done := s.finalize(store)
	if done.OldEpoch != shared[0].Epoch || done.NewEpoch == done.OldEpoch || done.HeadSeq != 10 || done.HeadFence != shared[10].Fence {
		t.Errorf("finalized: %+v", done)
	}
	s.status(store, false)
	s.append(store, 15, "new")
	s.wantBranches(store, shared, lost)
	s.close(store)
	store = s.open()
	if status := s.status(store, false); status.Epoch != done.NewEpoch {
		t.Errorf("after a restart the epoch is %s, want %s", status.Epoch, done.NewEpoch)
	}
}

func TestFileCopiedBackAndGrownAgainWithoutTheGuard(t *testing.T) {
	s, shared, lost := fork(t, func(s *scene) { s.cp(s.path, s.path+".copy") })
	s.cp(s.path+".copy", s.path)
	s.cp(s.path+WitnessSuffix, s.path+".grown")
	store, err := Open(t.Context(), Config{Path: s.path, Guard: feed.GuardOff})
	if err != nil {
		t.Fatal(err)
	}
	s.append(store, 15, "new")
	s.wantBranches(store, shared, lost)
	s.close(store)
	// Put back behind the guard's back, past the old head: the fence tells.
	s.cp(s.path+".grown", s.path+WitnessSuffix)
	s.status(s.open(), true)
}

func TestFolderRolledBack(t *testing.T) {
	s, shared, lost := fork(t, func(s *scene) { s.cp(filepath.Dir(s.path), s.TempDir()+"/copy") })
	copies, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(s.path)), "*", "copy"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("%v, %v", copies, err)
	}
	if err := os.RemoveAll(filepath.Dir(s.path)); err != nil {
		t.Fatal(err)
	}
	s.cp(copies[0], filepath.Dir(s.path))
	store := s.open()
	s.status(store, false) // nothing on the disk says that there ever was more
	s.append(store, 15, "new")
	s.wantBranches(store, shared, lost)
}

func TestVacuumBetweenRuns(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 20, "shared")
	at := s.cursors(store)
	s.close(store)
	s.exec("VACUUM")
	store = s.open()
	s.status(store, false)
	s.wantBranches(store, at, nil)
	s.append(store, 1, "more")
}

// TestUncleanStop copies the files of a running store, which is what a killed
// process leaves behind.
func TestUncleanStop(t *testing.T) {
	for name, c := range map[string]struct {
		without string
		shut    bool
	}{
		"all files":         {"", false},
		"without the log":   {"-wal", true},
		"without the index": {"-shm", false},
		"without a witness": {WitnessSuffix, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			store := s.open()
			s.append(store, 10, "shared")
			at := s.cursors(store)
			to := &scene{T: t, path: filepath.Join(t.TempDir(), "gapless.db")}
			for _, suffix := range []string{"", "-wal", "-shm", WitnessSuffix} {
				if suffix != c.without || suffix == "" {
					s.cp(s.path+suffix, to.path+suffix)
				}
			}
			moved := to.open()
			if status := to.status(moved, c.shut); !c.shut && status.HeadSeq != 10 {
				t.Errorf("the head is %d", status.HeadSeq)
			}
			if !c.shut {
				to.wantBranches(moved, at, nil)
			}
		})
	}
}

func TestFilesCopiedElsewhere(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 10, "shared")
	at := s.cursors(store)
	s.close(store)

	all := &scene{T: t, path: filepath.Join(t.TempDir(), "moved", "gapless.db")}
	s.cp(filepath.Dir(s.path), filepath.Dir(all.path))
	moved := all.open()
	all.status(moved, false)
	all.wantBranches(moved, at, nil)
	all.append(moved, 1, "more")

	alone := &scene{T: t, path: filepath.Join(t.TempDir(), "other.db")}
	s.cp(s.path, alone.path)
	alone.status(alone.open(), true)
}

func TestFinalizeMovesEveryCursor(t *testing.T) {
	s, shared, _ := fork(t, func(s *scene) {
		store := s.open()
		at := s.cursors(store)
		for name, seq := range map[string]int{"start": 0, "behind": 4, "head": 10} {
			must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: name, Cursor: at[seq]}))
		}
		must(t, store.CreateWebhook(t.Context(), feed.Webhook{ID: "w", URL: "u", Status: feed.WebhookActive, Cursor: at[9]}))
		s.close(store)
		s.cp(s.path, s.path+".copy")
	})
	s.cp(s.path+".copy", s.path)
	store := s.open()
	to := shared[10].String()
	want := []feed.Skip{
		{Kind: "consumer", Name: "behind", From: shared[4].String(), To: to, FirstSeq: 5, LastSeq: 10},
		{Kind: "consumer", Name: "head", From: to, To: to},
		{Kind: "consumer", Name: "start", From: shared[0].String(), To: to, FirstSeq: 1, LastSeq: 10},
		{Kind: "webhook", Name: "w", From: shared[9].String(), To: to, FirstSeq: 10, LastSeq: 10},
	}
	if got := s.status(store, true).Skips; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the skips are\n%v\nwant\n%v", got, want)
	}
	dry, err := store.Finalize(t.Context(), feed.FinalizeOptions{Actor: "ann", DryRun: true})
	if err != nil || !dry.DryRun || dry.NewEpoch != "" || fmt.Sprint(dry.Skips) != fmt.Sprint(want) {
		t.Errorf("a dry run says %+v, %v", dry, err)
	}
	s.status(store, true)

	done := s.finalize(store)
	head := feed.Cursor{Epoch: done.NewEpoch, Position: shared[10].Position}
	for name, from := range map[string]feed.Cursor{"start": shared[0], "behind": shared[4], "head": shared[10]} {
		c, err := store.Consumer(t.Context(), name)
		if err != nil || c.Cursor != head || c.ResetFrom != from {
			t.Errorf("%s is at %s, reset from %s, %v", name, c.Cursor, c.ResetFrom, err)
		}
	}
	if w, err := store.Webhook(t.Context(), "w"); err != nil || w.Cursor != head || w.ResetFrom != shared[9] {
		t.Errorf("the webhook is at %s, reset from %s, %v", w.Cursor, w.ResetFrom, err)
	}
	entries, err := store.Audit(t.Context(), 0, 1)
	var detail feed.Finalized
	if err != nil || len(entries) != 1 || entries[0].Action != feed.ActionFinalize || entries[0].Actor != "ann" ||
		json.Unmarshal(entries[0].Detail, &detail) != nil || fmt.Sprint(detail) != fmt.Sprint(done) {
		t.Errorf("the audit has %+v, %v, want %+v", entries, err, done)
	}

	// A second one, before anybody acknowledged the first: cursors still say
	// where their holders really are.
	must(t, store.MoveConsumer(t.Context(), "head", head, head))
	again := s.finalize(store)
	for _, skip := range again.Skips {
		if skip.FirstSeq != 0 || skip.Lost {
			t.Errorf("finalizing again skips %+v", skip)
		}
	}
	if c, err := store.Consumer(t.Context(), "behind"); err != nil || c.ResetFrom != shared[4] || c.Cursor.Epoch != again.NewEpoch {
		t.Errorf("behind is at %s, reset from %s, %v", c.Cursor, c.ResetFrom, err)
	}
	if c, err := store.Consumer(t.Context(), "head"); err != nil || c.ResetFrom != head {
		t.Errorf("head was reset from %s, %v", c.ResetFrom, err)
	}
}

func TestFinalizeThatIsGivenUpChangesNothing(t *testing.T) {
	s, _, _ := fork(t, func(s *scene) { s.cp(s.path, s.path+".copy") })
	s.cp(s.path+".copy", s.path)
	store := s.open()
	before := s.status(store, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Finalize(ctx, feed.FinalizeOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("finalize: %v", err)
	}
	// Given up inside the transaction: its last look at the context comes
	// before the commit.
	ctx, cancel = context.WithCancel(t.Context())
	err := store.transact(ctx, "test", rules{anyway: true}, func(tx *sql.Tx, in *instance) error {
		in.epoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
		cancel()
		return consumerHolder().reset(tx, in.cursor(), 0)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a transaction: %v", err)
	}
	if after := s.status(store, true); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the status was %+v, is %+v", before, after)
	}
}

// TestTheFileAloneAfterItsFirstRun: the database file is copied without the
// files beside it while its first process still runs, so that its newest
// events are in the write-ahead log alone. The copy knows that it had a
// witness.
func TestTheFileAloneAfterItsFirstRun(t *testing.T) {
	s := newScene(t)
	s.append(s.open(), 3, "lost")
	alone := newScene(t)
	s.cp(s.path, alone.path)
	alone.status(alone.open(), true)
}
