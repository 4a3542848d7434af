package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/memory"
)

// durableLog is a durable store for tests of the HTTP side: the log is in
// memory, what the guard and the seal say is the test's.
type durableLog struct {
	*memory.Log

	mu       sync.Mutex
	tripped  bool
	sealed   bool
	asked    int                     // RestoreStatus
	final    []feed.FinalizeOptions  // Finalize
	moved    []feed.Manifest         // Relocate
	actor    string                  // of the last Relocate
	backups  chan feed.BackupOptions // Backup has begun; nil: nobody looks
	goOn     chan struct{}           // Backup waits for it; nil: it does not
	cause    error                   // why the last Backup was given up
	disagree bool                    // Relocate finds a difference
	fails    error                   // of Finalize, Relocate and Backup
	hangs    chan struct{}           // RestoreStatus heeds nothing until it is closed; nil: it does not hang
	outbox   feed.OutboxStats
}

// durableTime is when everything happens to a durableLog.
func durableTime() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 123_456_000, time.UTC) }

// trippedMessage is what the guard says.
const trippedMessage = "this is not what the store remembers; gapless restore status says what to do"

func newDurable(t *testing.T) *durableLog {
	t.Helper()
	log, err := memory.New(memory.Config{Retention: feed.Retention{Events: 1024}, Now: durableTime})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return &durableLog{Log: log}
}

// serve makes a gateway's store of it.
func (d *durableLog) serve(o *options) {
	o.feed.Log, o.server.State, o.server.Durable = d, d, d
}

func (d *durableLog) set(change func(*durableLog)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *durableLog) guard() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tripped {
		return &feed.Error{Code: feed.CodeRestoreNotFinalized, Op: "guard", Msg: trippedMessage}
	}
	return nil
}

func (d *durableLog) Append(ctx context.Context, drafts []feed.Draft) (feed.Receipt, error) {
	if err := d.guard(); err != nil {
		return feed.Receipt{}, err
	}
	d.mu.Lock()
	sealed := d.sealed
	d.mu.Unlock()
	if sealed {
		return feed.Receipt{}, &feed.Error{Code: feed.CodeSealed, Op: "append", Msg: "a final backup has sealed the store"}
	}
	return d.Log.Append(ctx, drafts)
}

func (d *durableLog) Read(ctx context.Context, after uint64, limit feed.Limit) (feed.Page, error) {
	if err := d.guard(); err != nil {
		return feed.Page{}, err
	}
	return d.Log.Read(ctx, after, limit)
}

func (d *durableLog) Search(ctx context.Context, search feed.Search) (feed.Found, error) {
	if err := d.guard(); err != nil {
		return feed.Found{}, err
	}
	return d.Log.Search(ctx, search)
}

func (d *durableLog) RestoreStatus(context.Context) (feed.RestoreStatus, error) {
	d.mu.Lock()
	d.asked++
	hangs := d.hangs
	d.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := feed.RestoreStatus{
		Store: "sqlite", Guard: feed.GuardStrict, Finalized: !d.tripped, Sealed: d.sealed,
		Epoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", OldestSeq: 1, Expected: "there", Found: "here",
	}
	if d.tripped {
		s.Cause, s.HeadSeq = trippedMessage, d.Log.Info().Events
	}
	return s, nil
}

func (d *durableLog) Finalize(_ context.Context, opts feed.FinalizeOptions) (feed.Finalized, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.final = append(d.final, opts)
	if d.fails != nil {
		return feed.Finalized{}, d.fails
	}
	done := feed.Finalized{DryRun: opts.DryRun, Time: durableTime(), OldEpoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", OldestSeq: 1, Identity: "here"}
	if !opts.DryRun {
		done.NewEpoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCE"
		d.tripped, d.sealed = false, false
	}
	return done, nil
}

func (d *durableLog) Relocate(_ context.Context, m feed.Manifest, actor string) (feed.Relocated, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.disagree {
		return feed.Relocated{}, &feed.Error{Code: feed.CodeConflict, Op: "relocate", Msg: "the head is 7, the manifest says 8"}
	}
	d.moved, d.actor, d.tripped = append(d.moved, m), actor, false
	if d.fails != nil {
		return feed.Relocated{}, d.fails
	}
	return feed.Relocated{Time: durableTime(), Epoch: m.Epoch, OldIdentity: "there", NewIdentity: "here"}, nil
}

func (d *durableLog) Backup(ctx context.Context, _ string, opts feed.BackupOptions) (feed.Manifest, error) {
	d.mu.Lock()
	begun, goOn, err := d.backups, d.goOn, d.fails
	d.sealed = d.sealed || opts.Final
	d.mu.Unlock()
	if begun != nil {
		begun <- opts
	}
	if goOn != nil {
		select {
		case <-goOn:
		case <-ctx.Done():
			d.set(func(d *durableLog) { d.cause = context.Cause(ctx) })
			err = &feed.Error{Code: feed.CodeUnavailable, Op: "backup", Msg: "given up", Err: ctx.Err()}
		}
	}
	if err != nil && opts.Final {
		err = &feed.Error{Code: feed.CodeOf(err), Op: "backup", Msg: "the store stays sealed", Err: err}
	}
	return someManifest(opts.Final), err
}

func (d *durableLog) Check(context.Context, func(float64)) error { return nil }

func (d *durableLog) OutboxStats() feed.OutboxStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outbox
}

func someManifest(final bool) feed.Manifest {
	fence, _ := feed.ParseFence("7K3M9Q2P")
	return feed.Manifest{
		Format: feed.ManifestFormat, Store: "sqlite", Epoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", OldestSeq: 1, HeadSeq: 8,
		HeadFence: fence, Identity: "there", Final: final, Time: durableTime(),
		Files: []feed.ManifestFile{{Name: "gapless.db", Bytes: 4096, SHA256: strings.Repeat("0f", 32)}},
	}
}

// manifestJSON is a manifest as an operator's request carries it.
func manifestJSON(t *testing.T, m feed.Manifest) string {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
