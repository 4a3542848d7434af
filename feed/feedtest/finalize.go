package feedtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"gapless/feed"
)

func (s *durableSuite) testFinalize(t *testing.T) {
	t.Run("a dry run says what would be, and changes nothing", func(t *testing.T) {
		d, at, placed := s.furnish(t, Config{})
		before := d.contents()
		for range 2 {
			got := d.finalize(feed.FinalizeOptions{Actor: "ann", DryRun: true})
			if !got.DryRun || got.NewEpoch != "" || got.OldEpoch != at[10].Epoch || got.OldestSeq != 3 || got.HeadSeq != 10 || got.HeadFence != at[10].Fence {
				t.Errorf("%+v, want a dry run in epoch %s, 3 to 10, head fence %s", got, at[10].Epoch, at[10].Fence)
			}
			d.wantPlain("its identity", got.Identity)
			d.wantSkips("dry run", got.Skips, placed, nil, at[10].Position)
			d.wantSame("after a dry run", before, d.contents())
		}
		d.wantReceipt(d.append(d.draft()), 11)
	})

	t.Run("a new epoch, the same events", func(t *testing.T) {
		d, at, placed := s.furnish(t, Config{})
		before := d.all()
		done := d.finalize(feed.FinalizeOptions{Actor: "ann"})
		if done.DryRun || done.OldEpoch != at[10].Epoch || done.NewEpoch == done.OldEpoch || done.OldestSeq != 3 || done.HeadSeq != 10 || done.HeadFence != at[10].Fence {
			t.Errorf("%+v, want epoch %s replaced, 3 to 10, head fence %s", done, at[10].Epoch, at[10].Fence)
		}
		d.wantTime("finalize", done.Time)
		d.wantPlain("its identity", done.Identity)
		if _, err := feed.ParseCursor(feed.Cursor{Epoch: done.NewEpoch}.String()); err != nil {
			t.Errorf("epoch %q is no ULID", done.NewEpoch)
		}
		d.wantSkips("finalize", done.Skips, placed, nil, at[10].Position)
		for _, skip := range done.Skips {
			if to, _ := feed.ParseCursor(skip.To); to.Epoch != done.NewEpoch {
				t.Errorf("%s %q goes to %s, want it in epoch %s", skip.Kind, skip.Name, skip.To, done.NewEpoch)
			}
		}
		for range 2 {
			page := d.read(2, feed.Limit{Events: 100})
			if page.Epoch != done.NewEpoch || page.Oldest != 3 || page.Head != at[10].Position || page.Anchor != at[2].Fence || page.TrimmedFence != at[2].Fence {
				t.Errorf("the log is %+v, anchor %s, trimmed fence %s", page.Bounds, page.Anchor, page.TrimmedFence)
			}
			for i, ev := range page.Events {
				if eventText(ev) != eventText(before[i]) {
					t.Errorf("an event became %s, was %s", eventText(ev), eventText(before[i]))
				}
			}
			if found := d.search(everything, 2, 0); found.Epoch != done.NewEpoch || found.After != at[8].Position {
				t.Errorf("a search finds %+v", found)
			}
			if status := d.status(); status.Epoch != done.NewEpoch || !status.Finalized || status.HeadSeq != 10 {
				t.Errorf("status %+v", status)
			}
			d.wantReset(placed, feed.Cursor{Epoch: done.NewEpoch, Position: at[10].Position})
			audited := wantAudited[feed.Finalized](d, feed.ActionFinalize, "ann")
			if !audited.Time.Equal(done.Time) {
				t.Errorf("it is audited at %v, was done at %v", audited.Time, done.Time)
			}
			audited.Time = done.Time
			wantEqual(t, "the audit entry's detail", audited, done)
			d = d.reopen()
		}
		if receipt := d.append(d.draft()); receipt.Epoch != done.NewEpoch || receipt.Events[0].Seq != 11 {
			t.Errorf("the next append is %+v, want 11 of epoch %s", receipt, done.NewEpoch)
		}
	})

	t.Run("the next append is of the new epoch", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		repeat := d.draft()
		d.append(repeat, d.draft())
		for range 2 {
			done := d.finalize(feed.FinalizeOptions{Actor: "ann"})
			receipt := d.append(repeat, d.draft())
			if receipt.Epoch != done.NewEpoch {
				t.Errorf("it is of epoch %s, want %s", receipt.Epoch, done.NewEpoch)
			}
			d.wantReceipt(receipt, -1, int(done.HeadSeq)+1)
		}
	})

	t.Run("only in the epoch that was seen", func(t *testing.T) {
		d, at, _ := s.furnish(t, Config{})
		first := d.finalize(feed.FinalizeOptions{Actor: "ann", Epoch: at[10].Epoch})
		before := d.contents()
		for _, dry := range []bool{true, false} {
			_, err := d.durable.Finalize(d.ctx, feed.FinalizeOptions{Actor: "bob", Epoch: at[10].Epoch, DryRun: dry})
			d.wantCode("finalize again", err, feed.CodeConflict)
			d.wantSame("after it", before, d.contents())
		}
		d.finalize(feed.FinalizeOptions{Actor: "bob", Epoch: first.NewEpoch, DryRun: true})
		d.finalize(feed.FinalizeOptions{Actor: "bob", Epoch: first.NewEpoch})
	})

	t.Run("whoever waits is woken", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		for n := range 2 { // empty, and not
			at := d.head()
			answer := d.waiting(at)
			d.finalize(feed.FinalizeOptions{Actor: "ann"})
			if err := <-answer; err != nil {
				t.Errorf("%d: %v", n, err)
			}
			if err := d.log.Wait(d.ctx, at); err != nil {
				t.Errorf("at a cursor of the old epoch: %v", err)
			}
			d.fill(1)
		}
	})

	t.Run("a reset is outstanding until it is acknowledged", func(t *testing.T) {
		d, at, placed := s.furnish(t, Config{})
		done := d.finalize(feed.FinalizeOptions{Actor: "ann"})
		head := feed.Cursor{Epoch: done.NewEpoch, Position: at[10].Position}
		d.fill(1)
		next := d.head()
		for key, old := range placed {
			k := d.kindOf(key)
			k.refused("acknowledging in the old epoch", feed.CodeEpochChanged, func() error { return k.kind.move(k.ctx, k.store, key.name, old, at[10]) })
			k.refused("acknowledging from the old epoch", feed.CodeEpochChanged, func() error { return k.kind.move(k.ctx, k.store, key.name, old, head) })
			if from := k.get(key.name).resetFrom; from != old {
				t.Errorf("%v is reset from %s, want %s", key, from, old)
			}
			to := head
			if key.name == "head" {
				to = next // a move on takes it as acknowledged too
			}
			k.move(key.name, head, to)
			if got := k.get(key.name); got.cursor != to || got.resetFrom != (feed.Cursor{}) {
				t.Errorf("acknowledged, %v is %v", key, got)
			}
		}
		if err := d.store.UpdateWebhook(d.ctx, feed.Webhook{ID: "behind", URL: "u", Status: feed.WebhookActive}); err != nil {
			t.Error(err)
		}
		again := d.finalize(feed.FinalizeOptions{Actor: "ann"})
		d.kindOf(cursorKey{kind: "consumer"}).wantCursor("behind", feed.Cursor{Epoch: again.NewEpoch, Position: next.Position})
		d.create("new", feed.Cursor{Epoch: again.NewEpoch, Position: next.Position})
		if got := d.get("new"); got.resetFrom != (feed.Cursor{}) {
			t.Errorf("a new one is %v", got)
		}
	})

	t.Run("an update leaves a reset outstanding", func(t *testing.T) {
		d, at, _ := s.furnish(t, Config{})
		d.finalize(feed.FinalizeOptions{Actor: "ann"})
		if err := d.store.UpdateWebhook(d.ctx, feed.Webhook{ID: "behind", URL: "u", Status: feed.WebhookPaused}); err != nil {
			t.Fatal(err)
		}
		if got := d.webhook("behind"); got.ResetFrom != at[9] || got.Status != feed.WebhookPaused {
			t.Errorf("the webhook is %+v, want it reset from %s", got, at[9])
		}
	})

	t.Run("an empty store", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		start := d.head()
		d.create("c", start)
		done := d.finalize(feed.FinalizeOptions{Actor: "ann"})
		if done.HeadSeq != 0 || done.OldestSeq != 1 || done.HeadFence.Known() || done.OldEpoch != start.Epoch {
			t.Errorf("%+v", done)
		}
		d.wantReset(map[cursorKey]feed.Cursor{{"consumer", "c"}: start}, feed.Cursor{Epoch: done.NewEpoch})
		d.wantReceipt(d.append(d.draft()), 1)
	})

	if s.needs(LacksClock, LacksAgeBound) {
		t.Run("a store that was trimmed empty", func(t *testing.T) {
			clock := newClock()
			d := s.site(t, Config{Now: clock.Now, Retention: feed.Retention{Age: time.Hour}}).open()
			d.fill(3)
			head := d.head()
			clock.move(2 * time.Hour)
			d.trim()
			done := d.finalize(feed.FinalizeOptions{Actor: "ann"})
			if done.HeadSeq != 3 || done.OldestSeq != 4 || done.HeadFence != head.Fence {
				t.Errorf("%+v, want 4 to 3, head fence %s", done, head.Fence)
			}
			if page := d.read(3, feed.Limit{}); page.Anchor != head.Fence {
				t.Errorf("the anchor at the head is %q, want %q", page.Anchor, head.Fence)
			}
			d.wantReceipt(d.append(d.draft()), 4)
		})
	}

	t.Run("in a context that has ended it changes nothing", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		before := d.contents()
		ctx, cancel := context.WithCancel(d.ctx)
		cancel()
		if _, err := d.durable.Finalize(ctx, feed.FinalizeOptions{Actor: "ann"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		d.wantSame("after it", before, d.contents())
	})

	t.Run("given up while it runs it is whole or absent", func(t *testing.T) {
		d, _, placed := s.furnish(t, Config{})
		finalized := 0
		for range 10 {
			before := d.contents()
			ctx, cancel := context.WithCancel(d.ctx)
			var err error
			together(2, func(half int) {
				if half == 0 {
					_, err = d.durable.Finalize(ctx, feed.FinalizeOptions{Actor: "ann"})
				} else {
					cancel()
				}
			})
			after := d.contents()
			if after == before {
				if err == nil {
					t.Fatal("it answered that it was done, and changed nothing")
				}
				continue
			}
			finalized++
			head := d.head()
			for key := range placed {
				if got := d.kindOf(key).get(key.name); got.cursor != head || got.resetFrom == (feed.Cursor{}) {
					t.Fatalf("%v is %v, want it at %s", key, got, head)
				}
			}
		}
		if n := d.audited(feed.ActionFinalize); n != finalized {
			t.Errorf("%d are audited, %d happened", n, finalized)
		}
	})

	if s.hands.SetCursor != nil {
		t.Run("it moves cursors that a lost branch left", func(t *testing.T) {
			d, placed, _ := s.strand(t)
			done := d.finalize(feed.FinalizeOptions{Actor: "ann"})
			d.wantReset(placed, feed.Cursor{Epoch: done.NewEpoch, Position: d.bounds().Head})
		})
	}
}

// wantReset checks that every cursor was moved to the head.
func (d *durable) wantReset(placed map[cursorKey]feed.Cursor, head feed.Cursor) {
	d.Helper()
	for key, old := range placed {
		if got := d.kindOf(key).get(key.name); got.cursor != head || got.resetFrom != old {
			d.Errorf("%v is %v, want it at %s, reset from %s", key, got, head, old)
		}
	}
}
