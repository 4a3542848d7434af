package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

// scene is a database in a directory of its own, on which a test plays what
// operators do.
type scene struct {
	*testing.T
	path string
}

func newScene(t *testing.T) *scene {
	return &scene{T: t, path: filepath.Join(t.TempDir(), "gapless.db")}
}

// open opens the database as it is, and closes it at the end of the test.
func (s *scene) open() *Store {
	s.Helper()
	store, err := Open(s.Context(), Config{Path: s.path, Node: "test"})
	if err != nil {
		s.Fatalf("open: %v", err)
	}
	s.Cleanup(func() { store.Close() })
	return store
}

func (s *scene) close(store *Store) {
	s.Helper()
	if err := store.Close(); err != nil {
		s.Fatalf("close: %v", err)
	}
}

// append stores n events whose data says which branch of the log they are of.
func (s *scene) append(store *Store, n int, branch string) {
	s.Helper()
	for i := range n {
		draft := feed.Draft{
			ID: fmt.Sprint(branch, "-", i), Minted: true, Type: "made", Topic: "t",
			Data: json.RawMessage(fmt.Sprintf(`{"branch":%q,"n":%d}`, branch, i)),
		}
		if _, err := store.Append(s.Context(), []feed.Draft{draft}); err != nil {
			s.Fatalf("append: %v", err)
		}
	}
}

// cursors returns the cursors at 0 to head; the index is the seq.
func (s *scene) cursors(store *Store) []feed.Cursor {
	s.Helper()
	page, err := store.Read(s.Context(), 0, feed.Limit{Events: 100_000})
	if err != nil {
		s.Fatalf("read: %v", err)
	}
	list := []feed.Cursor{{Epoch: page.Epoch}}
	for _, ev := range page.Events {
		list = append(list, feed.Cursor{Epoch: page.Epoch, Position: ev.Position()})
	}
	return list
}

// cp copies files with the system's own tool, as an operator does. (And
// closing a descriptor in this process could drop SQLite's locks.)
func (s *scene) cp(from, to string) {
	s.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		s.Fatalf("cp: %v: %s", err, out)
	}
}

// status is what the guard says, which has to be shut or not, and work.
func (s *scene) status(store *Store, shut bool) feed.RestoreStatus {
	s.Helper()
	status, err := store.RestoreStatus(s.Context())
	if err != nil {
		s.Fatalf("status: %v", err)
	}
	if status.Finalized == shut || (status.Cause != "") != shut {
		s.Fatalf("the guard says %+v, want it shut: %v", status, shut)
	}
	_, err = store.Append(s.Context(), nil)
	_, readErr := store.Read(s.Context(), 0, feed.Limit{})
	stateErr := store.RecordAudit(s.Context(), feed.AuditEntry{Actor: "a", Action: "test"})
	for what, err := range map[string]error{"append": err, "read": readErr, "state": stateErr} {
		if shut && (feed.CodeOf(err) != feed.CodeRestoreNotFinalized || !strings.Contains(err.Error(), "gapless restore status")) {
			s.Errorf("%s while the guard is shut: %v", what, err)
		}
		if !shut && err != nil {
			s.Errorf("%s while the guard is content: %v", what, err)
		}
	}
	if _, err := store.Consumers(s.Context()); err != nil {
		s.Errorf("listing: %v", err)
	}
	return status
}

func (s *scene) finalize(store *Store) feed.Finalized {
	s.Helper()
	done, err := store.Finalize(s.Context(), feed.FinalizeOptions{Actor: "ann"})
	if err != nil {
		s.Fatalf("finalize: %v", err)
	}
	return done
}

// wantBranches checks that cursors of the shared past are served and those of
// the lost branch are not, by the fence that a read is anchored with.
func (s *scene) wantBranches(store *Store, shared, lost []feed.Cursor) {
	s.Helper()
	anchor := func(c feed.Cursor) feed.Fence {
		page, err := store.Read(s.Context(), c.Seq, feed.Limit{})
		if err != nil {
			s.Fatalf("read: %v", err)
		}
		return page.Anchor
	}
	for _, c := range shared {
		if c.Seq > 0 && anchor(c) != c.Fence {
			s.Errorf("cursor %s of the shared past is not served: the log has %s there", c, anchor(c))
		}
	}
	for _, c := range lost {
		if held := anchor(c); !held.Known() || held == c.Fence {
			s.Errorf("cursor %s of the lost branch: the log has %q there, want another fence", c, held)
		}
	}
}

// exec changes the closed database behind the store's back.
func (s *scene) exec(statements ...string) {
	s.Helper()
	db, err := sql.Open("sqlite", s.path)
	if err != nil {
		s.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(s.Context(), statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
