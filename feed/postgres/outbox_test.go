//go:build linux && e2e

package postgres

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// quiet is a store whose mover runs when the test says so.
func quiet(cfg *Config) { cfg.OutboxPoll = -1 }

// open opens a store on a database, by default with the default poll.
func open(t testing.TB, url string, changes ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{URL: url, OutboxPoll: DefaultOutboxPoll}
	for _, change := range changes {
		change(&cfg)
	}
	return openStore(t, cfg)
}

func exec(t *testing.T, q querier, sql string, args ...any) {
	t.Helper()
	if _, err := q.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func scan[T any](t *testing.T, q querier, sql string, args ...any) (v T) {
	t.Helper()
	if err := q.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// moveAll moves what the outbox holds.
func moveAll(t *testing.T, s *Store) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.moveRound(t.Context()); err != nil {
			t.Fatalf("move: %v", err)
		}
	}
}

// events reads everything that the log holds.
func events(t *testing.T, s *Store) (list []*feed.Event) {
	t.Helper()
	for after := uint64(0); ; {
		page, err := s.Read(t.Context(), after, feed.Limit{Events: 1000})
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if after == 0 && page.Oldest > 1 {
			after = page.Oldest - 1
			continue
		}
		if len(page.Events) == 0 {
			return list
		}
		list = append(list, page.Events...)
		after = list[len(list)-1].Seq
	}
}

func payloads(list []*feed.Event) []string {
	texts := make([]string, len(list))
	for i, ev := range list {
		texts[i] = string(ev.Data)
	}
	return texts
}

