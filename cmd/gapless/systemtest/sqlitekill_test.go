//go:build linux

package systemtest_test

import (
	"path/filepath"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// sqliteStore is the address of a store in a folder of the test's own, and its file.
func sqliteStore(t *testing.T) (store, path string) {
	path = filepath.Join(t.TempDir(), "events.db")
	return "sqlite:" + path, path
}

// The program on a SQLite file is killed without a warning, again and again, under 64 publishers and 20 readers: each
// acknowledged event is there once and reaches every reader that asked for it once, and nobody is told to resync. The
// full test kills 50 times.
func TestKillsUnderLoadOnSQLite(t *testing.T) {
	t.Parallel()
	store, _ := sqliteStore(t)
	g := serve(t, "--store", store, "--reconnect-delay", "500ms")
	c := newCrowd(t, g)
	c.read(20)
	c.write(64, 100*time.Millisecond)
	c.killAll(scaled(5, 50), 300)
	c.finish(lawtest.Options{})
	c.noResync()
}

// killAll kills and restarts a gateway at a time, by turns, each time after more events were acknowledged.
func (c *crowd) killAll(kills, events int) {
	c.t.Helper()
	rnd, _ := c.random(-1)
	for i := range kills {
		c.more(1 + rnd.IntN(events))
		pause(c.ctx, time.Duration(rnd.IntN(20))*time.Millisecond) // anywhere inside an append
		g := c.gateways[i%len(c.gateways)]
		g.kill()
		if i%4 == 3 { // and once more while it starts
			g.run()
			pause(c.ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
			g.kill()
		}
		g.start()
	}
	c.more(events)
}
