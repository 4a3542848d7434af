//go:build linux && e2e

package postgres

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

// TestALargeCountIsTrimmedTogether: an append lets some events wait, at most a
// twentieth; Trim does not.
func TestALargeCountIsTrimmedTogether(t *testing.T) {
	const keep = 2000
	s := openStore(t, Config{URL: database(t), Retention: feed.Retention{Events: keep}})
	trims, last := 0, uint64(1)
	for range 100 {
		preload(t, s, 50, 10)
		page, err := s.Read(patient(t), 0, feed.Limit{})
		if err != nil {
			t.Fatal(err)
		}
		held := page.Head.Seq + 1 - page.Oldest
		if held > keep*21/20 || page.Oldest > 1 && held < keep {
			t.Fatalf("%d events are held, want %d to %d", held, keep, keep*21/20)
		}
		if page.Oldest != last {
			trims, last = trims+1, page.Oldest
		}
	}
	if trims == 0 || trims > 35 {
		t.Errorf("60 appends above the bound trimmed %d times, want every second or third one", trims)
	}
	if err := s.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	if all := retained(t, s); len(all) != keep {
		t.Errorf("%d events are held after a trim, want %d", len(all), keep)
	}
}

// TestARetentionThatIsCutDown is reached bit by bit by appends, and at once by
// Trim.
func TestARetentionThatIsCutDown(t *testing.T) {
	url := database(t)
	wide := openStore(t, Config{URL: url})
	preload(t, wide, 20_000, 10)
	narrow := openStore(t, Config{URL: url, Retention: feed.Retention{Events: 10}})
	appendOne(t, narrow, draft("a", 10))
	if held := narrow.Info().Events; held < 10_000 || held > 16_000 {
		t.Errorf("one append left %d events, want it to trim a few thousand", held)
	}
	if err := narrow.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	if held := narrow.Info().Events; held != 10 {
		t.Errorf("%d events are held, want 10", held)
	}
	// The wide one has no say in it, and takes the log as it is.
	appendOne(t, wide, draft("b", 10))
	if info := wide.Info(); info.Events != 11 {
		t.Errorf("%+v", info)
	}
	page, err := wide.Read(patient(t), 19_991, feed.Limit{Events: 100})
	if err != nil || page.Oldest != 19_992 || len(page.Events) != 11 || !page.Anchor.Known() || page.Anchor != page.TrimmedFence {
		t.Errorf("%+v, %v", page.Bounds, err)
	}
}

// TestAgeIsTakenFromTheDatabasesClock: what was stored too long ago goes, by
// Trim and by the next append.
func TestAgeIsTakenFromTheDatabasesClock(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url, Retention: feed.Retention{Age: time.Hour}})
	for n := range 6 {
		appendOne(t, s, draft(fmt.Sprint(n), 10))
	}
	conn := dial(t, url)
	age := func(upTo int) {
		t.Helper()
		if _, err := conn.Exec(patient(t), `update gapless.events set time = time - interval '2 hours' where seq <= $1`, upTo); err != nil {
			t.Fatal(err)
		}
	}
	age(2)
	if err := s.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	if all := retained(t, s); len(all) != 4 || all[0].Seq != 3 {
		t.Errorf("%d events are held", len(all))
	}
	age(4)
	appendOne(t, s, draft("next", 10))
	if all := retained(t, s); len(all) != 3 || all[0].Seq != 5 {
		t.Errorf("%d events are held", len(all))
	}
	age(7)
	if err := s.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	page, err := s.Read(patient(t), 7, feed.Limit{Events: 1})
	if err != nil || page.Oldest != 8 || page.Head.Seq != 7 || page.Anchor != page.Head.Fence || s.Info().Bytes != 0 {
		t.Errorf("%+v, %v, %+v", page, err, s.Info())
	}
	if a := appendOne(t, s, draft("again", 10)); a.Seq != 8 {
		t.Errorf("%+v", a)
	}
}

// TestIDsAreForgottenAfterTheWindow, and can be used again before they were
// swept.
func TestIDsAreForgottenAfterTheWindow(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url, DedupeWindow: time.Hour})
	conn := dial(t, url)
	for n := range 10 {
		appendOne(t, s, draft(fmt.Sprint(n), 10))
	}
	if _, err := conn.Exec(patient(t), `update gapless.dedupe set time = time - interval '61 minutes' where seq <= 5; update gapless.instance set expired = clock_timestamp() - interval '2 hours'`); err != nil {
		t.Fatal(err)
	}
	if a := appendOne(t, s, draft("5", 10)); !a.Duplicate || a.Seq != 6 {
		t.Errorf("inside the window: %+v", a)
	}
	d := draft("4", 10)
	d.Type = "other"
	if a := appendOne(t, s, d); a.Duplicate || a.Seq != 11 {
		t.Errorf("after the window: %+v", a)
	}
	if a := appendOne(t, s, d); !a.Duplicate || a.Seq != 11 {
		t.Errorf("of the second use: %+v", a)
	}
	if err := s.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	// More than one transaction forgets.
	if _, err := conn.Exec(patient(t), `insert into gapless.dedupe select gen_random_uuid(), 0, 1, clock_timestamp() - n * interval '1 second' - interval '2 hours' from generate_series(1, $1::int) n`, 2*trimLeast); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(patient(t), `update gapless.instance set expired = '1970-01-01'`); err != nil {
		t.Fatal(err)
	}
	appendOne(t, s, draft("sweeps some", 10))
	if err := s.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := conn.QueryRow(patient(t), `select count(*) from gapless.dedupe`).Scan(&left); err != nil || left != 7 {
		t.Errorf("%d ids are remembered, want 7, %v", left, err)
	}
}

