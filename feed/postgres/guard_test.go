//go:build linux && e2e

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"gapless/feed"
	"gapless/feed/postgres/pgtest"
)

// replicated is a primary and a standby that follows it.
type replicated struct {
	primary, standby *pgtest.Cluster
	url              string // of the log's database, at the primary
}

// replicate makes both, with a migrated database, and waits until the standby
// has it.
func replicate(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{primary: pgtest.New(t, "fsync=off", "wal_level=replica", "max_wal_senders=4", "hot_standby=on"), standby: pgtest.Unstarted(t)}
	r.url = r.primary.Database(t)
	if _, _, err := Migrate(t.Context(), r.url); err != nil {
		t.Fatal(err)
	}
	r.primary.Run(t, pgtest.Binary(t, "pg_basebackup"), "-D", r.standby.Dir, "-R", "-X", "stream", "-c", "fast")
	if err := os.Chmod(r.standby.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.standby.Start(t)
	return r
}

// at is the log's address at one of the servers.
func (r *replicated) at(c *pgtest.Cluster) string {
	return c.URL(r.url[strings.LastIndex(r.url, "/")+1 : strings.Index(r.url, "?")])
}

// replayed waits until the standby has all that the primary wrote.
func (r *replicated) replayed(t *testing.T) {
	t.Helper()
	ctx := patient(t)
	ask := func(c *pgtest.Cluster, sql string, args ...any) (answer string) {
		conn, err := pgx.Connect(ctx, c.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if err := conn.QueryRow(ctx, sql, args...).Scan(&answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	end := ask(r.primary, `select pg_current_wal_flush_lsn()::text`)
	for ask(r.standby, `select (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::text`, end) != "true" {
		if !pause(ctx, 10*time.Millisecond) {
			t.Fatal("the standby does not catch up")
		}
	}
}

// promote ends the primary and makes the standby one.
func (r *replicated) promote(t *testing.T) {
	t.Helper()
	r.primary.Stop(t, syscall.SIGQUIT)
	r.standby.Exec(t, "postgres", "select pg_promote(true, 60)")
}

// TestAPromotionUnderARunningStore moves a store from a primary to its
// promoted standby, as a failover does, in each mode of the guard.
func TestAPromotionUnderARunningStore(t *testing.T) {
	for _, mode := range []feed.GuardMode{feed.GuardStrict, feed.GuardVerify, feed.GuardOff} {
		t.Run(string(mode), func(t *testing.T) {
			r := replicate(t)
			p, url := newProxy(t, r.url)
			s := openStore(t, Config{URL: url, Guard: mode, Node: "one"})
			for _, id := range []string{"a", "b", "c"} {
				appendOne(t, s, draft(id, 10))
			}
			before := headOf(t, s)
			r.replayed(t)

			// A standby is no place for a log.
			p.set(func(p *proxy) { p.server = hostOf(t, r.at(r.standby)) })
			p.breakAll()
			if _, err := s.Read(patient(t), 0, feed.Limit{}); feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "recovery") {
				t.Errorf("at a standby: %v", err)
			}
			if _, err := s.Append(patient(t), []feed.Draft{draft("standby", 1)}); feed.CodeOf(err) != feed.CodeUnavailable {
				t.Errorf("at a standby: %v", err)
			}
			r.promote(t)

			if mode == feed.GuardStrict {
				wantGuarded(t, s, before)
				return
			}
			if a := appendOne(t, s, draft("d", 10)); a.Seq != 4 || a.Duplicate {
				t.Errorf("%+v", a)
			}
			if at := headOf(t, s); at.Epoch != before.Epoch {
				t.Errorf("the epoch is %s, was %s", at.Epoch, before.Epoch)
			}
			adopted := adoptions(t, s)
			if len(adopted) != 1 || adopted[0].OldIdentity == adopted[0].NewIdentity || adopted[0].Node != "one" || adopted[0].HeadSeq != 3 {
				t.Errorf("%+v", adopted)
			}
			// One that starts now finds the identity that was taken over.
			appendOne(t, openStore(t, Config{URL: r.at(r.standby)}), draft("e", 10))
		})
	}
}

// TestAStandbyIsLeftAgain: what leads to the database led to a standby for a
// while. The connections made then are let go of.
func TestAStandbyIsLeftAgain(t *testing.T) {
	r := replicate(t)
	p, url := newProxy(t, r.url)
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("a", 10))
	p.set(func(p *proxy) { p.server = hostOf(t, r.at(r.standby)) })
	p.breakAll()
	if _, err := s.Read(patient(t), 0, feed.Limit{}); feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "recovery") {
		t.Errorf("at a standby: %v", err)
	}
	p.set(func(p *proxy) { p.server = hostOf(t, r.url) })
	ctx := patient(t)
	for {
		_, err := s.Append(ctx, []feed.Draft{draft("b", 10)})
		if err == nil {
			break
		}
		if feed.CodeOf(err) != feed.CodeUnavailable || !pause(ctx, 20*time.Millisecond) {
			t.Fatal(err)
		}
	}
	wantLog(t, s, 2)
}

// TestALossyPromotionIsNotVerified: the standby lacks the last event that the
// store saw, so that only an operator can say what it is.
func TestALossyPromotionIsNotVerified(t *testing.T) {
	r := replicate(t)
	p, url := newProxy(t, r.url)
	s := openStore(t, Config{URL: url, Guard: feed.GuardVerify})
	appendOne(t, s, draft("a", 10))
	r.replayed(t)
	r.standby.Stop(t, syscall.SIGINT)
	appendOne(t, s, draft("lost", 10))
	at := headOf(t, s)
	r.primary.Stop(t, syscall.SIGQUIT)
	r.standby.Start(t)
	r.standby.Exec(t, "postgres", "select pg_promote(true, 60)")
	p.set(func(p *proxy) { p.server = hostOf(t, r.at(r.standby)) })
	p.breakAll()
	wantGuarded(t, s, at)
	// It has grown again: still another event.
	late := openStore(t, Config{URL: r.at(r.standby), Guard: feed.GuardOff})
	appendOne(t, late, draft("other", 10))
	// Somebody else said what happened: this one is content by itself.
	if a := appendOne(t, s, draft("more", 10)); a.Seq != 3 {
		t.Errorf("%+v", a)
	}
	if err := s.Wait(patient(t), at); err != nil {
		t.Errorf("wait: %v", err)
	}
}

// TestAFreshStoreVerifiesNothing: without memory of the log, verify is strict.
func TestAFreshStoreVerifiesNothing(t *testing.T) {
	url := database(t)
	appendOne(t, openStore(t, Config{URL: url}), draft("a", 10))
	pretend(t, url, 3)
	s := openStore(t, Config{URL: url, Guard: feed.GuardVerify})
	if _, err := s.Read(patient(t), 0, feed.Limit{}); feed.CodeOf(err) != feed.CodeRestoreNotFinalized {
		t.Errorf("%v", err)
	}
}

// pretend changes the timeline that the log remembers.
func pretend(t testing.TB, url string, timeline int) {
	t.Helper()
	conn, err := pgx.Connect(patient(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(patient(t), "update gapless.instance set timeline = $1", timeline); err != nil {
		t.Fatal(err)
	}
}

// TestATrippedGuardLiftsByItself once the identity is right again, and wakes
// who waits.
func TestATrippedGuardLiftsByItself(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("a", 10))
	at := headOf(t, s)
	listening(t, s)
	pretend(t, url, 7)
	wantGuarded(t, s, at)
	pretend(t, url, 1)
	ctx := patient(t)
	for {
		err := s.Wait(ctx, feed.Cursor{})
		if err == nil {
			break
		}
		if feed.CodeOf(err) != feed.CodeRestoreNotFinalized || !pause(ctx, 20*time.Millisecond) {
			t.Fatal(err)
		}
	}
	if a := appendOne(t, s, draft("b", 10)); a.Seq != 2 {
		t.Errorf("%+v", a)
	}
}

// TestANewEpochIsNoticed by a store that waits, and carried by its next
// answers.
func TestANewEpochIsNoticed(t *testing.T) {
	url := database(t)
	s, other := openStore(t, Config{URL: url}), openStore(t, Config{URL: url})
	appendOne(t, s, draft("a", 10))
	at := headOf(t, s)
	listening(t, s)
	waited := make(chan error, 1)
	go func() { waited <- s.Wait(patient(t), at) }()
	const epoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCD"
	if err := other.decide(patient(t), "test", func(_ context.Context, _ querier, in *instance) error {
		in.Epoch = epoch
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if got := headOf(t, s); got.Epoch != epoch || got.Position != at.Position {
		t.Errorf("head %v, was %v", got, at)
	}
	receipt, err := s.Append(patient(t), []feed.Draft{draft("b", 10)})
	if err != nil || receipt.Epoch != epoch {
		t.Errorf("%+v, %v", receipt, err)
	}
}

// TestASealedLogTakesNoEvents, and is read.
func TestASealedLogTakesNoEvents(t *testing.T) {
	s := openStore(t, Config{URL: database(t)})
	appendOne(t, s, draft("a", 10))
	if err := s.update(patient(t), "test", func(_ context.Context, _ querier, in *instance) error {
		in.SealedAt = in.Now
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(patient(t), []feed.Draft{draft("b", 10)}); feed.CodeOf(err) != feed.CodeSealed {
		t.Errorf("%v", err)
	}
	wantLog(t, s, 1)
}

// wantGuarded checks that the guard keeps a store shut, in words for people.
func wantGuarded(t testing.TB, s *Store, at feed.Cursor) {
	t.Helper()
	ctx := patient(t)
	for name, call := range map[string]func() error{
		"append": func() error { _, err := s.Append(ctx, []feed.Draft{draft("shut", 1)}); return err },
		"read":   func() error { _, err := s.Read(ctx, 0, feed.Limit{}); return err },
		"search": func() error { _, err := s.Search(ctx, feed.Search{N: 1}); return err },
		"trim":   func() error { return s.Trim(ctx) },
		"wait":   func() error { return s.Wait(ctx, at) },
		"update": func() error {
			return s.update(ctx, "update", func(context.Context, querier, *instance) error { return nil })
		},
	} {
		err := call()
		for name == "wait" && err == nil { // until the trip is known here
			err = call()
		}
		if feed.CodeOf(err) != feed.CodeRestoreNotFinalized || !strings.Contains(err.Error(), "gapless restore status") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.view(ctx, "view", func(_ context.Context, _ querier, in instance) error {
		if in.Identity == in.Found || in.Found.System == 0 {
			t.Errorf("expected %v, found %v", in.Identity, in.Found)
		}
		return nil
	}); err != nil {
		t.Errorf("view: %v", err)
	}
}

// adoptions lists what the guard took over.
func adoptions(t testing.TB, s *Store) (list []feed.Adopted) {
	t.Helper()
	rows, err := s.pool.Query(patient(t), `select detail::text from gapless.audit where action = $1 order by seq`, feed.ActionAdopt)
	if err != nil {
		t.Fatal(err)
	}
	details, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range details {
		var a feed.Adopted
		if err := json.Unmarshal([]byte(d), &a); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// hostOf is the host and port of an address.
func hostOf(t testing.TB, address string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

// TestAnAdoptionCountsOnceItIsCommitted: what is rolled back was not said, and
// lifts nothing.
func TestAnAdoptionCountsOnceItIsCommitted(t *testing.T) {
	url := database(t)
	var log lockedBuffer
	s := openStore(t, Config{URL: url, Guard: feed.GuardVerify, Logger: zerolog.New(&log)})
	appendOne(t, s, draft("a", 10))
	pretend(t, url, 7)
	failed := &feed.Error{Code: feed.CodeConflict, Msg: "rolled back"}
	if err := s.update(patient(t), "test", func(context.Context, querier, *instance) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	if strings.Contains(log.String(), "taken over") && len(adoptions(t, s)) == 0 {
		t.Errorf("it says that it took over: %s", log.String())
	}
	appendOne(t, s, draft("b", 10))
	if adopted := adoptions(t, s); len(adopted) != 1 || strings.Count(log.String(), "taken over") != 1 {
		t.Errorf("%+v: %s", adopted, log.String())
	}
}

// TestAnIdentityThatDoesNotStayIsNoSuccess: what a move needs first is undone
// again and again.
func TestAnIdentityThatDoesNotStayIsNoSuccess(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url, Guard: feed.GuardOff})
	b := begin(t, s)
	exec(t, dial(t, url), `
		create function gapless.undo() returns trigger language plpgsql as $$ begin new.timeline := 7; return new; end $$;
		create trigger undo before update on gapless.instance for each row execute function gapless.undo();
		update gapless.instance set timeline = 7`)
	if err := s.MoveConsumer(patient(t), "behind", b.cursors[4], b.cursors[5]); feed.CodeOf(err) != feed.CodeUnavailable {
		t.Errorf("%v", err)
	}
	if c, err := s.Consumer(patient(t), "behind"); err != nil || c.Cursor != b.cursors[4] {
		t.Errorf("%+v, %v", c, err)
	}
}
