package sqlite

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"gapless/feed"
)

// childPath names the database that a child process finalizes.
const childPath = "GAPLESS_TEST_FINALIZE"

// TestFinalizeInAChild is what the child of TestKilledFinalize does; without
// a parent it has nothing to do.
func TestFinalizeInAChild(t *testing.T) {
	path := os.Getenv(childPath)
	if path == "" {
		return
	}
	s := &scene{T: t, path: path}
	store := s.open()
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	_, err := in.ReadString('\n') // the parent has looked at the files
	must(t, err)
	s.finalize(store)
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, in) // until it is killed
}

// TestKilledFinalize kills a process at several moments around the commit of
// a finalize. Whatever moment that was, the restore is finalized whole or not
// at all, and where the witness was not renewed the guard stays shut, so that
// finalizing again is all that there is to do.
func TestKilledFinalize(t *testing.T) {
	s := newScene(t)
	store := s.open()
	s.append(store, 10, "shared")
	at := s.cursors(store)
	for i := range 10 {
		must(t, store.CreateConsumer(t.Context(), feed.Consumer{Name: fmt.Sprint("c", i), Cursor: at[i]}))
	}
	epoch := at[0].Epoch
	s.close(store)
	finalized := 1 // by this test
	outcomes := map[string]int{}
	for round := range 12 {
		must(t, os.Remove(s.path+WitnessSuffix))
		s.killChild(round)

		store := s.open()
		status, err := store.RestoreStatus(t.Context())
		must(t, err)
		whole := status.Epoch != epoch
		outcomes[fmt.Sprintf("finalized %v, shut %v", whole, !status.Finalized)]++
		if !whole && status.Finalized {
			t.Fatalf("round %d: nothing was finalized, but the guard is content: %+v", round, status)
		}
		if whole {
			finalized++
		}
		for i := range 10 {
			c, err := store.Consumer(t.Context(), fmt.Sprint("c", i))
			must(t, err)
			switch {
			case c.Cursor.Epoch != status.Epoch:
				t.Fatalf("round %d: the store is in epoch %s, %s at %s", round, status.Epoch, c.Name, c.Cursor)
			case finalized == 1 && (c.Cursor != at[i] || c.ResetFrom != feed.Cursor{}):
				t.Fatalf("round %d: nothing was finalized, but %s is at %s", round, c.Name, c.Cursor)
			case finalized > 1 && (c.Cursor.Position != at[10].Position || c.ResetFrom != at[i]):
				t.Fatalf("round %d: %s is at %s, reset from %s", round, c.Name, c.Cursor, c.ResetFrom)
			}
		}
		if !status.Finalized {
			s.finalize(store)
			finalized++
		}
		s.status(store, false)
		s.close(store)
		store = s.open()
		epoch = s.status(store, false).Epoch
		s.close(store)
	}
	t.Log(outcomes)
	store = s.open()
	entries, err := store.Audit(t.Context(), 0, 1000)
	must(t, err)
	audited := 1
	for _, entry := range entries {
		if entry.Action == feed.ActionFinalize {
			audited++
		}
	}
	if audited != finalized {
		t.Errorf("%d are audited, %d happened", audited, finalized)
	}
}

// killChild starts a process that finalizes, and kills it: in one round when
// it is about to begin, in the next when it has begun to write its commit,
// then when the witness shows, and in the last when it says that it is done.
func (s *scene) killChild(round int) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), os.Args[0], "-test.run=^TestFinalizeInAChild$")
	cmd.Env = append(os.Environ(), childPath+"="+s.path)
	in, err := cmd.StdinPipe()
	must(s.T, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	must(s.T, err)
	must(s.T, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		if !lines.Scan() || lines.Text() != want {
			s.Fatalf("the child says %q, %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	expect("ready")
	size := fileSize(s.path + "-wal")
	_, err = fmt.Fprintln(in)
	must(s.T, err)
	switch round % 4 {
	case 0:
	case 1:
		until(s.T, func() bool { return fileSize(s.path+"-wal") != size })
	case 2:
		until(s.T, func() bool { return fileSize(s.path+WitnessSuffix) > 0 })
	case 3:
		expect("done")
	}
}

// until waits for what a child does.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the child hangs")
		}
	}
}

// fileSize is −1 where there is no file.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}
