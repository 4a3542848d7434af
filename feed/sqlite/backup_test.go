package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gapless/feed"
)

func TestBackup(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 30, "shared")
	at := s.cursors(store)
	must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: at[7]}))
	dir := filepath.Join(t.TempDir(), "new", "backup")
	var progress []float64
	m, err := store.Backup(t.Context(), dir, feed.BackupOptions{Actor: "ann", Progress: func(done float64) { progress = append(progress, done) }})
	must(t, err)
	if m.Epoch != at[0].Epoch || m.OldestSeq != 1 || m.HeadSeq != 30 || m.HeadFence != at[30].Fence || m.Final || m.Store != "sqlite" {
		t.Errorf("the manifest is %+v", m)
	}
	wantProgress(t, progress)
	progress = nil
	before := tree(t, dir)
	read, err := VerifyBackup(t.Context(), dir, func(done float64) { progress = append(progress, done) })
	if err != nil || fmt.Sprint(read) != fmt.Sprint(m) {
		t.Errorf("verify: %+v, %v, want %+v", read, err, m)
	}
	wantProgress(t, progress)
	if after := tree(t, dir); after != before {
		t.Errorf("verifying changed\n%s\nto\n%s", before, after)
	}
	entries, err := store.Audit(t.Context(), 0, 1)
	if err != nil || len(entries) != 1 || entries[0].Action != feed.ActionBackup || entries[0].Actor != "ann" {
		t.Errorf("the audit has %+v, %v", entries, err)
	}
	if info, err := os.Stat(filepath.Join(dir, BackupFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy is %v, %v: others can read it", info, err)
	}
	s.append(store, 1, "appends go on")

	// Elsewhere, without its witness.
	elsewhere := &scene{T: t, path: filepath.Join(t.TempDir(), "other.db")}
	s.cp(filepath.Join(dir, BackupFile), elsewhere.path)
	copied := elsewhere.open()
	elsewhere.status(copied, true)
	if c, err := copied.Consumer(t.Context(), "c"); err != nil || c.Cursor != at[7] {
		t.Errorf("the copy's consumer is %+v, %v", c, err)
	}

	// In the place of the database, from which one event is lost.
	s.close(store)
	s.cp(filepath.Join(dir, BackupFile), s.path)
	s.status(s.open(), true)
}

func TestBackupPutBackWithNothingLost(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 30, "shared")
	dir := t.TempDir()
	_, err := store.Backup(t.Context(), dir, feed.BackupOptions{})
	must(t, err)
	at := s.cursors(store)
	s.close(store)
	s.cp(filepath.Join(dir, BackupFile), s.path)
	store = s.open()
	s.status(store, false)
	s.wantBranches(store, at, nil)
}

// wantProgress checks that it rises to 1.
func wantProgress(t *testing.T, progress []float64) {
	t.Helper()
	last := 0.0
	for _, done := range progress {
		if done < last || done > 1 {
			t.Errorf("progress goes from %v to %v", last, done)
		}
		last = done
	}
	if last != 1 {
		t.Errorf("progress ends at %v: %v", last, progress)
	}
}

// tree describes every file in a directory, down to the time of its change.
func tree(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var b strings.Builder
	for _, entry := range entries {
		info, err := entry.Info()
		must(t, err)
		file, err := feed.HashFile(t.Context(), dir, entry.Name())
		must(t, err)
		fmt.Fprintln(&b, info.Name(), info.Size(), info.Mode(), info.ModTime().Format(time.RFC3339Nano), file.SHA256)
	}
	return b.String()
}

