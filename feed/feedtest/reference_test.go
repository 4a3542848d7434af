package feedtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"gapless/feed"
)

// TestTheDurableSuiteAcceptsAPlainStore: a store in memory that is right, with
// and without sharing of a place, so that what fails elsewhere is the backend.
func TestTheDurableSuiteAcceptsAPlainStore(t *testing.T) {
	lacks := []Lack{LacksClock, LacksExpiry, LacksByteBound, LacksAgeBound}
	for _, shared := range []bool{true, false} {
		name := "one at a time"
		if shared {
			name = "shared"
		}
		t.Run(name, func(t *testing.T) {
			disks := make(map[string]*disk)
			open := func(_ *testing.T, place string, cfg Config) (feed.Durable, error) {
				return openReference(disks, place, cfg, shared)
			}
			hands := Hands{
				Disturb: func(_ *testing.T, place string) { disks[place].identity += "'" },
				SetCursor: func(_ *testing.T, place, kind, name string, at feed.Cursor) {
					disk := disks[place]
					if kind == "consumer" {
						c := disk.consumers[name]
						c.Cursor = at
						disk.consumers[name] = c
					} else {
						w := disk.webhooks[name]
						w.Cursor = at
						disk.webhooks[name] = w
					}
				},
			}
			if shared {
				RunDurable(t, open, hands, lacks...)
			} else {
				RunDurable(t, open, hands, append(lacks, LacksSharing)...)
			}
		})
	}
	t.Run("state", func(t *testing.T) {
		RunState(t, func(t *testing.T, cfg Config) feed.Store {
			store, err := openReference(make(map[string]*disk), "place", cfg, false)
			if err != nil {
				t.Fatal(err)
			}
			return store
		}, lacks...)
	})
}

// disk is what outlives a reference store. Its mutex guards all of it.
type disk struct {
	sync.Mutex
	log                *Log // never closed
	consumers          map[string]feed.Consumer
	webhooks           map[string]feed.Webhook
	audit              []feed.AuditEntry
	identity, expected string
	inUse              bool
}

// reference is a feed.Durable over a disk: one mutex makes every method one
// transaction.
type reference struct {
	*disk
	shared bool
	closed chan struct{}
}

func openReference(disks map[string]*disk, place string, cfg Config, shared bool) (feed.Durable, error) {
	d := disks[place]
	if d == nil {
		d = &disk{
			log: NewLog(int(cfg.Retention.Events)), consumers: make(map[string]feed.Consumer), webhooks: make(map[string]feed.Webhook),
			identity: "disk 1", expected: "disk 1",
		}
		d.recordLocked("", feed.ActionSetUp, map[string]feed.Epoch{"epoch": d.log.epoch})
		disks[place] = d
	}
	if d.inUse && !shared {
		return nil, &feed.Error{Code: feed.CodeUnavailable, Op: "open", Msg: place + " is open already"}
	}
	d.inUse = true
	d.log.keep = int(cfg.Retention.Events)
	d.log.Shut(d.identity != d.expected)
	return &reference{disk: d, shared: shared, closed: make(chan struct{})}, nil
}

func (r *reference) Close() error {
	r.Lock()
	defer r.Unlock()
	select {
	case <-r.closed:
	default:
		close(r.closed)
		r.inUse = r.shared
	}
	return nil
}

// do runs one transaction. What it is to change it changes at its end only.
func (r *reference) do(ctx context.Context, guarded bool, do func() error) error {
	r.Lock()
	defer r.Unlock()
	select {
	case <-r.closed:
		return feed.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return &feed.Error{Code: feed.CodeUnavailable, Err: err}
	}
	if guarded && r.identity != r.expected {
		return &feed.Error{Code: feed.CodeRestoreNotFinalized, Msg: "another disk: see gapless restore status"}
	}
	return do()
}

// change is do for a change of the control state.
func (r *reference) change(ctx context.Context, do func() error) error {
	return r.do(ctx, true, func() error {
		if r.log.sealed {
			return &feed.Error{Code: feed.CodeSealed, Msg: "sealed"}
		}
		return do()
	})
}

func (r *reference) Append(ctx context.Context, drafts []feed.Draft) (receipt feed.Receipt, err error) {
	err = r.do(ctx, true, func() error { receipt, err = r.log.Append(ctx, drafts); return err })
	return receipt, err
}

func (r *reference) Read(ctx context.Context, after uint64, limit feed.Limit) (page feed.Page, err error) {
	err = r.do(ctx, true, func() error { page, err = r.log.Read(ctx, after, limit); return err })
	return page, err
}

func (r *reference) Search(ctx context.Context, search feed.Search) (found feed.Found, err error) {
	err = r.do(ctx, true, func() error { found, err = r.log.Search(ctx, search); return err })
	return found, err
}

func (r *reference) Wait(ctx context.Context, at feed.Cursor) error {
	waiting, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-r.closed:
			cancel()
		case <-waiting.Done():
		}
	}()
	err := r.log.Wait(waiting, at)
	cancel()
	<-done
	if closed := r.do(context.Background(), true, func() error { return nil }); closed != nil {
		return closed
	}
	return err
}

func (r *reference) Trim(ctx context.Context) error {
	return r.do(ctx, true, func() error {
		r.log.TrimTo(r.log.head.Seq + 1 - uint64(min(len(r.log.events), max(r.log.keep, 0))))
		return nil
	})
}

func (r *reference) Info() feed.Info { return r.log.Info() }

