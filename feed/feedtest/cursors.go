package feedtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func (s *suite) testLife(t *testing.T, kind cursorKind) {
	t.Run("it is created, read, listed and deleted", func(t *testing.T) {
		k := s.openStore(t, kind, Config{})
		k.fill(3)
		at := k.cursors()
		if all := k.list(); len(all) != 0 {
			t.Errorf("a new store has %v", all)
		}
		k.create("b", at[2])
		k.create("a", at[3])
		for name, want := range map[string]feed.Cursor{"b": at[2], "a": at[3]} {
			if h := k.get(name); h.name != name || h.cursor != want || h.resetFrom != (feed.Cursor{}) {
				t.Errorf("%q came back as %v, want it at %s", name, h, want)
			}
		}
		if all := k.list(); len(all) != 2 || all[0] != k.get("a") || all[1] != k.get("b") {
			t.Errorf("the list is %v", all)
		}
		if err := kind.delete(k.ctx, k.store, "a"); err != nil {
			t.Fatalf("delete: %v", err)
		}
		if all := k.list(); len(all) != 1 || all[0].name != "b" {
			t.Errorf("after a deletion the list is %v", all)
		}
		k.create("a", at[1]) // the name is free again
		k.wantCursor("a", at[1])
	})

	t.Run("one that is not there is not found", func(t *testing.T) {
		k := s.openStore(t, kind, Config{})
		k.fill(2)
		at := k.cursors()
		k.create("there", at[1])
		for _, name := range []string{"nobody", "There", "there ", "ther_", "%", "'there'"} {
			k.refused("get "+name, feed.CodeNotFound, func() error { _, err := kind.get(k.ctx, k.store, name); return err })
			k.refused("move "+name, feed.CodeNotFound, func() error { return kind.move(k.ctx, k.store, name, at[1], at[2]) })
			k.refused("delete "+name, feed.CodeNotFound, func() error { return kind.delete(k.ctx, k.store, name) })
		}
	})

	t.Run("its times are the store's", func(t *testing.T) {
		cfg := Config{}
		clock := s.clockFor(&cfg)
		k := s.openStore(t, kind, cfg)
		k.fill(2)
		at := k.cursors()
		k.create("c", at[0])
		created := k.get("c")
		k.wantStamp("created", created.created, clock)
		k.wantStamp("updated", created.updated, clock)
		clock.step(90*time.Second + 1500*time.Nanosecond)
		k.move("c", at[0], at[1])
		moved := k.get("c")
		k.wantStamp("updated by a move", moved.updated, clock)
		if !moved.created.Equal(created.created) || moved.updated.Before(created.updated) {
			t.Errorf("a move made the times %v, %v of %v, %v", moved.created, moved.updated, created.created, created.updated)
		}
		clock.step(time.Minute)
		k.refused("move back", feed.CodeConflict, func() error { return kind.move(k.ctx, k.store, "c", at[1], at[0]) })
	})
}

// stranger is a cursor that does not fit a log, and the code that it gets.
type stranger struct {
	what string
	at   feed.Cursor
	code feed.Code
}

// strangers needs a log of which seq 1 is trimmed, seq 2 is the last that was,
// and more than three are left.
func (k *keeper) strangers(s *suite, at []feed.Cursor) []stranger {
	head := at[len(at)-1]
	with := func(c feed.Cursor, change func(c *feed.Cursor)) feed.Cursor {
		change(&c)
		return c
	}
	fence, foreign := feed.NewFence(), feed.Epoch("01ARZ3NDEKTSV4RRFFQ69G5FAV")
	list := []stranger{
		{"of another epoch", with(head, func(c *feed.Cursor) { c.Epoch = foreign }), feed.CodeEpochChanged},
		{"of another epoch, at 0", feed.Cursor{Epoch: foreign}, feed.CodeEpochChanged},
		{"of another epoch, above the head", with(head, func(c *feed.Cursor) { c.Epoch = foreign; c.Seq += 100 }), feed.CodeEpochChanged},
		{"of no epoch", feed.Cursor{Position: head.Position}, feed.CodeEpochChanged},
		{"above the head", with(head, func(c *feed.Cursor) { c.Seq++; c.Fence = fence }), feed.CodeConflict},
		{"above the head, without a fence", with(head, func(c *feed.Cursor) { c.Seq++; c.Fence = feed.Fence{} }), feed.CodeConflict},
		{"far above the head", with(head, func(c *feed.Cursor) { c.Seq = 1<<64 - 1 }), feed.CodeConflict},
		{"at the head, of another event", with(head, func(c *feed.Cursor) { c.Fence = fence }), feed.CodeConflict},
		{"inside the log, of another event", with(at[len(at)-2], func(c *feed.Cursor) { c.Fence = fence }), feed.CodeConflict},
	}
	if s.needs(LacksTrimmedFence) {
		list = append(list, stranger{"at oldest − 1, of another event", with(at[2], func(c *feed.Cursor) { c.Fence = fence }), feed.CodeConflict})
	}
	return list
}

