package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

// wantRefused checks that a path cannot be opened, for a reason in words.
func wantRefused(t *testing.T, cfg Config, words ...string) {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err == nil {
		s.Close()
		t.Fatalf("%s was opened, want an error about %q", cfg.Path, words)
	}
	if feed.CodeOf(err) != feed.CodeUnavailable {
		t.Errorf("%v has code %s, want %s", err, feed.CodeOf(err), feed.CodeUnavailable)
	}
	for _, w := range append(words, filepath.Base(cfg.Path)) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// TestOneOpener: whatever the name of the file, who comes second is refused,
// and can open it once the first has closed it.
func TestOneOpener(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log.db")
	s := open(t, Config{Path: path})
	fill(t, s, "t", 3)
	for name, link := range map[string]func(old, new string) error{"symbolic.db": os.Symlink, "hard.db": os.Link} {
		if err := link(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(dir, "same")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	paths := []string{path, "log.db", "./same/log.db", filepath.Join(dir, "symbolic.db"), filepath.Join(dir, "hard.db")}
	for _, path := range paths {
		_, err := Open(t.Context(), Config{Path: path})
		if feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "another gapless has it open") {
			t.Errorf("%s: %v, want it to be in use", path, err)
		}
	}
	fill(t, s, "t", 3) // the refused ones did no harm
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// By its other name it would be a log without its write-ahead log.
	for _, path := range []string{path, "hard.db"} {
		_, err := Open(t.Context(), Config{Path: path})
		if feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "hard link") {
			t.Errorf("%s: %v, want what to do about the hard link", path, err)
		}
	}
	if err := os.Remove("hard.db"); err != nil {
		t.Fatal(err)
	}
	if in := open(t, Config{Path: "same/symbolic.db"}).committed(); in.head.Seq != 6 {
		t.Errorf("%d events, want 6", in.head.Seq)
	}
}

// TestTheLockOutlivesOtherDescriptors: this process may open and close the
// file as often as it likes (POSIX locks go with the first close).
func TestTheLockOutlivesOtherDescriptors(t *testing.T) {
	s := open(t, Config{})
	fill(t, s, "t", 1)
	if _, err := os.ReadFile(s.place.path); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, "open", s.place.path)
	if line := c.line(); !strings.Contains(line, "another gapless has it open") {
		t.Errorf("a child said %q, want that the file is in use", line)
	}
	c.wait()
}

// TestAFileThatGoesAwayStopsAppends: events written to it could not be found
// again, so none is acknowledged. What is in memory can still be read.
func TestAFileThatGoesAwayStopsAppends(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"deleted":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error { return replace(path, path) },
		"wal deleted": func(path string) error {
			return os.Remove(path + "-wal")
		},
		"wal replaced": func(path string) error { return replace(path+"-wal", path+"-wal") },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{})
			fill(t, s, "t", 3)
			if err := harm(s.place.path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := s.Append(t.Context(), []feed.Draft{draft(1)})
				if feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "while it was in use") {
					t.Errorf("%v, want that the file has gone", err)
				}
			}
			page, err := s.Read(t.Context(), 0, feed.Limit{Events: 10})
			if err != nil || len(page.Events) != 3 {
				t.Errorf("%d events, %v, want the 3 of before", len(page.Events), err)
			}
		})
	}
}

// replace puts a copy of a file in the place of another.
func replace(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to+".copy", text, 0o600); err != nil {
		return err
	}
	return os.Rename(to+".copy", to)
}