func (r *reference) bounds() feed.Bounds { return r.log.bounds() }

func now() time.Time { return time.Now().UTC().Truncate(feed.TimeUnit) }

func (r *reference) RestoreStatus(ctx context.Context) (status feed.RestoreStatus, err error) {
	err = r.do(ctx, false, func() error {
		b := r.bounds()
		status = feed.RestoreStatus{
			Store: "faulty", Guard: feed.GuardStrict, Finalized: r.identity == r.expected, Expected: r.expected, Found: r.identity,
			Sealed: r.log.sealed, Epoch: b.Epoch, OldestSeq: b.Oldest, HeadSeq: b.Head.Seq, HeadFence: b.Head.Fence, Skips: r.skips(b.Epoch),
		}
		if !status.Finalized {
			status.Cause = "the disk is another"
		}
		return nil
	})
	return status, err
}

func (r *reference) skips(epoch feed.Epoch) (list []feed.Skip) {
	b := r.bounds()
	skip := func(kind, name string, at feed.Cursor) {
		s := feed.Skip{Kind: kind, Name: name, From: at.String(), To: feed.Cursor{Epoch: epoch, Position: b.Head}.String()}
		if first := max(at.Seq+1, b.Oldest); first <= b.Head.Seq {
			s.FirstSeq, s.LastSeq = first, b.Head.Seq
		}
		_, err := r.place(at)
		s.Lost = err != nil
		list = append(list, s)
	}
	for _, c := range inOrder(r.consumers) {
		skip("consumer", c.Name, c.Cursor)
	}
	for _, w := range inOrder(r.webhooks) {
		skip("webhook", w.ID, w.Cursor)
	}
	return list
}

func (r *reference) Finalize(ctx context.Context, opts feed.FinalizeOptions) (done feed.Finalized, err error) {
	err = r.do(ctx, false, func() error {
		b := r.bounds()
		if opts.Epoch != "" && opts.Epoch != b.Epoch {
			return &feed.Error{Code: feed.CodeConflict, Msg: "in another epoch"}
		}
		done = feed.Finalized{
			DryRun: opts.DryRun, Time: now(), OldEpoch: b.Epoch, OldestSeq: b.Oldest, HeadSeq: b.Head.Seq, HeadFence: b.Head.Fence,
			Identity: r.identity, Skips: r.skips(b.Epoch),
		}
		if opts.DryRun {
			return nil
		}
		r.log.Renew()
		done.NewEpoch = r.log.epoch
		head := feed.Cursor{Epoch: done.NewEpoch, Position: b.Head}
		for i := range done.Skips {
			done.Skips[i].To = head.String()
		}
		for name, c := range r.consumers {
			c.ResetFrom, c.Cursor = c.Cursor, head
			r.consumers[name] = c
		}
		for id, w := range r.webhooks {
			w.ResetFrom, w.Cursor = w.Cursor, head
			r.webhooks[id] = w
		}
		r.takeOver()
		r.recordLocked(opts.Actor, feed.ActionFinalize, done)
		return nil
	})
	return done, err
}

// takeOver lifts the guard and the seal.
func (r *reference) takeOver() {
	r.expected = r.identity
	r.log.Seal(false)
	r.log.Shut(false)
}

func (r *reference) Relocate(ctx context.Context, m feed.Manifest, actor string) (done feed.Relocated, err error) {
	err = r.do(ctx, false, func() error {
		b := r.bounds()
		if !m.Final || m.Epoch != b.Epoch || m.HeadSeq != b.Head.Seq || m.HeadFence != b.Head.Fence {
			return &feed.Error{Code: feed.CodeConflict, Msg: "not of this log"}
		}
		if r.identity == r.expected {
			return &feed.Error{Code: feed.CodeConflict, Msg: "not another place: see gapless restore finalize"}
		}
		if last := r.audit[len(r.audit)-1]; !r.log.sealed && last.Action != feed.ActionRelocate {
			return &feed.Error{Code: feed.CodeConflict, Msg: "not sealed"}
		}
		done = feed.Relocated{Time: now(), Epoch: b.Epoch, HeadSeq: b.Head.Seq, HeadFence: b.Head.Fence, OldIdentity: r.expected, NewIdentity: r.identity}
		r.takeOver()
		r.recordLocked(actor, feed.ActionRelocate, done)
		return nil
	})
	return done, err
}

func (r *reference) Backup(ctx context.Context, dir string, opts feed.BackupOptions) (m feed.Manifest, err error) {
	err = r.do(ctx, false, func() error {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			return &feed.Error{Code: feed.CodeConflict, Msg: fmt.Sprint("not an empty directory: ", err)}
		}
		b := r.bounds()
		if opts.Final && !r.log.sealed {
			r.log.Seal(true)
			r.recordLocked(opts.Actor, feed.ActionSeal, map[string]uint64{"head": b.Head.Seq})
		}
		if opts.Progress != nil {
			opts.Progress(1)
		}
		m = feed.Manifest{
			Format: feed.ManifestFormat, Store: "faulty", Epoch: b.Epoch, OldestSeq: b.Oldest, HeadSeq: b.Head.Seq, HeadFence: b.Head.Fence,
			Identity: r.identity, Final: opts.Final, Time: now(),
		}
		r.recordLocked(opts.Actor, feed.ActionBackup, m)
		return m.Write(dir)
	})
	return m, err
}

func (r *reference) Check(ctx context.Context, progress func(float64)) error {
	return r.do(ctx, false, func() error { return nil })
}
