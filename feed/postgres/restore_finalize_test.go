//go:build linux && e2e

package postgres

import (
	"context"
	"errors"
	"sync"
	"testing"

	"gapless/feed"
)

func TestFinalizeBesideBusyStores(t *testing.T) {
	url := database(t)
	operator := open(t, url, quiet)
	before := grow(t, operator, 1)[0]
	ctx := patient(t)
	const stores = 3
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		epochs  = make(map[uint64]feed.Epoch) // by seq, as acknowledged
		woken   = make(chan error, stores)
		halfway sync.WaitGroup
		done    = make(chan struct{})
	)
	halfway.Add(stores)
	for range stores {
		s := open(t, url)
		page, err := s.Read(ctx, 0, feed.Limit{})
		if err != nil || page.Epoch != before.Epoch {
			t.Fatalf("%+v, %v", page, err)
		}
		running.Go(func() {
			for n := 0; ; n++ {
				receipt, err := s.Append(ctx, []feed.Draft{draft(feed.NewFence().String(), 10)})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				mu.Lock()
				epochs[receipt.Events[0].Seq] = receipt.Epoch
				mu.Unlock()
				if n == 20 {
					halfway.Done()
				}
				select {
				case <-done:
					if receipt.Epoch == before.Epoch {
						continue // was in the queue
					}
					page, err := s.Read(ctx, 0, feed.Limit{})
					if err != nil || page.Epoch != receipt.Epoch {
						t.Errorf("a read after it is of epoch %s, %v", page.Epoch, err)
					}
					return
				default:
				}
			}
		})
		go func() {
			// Until it is told that the log is of another epoch.
			for at := before; ; {
				err := s.Wait(ctx, at)
				page, readErr := s.Read(ctx, 0, feed.Limit{})
				if err = errors.Join(err, readErr); err != nil || page.Epoch != before.Epoch {
					woken <- err
					return
				}
				at.Position = page.Head
			}
		}()
	}
	halfway.Wait()
	finalized, err := operator.Finalize(ctx, feed.FinalizeOptions{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	close(done)
	running.Wait()
	for range stores {
		if err := <-woken; err != nil {
			t.Errorf("a reader of another store was not told: %v", err)
		}
	}
	for seq, epoch := range epochs {
		want := finalized.OldEpoch
		if seq > finalized.HeadSeq {
			want = finalized.NewEpoch
		}
		if epoch != want {
			t.Errorf("event %d was acknowledged in epoch %s; the head was %d when it changed", seq, epoch, finalized.HeadSeq)
		}
	}
	if err := operator.Check(ctx, nil); err != nil {
		t.Error(err)
	}
}

// waitingForLocks counts the connections of a database that wait for a lock.
const waitingForLocks = `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`

func TestOfTwoOperatorsAtOnceOneIsTold(t *testing.T) {
	url := database(t)
	stores := []*Store{open(t, url, quiet), open(t, url, quiet)}
	grow(t, stores[0], 2)
	conn, look := dial(t, url), dial(t, url)
	exec(t, conn, "begin")
	exec(t, conn, "select from gapless.instance for update")
	errs := make(chan error, len(stores))
	for _, s := range stores {
		go func() {
			_, err := s.Finalize(patient(t), feed.FinalizeOptions{Actor: "ann"})
			errs <- err
		}()
	}
	eventually(t, "both wait", func() bool { return scan[int](t, look, waitingForLocks) == 2 })
	exec(t, conn, "rollback")
	first, second := <-errs, <-errs
	if first != nil {
		first, second = second, first
	}
	if first != nil || feed.CodeOf(second) != feed.CodeConflict {
		t.Errorf("%v and %v, want one to win and one conflict", first, second)
	}
	if n := scan[int](t, look, "select count(*) from gapless.audit where action = $1", feed.ActionFinalize); n != 1 {
		t.Errorf("%d are audited", n)
	}
}

func TestAFinalizeThatEndsInTheMiddleChangesNothing(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	b := begin(t, s)
	look, holder := dial(t, url), dial(t, url)
	state := func() string {
		return scan[string](t, look, `
			select json_build_array((select json_agg(i) from gapless.instance i), (select json_agg(c order by name) from gapless.consumers c),
				(select json_agg(a order by seq) from gapless.audit a))::text`)
	}
	before := state()
	// It is stopped at the second consumer, when the first is moved already.
	exec(t, holder, "begin")
	exec(t, holder, "select from gapless.consumers where name = 'busy' for update")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := s.Finalize(ctx, feed.FinalizeOptions{Actor: "ann"}); ended <- err }()
	eventually(t, "it is in the middle", func() bool { return scan[int](t, look, waitingForLocks) == 1 })
	cancel()
	if err := <-ended; err == nil {
		t.Error("a finalize that was given up says that it is done")
	}
	eventually(t, "its transaction has ended", func() bool { return scan[int](t, look, waitingForLocks) == 0 })
	if after := state(); after != before {
		t.Errorf("given up, it changed\n%s\nto\n%s", before, after)
	}

	// A connection that is killed costs another try, and no second change.
	go func() { _, err := s.Finalize(patient(t), feed.FinalizeOptions{Actor: "ann"}); ended <- err }()
	eventually(t, "it is in the middle", func() bool { return scan[int](t, look, waitingForLocks) == 1 })
	exec(t, look, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	eventually(t, "it tries again", func() bool { return scan[int](t, look, waitingForLocks) == 1 })
	if after := state(); after != before {
		t.Errorf("killed, it changed\n%s\nto\n%s", before, after)
	}
	exec(t, holder, "rollback")
	if err := <-ended; err != nil {
		t.Errorf("killed once, it does not end well: %v", err)
	}
	if n := scan[int](t, look, "select count(*) from gapless.audit where action = $1", feed.ActionFinalize); n != 1 {
		t.Errorf("%d are audited", n)
	}
	if page, err := s.Read(t.Context(), 0, feed.Limit{}); err != nil || page.Epoch == b.cursors[1].Epoch || page.Head.Seq != b.shared {
		t.Errorf("the log is %+v, %v", page.Bounds, err)
	}
}

func TestACursorBeforeTheOldestEventIsComparedWithTheOneThatWasTrimmed(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet, func(cfg *Config) { cfg.Retention = feed.Retention{Events: 3} })
	at := grow(t, s, 5)
	for _, name := range []string{"a", "b"} {
		if err := s.CreateConsumer(t.Context(), feed.Consumer{Name: name, Cursor: at[1]}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, dial(t, url), "update gapless.consumers set fence = $1 where name = 'b'", at[0].Fence.String())
	status, err := s.RestoreStatus(t.Context())
	if err != nil || len(status.Skips) != 2 || status.Skips[0].Lost || !status.Skips[1].Lost {
		t.Errorf("%+v, %v", status.Skips, err)
	}
}