// trimmedStore holds 3 to 8, and returns all cursors with their fences.
func (s *suite) trimmedStore(t *testing.T, kind cursorKind) (*keeper, []feed.Cursor) {
	t.Helper()
	k := s.openStore(t, kind, Config{Retention: feed.Retention{Events: 6}})
	k.fill(6)
	at := k.cursors()
	k.fill(2)
	k.wantBounds(3, 8)
	return k, append(at, k.cursors()[7:]...)
}

func (s *suite) testCreate(t *testing.T, kind cursorKind) {
	t.Run("at every place of the log", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		for seq, cursor := range at { // what is trimmed too: its reader is told when it reads
			k.create(fmt.Sprint(seq), cursor)
			k.wantCursor(fmt.Sprint(seq), cursor)
		}
	})

	t.Run("at the start of an empty log", func(t *testing.T) {
		k := s.openStore(t, kind, Config{})
		start := k.head()
		k.create("c", start)
		k.wantCursor("c", start)
		k.refused("above the head", feed.CodeConflict, func() error {
			return kind.create(k.ctx, k.store, "d", feed.Cursor{Epoch: start.Epoch, Position: feed.Position{Seq: 1}})
		})
		k.fill(1)
		k.move("c", start, k.head())
	})

	t.Run("a cursor without its fence means the event at its seq", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		bare := at[5]
		bare.Fence = feed.Fence{}
		k.create("c", bare)
		if got := k.get("c").cursor; got.Epoch != bare.Epoch || got.Seq != 5 || !got.Fence.Agrees(at[5].Fence) {
			t.Errorf("it is at %s, want %s", got, at[5])
		}
	})

	t.Run("a name is taken once", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[5])
		for _, cursor := range []feed.Cursor{at[5], at[8]} {
			k.refused("the name again", feed.CodeConflict, func() error { return kind.create(k.ctx, k.store, "c", cursor) })
		}
	})

	t.Run("of several at once one gets the name", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		for round := range 5 {
			name := fmt.Sprint("c", round)
			winners := firstOf(t, 4, feed.CodeConflict, func(i int) error { return kind.create(k.ctx, k.store, name, at[3+i]) })
			if len(winners) != 1 {
				t.Fatalf("%v of them created it", winners)
			}
			k.wantCursor(name, at[3+winners[0]])
		}
	})

	t.Run("a cursor that does not fit the log is refused", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		for _, c := range k.strangers(s, at) {
			k.refused(c.what, c.code, func() error { return kind.create(k.ctx, k.store, "c", c.at) })
		}
	})
}

