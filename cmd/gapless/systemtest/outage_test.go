//go:build linux && e2e

package systemtest_test

import (
	"testing"
	"time"

	"gapless/feed/lawtest"
	"gapless/feed/postgres/pgtest"
)

// The connections between two gateways and their database are cut again and again, wherever in a transaction they
// are, also in its commit: what publishers send again is stored once, and no stream notices.
func TestDatabaseConnectionsCutUnderLoad(t *testing.T) {
	database := pgtest.New(t).Database(t)
	j := newJunction(t, database)
	c := newCrowd(t, serveOn(t, j.url(t, database), 2)...)
	c.read(10)
	c.write(32, 10*time.Millisecond)
	rnd, _ := c.random(-1)
	for range scaled(40, 400) {
		c.more(1 + rnd.IntN(60))
		pause(c.ctx, time.Duration(rnd.IntN(5_000))*time.Microsecond)
		j.cut()
	}
	c.more(100)
	c.oneOrder(c.finish(lawtest.Options{}))
	c.noResync()
}

// The database answers nothing for 5 seconds, with its connections open. Streams live on with heartbeats, every
// publisher gets an answer, and afterwards it goes on without a gap.
func TestDatabaseThatStallsUnderLoad(t *testing.T) {
	database := pgtest.New(t).Database(t)
	j := newJunction(t, database)
	c := newCrowd(t, serveOn(t, j.url(t, database), 2)...)
	c.read(10)
	c.write(16, 50*time.Millisecond)
	c.more(300)
	r := c.readers[0] // does not cut itself
	connections, beats := c.subscribes(c.readers[:1]), 0
	release := j.stall()
	t.Cleanup(release)
	beats, _ = r.state(lawtest.KindHeartbeat)
	pause(c.ctx, 5*time.Second)
	if n, _ := r.state(lawtest.KindHeartbeat); n < beats+5 {
		t.Errorf("%d heartbeats in 5 s, want one every 300 ms", n-beats)
	}
	release()
	c.more(300)
	if n := c.subscribes(c.readers[:1]); n != connections {
		t.Error("the stream was cut while the database did not answer")
	}
	c.oneOrder(c.finish(lawtest.Options{}))
	c.noResync()
}