// TestBackupBesideWriters holds each step of the copy up until there is
// another commit: a copy that is not of one snapshot begins again each time,
// and never ends.
func TestBackupBesideWriters(t *testing.T) {
	const writers = 64
	s := newScene(t)
	store := s.open()
	fillBatches(t, store, 4, 1000)
	for round := range 2 {
		copying, copied := context.WithTimeout(t.Context(), time.Minute)
		committed := make(chan struct{})
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for n := 0; copying.Err() == nil; n++ {
					draft := feed.Draft{ID: fmt.Sprintf("%d-%d-%d", round, i, n), Type: "made", Topic: fmt.Sprint("w.", i), Data: []byte(`"x"`)}
					if _, err := store.Append(t.Context(), []feed.Draft{draft}); err != nil {
						t.Errorf("append: %v", err)
						return
					}
					select {
					case committed <- struct{}{}:
					default:
					}
				}
			})
		}
		dir := filepath.Join(t.TempDir(), "backup")
		before := s.cursorAtHead(store)
		steps := 0
		m, err := store.Backup(t.Context(), dir, feed.BackupOptions{Progress: func(done float64) {
			select {
			case <-committed:
				steps++
			case <-copying.Done():
			}
			if done >= copyShare/2 {
				copied()
			}
		}})
		copied()
		wg.Wait()
		must(t, err)
		if after := s.cursorAtHead(store); steps < 2 || m.HeadSeq < before.Seq || m.HeadSeq >= after.Seq {
			t.Errorf("%d steps were beside commits; the log grew from %s to %s, the copy ends at %d", steps, before, after, m.HeadSeq)
		}
		if _, err := VerifyBackup(t.Context(), dir, nil); err != nil {
			t.Fatalf("verify: %v", err)
		}
		copiedStore, err := Open(t.Context(), Config{Path: filepath.Join(dir, BackupFile), Guard: feed.GuardOff})
		must(t, err)
		wantPrefix(t, copiedStore, store)
		s.close(copiedStore)
	}
}

// fillBatches appends batches of n events.
func fillBatches(t *testing.T, store *Store, batches, n int) {
	t.Helper()
	data := []byte(`"` + strings.Repeat("x", 500) + `"`)
	for b := range batches {
		drafts := make([]feed.Draft, n)
		for i := range drafts {
			drafts[i] = feed.Draft{ID: fmt.Sprintf("fill-%d-%d", b, i), Minted: true, Type: "made", Topic: fmt.Sprint("t.", i%7), Data: data}
		}
		_, err := store.Append(t.Context(), drafts)
		must(t, err)
	}
}

// wantPrefix checks that one log is the beginning of another.
func wantPrefix(t *testing.T, prefix, log *Store) {
	t.Helper()
	for after := uint64(0); ; {
		part, err := prefix.Read(t.Context(), after, feed.Limit{Events: 5000})
		must(t, err)
		whole, err := log.Read(t.Context(), after, feed.Limit{Events: max(len(part.Events), 1)})
		must(t, err)
		if part.Epoch != whole.Epoch || part.Oldest != whole.Oldest {
			t.Fatalf("the copy is of %+v, the log of %+v", part.Bounds, whole.Bounds)
		}
		if len(part.Events) == 0 {
			if after != part.Head.Seq {
				t.Errorf("the copy holds events up to %d, its head is %d", after, part.Head.Seq)
			}
			return
		}
		for i, ev := range part.Events {
			if got := whole.Events[i]; ev.Position() != got.Position() || ev.ID != got.ID || string(ev.Data) != string(got.Data) {
				t.Fatalf("event %d of the copy is %+v, of the log %+v", ev.Seq, ev, got)
			}
		}
		after += uint64(len(part.Events))
	}
}

func TestBackupRefusesADirectoryThatIsUsed(t *testing.T) {
	s := newScene(t)
	store := s.open()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600))
	before := tree(t, dir)
	_, err := store.Backup(t.Context(), dir, feed.BackupOptions{Final: true})
	if feed.CodeOf(err) != feed.CodeConflict || !strings.Contains(err.Error(), "notes.txt") {
		t.Errorf("backup: %v", err)
	}
	if after := tree(t, dir); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	s.append(store, 1, "not sealed")
	file := filepath.Join(dir, "notes.txt")
	if _, err := store.Backup(t.Context(), file, feed.BackupOptions{}); feed.CodeOf(err) != feed.CodeInvalid {
		t.Errorf("into a file: %v", err)
	}
}

