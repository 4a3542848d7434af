package feedtest

import (
	"testing"

	"gapless/feed"
)

func (s *durableSuite) testStatus(t *testing.T) {
	t.Run("of a healthy store", func(t *testing.T) {
		d, at, placed := s.furnish(t, Config{})
		for range 2 {
			got := d.status()
			if got.Store == "" || got.Store != d.log.Info().Store || got.Guard != feed.GuardStrict || !got.Finalized || got.Sealed {
				t.Errorf("%+v", got)
			}
			if got.Epoch != at[10].Epoch || got.OldestSeq != 3 || got.HeadSeq != 10 || got.HeadFence != at[10].Fence {
				t.Errorf("%+v, want epoch %s, 3 to 10, head fence %s", got, at[10].Epoch, at[10].Fence)
			}
			d.wantPlain("the identity that is found", got.Found)
			d.wantSkips("status", got.Skips, placed, nil, at[10].Position)
			d = d.reopen()
		}
	})

	t.Run("of an empty store", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		start := d.head()
		d.create("c", start)
		got := d.status()
		if got.Epoch != start.Epoch || got.OldestSeq != 1 || got.HeadSeq != 0 || got.HeadFence.Known() || !got.Finalized {
			t.Errorf("%+v", got)
		}
		d.wantSkips("status", got.Skips, map[cursorKey]feed.Cursor{{"consumer", "c"}: start}, nil, feed.Position{})
	})

	if s.hands.SetCursor != nil {
		t.Run("of cursors that a lost branch left", func(t *testing.T) {
			d, placed, lost := s.strand(t)
			d.wantSkips("status", d.status().Skips, placed, lost, d.bounds().Head)
			dry := d.finalize(feed.FinalizeOptions{DryRun: true})
			d.wantSkips("dry run", dry.Skips, placed, lost, d.bounds().Head)
		})
	}
}

// strand furnishes a store of which some cursors are not of its log, and says
// which.
func (s *durableSuite) strand(t *testing.T) (d *durable, placed map[cursorKey]feed.Cursor, lost map[cursorKey]bool) {
	t.Helper()
	d, at, placed := s.furnish(t, Config{})
	lost = make(map[cursorKey]bool)
	above, foreign, other := at[10], at[5], at[6]
	above.Seq, above.Fence = 25, feed.NewFence()
	foreign.Epoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	other.Fence = feed.NewFence()
	stranded := map[cursorKey]feed.Cursor{
		{"consumer", "above"}: above, {"consumer", "foreign"}: foreign, {"consumer", "other"}: other,
		{"webhook", "above"}: above, {"webhook", "foreign"}: foreign,
	}
	for key := range stranded {
		d.kindOf(key).create(key.name, at[10])
	}
	d.close()
	for key, cursor := range stranded {
		s.hands.SetCursor(t, d.site.place, key.kind, key.name, cursor)
		placed[key], lost[key] = cursor, true
	}
	d = d.site.open()
	d.wantCursors(placed)
	return d, placed, lost
}

// wantSkips compares what is said to be skipped with where the cursors are, in
// a log whose oldest event is 3 where it has any.
func (d *durable) wantSkips(what string, got []feed.Skip, placed map[cursorKey]feed.Cursor, lost map[cursorKey]bool, head feed.Position) {
	d.Helper()
	skips := make(map[cursorKey]feed.Skip)
	for _, skip := range got {
		key := cursorKey{skip.Kind, skip.Name}
		if _, ok := skips[key]; ok {
			d.Errorf("%s: %v is listed twice", what, key)
		}
		skips[key] = skip
	}
	if len(skips) != len(placed) {
		d.Errorf("%s: %d cursors are listed, want all %d, also those that skip nothing", what, len(skips), len(placed))
	}
	for _, key := range sortedKeys(placed) {
		skip, ok := skips[key]
		if !ok {
			d.Errorf("%s: %v is not listed", what, key)
			continue
		}
		at := placed[key]
		if skip.From != at.String() {
			d.Errorf("%s: %v is at %s, said to be at %q", what, key, at, skip.From)
		}
		if to, err := feed.ParseCursor(skip.To); err != nil || to.Position != head {
			d.Errorf("%s: %v goes to %q, want position %d-%s", what, key, skip.To, head.Seq, head.Fence)
		}
		if skip.Lost != lost[key] {
			d.Errorf("%s: %v, at %s: lost is %v, want %v", what, key, at, skip.Lost, lost[key])
		}
		first, last := max(at.Seq+1, 3), head.Seq
		if first > last {
			first, last = 0, 0
		}
		// What a cursor that means another event has not acknowledged cannot be
		// known; one above the head skips nothing that there is.
		known := !lost[key] || at.Seq > head.Seq
		if known && (skip.FirstSeq != first || skip.LastSeq != last) {
			d.Errorf("%s: %v, at %s, skips %d to %d, want %d to %d", what, key, at, skip.FirstSeq, skip.LastSeq, first, last)
		}
		if skip.LastSeq > head.Seq || skip.FirstSeq > skip.LastSeq || (skip.FirstSeq == 0) != (skip.LastSeq == 0) {
			d.Errorf("%s: %v skips %d to %d of a log whose head is %d", what, key, skip.FirstSeq, skip.LastSeq, head.Seq)
		}
	}
}
