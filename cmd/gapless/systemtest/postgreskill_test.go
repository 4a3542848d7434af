//go:build linux && e2e

package systemtest_test

import (
	"strings"
	"testing"
	"time"

	"gapless/feed/lawtest"
	"gapless/feed/postgres/pgtest"
)

// serveOn starts gateways on one database, whose schema the first of them makes.
func serveOn(t *testing.T, database string, n int, args ...string) []*gateway {
	t.Helper()
	var all []*gateway
	for range n {
		all = append(all, serve(t, append([]string{"--store", database, "--auto-migrate", "--reconnect-delay", "500ms", "--heartbeat", "300ms"}, args...)...))
	}
	return all
}

// Two gateways on PostgreSQL are killed by turns without a warning, again and again, under 64 publishers and 20 readers
// that come back to either: as on SQLite. The full test kills 50 times.
func TestKillsUnderLoadOnPostgreSQL(t *testing.T) {
	c := newCrowd(t, serveOn(t, pgtest.New(t).Database(t), 2)...)
	c.read(20)
	c.write(64, 100*time.Millisecond)
	c.killAll(scaled(6, 50), 300)
	c.oneOrder(c.finish(lawtest.Options{}))
	c.noResync()
}

// PostgreSQL itself is killed and started again under the same load: the streams of two gateways live on with
// heartbeats, publishers are refused until it is back, and it goes on without a gap.
func TestPostgreSQLKilledUnderLoad(t *testing.T) {
	cluster := pgtest.New(t)
	c := newCrowd(t, serveOn(t, cluster.Database(t), 2)...)
	c.read(20)
	c.write(64, 100*time.Millisecond)
	var staying []*reader // those that do not cut themselves
	for i, r := range c.readers {
		if i%2 == 0 {
			staying = append(staying, r)
		}
	}
	rnd, _ := c.random(-1)
	for range scaled(3, 20) {
		c.more(1 + rnd.IntN(600))
		connections := c.subscribes(staying)
		refusals := c.refusals.Load()
		cluster.Kill(t)
		beats := map[*reader]int{}
		for _, r := range staying {
			beats[r], _ = r.state(lawtest.KindHeartbeat)
		}
		eventually(t, "heartbeats while the database is down", func() bool {
			for _, r := range staying {
				if n, _ := r.state(lawtest.KindHeartbeat); n < beats[r]+2 {
					return false
				}
			}
			return true
		})
		eventually(t, "publishers are refused while the database is down", func() bool { return c.refusals.Load() > refusals })
		cluster.Start(t)
		c.more(200)
		if n := c.subscribes(staying); n != connections {
			t.Errorf("%d streams were cut while the database was down", n-connections)
		}
	}
	c.oneOrder(c.finish(lawtest.Options{}))
	c.noResync()
	for _, g := range c.gateways {
		if strings.Contains(g.stderr.String(), "panic") {
			t.Errorf("a gateway panicked:\n%s", g.stderr.tail())
		}
	}
}

// subscribes counts the connections that readers have made.
func (c *crowd) subscribes(of []*reader) (n int) {
	for _, r := range of {
		n += len(c.h.of(r.name, lawtest.KindSubscribe))
	}
	return n
}

func TestFlatOutOnPostgreSQL(t *testing.T) {
	flatOut(t, serveOn(t, pgtest.New(t).Database(t), 1)[0])
}

func TestLinesKilledInTheMiddleOnPostgreSQL(t *testing.T) {
	linesKilled(t, serveOn(t, pgtest.New(t).Database(t), 1)[0])
}
