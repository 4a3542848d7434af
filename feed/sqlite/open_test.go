package sqlite

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	_ "modernc.org/sqlite"

	"gapless/feed"
)

// TestWhatIsNoLogIsRefused: with the reason in words, and without a change.
func TestWhatIsNoLogIsRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) string {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	wantRefused(t, Config{Path: at("missing.db"), MustExist: true}, "there is no")
	wantRefused(t, Config{Path: at("no/such/log.db")}, "there is no directory")
	wantRefused(t, Config{Path: write("a.file", "x") + "/log.db"})
	wantRefused(t, Config{Path: dir}, "is a directory")
	begun := at("begun.db") // a set-up that was killed
	statements(t, begun, "PRAGMA journal_mode = WAL")
	for _, path := range []string{write("empty.db", ""), begun} {
		before, _ := os.ReadFile(path)
		wantRefused(t, Config{Path: path, MustExist: true}, "no log in it")
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Errorf("%s was changed (%v)", path, err)
		}
	}
	if _, err := os.Stat(at("missing.db")); err == nil {
		t.Error("a file that had to be there was made")
	}

	foreign := at("foreign.db")
	statements(t, foreign, "CREATE TABLE mine (x)", "PRAGMA user_version = 0")
	marked := at("marked.db")
	statements(t, marked, "PRAGMA application_id = 7")
	newer, older := at("newer.db"), at("older.db")
	for path, version := range map[string]int{newer: schemaVersion + 1, older: 0} {
		if err := open(t, Config{Path: path}).Close(); err != nil {
			t.Fatal(err)
		}
		statements(t, path, fmt.Sprintf("PRAGMA user_version = %d", version))
	}
	for path, words := range map[string][]string{
		write("text.db", strings.Repeat("no database at all ", 20)): {"no SQLite database"},
		write("short.db", "x"): {"no SQLite database"},
		foreign:                {"another program"},
		marked:                 {"another program"},
		newer:                  {"newer gapless", "upgrade"},
		older:                  {"no release has written"},
	} {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wantRefused(t, Config{Path: path}, words...)
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Errorf("%s was changed (%v)", path, err)
		}
	}

	for _, cfg := range []Config{
		{}, {Path: "x", DedupeWindow: -1}, {Path: "x", Retention: feed.Retention{Age: -1}},
		{Path: "x", Retention: feed.Retention{Bytes: -1}}, {Path: "x", Guard: "maybe"},
	} {
		if _, err := Open(t.Context(), cfg); feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("%+v: %v, want an error of code %s", cfg, err, feed.CodeInvalid)
		}
	}
}

// TestADirectoryThatCannotBeWritten is refused, with its name.
func TestADirectoryThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // may write everywhere but where nobody can
		dir = "/sys"
	}
	wantRefused(t, Config{Path: filepath.Join(dir, "log.db")}, dir)
}

// statements runs SQL on a file that no store has open.
func statements(t *testing.T, path string, list ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range list {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// TestADamagedFileIsNotServed: wherever the damage is, an answer is an error
// or the truth.
func TestADamagedFileIsNotServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	s := open(t, Config{Path: path})
	const events = 6000
	fill(t, s, "t", events)
	want, err := s.Read(t.Context(), 1000, feed.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for page := 0; page*4096 < len(whole); page += 7 {
		text := append([]byte(nil), whole...)
		copy(text[page*4096:], strings.Repeat("\xff", 4096))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			refused++
			if feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), path) {
				t.Errorf("page %d: %v", page, err)
			}
			continue
		}
		s.mu.Lock()
		s.tail.reset() // from the file
		s.mu.Unlock()
		for after := uint64(0); after < events; after += 1000 {
			page, err := s.Read(t.Context(), after, feed.Limit{Events: 1000})
			if err != nil {
				if feed.CodeOf(err) != feed.CodeUnavailable {
					t.Errorf("%v", err)
				}
				refused++
				continue
			}
			if after == 1000 && page.Anchor != want.Anchor {
				t.Errorf("anchor %q, want %q", page.Anchor, want.Anchor)
			}
			for i, ev := range page.Events {
				if ev.Seq != after+1+uint64(i) || ev.Type != "made" {
					t.Errorf("event %d after %d is %+v", i, after, ev)
				}
			}
		}
		if err := s.Close(); err != nil && feed.CodeOf(err) != feed.CodeUnavailable {
			t.Error(err)
		}
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

// TestAnInterruptedSetUpIsMadeAgain: an empty file, and one that SQLite has
// begun.
func TestAnInterruptedSetUpIsMadeAgain(t *testing.T) {
	for name, begin := range map[string]func(path string){
		"empty":  func(path string) { os.WriteFile(path, nil, 0o600) },
		"in WAL": func(path string) { statements(t, path, "PRAGMA journal_mode = WAL") },
		"vacuum": func(path string) { statements(t, path, "PRAGMA journal_mode = WAL", "VACUUM") },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log.db")
			begin(path)
			s := open(t, Config{Path: path, Node: "n"})
			fill(t, s, "t", 1)
			entries, err := s.Audit(t.Context(), 0, 10)
			if err != nil || len(entries) != 1 || entries[0].Action != feed.ActionSetUp || entries[0].Actor != "n" {
				t.Errorf("audit %+v, %v, want one set-up", entries, err)
			}
		})
	}
}