// TestAFailedBackupLeavesWhatItDidNotMake: what others put into its directory
// meanwhile stays, and is not written over.
func TestAFailedBackupLeavesWhatItDidNotMake(t *testing.T) {
	for _, name := range []string{feed.ManifestName, BackupFile + "-journal"} {
		s := newScene(t)
		store := s.open()
		s.append(store, 3, "a")
		dir := filepath.Join(t.TempDir(), "backup")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := store.Backup(ctx, dir, feed.BackupOptions{Progress: func(float64) {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
			if name != feed.ManifestName {
				cancel()
			}
		}})
		if err == nil {
			t.Error("it was made")
		}
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "mine" {
			t.Errorf("%s is %q, %v", name, text, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("the directory has %v, %v", entries, err)
		}
		cancel()
	}
}

func TestBackupThatIsGivenUp(t *testing.T) {
	for _, final := range []bool{false, true} {
		t.Run(fmt.Sprint("final ", final), func(t *testing.T) {
			s := newScene(t)
			store := s.open()
			fillBatches(t, store, 5, 1000)
			dir := filepath.Join(t.TempDir(), "backup")
			ctx, cancel := context.WithCancel(t.Context())
			_, err := store.Backup(ctx, dir, feed.BackupOptions{Final: final, Progress: func(done float64) {
				if ctx.Err() != nil {
					t.Errorf("it goes on to %v after it was given up", done)
				}
				if done > 0.1 {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "sealed") != final {
				t.Errorf("backup: %v", err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory is still there: %v", err)
			}
			status, err := store.RestoreStatus(t.Context())
			if err != nil || status.Sealed != final {
				t.Errorf("the status is %+v, %v", status, err)
			}
			_, err = store.Backup(t.Context(), dir, feed.BackupOptions{Final: final})
			must(t, err)
			if m, err := VerifyBackup(t.Context(), dir, nil); err != nil || m.Final != final {
				t.Errorf("verify: %+v, %v", m, err)
			}
			if final { // by the one that was given up; the second found it sealed
				wantActions(t, store, feed.ActionBackup, feed.ActionSeal)
			} else {
				wantActions(t, store, feed.ActionBackup)
			}
		})
	}
}

// wantActions checks the audit, newest first, down to the store's set-up.
func wantActions(t *testing.T, store *Store, want ...string) {
	t.Helper()
	entries, err := store.Audit(t.Context(), 0, 100)
	must(t, err)
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Action)
	}
	if want = append(want, feed.ActionSetUp); !slices.Equal(got, want) {
		t.Errorf("the audit has %q, want %q", got, want)
	}
}

func TestCloseEndsABackup(t *testing.T) {
	s := newScene(t)
	store := s.open()
	fillBatches(t, store, 3, 1000)
	dir := filepath.Join(t.TempDir(), "backup")
	closing := make(chan error, 1)
	var once sync.Once
	_, err := store.Backup(t.Context(), dir, feed.BackupOptions{Progress: func(float64) {
		once.Do(func() {
			go func() { closing <- store.Close() }()
			for { // until the store is being closed
				if _, err := store.Consumers(t.Context()); errors.Is(err, feed.ErrClosed) {
					return
				}
			}
		})
	}})
	if !errors.Is(err, feed.ErrClosed) {
		t.Errorf("backup: %v", err)
	}
	must(t, <-closing)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestFinalBackupOfAStoreThatIsNotSealedAnyMore(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 1, "x")
	dir := t.TempDir()
	if _, err := store.copyInto(t.Context(), &target{dir: dir}, feed.BackupOptions{Final: true}); feed.CodeOf(err) != feed.CodeConflict {
		t.Errorf("copy: %v", err)
	}
	if _, err := feed.ReadManifest(dir); err == nil {
		t.Error("it has a manifest")
	}
}

func TestBackupOfAShutStore(t *testing.T) {
	s, _, _ := fork(t, func(s *scene) { s.cp(s.path, s.path+".copy") })
	s.cp(s.path+".copy", s.path)
	store := s.open()
	dir := filepath.Join(t.TempDir(), "before")
	_, err := store.Backup(t.Context(), dir, feed.BackupOptions{}) // before one finalizes
	must(t, err)
	_, err = VerifyBackup(t.Context(), dir, nil)
	must(t, err)
	dir = filepath.Join(t.TempDir(), "final")
	if _, err := store.Backup(t.Context(), dir, feed.BackupOptions{Final: true}); feed.CodeOf(err) != feed.CodeRestoreNotFinalized {
		t.Errorf("a final backup: %v", err)
	}
	if status := s.status(store, true); status.Sealed {
		t.Error("it was sealed")
	}
}
