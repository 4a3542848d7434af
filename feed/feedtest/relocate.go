package feedtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

// moved is a furnished store that a final backup sealed, opened again where
// its guard takes the place for another.
func (s *durableSuite) moved(t *testing.T) (d *durable, at []feed.Cursor, placed map[cursorKey]feed.Cursor, m feed.Manifest) {
	t.Helper()
	d, at, placed = s.furnish(t, Config{})
	_, m = d.backup(feed.BackupOptions{Actor: "ann", Final: true})
	return s.disturb(d), at, placed, m
}

// disturb opens a place again where the guard keeps it shut.
func (s *durableSuite) disturb(d *durable) *durable {
	d.Helper()
	d.close()
	s.hands.Disturb(d.T, d.site.place)
	return d.site.open()
}

// wantNotRelocated checks that a relocation of a shut store changes nothing.
func (d *durable) wantNotRelocated(what string, m feed.Manifest) {
	d.Helper()
	before := d.snapshot() + d.outline()
	_, err := d.durable.Relocate(d.ctx, m, "ann")
	d.wantCode(what, err, feed.CodeConflict)
	d.wantSame(what, before, d.snapshot()+d.outline())
}

func (s *durableSuite) testRelocate(t *testing.T) {
	t.Run("never where the store was sealed", func(t *testing.T) {
		d, at, _ := s.furnish(t, Config{})
		_, m := d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		for range 2 {
			d.wantNotRelocated("at the source", m)
			if _, err := d.durable.Relocate(d.ctx, m, "ann"); err == nil || !strings.Contains(err.Error(), "gapless restore finalize") {
				t.Errorf("%v does not name the command gapless restore finalize", err)
			}
			d.wantSealed(at)
			d = d.reopen()
		}
		d.finalize(feed.FinalizeOptions{Actor: "ann"})
		d.wantNotRelocated("at the source, finalized", m)
	})

	if s.hands.Disturb == nil {
		return
	}

	t.Run("only with the right manifest", func(t *testing.T) {
		d, at, _ := s.furnish(t, Config{})
		_, plain := d.backup(feed.BackupOptions{Actor: "ann"})
		_, final := d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		d = s.disturb(d)
		for what, change := range map[string]func(m *feed.Manifest){
			"of a backup that was not final": func(m *feed.Manifest) { *m = plain },
			"of another epoch":               func(m *feed.Manifest) { m.Epoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV" },
			"of a lower head":                func(m *feed.Manifest) { m.HeadSeq, m.HeadFence = 9, at[9].Fence },
			"of a higher head":               func(m *feed.Manifest) { m.HeadSeq = 11 },
			"of another event at the head":   func(m *feed.Manifest) { m.HeadFence = feed.NewFence() },
			"without a head fence":           func(m *feed.Manifest) { m.HeadFence = feed.Fence{} },
		} {
			m := final
			change(&m)
			d.wantNotRelocated(what, m)
		}
		d.relocate(final, at[10])
	})

	t.Run("only a copy that was sealed", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		_, m := d.backup(feed.BackupOptions{Actor: "ann"})
		m.Final = true
		d = s.disturb(d)
		d.wantNotRelocated("of no seal", m)
	})

	t.Run("the epoch stays, the seal goes", func(t *testing.T) {
		d, at, placed, m := s.moved(t)
		d.relocate(m, at[10])
		for n := range 2 {
			d.wantCursors(placed)
			if receipt := d.append(d.draft()); receipt.Epoch != at[10].Epoch {
				t.Errorf("the next append is of epoch %s, want %s", receipt.Epoch, at[10].Epoch)
			}
			d.wantBounds(uint64(4+n), uint64(11+n))
			if status := d.status(); status.Sealed || !status.Finalized {
				t.Errorf("status %+v", status)
			}
			d = d.reopen()
		}
		d.wantNotRelocated("the manifest again", m)
		d = s.disturb(d)
		d.wantNotRelocated("the manifest again, of a log that has grown", m)
	})

	t.Run("the state moves on", func(t *testing.T) {
		d, at, placed, m := s.moved(t)
		d.relocate(m, at[10])
		for key, cursor := range placed {
			d.kindOf(key).move(key.name, cursor, at[10])
		}
		d.create("new", at[10])
	})

	t.Run("again, as after a kill before its answer", func(t *testing.T) {
		d, at, placed, m := s.moved(t)
		for range 2 {
			d.relocate(m, at[10])
			d = s.disturb(d)
		}
		d.relocate(m, at[10])
		d.wantCursors(placed)
		d.wantReceipt(d.append(d.draft()), 11)
	})

	t.Run("an empty store", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		start := d.head()
		_, m := d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		d = s.disturb(d)
		d.relocate(m, start)
		d.wantReceipt(d.append(d.draft()), 1)
	})

	t.Run("in a context that has ended it changes nothing", func(t *testing.T) {
		d, at, _, m := s.moved(t)
		before := d.snapshot() + d.outline()
		ctx, cancel := context.WithCancel(d.ctx)
		cancel()
		if _, err := d.durable.Relocate(ctx, m, "ann"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		d.wantSame("after it", before, d.snapshot()+d.outline())
		d.relocate(m, at[10])
	})
}

// relocate takes the place over, with a manifest that is right.
func (d *durable) relocate(m feed.Manifest, head feed.Cursor) {
	d.Helper()
	done, err := d.durable.Relocate(d.ctx, m, "bob")
	if err != nil {
		d.Fatalf("relocate: %v", err)
	}
	if done.Epoch != head.Epoch || done.HeadSeq != head.Seq || done.HeadFence != head.Fence {
		d.Errorf("relocated %+v, want it at %s", done, head)
	}
	d.wantTime("relocate", done.Time)
	d.wantPlain("the new identity", done.NewIdentity)
	audited := wantAudited[feed.Relocated](d, feed.ActionRelocate, "bob")
	if !audited.Time.Equal(done.Time) {
		d.Errorf("it is audited at %v, was done at %v", audited.Time, done.Time)
	}
	audited.Time = time.Time{}
	done.Time = time.Time{}
	wantEqual(d.T, "the audit entry's detail", audited, done)
}
