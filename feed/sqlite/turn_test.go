package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"gapless/feed"
)

// waiting is every call that waits for its turn to write.
func waiting(s *Store, dir string, at feed.Cursor) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := s.Append(ctx, []feed.Draft{draft(1)})
			return err
		},
		"trim":            s.Trim,
		"create consumer": func(ctx context.Context) error { return s.CreateConsumer(ctx, feed.Consumer{Name: "new", Cursor: at}) },
		"move consumer":   func(ctx context.Context) error { return s.MoveConsumer(ctx, "c", at, at) },
		"record audit":    func(ctx context.Context) error { return s.RecordAudit(ctx, feed.AuditEntry{Action: "x"}) },
		"finalize": func(ctx context.Context) error {
			_, err := s.Finalize(ctx, feed.FinalizeOptions{})
			return err
		},
		"final backup": func(ctx context.Context) error {
			_, err := s.Backup(ctx, filepath.Join(dir, "backup"), feed.BackupOptions{Final: true})
			return err
		},
	}
}

// wantGivenUp checks that calls end with their context, each of which ends
// long before anything else would end the wait. Another error, such as that
// the database is locked, would be the end of that wait.
func wantGivenUp(t *testing.T, calls map[string]func(ctx context.Context) error) {
	t.Helper()
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || feed.CodeOf(err) != feed.CodeUnavailable {
			t.Errorf("%s: %v, want %v", name, err, context.DeadlineExceeded)
		}
		cancel()
	}
}

// TestAWaitForTheTurnEndsWithItsContext: whoever else writes.
func TestAWaitForTheTurnEndsWithItsContext(t *testing.T) {
	now := time.Now()
	s := open(t, Config{Retention: feed.Retention{Age: time.Hour}, Now: func() time.Time { return now }})
	fill(t, s, "t", 5)
	in := s.committed()
	at := in.cursor()
	must(t, s.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: at}))
	now = now.Add(2 * time.Hour)
	before := s.committed()
	s.hold()
	wantGivenUp(t, waiting(s, t.TempDir(), at))
	s.writing.give()
	if after := s.committed(); after != before {
		t.Errorf("the log was %+v and is %+v", before, after)
	}
	fill(t, s, "t", 1)
}

// TestAWaitForAnotherProgramEndsWithItsContext: one that has the database
// locked.
func TestAWaitForAnotherProgramEndsWithItsContext(t *testing.T) {
	now := time.Now()
	s := open(t, Config{Retention: feed.Retention{Age: time.Hour}, Now: func() time.Time { return now }})
	fill(t, s, "t", 5)
	in := s.committed()
	at := in.cursor()
	must(t, s.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: at}))
	now = now.Add(2 * time.Hour)
	before := s.committed()
	unlock := lockOut(t, s.place.path)
	wantGivenUp(t, waiting(s, t.TempDir(), at))
	if after := s.committed(); after != before {
		t.Errorf("the log was %+v and is %+v", before, after)
	}
	// And it ends with the lock.
	answer := make(chan error)
	go func() { answer <- s.MoveConsumer(t.Context(), "c", at, at) }()
	unlock()
	if err := <-answer; err != nil {
		t.Errorf("once it is free: %v", err)
	}
}

// TestOpeningBehindAnotherProgramEndsWithItsContext: the first start, which
// writes.
func TestOpeningBehindAnotherProgramEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	statements(t, path, "PRAGMA journal_mode = WAL")
	unlock := lockOut(t, path)
	wantGivenUp(t, map[string]func(ctx context.Context) error{"open": func(ctx context.Context) error {
		s, err := Open(ctx, Config{Path: path})
		if err == nil {
			s.Close()
		}
		return err
	}})
	unlock()
	open(t, Config{Path: path})
}

// lockOut locks a database for writing, as another program does.
func lockOut(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	conn, err := db.Conn(t.Context())
	must(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	must(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), "ROLLBACK")
		must(t, errors.Join(err, conn.Close(), db.Close()))
	}
}
