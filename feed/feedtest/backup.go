package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gapless/feed"
)

// backup makes a backup into a new directory and checks its manifest.
func (d *durable) backup(opts feed.BackupOptions) (dir string, m feed.Manifest) {
	d.Helper()
	dir = filepath.Join(d.TempDir(), "backup")
	m, err := d.durable.Backup(d.ctx, dir, opts)
	if err != nil {
		d.Fatalf("backup: %v", err)
	}
	written, err := feed.VerifyFiles(d.ctx, dir)
	if err != nil {
		d.Fatalf("verifying the backup: %v", err)
	}
	if !written.Time.Equal(m.Time) {
		d.Errorf("the manifest is of %v, written as of %v", m.Time, written.Time)
	}
	d.wantTime("backup", m.Time)
	written.Time = m.Time
	if fmt.Sprint(written) != fmt.Sprint(m) {
		d.Errorf("the manifest that was written is\n%+v\nthat which was returned\n%+v", written, m)
	}
	if m.Format != feed.ManifestFormat || m.Store != d.log.Info().Store || m.Final != opts.Final {
		d.Errorf("the manifest is %+v", m)
	}
	d.wantPlain("the manifest's identity", m.Identity)
	return dir, m
}

// wantManifest checks a manifest against a log that rests.
func (d *durable) wantManifest(m feed.Manifest) {
	d.Helper()
	b := d.bounds()
	if m.Epoch != b.Epoch || m.OldestSeq != b.Oldest || m.HeadSeq != b.Head.Seq || m.HeadFence != b.Head.Fence {
		d.Errorf("the manifest is %+v, the log %+v", m, b)
	}
}

func (s *durableSuite) testBackup(t *testing.T) {
	t.Run("its manifest says what it holds", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		_, m := d.backup(feed.BackupOptions{Actor: "ann", Progress: d.progress()})
		d.wantManifest(m)
		audited := wantAudited[feed.Manifest](d, feed.ActionBackup, "ann")
		if audited.Epoch != m.Epoch || audited.HeadSeq != m.HeadSeq || audited.HeadFence != m.HeadFence || audited.Final {
			t.Errorf("it is audited as %+v, was %+v", audited, m)
		}
	})

	t.Run("of an empty store", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		_, m := d.backup(feed.BackupOptions{Actor: "ann"})
		d.wantManifest(m)
	})

	t.Run("the store goes on", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		d.backup(feed.BackupOptions{Actor: "ann"})
		d.wantReceipt(d.append(d.draft()), 11)
		_, m := d.backup(feed.BackupOptions{Actor: "bob"})
		d.wantManifest(m)
		if status := d.status(); status.Sealed || !status.Finalized {
			t.Errorf("status %+v", status)
		}
		before := d.contents()
		d = d.reopen()
		d.wantSame("reopened", before, d.contents())
	})

	t.Run("beside appends it is of one moment", func(t *testing.T) {
		d := s.site(t, Config{Retention: feed.Retention{Events: 1 << 20}}).open()
		d.fill(20)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := d.log.Append(d.ctx, []feed.Draft{{ID: fmt.Sprintf("%d-%d", i, n), Type: "made", Topic: "t", Data: json.RawMessage("1")}}); err != nil {
						t.Errorf("append: %v", err)
						return
					}
				}
			})
		}
		from := d.bounds().Head.Seq
		_, m := d.backup(feed.BackupOptions{Actor: "ann"})
		to := d.bounds().Head.Seq
		close(stop)
		wg.Wait()
		if m.HeadSeq < from || m.HeadSeq > to {
			t.Errorf("its head is %d, the log's was %d before and %d after", m.HeadSeq, from, to)
		}
		if page := d.read(m.HeadSeq, feed.Limit{}); page.Anchor != m.HeadFence {
			t.Errorf("its head fence is %s, the log has %s at %d", m.HeadFence, page.Anchor, m.HeadSeq)
		}
	})

	t.Run("into a directory that is there, and empty", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		dir := t.TempDir()
		if _, err := d.durable.Backup(d.ctx, dir, feed.BackupOptions{Actor: "ann"}); err != nil {
			t.Fatal(err)
		}
		if _, err := feed.VerifyFiles(d.ctx, dir); err != nil {
			t.Error(err)
		}
	})

	t.Run("never into one that is not empty", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := d.contents()
		for _, final := range []bool{false, true} {
			if _, err := d.durable.Backup(d.ctx, dir, feed.BackupOptions{Actor: "ann", Final: final}); err == nil {
				t.Error("it was made")
			}
		}
		d.wantSame("after it", before, d.contents())
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("the directory has %v, %v", entries, err)
		}
	})

	t.Run("in a context that has ended it is not made", func(t *testing.T) {
		d, _, _ := s.furnish(t, Config{})
		before := d.contents()
		ctx, cancel := context.WithCancel(d.ctx)
		cancel()
		dir := filepath.Join(t.TempDir(), "backup")
		for _, final := range []bool{false, true} {
			if _, err := d.durable.Backup(ctx, dir, feed.BackupOptions{Actor: "ann", Final: final}); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want %v", err, context.Canceled)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, feed.ManifestName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it left a manifest: %v", err)
		}
		d.wantSame("after it", before, d.contents())
	})
}