func (s *suite) testMove(t *testing.T, kind cursorKind) {
	t.Run("forward, from where it is", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[3])
		k.create("other", at[3])
		k.move("c", at[3], at[4])
		k.move("c", at[4], at[8])
		k.wantCursor("c", at[8])
		k.wantCursor("other", at[3])
		k.fill(1)
		k.move("c", at[8], k.head())
	})

	t.Run("to where it is", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[5])
		k.move("c", at[5], at[5])
		k.wantCursor("c", at[5])
	})

	t.Run("to a cursor without its fence", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[5])
		bare := at[7]
		bare.Fence = feed.Fence{}
		k.move("c", at[5], bare)
		if got := k.get("c").cursor; got.Epoch != bare.Epoch || got.Seq != 7 || !got.Fence.Agrees(at[7].Fence) {
			t.Errorf("it is at %s, want %s", got, at[7])
		}
	})

	t.Run("never from where it is not", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[5])
		wrong := at[5]
		wrong.Fence = feed.NewFence()
		for what, from := range map[string]feed.Cursor{"behind it": at[4], "ahead of it": at[6], "the start": at[0], "another event": wrong} {
			for _, to := range []feed.Cursor{at[5], at[7]} {
				k.refused("from "+what, feed.CodeConflict, func() error { return kind.move(k.ctx, k.store, "c", from, to) })
			}
		}
		foreign := at[5]
		foreign.Epoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
		k.refused("from another epoch", feed.CodeEpochChanged, func() error { return kind.move(k.ctx, k.store, "c", foreign, at[7]) })
		k.move("c", at[5], at[7])
	})

	t.Run("never back", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[5])
		for seq := range 5 {
			k.refused(fmt.Sprint("back to ", seq), feed.CodeConflict, func() error { return kind.move(k.ctx, k.store, "c", at[5], at[seq]) })
		}
	})

	t.Run("never to a cursor that does not fit the log", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[0])
		for _, c := range k.strangers(s, at) {
			k.refused(c.what, c.code, func() error { return kind.move(k.ctx, k.store, "c", at[0], c.at) })
		}
		k.move("c", at[0], at[8])
	})

	t.Run("out of what was trimmed", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[6])
		k.fill(7) // 10 to 15 are left
		if oldest := k.bounds().Oldest; oldest != 10 {
			t.Fatalf("oldest is %d, want 10", oldest)
		}
		k.wantCursor("c", at[6]) // trimming moves nobody
		k.move("c", at[6], at[8])
		k.wantCursor("c", at[8])
		now := k.cursors()
		k.move("c", at[8], now[12])
		k.wantCursor("c", now[12])
	})

	t.Run("nowhere, where it was trimmed", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		k.create("c", at[6])
		k.fill(7) // 10 to 15 are left, and 9 has its fence
		wrong, bare := at[6], at[6]
		wrong.Fence, bare.Fence = feed.NewFence(), feed.Fence{}
		k.refused("to another event of its seq", feed.CodeConflict, func() error { return kind.move(k.ctx, k.store, "c", at[6], wrong) })
		for _, to := range []feed.Cursor{at[6], bare} {
			k.move("c", at[6], to)
			k.wantCursor("c", at[6]) // with its fence
		}
	})

	t.Run("of several at once one moves it", func(t *testing.T) {
		k, at := s.trimmedStore(t, kind)
		for round := range 8 {
			name := fmt.Sprint("c", round)
			k.create(name, at[2])
			winners := firstOf(t, 4, feed.CodeConflict, func(i int) error { return kind.move(k.ctx, k.store, name, at[2], at[4+i]) })
			if len(winners) != 1 {
				t.Fatalf("%v of them moved it", winners)
			}
			k.wantCursor(name, at[4+winners[0]])
		}
	})
}

func (s *suite) testNames(t *testing.T, kind cursorKind) {
	t.Run("with any character", func(t *testing.T) {
		k := s.openStore(t, kind, Config{})
		start := k.head()
		names := []string{
			"a", "A", "a ", " a", "ä", "a\u0308", "Z", "z", "_", "%", "a%", `a\`, `a\\`, "a'b", `a"b`, "'; DROP TABLE consumers; --",
			"$1", "?", ":name", "NULL", "null", "0", "00", "1e3", "a/b", "a.b", "a:b", "a\tb", "a\nb", "日本", "\U0001F600", strings.Repeat("n", 255),
		}
		for _, name := range names {
			k.create(name, start)
		}
		k.fill(1)
		for _, name := range names {
			k.move(name, start, k.head())
			k.wantCursor(name, k.head())
		}
		slices.Sort(names)
		if got := convert(k.list(), func(h held) string { return h.name }); !slices.Equal(got, names) {
			t.Errorf("the list is in the order\n%q\nwant that of the bytes\n%q", got, names)
		}
		for _, name := range names {
			if err := kind.delete(k.ctx, k.store, name); err != nil {
				t.Errorf("delete %q: %v", name, err)
			}
		}
		if all := k.list(); len(all) != 0 {
			t.Errorf("%v are left", all)
		}
	})

	t.Run("a thousand of them, in order", func(t *testing.T) {
		const workers, each = 8, 125
		k := s.openStore(t, kind, Config{})
		start := k.head()
		together(workers, func(i int) {
			for n := range each {
				if err := kind.create(k.ctx, k.store, fmt.Sprint("c-", n*workers+i), start); err != nil {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
		all := k.list()
		if len(all) != workers*each {
			t.Fatalf("%d are listed, want %d", len(all), workers*each)
		}
		if !slices.IsSortedFunc(all, func(a, b held) int { return cmp.Compare(a.name, b.name) }) {
			t.Error("they are listed out of order")
		}
		if got := k.get("c-999").name; got != "c-999" {
			t.Errorf("%q instead of c-999", got)
		}
	})
}
