package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

// TestControlStateRolledBackAtTheSameHead puts the database back to just
// before a change of the control state. No event is lost, so that the head
// cannot tell; but a cursor is back where it was acknowledged from, or the seal
// is gone.
func TestControlStateRolledBackAtTheSameHead(t *testing.T) {
	hook := feed.Webhook{ID: "w", URL: "https://example.org/", Status: feed.WebhookActive}
	changes := map[string]func(s *scene, store *Store, at []feed.Cursor) error{
		"create consumer": func(s *scene, store *Store, at []feed.Cursor) error {
			return store.CreateConsumer(s.Context(), feed.Consumer{Name: "new", Cursor: at[10]})
		},
		"move consumer": func(s *scene, store *Store, at []feed.Cursor) error {
			return store.MoveConsumer(s.Context(), "c", at[4], at[10])
		},
		"delete consumer": func(s *scene, store *Store, _ []feed.Cursor) error {
			return store.DeleteConsumer(s.Context(), "c")
		},
		"create webhook": func(s *scene, store *Store, at []feed.Cursor) error {
			return store.CreateWebhook(s.Context(), feed.Webhook{ID: "new", URL: "u", Status: feed.WebhookActive, Cursor: at[10]})
		},
		"update webhook": func(s *scene, store *Store, _ []feed.Cursor) error {
			return store.UpdateWebhook(s.Context(), hook)
		},
		"move webhook": func(s *scene, store *Store, at []feed.Cursor) error {
			return store.MoveWebhook(s.Context(), "w", at[4], at[10])
		},
		"delete webhook": func(s *scene, store *Store, _ []feed.Cursor) error {
			return store.DeleteWebhook(s.Context(), "w")
		},
		"seal": func(s *scene, store *Store, _ []feed.Cursor) error {
			_, err := store.Backup(s.Context(), filepath.Join(s.TempDir(), "b"), feed.BackupOptions{Final: true})
			return err
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			store := s.open()
			s.append(store, 10, "a")
			at := s.cursors(store)
			must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: at[4]}))
			w := hook
			w.Cursor = at[4]
			must(t, store.CreateWebhook(t.Context(), w))
			s.close(store)
			s.cp(s.path, s.path+".copy")

			store = s.open()
			must(t, change(s, store, at))
			s.close(store)
			store = s.open()
			if cause := store.guardCause(); cause != "" {
				t.Fatalf("left as it was, it is shut: %s", cause)
			}
			s.close(store)

			s.cp(s.path+".copy", s.path)
			store = s.open()
			if status := s.status(store, true); !strings.Contains(status.Cause, "the last 1 are gone") || status.Expected == status.Found {
				t.Errorf("the status is %+v", status)
			}
			s.finalize(store)
			s.close(store)
			s.status(s.open(), false)
		})
	}
}

// TestAuditRolledBackAtTheSameHead: an entry says what was done and does
// nothing, so that a backup can be put back without the entry of itself.
func TestAuditRolledBackAtTheSameHead(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 1, "a")
	s.close(store)
	s.cp(s.path, s.path+".copy")
	store = s.open()
	must(t, store.RecordAudit(t.Context(), feed.AuditEntry{Actor: "ann", Action: "x"}))
	s.close(store)
	s.cp(s.path+".copy", s.path)
	s.status(s.open(), false)
}

// TestAnEarlierCopyOfTheSameHeadIsNotRelocated: a copy from before the seal
// holds every event, and yet not all of the control state.
func TestAnEarlierCopyOfTheSameHeadIsNotRelocated(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 10, "a")
	at := s.cursors(store)
	must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: at[4]}))
	early := filepath.Join(t.TempDir(), "early")
	_, err := store.Backup(t.Context(), early, feed.BackupOptions{})
	must(t, err)
	must(t, store.MoveConsumer(t.Context(), "c", at[4], at[10]))
	m, err := store.Backup(t.Context(), filepath.Join(t.TempDir(), "final"), feed.BackupOptions{Final: true})
	must(t, err)
	target := &scene{T: t, path: filepath.Join(t.TempDir(), "new.db")}
	target.cp(filepath.Join(early, BackupFile), target.path)
	copied := target.open()
	if _, err := copied.Relocate(t.Context(), m, "ann"); feed.CodeOf(err) != feed.CodeConflict || !strings.Contains(err.Error(), "not sealed") {
		t.Errorf("relocate: %v", err)
	}
	target.status(copied, true)
}

