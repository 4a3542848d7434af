//go:build linux && e2e

package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
	"gapless/feed/postgres/pgtest"
)

func TestAFinalBackupMovesWithoutLoss(t *testing.T) {
	from := sharedCluster(t)
	url := database(t)
	s := open(t, url, quiet)
	b := begin(t, s)
	dir := filepath.Join(t.TempDir(), "backup")
	early, err := s.Backup(t.Context(), filepath.Join(t.TempDir(), "early"), feed.BackupOptions{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Backup(t.Context(), dir, feed.BackupOptions{Actor: "ann", Final: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), []feed.Draft{draft("late", 1)}); feed.CodeOf(err) != feed.CodeSealed {
		t.Errorf("an append to the sealed store: %v", err)
	}
	to := pgtest.New(t, unsynced...)
	moved := to.Database(t)
	to.Run(t, pgtest.Binary(t, "pg_restore"), "--exit-on-error", "--single-transaction", "--dbname="+moved, dump(t, from, url))
	s = open(t, moved)
	wantShut(t, s, "another database cluster")
	for what, m := range map[string]feed.Manifest{
		"not final": early,
		"of SQLite": func() feed.Manifest { m := m; m.Store = "sqlite"; return m }(),
		"of a head": func() feed.Manifest { m := m; m.HeadSeq--; return m }(),
	} {
		if _, err := s.Relocate(t.Context(), m, "ann"); feed.CodeOf(err) != feed.CodeConflict {
			t.Errorf("a manifest that is %s: %v", what, err)
		}
	}
	read, err := feed.VerifyFiles(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.Relocate(t.Context(), read, "ann")
	if err != nil || done.OldIdentity != m.Identity || done.NewIdentity == m.Identity {
		t.Fatalf("%+v, %v", done, err)
	}
	wantContent(t, s)
	c, err := s.Consumer(t.Context(), "behind")
	if err != nil || c.Cursor != b.cursors[4] || c.ResetFrom != (feed.Cursor{}) {
		t.Errorf("the consumer is %+v, %v", c, err)
	}
	page, err := s.Read(t.Context(), 4, feed.Limit{Events: 100})
	if err != nil || page.Anchor != b.cursors[4].Fence || len(page.Events) != sharedEvents-4 || page.Epoch != m.Epoch {
		t.Errorf("a reader's cursor finds %d events, %v", len(page.Events), err)
	}
	if at := grow(t, s, 1)[0]; at.Seq != sharedEvents+1 || at.Epoch != m.Epoch {
		t.Errorf("the next event is %s", at)
	}
}

// A store that may be a restored copy cannot vouch for itself.
func TestAShutStoreMakesNoFinalBackup(t *testing.T) {
	s := open(t, copied(t, func() string {
		url := database(t)
		s := open(t, url, quiet)
		begin(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return url
	}()), quiet)
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := s.Backup(t.Context(), dir, feed.BackupOptions{Actor: "ann", Final: true})
	if feed.CodeOf(err) != feed.CodeRestoreNotFinalized {
		t.Errorf("%v", err)
	}
	if _, err := feed.ReadManifest(dir); err == nil {
		t.Error("there is a manifest")
	}
	if status, err := s.RestoreStatus(t.Context()); err != nil || status.Sealed {
		t.Errorf("the status is %+v, %v", status, err)
	}
}

// A cursor that is being moved is in the copy, or was not moved.
func TestASealWaitsForMoves(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	begin(t, s)
	mover, look := dial(t, url), dial(t, url)
	exec(t, mover, "begin")
	exec(t, mover, "select from gapless.consumers where name = 'behind' for update")
	sealed := make(chan error, 1)
	go func() {
		_, err := s.Backup(patient(t), t.TempDir(), feed.BackupOptions{Actor: "ann", Final: true})
		sealed <- err
	}()
	eventually(t, "the seal waits", func() bool { return len(sealed) > 0 || scan[int](t, look, waitingForLocks) == 1 })
	if len(sealed) > 0 {
		t.Error("the seal does not wait")
	}
	exec(t, mover, "commit")
	if err := <-sealed; err != nil {
		t.Error(err)
	}
}

func TestTheBackupSaysHowToCopyTheDataAndNoPassword(t *testing.T) {
	c := pgtest.New(t, unsynced...) // of its own, since all of it is copied
	url := databaseOn(t, c)
	grow(t, open(t, url, quiet), 3)
	withPassword := strings.Replace(url, "postgres@", "postgres:s3cret%20word@", 1)
	s := open(t, withPassword, quiet)
	for _, final := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "backup")
		var progress []float64
		m, err := s.Backup(t.Context(), dir, feed.BackupOptions{Actor: "ann", Final: final, Progress: func(done float64) { progress = append(progress, done) }})
		if err != nil {
			t.Fatal(err)
		}
		if len(progress) == 0 || progress[len(progress)-1] != 1 {
			t.Errorf("the progress was %v", progress)
		}
		text, err := os.ReadFile(filepath.Join(dir, backupReadme))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "s3cret") {
			t.Error("the password is in the text")
		}
		if !strings.Contains(string(text), string(m.Epoch)) || !strings.Contains(string(text), m.HeadFence.String()) {
			t.Errorf("the text does not say what it is of:\n%s", text)
		}
		if got := strings.Contains(string(text), "--relocation"); got != final {
			t.Errorf("final %v: it speaks of a relocation: %v", final, got)
		}
		// Its commands run as they stand, but for the names in capitals.
		target := c.Database(t)
		work := t.TempDir()
		if err := os.Chmod(work, 0o777); err != nil { //nolint:gosec // the tools run as another user
			t.Fatal(err)
		}
		ran := 0
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			name, rest, _ := strings.Cut(line, " ")
			if !strings.HasPrefix(name, "pg_") {
				continue
			}
			ran++
			rest = strings.NewReplacer("OWNER", pgtest.Superuser, "REPLICATION_ROLE", pgtest.Superuser, "NEW_DATABASE", target, "DIRECTORY", filepath.Join(filepath.Dir(c.Dir), fmt.Sprint("base", final))).Replace(rest)
			c.Run(t, "sh", "-c", "cd "+filepath.Dir(c.Dir)+" && "+pgtest.Binary(t, name)+" "+rest)
		}
		if ran != 3 {
			t.Errorf("%d commands, want 3:\n%s", ran, text)
		}
		copied := open(t, target, quiet)
		if status, err := copied.RestoreStatus(t.Context()); err != nil || status.HeadSeq != 3 || status.Sealed != final {
			t.Errorf("the copy: %+v, %v", status, err)
		}
	}
}
