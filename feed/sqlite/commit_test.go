package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gapless/feed"
)

// hold takes the turn to write.
func (s *Store) hold() { _ = s.writing.take(context.Background()) }

// limit bounds the file to so many pages more than it has (SQLITE_FULL).
func limit(t *testing.T, s *Store, more int) {
	t.Helper()
	s.hold()
	defer s.writing.give()
	var pages int
	if err := s.writer.conn.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := s.writer.conn.ExecContext(t.Context(), fmt.Sprint("PRAGMA max_page_count = ", pages+more)); err != nil {
		t.Fatal(err)
	}
}

// big makes a draft that needs pages of its own.
func big(n int) feed.Draft {
	d := draft(n)
	d.Data = json.RawMessage(`"` + strings.Repeat("x", 50_000) + `"`)
	return d
}

// TestAFullDatabaseFailsWholeGroups: nothing of a group that does not fit is
// there, all of its appenders are told, and the log goes on once there is room.
func TestAFullDatabaseFailsWholeGroups(t *testing.T) {
	s := open(t, Config{})
	fill(t, s, "t", 10)
	at := s.committed()
	for round := range 3 {
		limit(t, s, 20)
		var group []*request
		for n := range 5 {
			group = append(group, newRequest([]feed.Draft{draft(100 + n), big(n)}))
		}
		s.commit(t.Context(), group)
		for i, r := range group {
			a := <-r.answer
			if feed.CodeOf(a.err) != feed.CodeUnavailable || !strings.Contains(a.err.Error(), " is full; nothing was stored") {
				t.Fatalf("appender %d got %+v, %v", i, a.receipt, a.err)
			}
		}
		if in := s.committed(); in != at {
			t.Fatalf("the log is at %+v, was at %+v", in, at)
		}
		limit(t, s, 1<<20)
		fill(t, s, "t", 1)
		if now := s.committed(); now.head.Seq != at.head.Seq+1 {
			t.Fatalf("round %d: the next event is %d, want %d", round, now.head.Seq, at.head.Seq+1)
		}
		at = s.committed()
	}
	if err := s.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestAFailedTransactionLeavesNothing: neither rows, nor itself in the way of
// the next one.
func TestAFailedTransactionLeavesNothing(t *testing.T) {
	s := open(t, Config{})
	fill(t, s, "t", 1)
	failure := errors.New("on purpose")
	s.hold()
	err := s.writer.raw(func(raw rawConnection) error {
		return raw.transaction(t.Context(), func() error {
			if err := raw.exec(`DELETE FROM events`); err != nil {
				return err
			}
			return failure
		})
	})
	s.writing.give()
	if !errors.Is(err, failure) {
		t.Fatalf("%v, want %v", err, failure)
	}
	fill(t, s, "t", 1)
	if err := s.Check(t.Context(), nil); err != nil || s.committed().head.Seq != 2 {
		t.Errorf("%+v, %v, want two events", s.committed(), err)
	}
}

// TestAConflictTakesNobodyWithIt: in one group, the appends before and behind
// one that fails by itself are stored, without a hole.
func TestAConflictTakesNobodyWithIt(t *testing.T) {
	s := open(t, Config{})
	other := draft(1)
	other.Type = "other"
	group := []*request{
		newRequest([]feed.Draft{draft(1), draft(2)}),
		newRequest([]feed.Draft{draft(3), other, draft(4)}), // 1 is taken inside the group
		newRequest([]feed.Draft{draft(3), draft(1), draft(5)}),
	}
	s.commit(t.Context(), group)
	want := [][]uint64{{1, 2}, nil, {3, 1, 4}}
	for i, r := range group {
		a := <-r.answer
		if want[i] == nil {
			if feed.CodeOf(a.err) != feed.CodeIDConflict {
				t.Errorf("append %d: %v, want an error of code %s", i, a.err, feed.CodeIDConflict)
			}
			continue
		}
		if a.err != nil {
			t.Fatalf("append %d: %v", i, a.err)
		}
		for j, e := range a.receipt.Events {
			if e.Seq != want[i][j] || e.Duplicate != (i == 2 && j == 1) {
				t.Errorf("append %d: %+v, want seqs %v", i, a.receipt.Events, want[i])
			}
		}
	}
}

// TestAGivenUpAppend: taken back in time it stores nothing; else its caller
// does not wait for it, and it is stored whole.
func TestAGivenUpAppend(t *testing.T) {
	s := open(t, Config{})
	waiting := func() int {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return len(s.queue.list)
	}
	s.hold()
	plug := newRequest([]feed.Draft{draft(0)})
	s.queue.push(plug)
	for waiting() > 0 { // the commit loop has it, and stands still with it
		runtime.Gosched()
	}
	giveUp := func(n int, taken bool) (group []*request) {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := s.Append(ctx, []feed.Draft{draft(n), draft(n + 1)})
			gone <- err
		}()
		for waiting() == 0 {
			runtime.Gosched()
		}
		if taken {
			group = s.queue.take(nil) // in the loop's place
		}
		cancel()
		if err := <-gone; feed.CodeOf(err) != feed.CodeUnavailable || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that it was given up", err)
		}
		return group
	}
	giveUp(1, false)
	group := giveUp(3, true)
	s.writing.give()
	s.commit(t.Context(), group)
	if a := <-plug.answer; a.err != nil {
		t.Fatal(a.err)
	}
	receipt, err := s.Append(t.Context(), []feed.Draft{draft(1), draft(2), draft(3), draft(4)})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range receipt.Events {
		if a.Duplicate != (i >= 2) {
			t.Errorf("%+v: want the batch that was taken stored, the other one not", receipt.Events)
		}
	}
}

// TestAfterACommitOfUnknownOutcome: where the file has more than memory, since
// a commit was reported to fail and had not, memory follows the file.
func TestAfterACommitOfUnknownOutcome(t *testing.T) {
	s := open(t, Config{})
	fill(t, s, "t", 3)
	s.hold()
	before, tail := s.in, s.tail
	s.writing.give()
	if _, err := s.Append(t.Context(), []feed.Draft{draft(7)}); err != nil {
		t.Fatal(err)
	}
	after := s.committed()
	s.hold()
	s.mu.Lock()
	s.in, s.tail = before, tail // as if it had failed
	s.mu.Unlock()
	s.dedupe.recent, s.stale = nil, true
	s.writing.give()

	receipt, err := s.Append(t.Context(), []feed.Draft{draft(7), draft(8)})
	if err != nil || !receipt.Events[0].Duplicate || receipt.Events[0].Seq != 4 || receipt.Events[1].Seq != 5 {
		t.Fatalf("%+v, %v, want a duplicate of 4, and 5", receipt.Events, err)
	}
	page, err := s.Read(t.Context(), 2, feed.Limit{Events: 10})
	if err != nil || len(page.Events) != 3 || page.Events[1].Fence != after.head.Fence {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestManyAppendersShareCommits: what waits goes into one transaction.
func TestManyAppendersShareCommits(t *testing.T) {
	s := open(t, Config{})
	const appenders, each = 64, 10
	version := s.committed().version
	var wg sync.WaitGroup
	for a := range appenders {
		wg.Go(func() {
			for n := range each {
				if _, err := s.Append(t.Context(), []feed.Draft{draft(a*each + n)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	in := s.committed()
	if commits := in.version - version; in.head.Seq != appenders*each || commits > appenders*each/2 {
		t.Errorf("%d events in %d commits, want %d in far fewer", in.head.Seq, commits, appenders*each)
	}
}
