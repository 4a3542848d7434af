package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"gapless/feed"
)

// wantSealed checks that the store takes no appends and no change of its
// control state but audit entries, and is all there. It has to be furnished.
func (d *durable) wantSealed(at []feed.Cursor) {
	d.Helper()
	head := at[len(at)-1]
	_, err := d.log.Append(d.ctx, []feed.Draft{d.draft()})
	d.wantCode("append", err, feed.CodeSealed)
	if !d.status().Sealed {
		d.Error("the status does not say that it is sealed")
	}
	for _, kind := range cursorKinds {
		k := d.kindOf(cursorKey{kind: kind.name})
		k.refused("create "+kind.name, feed.CodeSealed, func() error { return kind.create(k.ctx, k.store, "new", head) })
		k.refused("move "+kind.name, feed.CodeSealed, func() error { return kind.move(k.ctx, k.store, "behind", k.get("behind").cursor, head) })
		k.refused("delete "+kind.name, feed.CodeSealed, func() error { return kind.delete(k.ctx, k.store, "behind") })
	}
	d.refused("update webhook", feed.CodeSealed, func() error {
		return d.store.UpdateWebhook(d.ctx, feed.Webhook{ID: "behind", URL: "https://example.org/new", Status: feed.WebhookPaused})
	})
	d.record(feed.AuditEntry{Actor: "ann", Action: "x"})
	page := d.read(head.Seq-5, feed.Limit{Events: 10})
	d.wantFollowing(page, head.Seq-5, 5)
	if page.Head != head.Position || page.Epoch != head.Epoch || page.Anchor != at[head.Seq-5].Fence {
		d.Errorf("sealed, the log is %+v, want it at %s", page.Bounds, head)
	}
	d.wantFound(everything, 3)
	d.wantInfo()
	if err := d.log.Wait(d.ctx, at[head.Seq-1]); err != nil {
		d.Errorf("a wait below the head: %v", err)
	}
	ctx, cancel := context.WithCancel(d.ctx)
	cancel()
	if err := d.log.Wait(ctx, head); err != nil && !errors.Is(err, context.Canceled) {
		d.Errorf("a wait at the head: %v", err)
	}
}