// TestReopen: what a log was, it is again.
func TestReopen(t *testing.T) {
	cfg := Config{Path: filepath.Join(t.TempDir(), "log.db"), Retention: feed.Retention{Events: 50}}
	s := open(t, cfg)
	for n := range 120 {
		if _, err := s.Append(t.Context(), []feed.Draft{draft(n)}); err != nil {
			t.Fatal(err)
		}
	}
	want, err := s.Read(t.Context(), 70, feed.Limit{Events: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(cfg.Path + suffix); err == nil {
			t.Errorf("%s is left after a clean close", suffix)
		}
	}

	cfg.Now = func() time.Time { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) } // the clock was wrong, or is now
	s = open(t, cfg)
	for _, where := range []string{"memory", "file"} {
		got, err := s.Read(t.Context(), 70, feed.Limit{Events: 100})
		if err != nil || got.Bounds != want.Bounds || got.Anchor != want.Anchor || got.TrimmedFence != want.TrimmedFence || len(got.Events) != 50 {
			t.Fatalf("from %s: %+v, %v\nwant %+v", where, got, err, want)
		}
		for i, ev := range got.Events {
			if fmt.Sprint(*ev) != fmt.Sprint(*want.Events[i]) {
				t.Errorf("from %s: %+v, want %+v", where, *ev, *want.Events[i])
			}
		}
		s.mu.Lock()
		s.tail.reset()
		s.mu.Unlock()
	}
	receipt, err := s.Append(t.Context(), []feed.Draft{draft(3), draft(500)})
	if err != nil || receipt.Events[0] != (feed.Appended{Seq: 4, ID: "id-3", Duplicate: true}) || receipt.Events[1].Seq != 121 {
		t.Errorf("%+v, %v, want a duplicate of 4, and 121", receipt.Events, err)
	}
	page, err := s.Read(t.Context(), 120, feed.Limit{Events: 1})
	if err != nil || page.Events[0].Time.Before(want.Events[49].Time) {
		t.Errorf("time went back: %+v, %v", page.Events, err)
	}
}

func TestDefaults(t *testing.T) {
	s := open(t, Config{})
	want := feed.Info{Store: "sqlite", Retention: feed.Retention{Events: 1_000_000, Bytes: 1 << 30}}
	if got := s.Info(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s.cfg.DedupeWindow != 10*time.Minute || s.cfg.Guard != feed.GuardStrict {
		t.Errorf("%+v", s.cfg)
	}
}

// TestSettleFile: what must be in the file itself at its first start is a
// matter of a warning later.
func TestSettleFile(t *testing.T) {
	var logged bytes.Buffer
	s := open(t, Config{Logger: zerolog.New(&logged)})
	snap, err := s.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, "t", 3)
	if err := s.settleFile(t.Context(), true); err == nil {
		t.Error("the first time: no error, with commits that a reader keeps out of the file")
	}
	if err := s.settleFile(t.Context(), false); err != nil || logged.Len() == 0 {
		t.Errorf("later: %v, and logged %q, want a warning", err, logged.String())
	}
	snap.close()
	if err := s.settleFile(t.Context(), true); err != nil {
		t.Errorf("without the reader: %v", err)
	}
}
