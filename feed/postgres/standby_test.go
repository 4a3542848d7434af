//go:build linux && e2e

package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
	"gapless/feed/postgres/pgtest"
)

// ghost makes a server's commits wait for a standby that never comes.
func ghost(t testing.TB, look *pgx.Conn) {
	t.Helper()
	waitFor(t, look, "ghost")
}

// appear ends that: what waits for the standby is as durable as it can be.
func appear(t testing.TB, look *pgx.Conn) {
	t.Helper()
	waitFor(t, look, "")
}

// waitFor names the standby that commits wait for.
func waitFor(t testing.TB, look *pgx.Conn, standby string) {
	t.Helper()
	ctx := patient(t)
	for _, sql := range []string{"alter system set synchronous_standby_names = '" + standby + "'", "select pg_reload_conf()"} {
		if _, err := look.Exec(ctx, sql); err != nil {
			t.Error(err)
		}
	}
	for names := "?"; names != standby; {
		if err := look.QueryRow(ctx, "show synchronous_standby_names").Scan(&names); err != nil {
			t.Fatal(err)
		}
	}
}

// waitsForStandby counts the commits that wait for a standby since a moment.
const waitsForStandby = `select count(*) from pg_stat_activity where wait_event = 'SyncRep' and xact_start > $1::text::timestamptz`

// TestAWaitForTheStandbyThatIsCancelledIsNoAnswer: the server says that it has
// committed, and warns that the standby may not have it. Nothing is answered
// before another commit behind it was confirmed.
func TestAWaitForTheStandbyThatIsCancelledIsNoAnswer(t *testing.T) {
	c := pgtest.New(t, "fsync=off", "wal_level=replica", "max_wal_senders=4")
	url := databaseOn(t, c)
	s := open(t, url, quiet)
	b := begin(t, s)
	look := dial(t, url)
	for what, call := range map[string]func() error{
		"append": func() error { _, err := s.Append(patient(t), []feed.Draft{draft("a", 1)}); return err },
		"create": func() error {
			return s.CreateConsumer(patient(t), feed.Consumer{Name: "new", Cursor: b.cursors[1]})
		},
		"move": func() error { return s.MoveConsumer(patient(t), "behind", b.cursors[4], b.cursors[5]) },
		"trim": func() error { return s.Trim(patient(t)) },
	} {
		t.Run(what, func(t *testing.T) {
			ghost(t, look)
			defer appear(t, look)
			if what == "trim" {
				exec(t, dial(t, url+"&options=-c%20synchronous_commit%3Dlocal"), "update gapless.instance set expired = '1970-01-01'")
			}
			answer := make(chan error, 1)
			go func() { answer <- call() }()
			for range 2 { // the second wait is as good as the first
				eventually(t, "it waits for the standby", func() bool { return scan[int](t, look, waitsForStandby, "1970-01-01") == 1 })
				began := scan[string](t, look, "select clock_timestamp()::text")
				if !scan[bool](t, look, "select bool_and(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'") {
					t.Fatal("it does not wait")
				}
				eventually(t, "it waits again", func() bool { return len(answer) > 0 || scan[int](t, look, waitsForStandby, began) == 1 })
				if len(answer) > 0 {
					t.Fatalf("it was answered with %v", <-answer)
				}
			}
			appear(t, look)
			if err := <-answer; err != nil {
				t.Errorf("with the standby: %v", err)
			}
		})
	}
	if head := headOf(t, s); head.Seq != sharedEvents+1 {
		t.Errorf("the head is %d", head.Seq)
	}
}

// TestARepeatIsNotAcknowledgedBeforeTheStandbyHasIt: the commit that stored
// the event was never confirmed, and its process is gone. Another gateway sees
// the event, and must not say that it is safe.
func TestARepeatIsNotAcknowledgedBeforeTheStandbyHasIt(t *testing.T) {
	c := pgtest.New(t, "fsync=off", "wal_level=replica", "max_wal_senders=4")
	url := databaseOn(t, c)
	first, other := open(t, url, quiet), open(t, url, quiet)
	appendOne(t, first, draft("before", 1))
	appendOne(t, other, draft("before", 1))
	look := dial(t, url)
	ghost(t, look)
	defer appear(t, look)
	gone := make(chan error, 1)
	go func() { _, err := first.Append(context.Background(), []feed.Draft{draft("x", 1)}); gone <- err }()
	eventually(t, "it waits for the standby", func() bool { return scan[int](t, look, waitsForStandby, "1970-01-01") == 1 })
	if err := first.Close(); err != nil { // which cancels the wait
		t.Fatal(err)
	}
	if err := <-gone; err == nil {
		t.Error("it was acknowledged")
	}
	eventually(t, "the event can be seen", func() bool { return scan[int](t, look, "select head from gapless.instance") == 2 })
	type answer struct {
		receipt feed.Receipt
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		receipt, err := other.Append(patient(t), []feed.Draft{draft("x", 1)})
		answers <- answer{receipt, err}
	}()
	eventually(t, "the repeat waits, too", func() bool {
		return len(answers) > 0 || scan[int](t, look, waitsForStandby, "1970-01-01") == 1
	})
	if len(answers) > 0 {
		t.Fatalf("it was answered: %+v", <-answers)
	}
	appear(t, look)
	if a := <-answers; a.err != nil || !a.receipt.Events[0].Duplicate || a.receipt.Events[0].Seq != 2 {
		t.Errorf("with the standby: %+v", a)
	}
}

// TestAHiddenWarning: the role's sessions are not to be told warnings. That a
// commit's standby was not waited for is told all the same.
func TestAHiddenWarning(t *testing.T) {
	c := pgtest.New(t, "fsync=off", "wal_level=replica", "max_wal_senders=4")
	url := databaseOn(t, c)
	look := dial(t, url)
	exec(t, look, "alter role "+pgtest.Superuser+" set client_min_messages = 'error'")
	s := open(t, url, quiet)
	appendOne(t, s, draft("a", 1))
	ghost(t, look)
	defer appear(t, look)
	answer := make(chan error, 1)
	go func() { _, err := s.Append(patient(t), []feed.Draft{draft("x", 1)}); answer <- err }()
	eventually(t, "the commit waits", func() bool { return scan[int](t, look, waitsForStandby, "1970-01-01") == 1 })
	began := scan[string](t, look, "select clock_timestamp()::text")
	scan[bool](t, look, "select bool_and(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'")
	eventually(t, "the look-up waits", func() bool {
		return len(answer) > 0 || scan[int](t, look, waitsForStandby, began) == 1
	})
	if len(answer) > 0 {
		t.Fatalf("it was answered: %v", <-answer)
	}
	appear(t, look)
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// TestAWarningOfAStatementIsNone of the commit's.
func TestAWarningOfAStatementIsNone(t *testing.T) {
	c := pgtest.New(t, "fsync=off", "session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0", "auto_explain.log_level=warning")
	s := openStore(t, Config{URL: databaseOn(t, c)})
	appendOne(t, s, draft("a", 1))
}
