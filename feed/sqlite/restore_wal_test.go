package sqlite

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

// TestFileCopiedBackBesideTheLogOfAKilledProcess puts an earlier file in the
// place of the database and leaves the write-ahead log there, which SQLite
// then plays over pages that it is not of. Heads and witness agree; what the
// file lacks is the part of the topic index that had been copied into the
// database before.
func TestFileCopiedBackBesideTheLogOfAKilledProcess(t *testing.T) {
	s := newScene(t)
	store := s.open()
	add := func(topic, branch string, n int) {
		t.Helper()
		drafts := make([]feed.Draft, n)
		for i := range drafts {
			drafts[i] = feed.Draft{ID: fmt.Sprint(branch, topic, i), Minted: true, Type: "made", Topic: topic, Data: []byte("1")}
		}
		_, err := store.Append(t.Context(), drafts)
		must(t, err)
	}
	for topic := range 30 {
		add(fmt.Sprintf("t%02d", topic), "shared", 300)
	}
	s.close(store)
	s.cp(s.path, s.path+".copy")
	store = s.open()
	add("t03", "lost", 3)
	_, _, err := checkpoint(store.writer, "TRUNCATE")
	must(t, err)
	add("t25", "lost", 3)

	killed := &scene{T: t, path: filepath.Join(t.TempDir(), "gapless.db")}
	for _, suffix := range []string{"-wal", WitnessSuffix} {
		s.cp(s.path+suffix, killed.path+suffix)
	}
	s.cp(s.path+".copy", killed.path)
	wantMixture(t, killed.path)

	// As the runbook says: what belongs to the old file goes first.
	for _, suffix := range []string{"-wal", "-shm"} {
		must(t, os.RemoveAll(killed.path+suffix))
	}
	s.cp(s.path+".copy", killed.path)
	opened := killed.open()
	killed.status(opened, true)
	killed.finalize(opened)
	must(t, opened.Check(t.Context(), nil))
}

// TestEventsThatAreMissingFromTheirTable does the same with so many events
// that the pages which had been copied before are of their table: the ends of
// the log and the index are whole, and what lies between them is not.
func TestEventsThatAreMissingFromTheirTable(t *testing.T) {
	s := newScene(t)
	store := s.open()
	id := 0
	add := func(batches int) {
		t.Helper()
		for range batches {
			drafts := make([]feed.Draft, 1000)
			for i := range drafts {
				id++
				drafts[i] = feed.Draft{ID: fmt.Sprint(id), Minted: true, Type: "x", Topic: fmt.Sprintf("t%03d", id%100), Data: []byte(`"0123456789012345678901234567890123456789"`)}
			}
			_, err := store.Append(t.Context(), drafts)
			must(t, err)
		}
	}
	inDatabase := func() {
		t.Helper()
		_, _, err := checkpoint(store.writer, "TRUNCATE")
		must(t, err)
	}
	add(3)
	inDatabase()
	s.cp(s.path, s.path+".copy")
	add(6)
	inDatabase()
	add(9)
	killed := filepath.Join(t.TempDir(), "gapless.db")
	for _, suffix := range []string{"-wal", WitnessSuffix} {
		s.cp(s.path+suffix, killed+suffix)
	}
	s.cp(s.path+".copy", killed)
	wantMixture(t, killed)
}

// wantMixture checks that a database is refused for its write-ahead log, as
// often as it is opened, and that neither file is touched by that.
func wantMixture(t *testing.T, path string) {
	t.Helper()
	sums := func() (list [2][sha256.Size]byte) {
		for i, suffix := range []string{"", "-wal"} {
			text, err := os.ReadFile(path + suffix)
			must(t, err)
			list[i] = sha256.Sum256(text)
		}
		return list
	}
	before := sums()
	for range 3 {
		opened, err := Open(t.Context(), Config{Path: path})
		if err == nil {
			opened.Close()
			t.Fatal("it was opened")
		}
		if !strings.Contains(err.Error(), "move the -wal") {
			t.Errorf("open: %v, want what to do about the write-ahead log", err)
		}
		if sums() != before {
			t.Fatal("the refusal changed the database or its write-ahead log")
		}
	}
}

// TestWitnessPutBack moves a database without its witness, and brings that
// along later.
func TestWitnessPutBack(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 10, "shared")
	head := s.cursorAtHead(store)
	s.close(store)
	must(t, os.Rename(s.path+WitnessSuffix, s.path+".kept"))
	store = s.open()
	if status := s.status(store, true); !strings.Contains(status.Cause, WitnessSuffix) || status.Expected == head.String() {
		t.Errorf("without a witness: %+v", status)
	}
	must(t, os.Rename(s.path+".kept", s.path+WitnessSuffix))
	if status := s.status(store, true); !strings.Contains(status.Cause, "start again") || status.Expected != head.String() {
		t.Errorf("with the witness: %+v", status)
	}
	s.close(store)
	s.status(s.open(), false)
}
