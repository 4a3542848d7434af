package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"gapless/feed"
)

// TestIDsAreForgottenAfterTheWindow: from memory and from the table, which
// keep what is inside the window, across restarts too.
func TestIDsAreForgottenAfterTheWindow(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	cfg := Config{
		Path: filepath.Join(t.TempDir(), "log.db"), DedupeWindow: 8 * time.Minute, Retention: feed.Retention{Events: 10},
		Now: func() time.Time { return now },
	}
	s := open(t, cfg)
	publish := func(from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			if _, err := s.Append(t.Context(), []feed.Draft{draft(n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for minute := range 20 {
		publish(minute*10, minute*10+10)
		now = now.Add(time.Minute)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
		}
		if err := s.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids, rows := 0, 0
		for _, g := range s.dedupe.recent {
			ids += len(g.seqs)
		}
		if err := s.writer.conn.QueryRowContext(t.Context(), "SELECT count(*) FROM dedupe").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if ids < 70 || ids > 90 || rows != ids {
			t.Errorf("restarted %v: %d ids are remembered, %d are stored, want those of 8 minutes, about 80", restarted, ids, rows)
		}
	}
	receipt, err := s.Append(t.Context(), []feed.Draft{draft(115), draft(135)})
	if err != nil || receipt.Events[0].Duplicate || !receipt.Events[1].Duplicate || receipt.Events[1].Seq != 136 {
		t.Errorf("%+v, %v, want a new event and a duplicate of 136", receipt.Events, err)
	}
}

// TestTheSweepCountsRows: of a log whose events came without ids for long, the
// few rows behind them go as they expire, after a restart too, and no faster
// than is bounded.
func TestTheSweepCountsRows(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	cfg := Config{
		Path: filepath.Join(t.TempDir(), "log.db"), DedupeWindow: time.Minute, Retention: feed.Retention{Events: 100},
		Now: func() time.Time { return now },
	}
	s := open(t, cfg)
	rows := func() (n int) {
		t.Helper()
		if err := s.writer.conn.QueryRowContext(t.Context(), "SELECT count(*) FROM dedupe").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := 0
	publish := func() {
		t.Helper()
		n++
		now = now.Add(10 * time.Second) // the window holds 6
		if _, err := s.Append(t.Context(), []feed.Draft{draft(n)}); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, s, "t", 5000)
	for _, restarted := range []bool{false, true} {
		if restarted {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
		}
		for range 30 {
			publish()
		}
		if have := rows(); have > 20 {
			t.Errorf("restarted %v: %d rows are kept of a window of 6", restarted, have)
		}
	}

	batch := make([]feed.Draft, 1000)
	for i := range batch {
		batch[i] = draft(1000 + i)
	}
	for range 2 {
		if _, err := s.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			batch[i] = draft(2000 + i)
		}
	}
	now = now.Add(time.Hour)
	before := rows()
	publish()
	if swept := before + 1 - rows(); swept <= 0 || swept > trimSome+2 {
		t.Errorf("an append swept %d of %d rows, want some, and at most %d", swept, before, trimSome+2)
	}
	if err := s.Trim(t.Context()); err != nil || rows() != 1 {
		t.Errorf("after Trim (%v) %d rows are kept, want the newest one", err, rows())
	}
}

// TestAnIDOfAFailedTransactionIsFree: what was rolled back was not stored.
func TestAnIDOfAFailedTransactionIsFree(t *testing.T) {
	s := open(t, Config{})
	fill(t, s, "t", 10)
	limit(t, s, 0)
	if _, err := s.Append(t.Context(), []feed.Draft{big(1)}); feed.CodeOf(err) != feed.CodeUnavailable {
		t.Fatalf("%v, want an error of code %s", err, feed.CodeUnavailable)
	}
	limit(t, s, 1<<30)
	for _, duplicate := range []bool{false, true} {
		receipt, err := s.Append(t.Context(), []feed.Draft{big(1)})
		if err != nil || receipt.Events[0].Seq != 11 || receipt.Events[0].Duplicate != duplicate {
			t.Errorf("%+v, %v, want 11", receipt.Events, err)
		}
	}
}

// TestTheWindowIsExact: ids that are forgotten together in memory still end
// their windows one by one.
func TestTheWindowIsExact(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	s := open(t, Config{DedupeWindow: 8 * time.Minute, Now: func() time.Time { return now }})
	publish := func(n int, duplicate bool) {
		t.Helper()
		receipt, err := s.Append(t.Context(), []feed.Draft{draft(n)})
		if err != nil || receipt.Events[0].Duplicate != duplicate {
			t.Errorf("%d: %+v, %v, want duplicate %v", n, receipt.Events, err, duplicate)
		}
	}
	publish(1, false)
	now = now.Add(30 * time.Second) // of one generation
	publish(2, false)
	now = now.Add(7*time.Minute + 30*time.Second - time.Microsecond)
	publish(1, true)
	now = now.Add(time.Microsecond)
	publish(1, false)
	publish(2, true)
	publish(1, true)
	now = now.Add(30 * time.Second)
	publish(2, false)
}
