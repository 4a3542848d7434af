//go:build linux && e2e

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func TestOneGrantIsEnoughForAnApplication(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	admin := dial(t, url)
	role := "app_" + strings.ToLower(feed.NewFence().String())
	exec(t, admin, "create role "+role+" login")
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
	})
	app := dial(t, strings.Replace(url, "postgres@", role+"@", 1))
	if _, err := app.Exec(t.Context(), "select gapless.publish('t', 'x', '1')"); err == nil {
		t.Error("a role without any right publishes")
	}
	exec(t, admin, "grant execute on function gapless.publish(text, text, json, text, text, json) to "+role)
	exec(t, app, "select gapless.publish('t', 'x', '1')")
	exec(t, app, "select gapless.publish('t', 'x', '2'::jsonb)")
	exec(t, app, "select gapless.publish('t', 'x', '3'::json)")
	// Nothing that stands in the way of a name is followed.
	exec(t, app, "create temp table outbox (topic text, type text, data json, id text, source text, ce json)")
	exec(t, app, "set search_path = pg_temp, public")
	exec(t, app, "select gapless.publish('t', 'x', '4')")
	for _, sql := range []string{
		"select * from gapless.outbox", "insert into gapless.outbox (topic) values ('t')", "delete from gapless.outbox",
		"select * from gapless.outbox_parked", "select gapless.requeue_parked()", "select * from gapless.events",
		"select * from gapless.consumers", "update gapless.instance set head = 0", "create table gapless.mine (n int)",
	} {
		if _, err := app.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	moveAll(t, s)
	wantPayloads(t, s, "1", "2", "3", "4")
	exec(t, admin, "grant insert (topic, type, data, id, source, ce) on gapless.outbox to "+role)
	exec(t, app, "insert into gapless.outbox (topic, data) values ('t', '5')")
	if _, err := app.Exec(t.Context(), "insert into gapless.outbox (number, topic) overriding system value values (1, 't')"); err == nil {
		t.Error("an application chooses its row's number")
	}
	moveAll(t, s)
	wantPayloads(t, s, "1", "2", "3", "4", "5")
}

func TestAnApplicationWaitsForNobodyAndNobodyForIt(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	app, other := dial(t, url), dial(t, url)
	exec(t, other, "begin")
	exec(t, other, "select from gapless.instance for update") // as an append does
	exec(t, app, "set lock_timeout = '1ms'")
	exec(t, app, "begin")
	exec(t, app, "select gapless.publish('t', 'x', '1')")
	exec(t, app, "commit")
	exec(t, other, "rollback")

	exec(t, app, "begin")
	exec(t, app, "select gapless.publish('t', 'x', '\"not committed\"')")
	moveAll(t, s)
	if _, err := s.Append(t.Context(), []feed.Draft{{ID: "a", Type: "x", Topic: "t", Data: json.RawMessage("2"), Minted: true}}); err != nil {
		t.Fatal(err)
	}
	wantPayloads(t, s, "1", "2")
	exec(t, app, "rollback")
}

// The grants are those of the package's documentation, and of the outbox's.
func TestTheMoverServesWithItsGrantsAlone(t *testing.T) {
	url := database(t)
	admin := dial(t, url)
	role := "app_" + strings.ToLower(feed.NewFence().String())
	grants := append(documentedGrants(t), "grant select, update, delete on gapless.outbox to app", "grant insert on gapless.outbox_parked to app")
	for _, sql := range append([]string{"create role app login"}, grants...) {
		exec(t, admin, strings.Replace(sql, "app", role, 1))
	}
	t.Cleanup(func() {
		sharedCluster(t).Exec(t, admin.Config().Database, "drop owned by "+role)
		sharedCluster(t).Exec(t, admin.Config().Database, "drop role "+role)
	})
	s := open(t, strings.Replace(url, "postgres@", role+"@", 1), quiet)
	b := begin(t, s) // with consumers
	exec(t, admin, "select gapless.publish('t', 'x', '\"moved\"')")
	exec(t, admin, "select gapless.publish('bad topic', 'x', '1')")
	moveAll(t, s)
	if got := s.OutboxStats(); got != (feed.OutboxStats{Moved: 1, Parked: 1}) {
		t.Errorf("counted: %+v", got)
	}
	if err := s.MoveConsumer(t.Context(), "behind", b.cursors[4], b.cursors[5]); err != nil {
		t.Error(err)
	}
	if _, err := s.Backup(t.Context(), t.TempDir(), feed.BackupOptions{Actor: "ann", Final: true}); err != nil {
		t.Error(err)
	}
	if _, err := s.Finalize(t.Context(), feed.FinalizeOptions{Actor: "ann"}); err != nil {
		t.Error(err)
	}
	if err := s.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestTheOutboxIsMovedBehindAPooler(t *testing.T) {
	url := database(t)
	through := pooler(t, sharedCluster(t))(url)
	poll := func(cfg *Config) { cfg.OutboxPoll = 5 * time.Millisecond }
	s := open(t, through, poll)
	open(t, through, poll)
	admin := dial(t, url)
	var want []string
	for n := range 40 {
		exec(t, admin, "select gapless.publish('t', 'x', $1::text)", fmt.Sprint(n))
		want = append(want, fmt.Sprint(n))
	}
	eventually(t, "all rows are events", func() bool { return len(events(t, s)) >= len(want) })
	wantPayloads(t, s, want...)
	done, err := s.Finalize(t.Context(), feed.FinalizeOptions{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, admin, "select gapless.publish('t', 'x', '40')")
	eventually(t, "the next row is an event", func() bool { return len(events(t, s)) == 41 })
	if page, err := s.Read(t.Context(), 0, feed.Limit{}); err != nil || page.Epoch != done.NewEpoch {
		t.Errorf("the log is %+v, %v", page.Bounds, err)
	}
}
