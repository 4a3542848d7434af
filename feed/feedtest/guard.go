package feedtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gapless/feed"
)

// disturbed is a furnished store, opened again where its guard keeps it shut.
func (s *durableSuite) disturbed(t *testing.T) (*durable, []feed.Cursor, map[cursorKey]feed.Cursor) {
	t.Helper()
	d, at, placed := s.furnish(t, Config{})
	d.close()
	s.hands.Disturb(t, d.site.place)
	return d.site.open(), at, placed
}

// wantShut checks what a store answers whose guard keeps it shut.
func (d *durable) wantShut(at []feed.Cursor, placed map[cursorKey]feed.Cursor) {
	d.Helper()
	refused := func(name string, err error) {
		d.wantCode(name, err, feed.CodeRestoreNotFinalized)
		e := (*feed.Error)(nil)
		if errors.As(err, &e) && !strings.Contains(e.Msg, "gapless restore status") {
			d.Errorf("%s: %q does not name the command gapless restore status", name, e.Msg)
		}
	}
	before := d.snapshot() + d.outline()
	wait := call{"wait", func(ctx context.Context, l feed.Log) error { return l.Wait(ctx, at[0]) }}
	for _, c := range append(calls(), wait) {
		refused(c.name, c.do(d.ctx, d.log))
	}
	for _, kind := range cursorKinds {
		refused("create "+kind.name, kind.create(d.ctx, d.store, "new", at[10]))
		refused("move "+kind.name, kind.move(d.ctx, d.store, "behind", placed[cursorKey{kind.name, "behind"}], at[10]))
		refused("delete "+kind.name, kind.delete(d.ctx, d.store, "behind"))
	}
	refused("update webhook", d.store.UpdateWebhook(d.ctx, feed.Webhook{ID: "behind", URL: "u", Status: feed.WebhookPaused}))
	_ = d.log.Info()

	d.wantCursors(placed) // listing works
	status := d.status()
	if status.Finalized || status.Sealed || status.Epoch != at[10].Epoch || status.OldestSeq != 3 || status.HeadSeq != 10 || status.HeadFence != at[10].Fence {
		d.Errorf("status %+v, want it not finalized, epoch %s, 3 to 10, head fence %s", status, at[10].Epoch, at[10].Fence)
	}
	d.wantPlain("the cause", status.Cause)
	d.wantPlain("the identity that is expected", status.Expected)
	d.wantPlain("the identity that is found", status.Found)
	d.wantSkips("status", status.Skips, placed, nil, at[10].Position)
	d.wantSame("refused calls", before, d.snapshot()+d.outline())
}

func (s *durableSuite) testGuard(t *testing.T) {
	t.Run("it keeps the store shut", func(t *testing.T) {
		d, at, placed := s.disturbed(t)
		for range 2 {
			d.wantShut(at, placed)
			d = d.reopen() // and that does not wear off
		}
	})

	t.Run("a dry run leaves it shut", func(t *testing.T) {
		d, at, placed := s.disturbed(t)
		dry := d.finalize(feed.FinalizeOptions{Actor: "ann", DryRun: true})
		if !dry.DryRun || dry.NewEpoch != "" || dry.OldEpoch != at[10].Epoch || dry.HeadSeq != 10 {
			t.Errorf("%+v", dry)
		}
		d.wantSkips("dry run", dry.Skips, placed, nil, at[10].Position)
		d.wantShut(at, placed)
	})

	t.Run("a finalized restore lifts it", func(t *testing.T) {
		d, at, placed := s.disturbed(t)
		done := d.finalize(feed.FinalizeOptions{Actor: "ann"})
		d.wantSkips("finalize", done.Skips, placed, nil, at[10].Position)
		for n := range 2 {
			if status := d.status(); !status.Finalized || status.Epoch != done.NewEpoch || status.Cause != "" {
				t.Errorf("status %+v", status)
			}
			d.wantReset(placed, feed.Cursor{Epoch: done.NewEpoch, Position: at[10].Position})
			if receipt := d.append(d.draft()); receipt.Epoch != done.NewEpoch {
				t.Errorf("the next append is of epoch %s, want %s", receipt.Epoch, done.NewEpoch)
			}
			d.wantBounds(uint64(4+n), uint64(11+n))
			d = d.reopen()
		}
	})

	t.Run("a relocation lifts it, with the right manifest", func(t *testing.T) {
		d, at, placed := s.furnish(t, Config{})
		_, m := d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		d.close()
		s.hands.Disturb(t, d.site.place)
		d = d.site.open()
		wrong := m
		wrong.HeadFence = feed.NewFence()
		_, err := d.durable.Relocate(d.ctx, wrong, "ann")
		d.wantCode("with a wrong manifest", err, feed.CodeConflict)
		if status := d.status(); status.Finalized || !status.Sealed {
			t.Errorf("status %+v, want it sealed and not finalized", status)
		}
		_, err = d.log.Read(d.ctx, 0, feed.Limit{})
		d.wantCode("read", err, feed.CodeRestoreNotFinalized)
		d.relocate(m, at[10])
		for n := range 2 {
			d.wantCursors(placed)
			d.wantReceipt(d.append(d.draft()), 11+n)
			d = d.reopen()
		}
	})

	t.Run("a shut store can be backed up and checked", func(t *testing.T) {
		d, at, placed := s.disturbed(t)
		_, m := d.backup(feed.BackupOptions{Actor: "ann"})
		if m.Epoch != at[10].Epoch || m.HeadSeq != 10 || m.HeadFence != at[10].Fence || m.OldestSeq != 3 {
			t.Errorf("the manifest is %+v", m)
		}
		if err := d.durable.Check(d.ctx, nil); err != nil {
			t.Errorf("check: %v", err)
		}
		d.wantShut(at, placed)
	})
}
