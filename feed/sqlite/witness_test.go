package sqlite

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"gapless/feed"
)

// TestTheWitnessFollowsTheLog: after each commit it holds the head.
func TestTheWitnessFollowsTheLog(t *testing.T) {
	s := open(t, Config{})
	for range 20 {
		fill(t, s, "t", 1)
		in := s.committed()
		if _, last, err := readWitness(s.witnessPath()); err != nil || last != in.deposition() {
			t.Fatalf("the witness says %v (%v), the log is at %v", last, err, in.deposition())
		}
	}
}

// TestATornSlotLeavesTheOther: whatever becomes of one slot, the witness is
// what the other one says.
func TestATornSlotLeavesTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	at := func(seq uint64) deposition {
		return deposition{feed.Cursor{Epoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", Position: feed.Position{Seq: seq, Fence: feed.NewFence()}}, seq % 2}
	}
	rapid.Check(t, func(rt *rapid.T) {
		_ = os.Remove(path)
		var w witness
		if err := w.open(path, at(1)); err != nil {
			rt.Fatal(err)
		}
		n := rapid.IntRange(1, 5).Draw(rt, "writes")
		previous, last := w.last, w.last
		for i := range n {
			previous, last = last, at(uint64(i+2))
			if err := w.put(last); err != nil {
				rt.Fatal(err)
			}
		}
		newest := int(w.count%2) * slotBytes
		if err := w.close(); err != nil {
			rt.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			rt.Fatal(err)
		}
		// The part of the line that counts; the rest of a slot is zeros.
		line := bytes.IndexByte(text[newest:], '\n') + 1
		at := newest + rapid.IntRange(0, line-1).Draw(rt, "where")
		text[at] ^= byte(rapid.IntRange(1, 255).Draw(rt, "what"))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			rt.Fatal(err)
		}
		if _, got, err := readWitness(path); err != nil || got != previous {
			rt.Fatalf("%v, %v, want %v (the last was %v)", got, err, previous, last)
		}
		copy(text, make([]byte, 2*slotBytes))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			rt.Fatal(err)
		}
		if _, got, err := readWitness(path); err == nil {
			rt.Fatalf("%v of an empty file", got)
		}
	})
}

// TestGuard plays what may become of a witness while the store is stopped.
func TestGuard(t *testing.T) {
	harm := func(do func(path string) error) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := do(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	sayAll := func(change func(d *deposition)) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			_, d, err := readWitness(path + WitnessSuffix)
			if err != nil {
				t.Fatal(err)
			}
			change(&d)
			var w witness
			if err := w.open(path+WitnessSuffix, d); err != nil {
				t.Fatal(err)
			}
			if err := w.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	say := func(change func(c *feed.Cursor)) func(t *testing.T, path string) {
		return sayAll(func(d *deposition) { change(&d.cursor) })
	}
	fence, _ := feed.ParseFence("00000000")
	for name, c := range map[string]struct {
		harm func(t *testing.T, path string)
		shut bool
	}{
		"nothing":     {harm(func(string) error { return nil }), false},
		"gone":        {harm(func(path string) error { return os.Remove(path + WitnessSuffix) }), true},
		"empty":       {harm(func(path string) error { return os.Truncate(path+WitnessSuffix, 0) }), true},
		"a directory": {harm(func(path string) error { os.Remove(path + WitnessSuffix); return os.Mkdir(path+WitnessSuffix, 0o700) }), true},
		"garbage": {harm(func(path string) error {
			return os.WriteFile(path+WitnessSuffix, bytes.Repeat([]byte("x"), 9000), 0o600)
		}), true},
		"database gone":        {harm(os.Remove), true},
		"ahead":                {say(func(c *feed.Cursor) { c.Seq++ }), true},
		"other fence":          {say(func(c *feed.Cursor) { c.Fence = fence }), true},
		"other event":          {say(func(c *feed.Cursor) { c.Seq-- }), true},
		"other epoch":          {say(func(c *feed.Cursor) { c.Epoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCD" }), true},
		"trimmed":              {say(func(c *feed.Cursor) { c.Seq, c.Fence = 3, fence }), false},
		"last trimmed":         {say(func(c *feed.Cursor) { c.Seq, c.Fence = 10, fence }), true},
		"other epoch, at 0":    {say(func(c *feed.Cursor) { *c = feed.Cursor{Epoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD"} }), true},
		"state ahead":          {sayAll(func(d *deposition) { d.changes++ }), true},
		"state ahead, trimmed": {sayAll(func(d *deposition) { d.cursor.Seq, d.changes = 3, d.changes+1 }), true},
		"state ahead, at 0":    {sayAll(func(d *deposition) { d.cursor.Position, d.changes = feed.Position{}, d.changes+1 }), true},
		"state behind":         {sayAll(func(d *deposition) { d.changes-- }), false},
		"behind":               {say(func(c *feed.Cursor) { c.Position = feed.Position{} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			cfg := Config{Path: filepath.Join(t.TempDir(), "log.db"), Retention: feed.Retention{Events: 10}, Node: "n", Logger: zerolog.New(&logged)}
			s := open(t, cfg)
			fill(t, s, "t", 20)
			if err := s.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: feed.Cursor{Epoch: s.committed().epoch}}); err != nil {
				t.Fatal(err)
			}
			at := s.committed()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.harm(t, cfg.Path)

			s = open(t, cfg)
			wantShut(t, s, c.shut)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg) // it stays so
			wantShut(t, s, c.shut)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if name == "a directory" { // no witness can be made
				cfg.Guard = feed.GuardOff
				wantRefused(t, cfg)
				return
			}

			cfg.Guard = feed.GuardOff
			s = open(t, cfg)
			wantShut(t, s, false)
			entries, err := s.Audit(t.Context(), 0, 1)
			if err != nil || (entries[0].Action == feed.ActionAdopt) != c.shut || (logged.Len() > 0) != c.shut {
				t.Errorf("audit %+v, %v; log %q", entries, err, logged.String())
			}
			var adopted feed.Adopted
			if c.shut {
				err := json.Unmarshal(entries[0].Detail, &adopted)
				if err != nil || adopted.Node != "n" || adopted.OldIdentity == "" || adopted.NewIdentity == "" || name != "database gone" && adopted.HeadFence != at.head.Fence {
					t.Errorf("%s: %+v, %v", entries[0].Detail, adopted, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.Guard = feed.GuardVerify
			wantShut(t, open(t, cfg), false) // for good
		})
	}
}

// wantShut checks whether every call is refused for the guard's sake.
func wantShut(t *testing.T, s *Store, shut bool) {
	t.Helper()
	if shut != (s.guardCause() != "") {
		t.Fatalf("the guard says %q", s.guardCause())
	}
	code := func(err error) feed.Code {
		if err == nil {
			return ""
		}
		return feed.CodeOf(err)
	}
	want := feed.Code("")
	if shut {
		want = feed.CodeRestoreNotFinalized
	}
	_, appendErr := s.Append(t.Context(), []feed.Draft{{ID: "x", Minted: true, Topic: "t", Type: "made"}})
	_, readErr := s.Read(t.Context(), 0, feed.Limit{})
	_, searchErr := s.Search(t.Context(), feed.Search{N: 1})
	for what, err := range map[string]error{
		"append": appendErr, "read": readErr, "search": searchErr,
		"trim": s.Trim(t.Context()), "wait": s.Wait(t.Context(), feed.Cursor{}),
	} {
		if code(err) != want {
			t.Errorf("%s: %v, want code %q", what, err, want)
		}
	}
}