func wantPayloads(t *testing.T, s *Store, want ...string) {
	t.Helper()
	if got := payloads(events(t, s)); !slices.Equal(got, want) {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}

// eventually waits for what another goroutine or process does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestARowBecomesAnEvent(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	conn := dial(t, url)
	exec(t, conn, `select gapless.publish('orders.eu', 'order.created', '{"b": 1.50, "a": 12345678901234567890}')`)
	exec(t, conn, `select gapless.publish(null, null, null)`)
	exec(t, conn, `select gapless.publish('orders.eu', 'x', jsonb_build_object('n', 7), 'id-1', '/shop', '{"subject": "s"}')`)
	exec(t, conn, `select gapless.publish('orders.eu', 'x', json_build_object('n', 8))`)
	exec(t, conn, `insert into gapless.outbox (data) values ('"direct"')`)
	moveAll(t, s)
	list := events(t, s)
	wantPayloads(t, s, `{"b":1.50,"a":12345678901234567890}`, "null", `{"n":7}`, `{"n":8}`, `"direct"`)
	if ev := list[0]; ev.Topic != "orders.eu" || ev.Type != "order.created" || len(ev.ID) != 26 || ev.Source != "" || ev.CE != nil {
		t.Errorf("the first event is %+v", ev)
	}
	if ev := list[1]; ev.Topic != feed.DefaultTopic || ev.Type != feed.DefaultType {
		t.Errorf("without topic and type the event is %+v", ev)
	}
	if ev := list[2]; ev.ID != "id-1" || ev.Source != "/shop" || string(ev.CE) != `{"subject":"s"}` {
		t.Errorf("with all that it can have the event is %+v, ce %s", ev, ev.CE)
	}
	if n := scan[int](t, conn, "select count(*) from gapless.outbox"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if got := s.OutboxStats(); got != (feed.OutboxStats{Moved: 5}) {
		t.Errorf("counted: %+v", got)
	}
}

// Transactions that insert and commit in different orders, some of which roll
// back, with two gateways that move all the while.
func TestCommittedRowsBecomeEventsExactlyOnceInTheOrderOfTheirTransaction(t *testing.T) {
	url := database(t)
	poll := func(cfg *Config) { cfg.OutboxPoll = 2 * time.Millisecond }
	s := open(t, url, poll)
	open(t, url, poll)
	const writers, rounds, each = 8, 12, 6
	type row struct{ Writer, Round, N int }
	var want [writers][]row
	conns := make([]*pgx.Conn, writers)
	for i := range conns {
		conns[i] = dial(t, url)
	}
	for round := range rounds {
		txs := make([]pgx.Tx, writers)
		for i, conn := range conns {
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			txs[i] = tx
		}
		// Inserted in turns, so that every transaction's numbers surround others'.
		for n := range each {
			for _, i := range rand.Perm(writers) {
				data, _ := json.Marshal(row{i, round, n})
				exec(t, txs[i], "select gapless.publish('t', 'x', $1::text)", string(data))
				sub, err := txs[i].Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				exec(t, sub, "select gapless.publish('t', 'x', '\"rolled back to a savepoint\"')")
				if err := sub.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for turn, i := range rand.Perm(writers) {
			var err error
			if turn%4 == 3 {
				err = txs[i].Rollback(t.Context())
			} else if err = txs[i].Commit(t.Context()); err == nil {
				for n := range each {
					want[i] = append(want[i], row{i, round, n})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	total := 0
	for i := range want {
		total += len(want[i])
	}
	eventually(t, "all rows are events", func() bool { return len(events(t, s)) >= total })
	eventually(t, "the outbox is empty", func() bool { return scan[int](t, conns[0], "select count(*) from gapless.outbox") == 0 })
	var got [writers][]row
	for _, ev := range events(t, s) {
		var r row
		if err := json.Unmarshal(ev.Data, &r); err != nil {
			t.Fatalf("event %d is %s", ev.Seq, ev.Data)
		}
		got[r.Writer] = append(got[r.Writer], r)
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("of writer %d the log holds\n%v\nwant\n%v", i, got[i], want[i])
		}
	}
}

func TestMoversThatAreKilledLoseAndRepeatNothing(t *testing.T) {
	url := database(t)
	poll := func(cfg *Config) { cfg.OutboxPoll = time.Millisecond }
	s := open(t, url, poll)
	stores := []*Store{s, open(t, url, poll)}
	const writers, each, least = 4, 150, 25
	var committed sync.Map
	var writing sync.WaitGroup
	var written atomic.Int64
	urls := url + "&application_name=writer"
	for w := range writers {
		conn := dial(t, urls)
		writing.Go(func() {
			for n := range each {
				key := fmt.Sprintf("%d-%d", w, n)
				if _, err := conn.Exec(t.Context(), "select gapless.publish('t', 'x', $1::text)", `"`+key+`"`); err != nil {
					t.Errorf("an application failed: %v", err)
					return
				}
				committed.Store(key, true)
				written.Add(1)
			}
		})
	}
	killer := dial(t, urls)
	kills := 0
	for end := time.Now().Add(20 * time.Second); kills < least || written.Load() < writers*each; {
		if time.Now().After(end) {
			t.Fatalf("%d movers were killed in the middle, %d rows written", kills, written.Load())
		}
		// In the middle of a transaction that has taken the instance row.
		kills += scan[int](t, killer, `
			select count(*) filter (where pg_terminate_backend(a.pid)) from pg_stat_activity a
			where a.application_name = 'gapless' and a.datname = current_database() and a.xact_start is not null
			  and a.pid in (select pid from pg_locks where relation = 'gapless.outbox'::regclass and mode = 'RowShareLock')`)
		if written.Load() == writers*each && kills < least {
			exec(t, killer, "select gapless.publish('t', 'x', '\"more\"')")
		}
	}
	writing.Wait()
	eventually(t, "the outbox is empty", func() bool { return scan[int](t, killer, "select count(*) from gapless.outbox") == 0 })
	seen := make(map[string]int)
	for _, ev := range events(t, s) {
		var key string
		if err := json.Unmarshal(ev.Data, &key); err != nil {
			t.Fatal(err)
		}
		seen[key]++
	}
	delete(seen, "more")
	committed.Range(func(key, _ any) bool {
		if seen[key.(string)] != 1 {
			t.Errorf("%s is there %d times", key, seen[key.(string)])
		}
		return true
	})
	if len(seen) != writers*each {
		t.Errorf("%d events, want %d", len(seen), writers*each)
	}
	if err := stores[1].Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
