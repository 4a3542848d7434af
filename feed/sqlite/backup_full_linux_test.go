package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"gapless/feed"
)

// childBackup names the database that a child process backs up.
const childBackup = "GAPLESS_TEST_BACKUP"

// TestBackupInAChild is what the child of TestBackupWithoutRoom does; without
// a parent it has nothing to do.
func TestBackupInAChild(t *testing.T) {
	path := os.Getenv(childBackup)
	if path == "" {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // writes fail instead
	s := &scene{T: t, path: path}
	store := s.open()
	_, err := store.Backup(t.Context(), filepath.Join(filepath.Dir(path), "backup"), feed.BackupOptions{Actor: "ann"})
	fmt.Println(feed.CodeOf(err), err)
	s.append(store, 1, "appends go on")
}

// TestBackupWithoutRoom lets a backup run into the end of the disk, which a
// bound on the size of files stands for.
func TestBackupWithoutRoom(t *testing.T) {
	s := newScene(t)
	store := s.open()
	fillBatches(t, store, 3, 1000)
	s.close(store)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 1000 && exec "$0" -test.run='^TestBackupInAChild$'`, os.Args[0])
	cmd.Env = append(os.Environ(), childBackup+"="+s.path)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), string(feed.CodeUnavailable)+" backup: the disk of "+filepath.Join(filepath.Dir(s.path), "backup", BackupFile)+" ") {
		t.Errorf("the child says %s, %v", out, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(s.path), "backup")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half copy is still there: %v", err)
	}
	store = s.open()
	if status := s.status(store, false); status.HeadSeq != 3001 {
		t.Errorf("the head is %d, want 3001", status.HeadSeq)
	}
}

// childFull names the database that a child process opens without room.
const childFull = "GAPLESS_TEST_FULL"

// TestOpenInAFullChild is what the child of TestOpenWithoutRoom does; without
// a parent it has nothing to do.
func TestOpenInAFullChild(t *testing.T) {
	path := os.Getenv(childFull)
	if path == "" {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // writes fail instead
	store, err := Open(t.Context(), Config{Path: path, Logger: zerolog.New(os.Stdout)})
	if err != nil {
		t.Fatal(err)
	}
	page, err := store.Read(t.Context(), 2990, feed.Limit{Events: 100})
	fmt.Println("read", len(page.Events), err)
	_ = store.Close() // it cannot bring the write-ahead log into the file either
}

// TestOpenWithoutRoom starts a log whose process was killed, on a disk that
// has no room for what its write-ahead log holds: it is served.
func TestOpenWithoutRoom(t *testing.T) {
	s := newScene(t)
	store := s.open()
	fillBatches(t, store, 3, 1000)
	killed := filepath.Join(t.TempDir(), "log.db")
	for _, suffix := range []string{"", "-wal", WitnessSuffix} {
		s.cp(s.path+suffix, killed+suffix)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 200 && exec "$0" -test.run='^TestOpenInAFullChild$'`, os.Args[0])
	cmd.Env = append(os.Environ(), childFull+"="+killed)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "read 10 <nil>") || !strings.Contains(string(out), "checkpoint failed") || !strings.Contains(string(out), "examining") {
		t.Errorf("the child says %s, %v, want events, a warning, and that the file was examined", out, err)
	}
}
