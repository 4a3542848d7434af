package sqlite

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

// moved is a store of ten events that was sealed by a final backup, and the
// copy in another place, not opened yet.
func moved(t *testing.T) (source *scene, store *Store, m feed.Manifest, target *scene) {
	source = newScene(t)
	store = source.open()
	source.append(store, 10, "shared")
	at := source.cursors(store)
	must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: at[4]}))
	dir := filepath.Join(t.TempDir(), "backup")
	m, err := store.Backup(t.Context(), dir, feed.BackupOptions{Actor: "ann", Final: true})
	must(t, err)
	target = &scene{T: t, path: filepath.Join(t.TempDir(), "new.db")}
	target.cp(filepath.Join(dir, BackupFile), target.path)
	return source, store, m, target
}

func TestRelocation(t *testing.T) {
	source, old, m, target := moved(t)
	at := source.cursors(old)
	wantSealed := func(store *Store) {
		t.Helper()
		draft := feed.Draft{ID: "late", Type: "made", Topic: "t", Data: json.RawMessage("1")}
		if _, err := store.Append(t.Context(), []feed.Draft{draft}); feed.CodeOf(err) != feed.CodeSealed {
			t.Errorf("an append to a sealed store: %v", err)
		}
	}
	wantSealed(old)
	source.close(old)
	old = source.open()
	wantSealed(old)

	store := target.open()
	if status := target.status(store, true); !status.Sealed || status.HeadSeq != 10 {
		t.Errorf("the copy says %+v", status)
	}
	done, err := store.Relocate(t.Context(), m, "ann")
	if err != nil || done.Epoch != at[0].Epoch || done.HeadSeq != 10 || done.HeadFence != at[10].Fence {
		t.Fatalf("relocate: %+v, %v", done, err)
	}
	if status := target.status(store, false); status.Sealed || status.Epoch != at[0].Epoch {
		t.Errorf("after the relocation: %+v", status)
	}
	target.wantBranches(store, at, nil)
	target.append(store, 1, "more")
	if c, err := store.Consumer(t.Context(), "c"); err != nil || c.Cursor != at[4] || c.ResetFrom != (feed.Cursor{}) {
		t.Errorf("the consumer is %+v, %v", c, err)
	}
	entries, err := store.Audit(t.Context(), 0, 10)
	var detail feed.Relocated
	for _, entry := range entries {
		if entry.Action == feed.ActionRelocate {
			must(t, json.Unmarshal(entry.Detail, &detail))
		}
	}
	if err != nil || fmt.Sprint(detail) != fmt.Sprint(done) {
		t.Errorf("the audit has %+v, %v, want %+v", detail, err, done)
	}
	target.close(store)
	target.status(target.open(), false)
}

func TestRelocationIsRefused(t *testing.T) {
	_, _, good, target := moved(t)
	store := target.open()
	before := target.status(store, true)
	for name, c := range map[string]struct {
		change func(m *feed.Manifest)
		names  string
	}{
		"not final":     {func(m *feed.Manifest) { m.Final = false }, "final backup"},
		"other epoch":   {func(m *feed.Manifest) { m.Epoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV" }, "epoch"},
		"older head":    {func(m *feed.Manifest) { m.HeadSeq = 9 }, "the head is 9 in the manifest and 10 here"},
		"newer head":    {func(m *feed.Manifest) { m.HeadSeq = 11 }, "the head is 11 in the manifest and 10 here"},
		"other fence":   {func(m *feed.Manifest) { m.HeadFence = feed.NewFence() }, "fence"},
		"another store": {func(m *feed.Manifest) { m.Store = "postgres" }, "postgres"},
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			c.change(&m)
			_, err := store.Relocate(t.Context(), m, "ann")
			if feed.CodeOf(err) != feed.CodeConflict || !strings.Contains(err.Error(), c.names) {
				t.Errorf("relocate: %v, want a conflict that names %q", err, c.names)
			}
			if after := target.status(store, true); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the status was %+v, is %+v", before, after)
			}
		})
	}
	if _, err := store.Relocate(t.Context(), good, "ann"); err != nil {
		t.Errorf("the right manifest: %v", err)
	}
}

// TestRelocationOfAnEarlierCopy puts an earlier copy of the file in the place
// to which the final one belongs.
func TestRelocationOfAnEarlierCopy(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 5, "shared")
	s.close(store)
	early := &scene{T: t, path: filepath.Join(t.TempDir(), "early.db")}
	s.cp(s.path, early.path)
	store = s.open()
	s.append(store, 5, "more")
	m, err := store.Backup(t.Context(), filepath.Join(t.TempDir(), "b"), feed.BackupOptions{Final: true})
	must(t, err)
	copied := early.open()
	if _, err := copied.Relocate(t.Context(), m, "ann"); feed.CodeOf(err) != feed.CodeConflict {
		t.Errorf("relocate: %v", err)
	}
	early.status(copied, true)
}

