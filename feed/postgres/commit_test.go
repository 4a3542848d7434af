//go:build linux && e2e

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gapless/feed"
)

// TestACommitThatIsCutIsLookedUp loses the connection around a commit, before
// the server gets it and after: the append is answered as what became of it,
// the event is stored once, and no seq is left out.
func TestACommitThatIsCutIsLookedUp(t *testing.T) {
	// Whole statements, so that the proxy can tell a commit.
	p, url := newProxy(t, database(t)+"&default_query_exec_mode=cache_describe")
	s := openStore(t, Config{URL: url, tryPatience: 2 * time.Second})
	appendOne(t, s, draft("warm-up", 10))
	seq := uint64(1)
	for round, where := range []cut{cutBefore, cutAfter, cutBefore, cutAfter, cutSilent, cutAfter, cutBefore} {
		for _, minted := range []bool{true, false} {
			d := draft(fmt.Sprintf("%d-%v", round, minted), 100)
			d.Minted = minted
			cuts := p.happened()
			p.set(func(p *proxy) { p.cut = where })
			a := appendOne(t, s, d)
			if p.happened() != cuts+1 {
				t.Fatal("the connection was not cut")
			}
			if seq++; a.Seq != seq || a.Duplicate {
				t.Fatalf("round %d, cut %d: %+v, want seq %d stored now", round, where, a, seq)
			}
		}
	}
	wantLog(t, s, seq)
}

// TestABatchWithARepeatSurvivesACut: of a batch that was committed and whose
// answer was lost, each entry says the same as if it had come.
func TestABatchWithARepeatSurvivesACut(t *testing.T) {
	p, url := newProxy(t, database(t)+"&default_query_exec_mode=cache_describe")
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("old", 10))
	p.set(func(p *proxy) { p.cut = cutAfter })
	receipt, err := s.Append(patient(t), []feed.Draft{draft("a", 10), draft("old", 10), draft("b", 10), draft("a", 10)})
	if err != nil || p.happened() != 1 {
		t.Fatal(err, p.happened())
	}
	want := []feed.Appended{{Seq: 2, ID: "a"}, {Seq: 1, ID: "old", Duplicate: true}, {Seq: 3, ID: "b"}, {Seq: 2, ID: "a", Duplicate: true}}
	for i, a := range receipt.Events {
		if a != want[i] {
			t.Errorf("entry %d: %+v, want %+v", i, a, want[i])
		}
	}
	wantLog(t, s, 3)
}

// TestACutWithoutAnAnswerIsUnknown: the database goes away in the middle of a
// commit, for longer than an append waits. The publisher is told that it can
// come again, and its id is then stored once.
func TestACutWithoutAnAnswerIsUnknown(t *testing.T) {
	p, url := newProxy(t, database(t)+"&default_query_exec_mode=cache_describe")
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("warm-up", 10))
	p.set(func(p *proxy) { p.cut, p.shut = cutAfter, true })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	d := draft("unknown", 10)
	if _, err := s.Append(ctx, []feed.Draft{d}); feed.CodeOf(err) != feed.CodeUnavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	p.set(func(p *proxy) { p.shut = false })
	if a := appendOne(t, s, d); a.Seq != 2 || !a.Duplicate {
		t.Errorf("%+v, want a duplicate of 2", a)
	}
	wantLog(t, s, 2)
}

// TestEventsThatWereTrimmedCannotBeLookedUp: the connection is lost in the
// commit, and before the log can be asked, others have trimmed the events, if
// they ever were. The publisher is told that the outcome is unknown.
func TestEventsThatWereTrimmedCannotBeLookedUp(t *testing.T) {
	direct := database(t)
	p, url := newProxy(t, direct+"&default_query_exec_mode=cache_describe")
	s, other := openStore(t, Config{URL: url}), openStore(t, Config{URL: direct, Retention: feed.Retention{Events: 2}})
	appendOne(t, s, draft("warm-up", 10))
	p.set(func(p *proxy) { p.cut, p.shut = cutAfter, true })
	answer := make(chan error, 1)
	go func() {
		_, err := s.Append(patient(t), []feed.Draft{draft("unknown", 10)})
		answer <- err
	}()
	for headOf(t, other).Seq < 2 {
	}
	for n := range 3 {
		appendOne(t, other, draft(fmt.Sprint(n), 10))
	}
	p.set(func(p *proxy) { p.shut = false })
	if err := <-answer; feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "trimmed") {
		t.Errorf("%v", err)
	}
	if a := appendOne(t, s, draft("unknown", 10)); !a.Duplicate || a.Seq != 2 {
		t.Errorf("%+v, want a duplicate of 2", a)
	}
}

