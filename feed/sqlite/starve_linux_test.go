package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gapless/feed"
)

// TestNoSpace: where files may not grow, appends fail and leave nothing of
// themselves; with space again the next one works, in the same process.
func TestNoSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	c := startChild(t, "starve", path)
	for line := c.line(); line != "done"; line = c.line() {
		if !strings.HasPrefix(line, "ok ") {
			t.Fatalf("the child says %q", line)
		}
	}
	c.wait()
	s := open(t, Config{Path: path})
	if cause := s.guardCause(); cause != "" {
		t.Errorf("the guard shuts the store: %s", cause)
	}
	if err := s.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestStarvingChild is what the child of TestNoSpace does; without a parent
// it has nothing to do.
func TestStarvingChild(t *testing.T) {
	if path, ok := strings.CutPrefix(os.Getenv(childVariable), "starve:"); ok {
		childStarves(path)
	}
}

// childStarves fills the space that it allows itself, three times.
func childStarves(path string) {
	s, err := Open(context.Background(), Config{Path: path})
	if err != nil {
		fmt.Println("cannot open:", err)
		return
	}
	n := 0
	drafts := func() []feed.Draft {
		list := make([]feed.Draft, 3)
		for i := range list {
			n++
			list[i] = feed.Draft{ID: fmt.Sprint(n), Type: "made", Topic: "t", Data: json.RawMessage(`"` + strings.Repeat("x", 3000) + `"`)}
		}
		return list
	}
	var whole unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &whole); err != nil {
		fmt.Println(err)
		return
	}
	stored := uint64(0)
	for round := range 3 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			fmt.Println(err)
			return
		}
		limit := unix.Rlimit{Cur: uint64(info.Size()) + 100_000, Max: whole.Max}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			fmt.Println(err)
			return
		}
		failures, unknown := 0, 0
		for failures < 3 {
			_, err := s.Append(context.Background(), drafts())
			switch {
			case err == nil: // a checkpoint may have made room for some
				stored += 3
				failures = 0
			case feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "nothing was stored") && !strings.Contains(err.Error(), "publish the same ids again"):
				fmt.Println(err)
				return
			default:
				failures++
				if strings.Contains(err.Error(), "publish the same ids again") {
					unknown++
				}
			}
		}
		if unknown == 0 { // the disk fails where it is written, which is at the commit
			fmt.Println("no failure says that its outcome is unknown")
			return
		}
		if head := s.committed().head.Seq; head != stored {
			fmt.Printf("head is %d, acknowledged were %d\n", head, stored)
			return
		}
		page, err := s.Read(context.Background(), 0, feed.Limit{Events: 10})
		if err != nil || len(page.Events) == 0 {
			fmt.Println("no reading without space:", err)
			return
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &whole); err != nil {
			fmt.Println(err)
			return
		}
		receipt, err := s.Append(context.Background(), drafts())
		if err != nil || receipt.Events[0].Seq != stored+1 {
			fmt.Printf("with space again: %+v, %v, want %d\n", receipt.Events, err, stored+1)
			return
		}
		stored += 3
		fmt.Println("ok", round)
	}
	if err := s.Close(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("done")
}