// TestANewDatabaseThatWasFinalizedHasAWitness: a copy of it is noticed as one
// of any other.
func TestANewDatabaseThatWasFinalizedHasAWitness(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 5, "a")
	s.close(store)
	must(t, os.Remove(s.path))
	store = s.open()
	s.status(store, true)
	s.finalize(store)
	s.append(store, 5, "b")
	dir := filepath.Join(t.TempDir(), "b")
	_, err := store.Backup(t.Context(), dir, feed.BackupOptions{})
	must(t, err)
	s.append(store, 5, "lost")
	other := &scene{T: t, path: filepath.Join(t.TempDir(), "x.db")}
	other.cp(filepath.Join(dir, BackupFile), other.path)
	other.status(other.open(), true)
}

// TestALostDatabaseIsMissed: also where no event had been stored in it yet.
func TestALostDatabaseIsMissed(t *testing.T) {
	s := newScene(t)
	store := s.open()
	must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: feed.Cursor{Epoch: store.committed().epoch}}))
	s.close(store)
	must(t, os.Remove(s.path))
	for range 2 {
		store = s.open()
		if status := s.status(store, true); !strings.Contains(status.Cause, "the database file is gone") {
			t.Errorf("the cause is %q", status.Cause)
		}
		s.close(store)
	}
}

// TestAFirstStartThatWasKilled leaves what a process leaves that dies at any
// step of its first start: nothing that looks like a restore.
func TestAFirstStartThatWasKilled(t *testing.T) {
	for name, before := range map[string]func(s *scene){
		"before the witness is whole": func(s *scene) {
			must(s.T, os.Rename(s.path+WitnessSuffix, s.path+WitnessSuffix+".part"))
			must(s.T, os.Truncate(s.path+WitnessSuffix+".part", 0))
		},
		"before the witness":             func(s *scene) { must(s.T, os.Remove(s.path+WitnessSuffix)) },
		"before the log has the witness": func(*scene) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.close(s.open())
			s.exec("UPDATE instance SET witnessed = 0")
			before(s)
			store := s.open()
			s.status(store, false)
			if !store.committed().witnessed {
				t.Error("the log does not say that it has a witness")
			}
		})
	}
}

// TestAFirstStartWithoutAWitness: where the witness cannot be made, nothing
// says later that there was one.
func TestAFirstStartWithoutAWitness(t *testing.T) {
	s := newScene(t)
	must(t, os.Mkdir(s.path+WitnessSuffix+".part", 0o700))
	if store, err := Open(t.Context(), Config{Path: s.path}); feed.CodeOf(err) != feed.CodeUnavailable {
		t.Fatalf("%v, %v, want an error of code %s", store, err, feed.CodeUnavailable)
	}
	must(t, os.Remove(s.path+WitnessSuffix+".part"))
	s.status(s.open(), false)
}

// TestKilledInTheFirstStart kills processes while they open a new file. Each
// leaves a store that can be opened, and is served.
func TestKilledInTheFirstStart(t *testing.T) {
	steps := []func(path string) bool{
		func(path string) bool { return fileSize(path) >= 0 },
		func(path string) bool { return fileSize(path+"-wal") > 0 || fileSize(path+WitnessSuffix) >= 0 },
		func(path string) bool { return fileSize(path) > 0 },
		func(path string) bool {
			return fileSize(path+WitnessSuffix+".part") >= 0 || fileSize(path+WitnessSuffix) >= 0
		},
		func(path string) bool { return fileSize(path+WitnessSuffix) >= 0 },
		func(path string) bool { return fileSize(path+WitnessSuffix) > slotBytes },
	}
	for i, done := range steps {
		s := newScene(t)
		c := startChild(t, "open", s.path)
		until(t, func() bool { return done(s.path) })
		c.kill()
		store := s.open()
		if cause := store.guardCause(); cause != "" {
			t.Errorf("step %d: a process that was killed in its first start leaves a store that is shut: %s", i, cause)
		}
		s.close(store)
	}
}