// TestAnAppendThatWasGivenUpKeepsItsDrafts: the caller has its slice back
// while the commit is still under way.
func TestAnAppendThatWasGivenUpKeepsItsDrafts(t *testing.T) {
	p, url := newProxy(t, database(t))
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("warm-up", 10))
	p.set(func(p *proxy) { p.delay = 100 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	drafts := []feed.Draft{draft("given up", 10)}
	if _, err := s.Append(ctx, drafts); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	clear(drafts)
	p.set(func(p *proxy) { p.delay = 0 })
	if a := appendOne(t, s, draft("given up", 10)); !a.Duplicate || a.Seq != 2 {
		t.Errorf("%+v, want a duplicate of 2", a)
	}
	if all := retained(t, s); all[1].ID != "given up" || all[1].Type != "made" {
		t.Errorf("%+v was stored", all[1])
	}
}

// TestKilledConnectionsUnderLoad ends the server's sessions again and again
// while events are appended: nothing that was acknowledged is lost, nothing is
// stored twice, and an append that failed can be made again.
func TestKilledConnectionsUnderLoad(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url})
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	ctx := patient(t)
	var stop atomic.Bool
	acknowledged := make([][]uint64, 8)
	var wg sync.WaitGroup
	for w := range acknowledged {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				drafts := []feed.Draft{draft(fmt.Sprintf("%d-%d-a", w, n), 50), draft(fmt.Sprintf("%d-%d-b", w, n), 50)}
				for {
					receipt, err := s.Append(ctx, drafts)
					if err == nil {
						acknowledged[w] = append(acknowledged[w], receipt.Events[0].Seq, receipt.Events[1].Seq)
						break
					}
					if feed.CodeOf(err) != feed.CodeUnavailable || ctx.Err() != nil {
						t.Errorf("append: %v", err)
						return
					}
				}
			}
		})
	}
	for range 40 {
		sharedCluster(t).Exec(t, name, `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name = 'gapless' and pid <> pg_backend_pid()`)
		time.Sleep(20 * time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	seen := make(map[uint64]bool)
	for _, seqs := range acknowledged {
		for _, seq := range seqs {
			if seen[seq] {
				t.Errorf("seq %d was acknowledged twice", seq)
			}
			seen[seq] = true
		}
	}
	t.Logf("%d events", len(seen))
	wantLog(t, s, uint64(len(seen)))
}

// appendOne stores one event.
func appendOne(t testing.TB, s *Store, d feed.Draft) feed.Appended {
	t.Helper()
	receipt, err := s.Append(patient(t), []feed.Draft{d})
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return receipt.Events[0]
}

// retained reads all that a log holds.
func retained(t testing.TB, s *Store) []*feed.Event {
	t.Helper()
	ctx := patient(t)
	var all []*feed.Event
	for after := uint64(0); ; {
		page, err := s.Read(ctx, after, feed.Limit{Events: 5000})
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if after == 0 && page.Oldest > 1 {
			after = page.Oldest - 1
			continue
		}
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
		after = all[len(all)-1].Seq
	}
}

// wantLog checks that a log holds events 1 to head, no id twice, and sums that
// are right.
func wantLog(t testing.TB, s *Store, head uint64) {
	t.Helper()
	all := retained(t, s)
	if uint64(len(all)) != head {
		t.Errorf("the log holds %d events, want %d", len(all), head)
	}
	ids := make(map[string]uint64)
	bytes := int64(0)
	for i, ev := range all {
		if ev.Seq != uint64(i)+1 {
			t.Fatalf("event %d has seq %d", i+1, ev.Seq)
		}
		if first, ok := ids[ev.ID]; ok {
			t.Errorf("%q is stored as %d and %d", ev.ID, first, ev.Seq)
		}
		ids[ev.ID] = ev.Seq
		bytes += ev.Size()
	}
	if info := s.Info(); info.Events != head || info.Bytes != bytes {
		t.Errorf("info says %d events and %d bytes, want %d and %d", info.Events, info.Bytes, head, bytes)
	}
}

// TestBadDataFailsAlone: what the database does not take fails its own append,
// and not those that wait with it.
func TestBadDataFailsAlone(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("before", 1))
	holder, look := dial(t, url), dial(t, url)
	exec(t, holder, "begin")
	exec(t, holder, "select from gapless.instance for update")
	var wg sync.WaitGroup
	wg.Go(func() { appendOne(t, s, draft("first", 1)) })
	eventually(t, "the first waits", func() bool { return scan[int](t, look, waitingForLocks) == 1 })
	const others, bad = 7, 4
	for n := range others {
		d := draft(fmt.Sprint(n), 1)
		if n == bad {
			d.Source = "a\x00b"
		}
		wg.Go(func() {
			_, err := s.Append(patient(t), []feed.Draft{d})
			if n == bad && feed.CodeOf(err) != feed.CodeInvalid || n != bad && err != nil {
				t.Errorf("append %d: %v", n, err)
			}
		})
	}
	eventually(t, "they wait together", func() bool {
		s.appends.mu.Lock()
		defer s.appends.mu.Unlock()
		return len(s.appends.list) == others
	})
	exec(t, holder, "rollback")
	wg.Wait()
	wantLog(t, s, 1+others)
}