// TestWitnessBehindFinalize leaves what a process leaves that dies between
// the commit of a finalize, or of a relocation, and the witness.
func TestWitnessBehindFinalize(t *testing.T) {
	t.Run("finalize", func(t *testing.T) {
		s, shared, _ := fork(t, func(s *scene) {
			store := s.open()
			must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: s.cursors(store)[4]}))
			s.close(store)
			s.cp(s.path, s.path+".copy")
		})
		s.cp(s.path+".copy", s.path)
		s.cp(s.path+WitnessSuffix, s.path+".old")
		store := s.open()
		first := s.finalize(store)
		s.close(store)
		s.cp(s.path+".old", s.path+WitnessSuffix)
		store = s.open()
		s.status(store, true)
		second := s.finalize(store)
		if second.OldEpoch != first.NewEpoch || second.Skips[0].FirstSeq != 0 {
			t.Errorf("finalized %+v behind %+v", second, first)
		}
		if c, err := store.Consumer(t.Context(), "c"); err != nil || c.ResetFrom != shared[4] || c.Cursor.Epoch != second.NewEpoch {
			t.Errorf("the consumer is %+v, %v", c, err)
		}
		s.status(store, false)
	})
	t.Run("relocation", func(t *testing.T) {
		_, _, m, target := moved(t)
		store := target.open()
		_, err := store.Relocate(t.Context(), m, "ann")
		must(t, err)
		target.close(store)
		must(t, os.Remove(target.path+WitnessSuffix))
		store = target.open()
		target.status(store, true)
		done, err := store.Relocate(t.Context(), m, "ann")
		if err != nil || done.Epoch != m.Epoch {
			t.Errorf("again: %+v, %v", done, err)
		}
		target.status(store, false)
	})
}

// TestRelocationAtTheSource: with the guard off, too, the source stays sealed.
func TestRelocationAtTheSource(t *testing.T) {
	for _, guard := range []feed.GuardMode{feed.GuardStrict, feed.GuardOff} {
		_, store, m, target := moved(t)
		path := store.place.path
		wantSource := func(store *Store) {
			t.Helper()
			_, err := store.Relocate(t.Context(), m, "ann")
			if feed.CodeOf(err) != feed.CodeConflict || !strings.Contains(err.Error(), "where the store was sealed") {
				t.Errorf("guard %s: relocate at the source: %v", guard, err)
			}
		}
		must(t, store.Close())
		source := open(t, Config{Path: path, Guard: guard})
		wantSource(source)
		if !source.committed().sealed {
			t.Errorf("guard %s: the seal is gone", guard)
		}
		copied := open(t, Config{Path: target.path, Guard: guard})
		_, err := copied.Relocate(t.Context(), m, "ann")
		must(t, err)
		wantSource(copied) // by now it is one
	}
}

// TestRelocationBack moves a log to another place and back over the first
// one, whose witness makes it look like the source.
func TestRelocationBack(t *testing.T) {
	a, store, m, b := moved(t)
	a.close(store)
	store = b.open()
	_, err := store.Relocate(t.Context(), m, "ann")
	must(t, err)
	b.append(store, 5, "more")
	dir := filepath.Join(t.TempDir(), "back")
	m, err = store.Backup(t.Context(), dir, feed.BackupOptions{Final: true})
	must(t, err)
	b.close(store)
	a.cp(filepath.Join(dir, BackupFile), a.path)
	store = a.open()
	if _, err := store.Relocate(t.Context(), m, "ann"); feed.CodeOf(err) != feed.CodeConflict || !strings.Contains(err.Error(), "remove "+store.witnessPath()) {
		t.Errorf("relocate: %v, want the way out", err)
	}
	a.close(store)
	must(t, os.Remove(a.path+WitnessSuffix))
	store = a.open()
	if done, err := store.Relocate(t.Context(), m, "ann"); err != nil || done.HeadSeq != 15 {
		t.Errorf("without the witness: %+v, %v", done, err)
	}
}

// TestTwoFinalBackups: the seal of a second one is no change of the store
// that the first one copies.
func TestTwoFinalBackups(t *testing.T) {
	_, store, first, _ := moved(t)
	before := store.committed()
	second, err := store.Backup(t.Context(), filepath.Join(t.TempDir(), "b"), feed.BackupOptions{Final: true})
	if err != nil || second.Identity != first.Identity {
		t.Errorf("%+v, %v, want a copy like the first, %+v", second, err, first)
	}
	if after := store.committed(); after.changes != before.changes || !after.sealed {
		t.Errorf("changes %d became %d", before.changes, after.changes)
	}
}
