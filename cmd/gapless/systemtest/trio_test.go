//go:build linux && e2e

package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gapless/feed/lawtest"
	"gapless/feed/postgres/pgtest"
)

// Eight writers on three gateways of one database, and readers that hop to another gateway at each cut: one order
// everywhere, no gap, no repeat, no resync. The full test has 100 readers and longer writers.
func TestReadersHopBetweenThreeGateways(t *testing.T) {
	c := newCrowd(t, serveOn(t, pgtest.New(t).Database(t), 3)...)
	c.read(scaled(30, 100))
	c.write(8, 10*time.Millisecond)
	for range scaled(5, 25) {
		c.more(1_000)
	}
	log := c.finish(lawtest.Options{})
	c.noResync()
	c.oneOrder(log)
	visited := map[string]int{} // connections by gateway
	for _, g := range c.gateways {
		visited[g.addr] = int(g.metrics().sum(t, "gapless_resumes_total"))
	}
	for addr, n := range visited {
		if n == 0 {
			t.Errorf("nobody resumed at %s: %v", addr, visited)
		}
	}
	// Any cursor is good at any gateway.
	all := cursors(log[:len(log)-1])
	for i := 0; i < len(all); i += max(1, len(all)/20) {
		for _, g := range c.gateways {
			resumes(t, g, all[i:i+1])
		}
	}
}

// One id is published at all three gateways at once, alone and inside batches that overlap otherwise: it is one event,
// exactly one answer says that it is new, and the log has no hole.
func TestOneIDAtThreeGatewaysAtOnce(t *testing.T) {
	gateways := serveOn(t, pgtest.New(t).Database(t), 3)
	h := &history{}
	ctx := bounded(t)
	r := newReader(gateways[0], h, "reader", "twins", "end")
	clients := herd{t: t}
	clients.run(func() error { return r.toEnd(ctx) })
	eventually(t, "the reader is live", func() bool { return deliveredToAll([]*reader{r}, lawtest.KindLive, 1) })
	ps := make([]*publisher, len(gateways))
	for i, g := range gateways {
		ps[i] = newPublisher(t, g, h, fmt.Sprintf("p%d", i), 32, "twins")
	}
	for round := range scaled(100, 1_000) {
		twin := draft{ID: fmt.Sprintf("twin-%d", round), Topic: "twins", Type: "tick", Data: `{"same":true}`}
		var at sync.WaitGroup
		for _, p := range ps {
			batch := []draft{twin}
			if round%2 == 1 {
				batch = slices.Concat(p.drafts(2), batch, p.drafts(2))
			}
			at.Go(func() {
				if _, err := p.send(ctx, batch); err != nil {
					t.Error(err)
				}
			})
		}
		at.Wait()
	}
	ps[0].end(t)
	clients.wait()
	fresh := map[string]int{} // answers that say "new", by id
	for _, rec := range h.of("", lawtest.KindPublish) {
		if rec.Outcome == lawtest.OutcomeAcknowledged && !rec.Duplicate {
			fresh[rec.ID]++
		}
	}
	for id, n := range fresh {
		if n != 1 {
			t.Errorf("%s was answered as new %d times", id, n)
		}
	}
	log := gateways[0].log()
	h.judge(t, lawtest.Options{MustReach: true, Log: log})
	h.kept(t, log)
}

// A restore is finalized through one of three busy gateways, with nothing restored: each gateway ends its streams with
// epoch_changed, publishers go on, readers come back with a snapshot, and the audit trail shows who did it.
func TestFinalizeUnderThreeBusyGateways(t *testing.T) {
	c := newCrowd(t, serveOn(t, pgtest.New(t).Database(t), 3)...)
	c.read(30)
	c.write(16, 20*time.Millisecond)
	c.more(1_000)
	old := c.gateways[0].status().Epoch
	succeed(t, "restore", "finalize", "--yes", "--actor", "the-operator", "--url", "http://"+c.gateways[1].addr)
	eventually(t, "every reader is told", func() bool { return deliveredToAll(c.readers, lawtest.KindResync, 1) })
	c.more(1_000)
	log := c.finish(lawtest.Options{Restored: true})
	c.epochChanged(old)
	c.oneOrder(log)
	for _, g := range c.gateways {
		resyncs(t, g, []string{cursorOf(old, 1), cursorOf(old, uint64(len(log)+1000))}, "epoch_changed")
	}
	var page struct {
		Entries []struct {
			Action string          `json:"action"`
			Actor  string          `json:"actor"`
			Detail json.RawMessage `json:"detail"`
		} `json:"entries"`
	}
	decode(t, c.gateways[2].get("/api/v1/audit"), &page)
	found := 0
	for _, e := range page.Entries {
		if e.Action == "restore.finalize" {
			found++
			contains(t, "the audit entry", e.Actor+string(e.Detail), "the-operator", old, log[0].Epoch)
		}
	}
	if found != 1 {
		t.Errorf("the audit trail has %d finalized restores: %+v", found, page)
	}
}