// TestDiskUseSettles: while as much is trimmed as comes, the tables stop
// growing.
func TestDiskUseSettles(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url, Retention: feed.Retention{Events: 2000}, DedupeWindow: time.Second})
	conn := dial(t, url)
	size := func() (bytes int64) {
		t.Helper()
		if err := conn.QueryRow(patient(t), `select sum(pg_total_relation_size(c)) from unnest(array['gapless.events', 'gapless.dedupe', 'gapless.instance']::regclass[]) c`).Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	data := strings.Repeat("x", 1000)
	fill := func(round int) {
		for batch := range scaled(8, 20) {
			drafts := make([]feed.Draft, 500)
			for i := range drafts {
				drafts[i] = draft(fmt.Sprintf("%d-%d-%d", round, batch, i), 0)
				drafts[i].Data = []byte(`"` + data + `"`)
			}
			if _, err := s.Append(patient(t), drafts); err != nil {
				t.Fatal(err)
			}
		}
		// What autovacuum does by itself after some time.
		if _, err := conn.Exec(patient(t), `vacuum gapless.events, gapless.dedupe, gapless.instance`); err != nil {
			t.Fatal(err)
		}
	}
	fill(0)
	fill(1)
	first := size()
	for round := range 4 {
		fill(round + 2)
	}
	if last := size(); last > first*3/2 {
		t.Errorf("%d bytes became %d in four more rounds of the same", first, last)
	}
}

// TestTheLongestWindowHolds: a gateway that remembers ids for less forgets none
// that another one promised to remember, until that one has not been there for
// as long.
func TestTheLongestWindowHolds(t *testing.T) {
	url := database(t)
	long, short := openStore(t, Config{URL: url, DedupeWindow: time.Hour}), openStore(t, Config{URL: url, DedupeWindow: time.Millisecond})
	conn := dial(t, url)
	appendOne(t, long, draft("a", 1))
	for n := range 5 {
		appendOne(t, short, draft(fmt.Sprint(n), 1))
		if err := short.Trim(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]*Store{"long": long, "short": short} {
		if a := appendOne(t, s, draft("a", 1)); !a.Duplicate || a.Seq != 1 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	exec(t, conn, "update gapless.instance set dedupe_claimed = dedupe_claimed - interval '2 hours', expired = expired - interval '2 hours'")
	exec(t, conn, "update gapless.dedupe set time = time - interval '2 hours'")
	if err := short.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	if window := scan[int64](t, conn, "select dedupe_window from gapless.instance"); window != 1000 {
		t.Errorf("once the long one is gone the window is %d µs", window)
	}
	if n := scan[int](t, conn, "select count(*) from gapless.dedupe where key = $1", fingerprints([]feed.Draft{draft("a", 1)})[0].key.uuid()); n != 0 {
		t.Errorf("its id is remembered still: %d", n)
	}
}

// TestAWindowFallsToTheNextLongest: when nobody asks for the longest window any
// more, the one of a third gateway holds, whoever commits first.
func TestAWindowFallsToTheNextLongest(t *testing.T) {
	url := database(t)
	open := func(window time.Duration) *Store { return openStore(t, Config{URL: url, DedupeWindow: window}) }
	long, middle, short := open(time.Hour), open(20*time.Minute), open(time.Millisecond)
	conn := dial(t, url)
	appendOne(t, long, draft("a", 1))
	appendOne(t, middle, draft("b", 1))
	exec(t, conn, "update gapless.instance set dedupe_claimed = dedupe_claimed - interval '2 hours'")
	appendOne(t, short, draft("c", 1))
	if err := short.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	if a := appendOne(t, middle, draft("b", 1)); !a.Duplicate {
		t.Errorf("stored again: %+v", a)
	}
	exec(t, conn, "update gapless.instance set dedupe_claimed = dedupe_claimed - interval '2 hours'")
	appendOne(t, short, draft("d", 1))
	if window := scan[int64](t, conn, "select dedupe_window from gapless.instance"); window != 1000 {
		t.Errorf("once the middle one is gone the window is %d µs", window)
	}
}

// TestIDsBehindTheMarkAreForgotten: the database's clock was ahead, so that
// ids are stored at times up to which all are taken for forgotten.
func TestIDsBehindTheMarkAreForgotten(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url, DedupeWindow: time.Minute})
	conn := dial(t, url)
	appendOne(t, s, draft("first", 1))
	exec(t, conn, "update gapless.instance set expired = clock_timestamp() + interval '10 minutes'")
	for n := range 5 {
		appendOne(t, s, draft(fmt.Sprint(n), 1))
	}
	if a := appendOne(t, s, draft("3", 1)); !a.Duplicate {
		t.Errorf("%+v", a)
	}
	// An hour later.
	exec(t, conn, "update gapless.dedupe set time = time - interval '1 hour'")
	exec(t, conn, "update gapless.instance set expired = expired - interval '1 hour'")
	if err := s.Trim(patient(t)); err != nil {
		t.Fatal(err)
	}
	if n := scan[int](t, conn, "select count(*) from gapless.dedupe"); n > 1 { // the first one is older than the mark ever was
		t.Errorf("%d ids are kept", n)
	}
}
