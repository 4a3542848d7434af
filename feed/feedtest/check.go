package feedtest

import (
	"context"
	"errors"
	"testing"

	"gapless/feed"
)

func (s *durableSuite) testDurableClose(t *testing.T) {
	d, at, _ := s.furnish(t, Config{})
	_, m := d.backup(feed.BackupOptions{Actor: "ann"})
	dir := t.TempDir()
	d.close()
	for what, do := range map[string]func() error{
		"restore status": func() error { _, err := d.durable.RestoreStatus(d.ctx); return err },
		"finalize":       func() error { _, err := d.durable.Finalize(d.ctx, feed.FinalizeOptions{Actor: "ann"}); return err },
		"relocate":       func() error { m.Final = true; _, err := d.durable.Relocate(d.ctx, m, "ann"); return err },
		"backup": func() error {
			_, err := d.durable.Backup(d.ctx, dir+"/b", feed.BackupOptions{Actor: "ann"})
			return err
		},
		"check": func() error { return d.durable.Check(d.ctx, nil) },
	} {
		if err := do(); !errors.Is(err, feed.ErrClosed) {
			t.Errorf("%s: %v, want %v", what, err, feed.ErrClosed)
		}
	}
	for _, c := range append(calls(), stateCalls(at[10])...) {
		if err := c.do(d.ctx, d.log); !errors.Is(err, feed.ErrClosed) {
			t.Errorf("%s: %v, want %v", c.name, err, feed.ErrClosed)
		}
	}
	d.close()
}

func (s *durableSuite) testCheck(t *testing.T) {
	d, _, _ := s.furnish(t, Config{})
	for _, progress := range []func(float64){nil, d.progress()} {
		if err := d.durable.Check(d.ctx, progress); err != nil {
			t.Errorf("check of a healthy store: %v", err)
		}
	}
	d.append(exotic()...)
	d.finalize(feed.FinalizeOptions{Actor: "ann"})
	d.fill(3)
	d = d.reopen()
	if err := d.durable.Check(d.ctx, nil); err != nil {
		t.Errorf("check of a healthy store, reopened: %v", err)
	}
	ctx, cancel := context.WithCancel(d.ctx)
	cancel()
	if err := d.durable.Check(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("check in a context that has ended: %v, want %v", err, context.Canceled)
	}
	if err := s.site(t, Config{}).open().durable.Check(d.ctx, nil); err != nil {
		t.Errorf("check of an empty store: %v", err)
	}
}

// progress checks what it is told.
func (d *durable) progress() func(float64) {
	return func(done float64) {
		if !(done >= 0 && done <= 1) {
			d.Errorf("progress is %v, want a share", done)
		}
	}
}