// epochChanged fails the test where a reader was not told that the epoch changed, or was told anything else.
func (c *crowd) epochChanged(old string) {
	c.t.Helper()
	if now := c.gateways[0].status().Epoch; now == old {
		c.t.Errorf("the epoch is still %s", old)
	}
	told := map[string]int{}
	for _, rec := range c.h.of("", lawtest.KindResync) {
		told[rec.Client]++
		if rec.Reason != "epoch_changed" {
			c.t.Errorf("%s was told to resync for %s", rec.Client, rec.Reason)
		}
	}
	for _, r := range c.readers {
		if told[r.name] != 1 {
			c.t.Errorf("%s was told %d times, want once", r.name, told[r.name])
		}
	}
}

// oneOrder fails the test where two gateways do not show the same log.
func (c *crowd) oneOrder(log []lawtest.Record) {
	c.t.Helper()
	for _, g := range c.gateways[1:] {
		other := g.log()
		same := slices.EqualFunc(log, other, func(a, b lawtest.Record) bool {
			return a.Seq == b.Seq && a.Epoch == b.Epoch && a.ID == b.ID && a.Topic == b.Topic && a.Cursor == b.Cursor && a.Time.Equal(b.Time)
		})
		if !same {
			c.t.Errorf("the log of %s, with %d events, is not the one of %s, with %d", g.addr, len(other), c.gateways[0].addr, len(log))
		}
	}
}

// cursors are those of a log's events.
func cursors(log []lawtest.Record) (all []string) {
	for _, rec := range log {
		all = append(all, rec.Cursor)
	}
	return all
}

// Each bound of retention holds on PostgreSQL too, and the database stops growing. The server's own vacuum looks every
// second, as the test has no minutes.
func TestRetentionPlateausOnPostgreSQL(t *testing.T) {
	cluster := pgtest.New(t, "autovacuum_naptime = 1s")
	for i, tt := range retentions {
		t.Run(tt.name, func(t *testing.T) {
			g := serveOn(t, cluster.Database(t), 1, tt.args...)[0]
			plateau(t, g, tt.over, tt.sized, func() (size int64) {
				out := cluster.Run(t, pgtest.Binary(t, "psql"), "-Atc", fmt.Sprintf("select pg_database_size('test_%d')", i+1), "postgres")
				if _, err := fmt.Sscan(out, &size); err != nil {
					t.Fatal(err)
				}
				return size
			})
			trimmed(t, g)
		})
	}
}

// A gateway starts before its database does: it answers, is not ready and says why, and becomes ready by itself.
func TestDatabaseDownAtTheStart(t *testing.T) {
	cluster := pgtest.New(t)
	database := cluster.Database(t)
	cluster.Restart(t)
	cluster.Kill(t)
	g := prepare(t, "--store", database, "--auto-migrate")
	g.launch()
	if a := g.ask(http.MethodGet, "/readyz", "", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d %s", a.status, a.body)
	}
	if a := g.ask(http.MethodPost, "/api/v1/events", "", []byte(`{"topic":"early","data":1}`)); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("publish: %d %s", a.status, a.body)
	}
	cluster.Start(t)
	g.await()
	newPublisher(t, g, &history{}, "p", 32, "early").must(t, 10, 1)
	if strings.Contains(g.stderr.String(), "panic") {
		t.Error(g.stderr.tail())
	}
}