func (s *durableSuite) testSeal(t *testing.T) {
	t.Run("it seals the store, and reading goes on", func(t *testing.T) {
		d, at, placed := s.furnish(t, Config{})
		answer := d.waiting(at[10])
		_, m := d.backup(feed.BackupOptions{Actor: "ann", Final: true, Progress: d.progress()})
		d.wantManifest(m)
		for range 2 {
			d.wantSealed(at)
			d.wantCursors(placed)
			if n := d.audited(feed.ActionSeal); n != 1 {
				t.Errorf("the audit has %d seals, want 1", n)
			}
			wantAudited[map[string]any](d, feed.ActionSeal, "ann")
			if audited := wantAudited[feed.Manifest](d, feed.ActionBackup, "ann"); !audited.Final || audited.HeadSeq != 10 {
				t.Errorf("it is audited as %+v", audited)
			}
			d = d.reopen()
		}
		if err := <-answer; err != nil && !errors.Is(err, feed.ErrClosed) { // closed with the store
			t.Errorf("a wait that was on: %v", err)
		}
	})

	t.Run("a sealed store can be backed up again", func(t *testing.T) {
		d, at, _ := s.furnish(t, Config{})
		_, first := d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		d = d.reopen()
		_, second := d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		d.wantManifest(second)
		if second.HeadSeq != first.HeadSeq || second.HeadFence != first.HeadFence || second.Epoch != first.Epoch {
			t.Errorf("%+v became %+v", first, second)
		}
		d.backup(feed.BackupOptions{Actor: "ann"}) // takes no seal away
		d.wantSealed(at)
	})

	t.Run("a finalized restore takes the seal away", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		d.finalize(feed.FinalizeOptions{Actor: "ann", DryRun: true})
		if !d.status().Sealed {
			t.Error("a dry run took it away")
		}
		d.finalize(feed.FinalizeOptions{Actor: "ann"})
		for n := range 2 {
			if d.status().Sealed {
				t.Error("it is still sealed")
			}
			d.wantReceipt(d.append(d.draft()), 11+n)
			d = d.reopen()
		}
	})

	t.Run("the state moves again once the seal is gone", func(t *testing.T) {
		d, _, placed := s.furnish(t, Config{})
		d.backup(feed.BackupOptions{Actor: "ann", Final: true})
		d.finalize(feed.FinalizeOptions{Actor: "ann"})
		for key := range placed {
			k := d.kindOf(key)
			k.move(key.name, d.head(), d.head())
		}
		d.create("new", d.head())
	})

	t.Run("where its seal goes while it is made there is no manifest", func(t *testing.T) {
		for what, after := range map[string]func(d *durable){
			"finalized": func(*durable) {},
			"finalized, and grown": func(d *durable) {
				if _, err := d.log.Append(d.ctx, []feed.Draft{d.draft()}); err != nil {
					t.Errorf("append: %v", err)
				}
			},
			"finalized, and sealed again": func(d *durable) {
				if _, err := d.durable.Backup(d.ctx, filepath.Join(t.TempDir(), "other"), feed.BackupOptions{Actor: "bob", Final: true}); err != nil {
					t.Errorf("backup: %v", err)
				}
			},
		} {
			d, _, _ := s.furnish(t, Config{})
			dir, taken := filepath.Join(t.TempDir(), "backup"), false
			_, err := d.durable.Backup(d.ctx, dir, feed.BackupOptions{Actor: "ann", Final: true, Progress: func(done float64) {
				if taken || done == 1 {
					return
				}
				taken = true
				if _, err := d.durable.Finalize(d.ctx, feed.FinalizeOptions{Actor: "bob"}); err != nil {
					t.Errorf("finalize: %v", err)
				}
				after(d)
			}})
			if !taken { // it is made in one step
				continue
			}
			d.wantCode(what, err, feed.CodeConflict)
			if _, err := os.Stat(filepath.Join(dir, feed.ManifestName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: it left a manifest: %v", what, err)
			}
		}
	})

	t.Run("nothing is acknowledged that it does not hold", func(t *testing.T) {
		const appenders = 6
		d := s.site(t, Config{Retention: feed.Retention{Events: 1 << 20}}).open()
		running := make(chan struct{}, 1<<16)
		last := make([]uint64, appenders)
		var m feed.Manifest
		var sealed atomic.Bool
		together(appenders+1, func(i int) {
			if i == appenders {
				for range 20 * appenders {
					select {
					case <-running:
					case <-d.ctx.Done():
					}
				}
				var err error
				if m, err = d.durable.Backup(d.ctx, filepath.Join(t.TempDir(), "backup"), feed.BackupOptions{Actor: "ann", Final: true}); err != nil {
					t.Errorf("backup: %v", err)
				}
				sealed.Store(true)
				return
			}
			for n := 0; ; n++ {
				late := sealed.Load()
				receipt, err := d.log.Append(d.ctx, []feed.Draft{{ID: fmt.Sprintf("%d-%d", i, n), Type: "made", Topic: "t", Data: json.RawMessage("1")}})
				if err != nil && feed.CodeOf(err) == feed.CodeSealed {
					return
				}
				if err != nil || late {
					t.Errorf("append: %v; it began after the backup was done: %v", err, late)
					return
				}
				last[i] = receipt.Events[0].Seq
				select {
				case running <- struct{}{}:
				default:
				}
			}
		})
		for i, seq := range last {
			if seq > m.HeadSeq {
				t.Errorf("appender %d had %d acknowledged, the backup's head is %d", i, seq, m.HeadSeq)
			}
		}
		d.wantManifest(m)
	})
}
