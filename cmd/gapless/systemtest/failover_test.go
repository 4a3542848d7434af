//go:build linux && e2e

package systemtest_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gapless/feed/lawtest"
	"gapless/feed/postgres/pgtest"
)

// pair is a primary and its streaming standby behind one address.
type pair struct {
	t                *testing.T
	primary, standby *pgtest.Cluster
	junction         *junction
	url              string // of the database, through the junction
}

// newPair makes both, with a database, and waits until the standby streams.
func newPair(t *testing.T, synchronous bool) *pair {
	t.Helper()
	p := &pair{t: t, primary: pgtest.New(t)}
	database := p.primary.Database(t)
	p.standby = pgtest.Unstarted(t)
	p.primary.Run(t, pgtest.Binary(t, "pg_basebackup"), "-D", p.standby.Dir, "-R", "-X", "stream", "-c", "fast")
	p.standby.Start(t)
	state := "async"
	if synchronous {
		// Only now: with nobody to wait for, no commit would ever return.
		p.primary.Exec(t, "postgres", "alter system set synchronous_standby_names = '*'")
		p.primary.Exec(t, "postgres", "select pg_reload_conf()")
		state = "sync"
	}
	eventually(t, "the standby streams", func() bool {
		out := p.primary.Run(t, pgtest.Binary(t, "psql"), "-Atc", "select sync_state from pg_stat_replication where state = 'streaming'", "postgres")
		return strings.TrimSpace(out) == state
	})
	p.junction = newJunction(t, database)
	p.url = p.junction.url(t, database)
	return p
}

// failOver kills the primary, promotes the standby and leads the gateways there.
func (p *pair) failOver() {
	p.t.Helper()
	p.primary.Kill(p.t)
	p.promote()
}

func (p *pair) promote() {
	p.t.Helper()
	p.standby.Exec(p.t, "postgres", "select pg_promote()")
	u, err := url.Parse(p.standby.URL("postgres"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.junction.to(u.Host)
}

// With the strict guard a failover under running gateways keeps them shut at once, not at the next deploy: another
// timeline may have lost what was acknowledged. Their streams live on meanwhile. Once the operator finalized, publishers
// go on and readers begin anew. Replication is synchronous, so that nothing acknowledged is missing.
func TestFailoverUnderStrictGateways(t *testing.T) {
	p := newPair(t, true)
	c := newCrowd(t, serveOn(t, p.url, 2)...)
	c.read(10)
	c.write(16, 50*time.Millisecond)
	c.more(1_000)
	old := c.gateways[0].status().Epoch
	p.failOver()
	for _, g := range c.gateways {
		g.shut()
	}
	refusals := c.refusals.Load()
	before := c.acknowledged.Load()
	eventually(t, "publishers are refused", func() bool { return c.refusals.Load() > refusals+50 })
	if n := c.acknowledged.Load(); n != before {
		t.Errorf("%d events were acknowledged while the guard was shut", n-before)
	}
	refuse(t, []string{"gapless restore finalize", "timeline"}, "restore", "status", "--url", "http://"+c.gateways[0].addr)
	succeed(t, "restore", "finalize", "--yes", "--url", "http://"+c.gateways[1].addr)
	c.more(1_000)
	log := c.finish(lawtest.Options{Restored: true})
	c.oneOrder(log)
	if now := c.gateways[0].status().Epoch; now == old {
		t.Error("the epoch stayed")
	}
	for _, rec := range c.h.of("", lawtest.KindResync) {
		if rec.Reason != "epoch_changed" {
			t.Errorf("%s was told to resync for %s", rec.Client, rec.Reason)
		}
	}
	// It is settled: a gateway that starts now is ready at once.
	g := c.gateways[0]
	g.signal(syscall.SIGTERM)
	g.wait()
	g.start()
}

// With the guard that verifies, and synchronous replication, a failover needs nobody: the gateways find their last
// event in the promoted standby, note that they took it over, and go on without a gap or a resync.
func TestFailoverUnderVerifyingGateways(t *testing.T) {
	p := newPair(t, true)
	c := newCrowd(t, serveOn(t, p.url, 2, "--restore-guard", "verify")...)
	c.read(10)
	c.write(16, 50*time.Millisecond)
	c.more(1_000)
	epoch := c.gateways[0].status().Epoch
	p.failOver()
	c.more(1_000)
	log := c.finish(lawtest.Options{})
	c.noResync()
	c.oneOrder(log)
	if now := c.gateways[0].status().Epoch; now != epoch {
		t.Errorf("the epoch is %s, was %s", now, epoch)
	}
	if got := c.gateways[0].audit(); !slices.Contains(got, "restore.adopt") {
		t.Errorf("the audit trail has %v", got)
	}
	// One that starts now, whatever its guard, is content with the identity that was taken over.
	serve(t, "--store", p.url)
}

// lag is a pair whose standby lacks the last events, with gateways, and a reader that has them all.
type lag struct {
	*pair
	gateways []*gateway
	h        *history
	clients  herd
	kept     []string // cursors of events that the standby has
	lost     []string // cursors of events that it lacks
}

// newLag makes it, with this guard, and promotes the standby.
func newLag(t *testing.T, guard string) *lag {
	t.Helper()
	l := &lag{pair: newPair(t, false), h: &history{}, clients: herd{t: t}}
	l.gateways = serveOn(t, l.url, 2, "--restore-guard", guard)
	g := l.gateways[0]
	ctx := bounded(t)
	r := newReader(l.gateways[1], l.h, "reader", "orders", "end")
	r.impatient = time.Second
	l.clients.run(func() error { return r.toEnd(ctx) })
	eventually(t, "the reader is live", func() bool { return deliveredToAll([]*reader{r}, lawtest.KindLive, 1) })
	newPublisher(t, g, l.h, "kept", 32, "orders").must(t, 50, 10)
	log := g.log()
	head := log[len(log)-1].Seq
	eventually(t, "the standby has it", func() bool {
		var has uint64
		out := l.standby.Run(t, pgtest.Binary(t, "psql"), "-Atc", "select head from gapless.instance", "test_1")
		if _, err := fmt.Sscan(out, &has); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		return has >= head
	})
	l.standby.Stop(t, syscall.SIGINT)
	newPublisher(t, g, l.h, "lost", 32, "orders").must(t, 50, 10)
	eventually(t, "the reader has what will be lost", func() bool { n, _ := r.state(lawtest.KindEvent); return n >= 100 })
	for _, rec := range g.log() {
		if strings.HasPrefix(rec.ID, "lost") {
			l.lost = append(l.lost, rec.Cursor)
		} else {
			l.kept = append(l.kept, rec.Cursor)
		}
	}
	l.primary.Kill(t)
	l.standby.Start(t)
	l.promote()
	return l
}

// grow publishes past the old head, and then waits until the reader has the end.
func (l *lag) grow() {
	l.t.Helper()
	p := newPublisher(l.t, l.gateways[1], l.h, "grown", 32, "orders")
	if err := p.persist(bounded(l.t), 100, nil); err != nil {
		l.t.Fatal(err)
	}
	p.end(l.t)
	l.clients.wait()
	for _, rec := range l.gateways[0].log() {
		if strings.HasPrefix(rec.ID, "lost") {
			l.t.Errorf("%s came back from the dead", rec.ID)
		}
	}
}

// told fails the test where the reader was not told to resync just once, for one of these reasons.
func (l *lag) told(reasons ...string) {
	l.t.Helper()
	if told := l.h.of("reader", lawtest.KindResync); len(told) != 1 || !slices.Contains(reasons, told[0].Reason) {
		l.t.Errorf("the reader was told to resync %+v, want once, for %v", told, reasons)
	}
}

// A standby that had fallen behind is promoted: even the guard that verifies keeps the gateways shut, as the last
// events that they saw are missing. Once finalized, cursors of either branch are told to resync, whatever has grown since.
func TestFailoverThatLostEvents(t *testing.T) {
	l := newLag(t, "verify")
	for _, g := range l.gateways {
		g.shut()
	}
	succeed(t, "restore", "finalize", "--yes", "--store", l.url) // beside the gateways, which notice
	for _, g := range l.gateways {
		eventually(t, "the gateway is ready", func() bool { return g.ask("GET", "/readyz", "", nil).status == 200 })
	}
	l.grow()
	l.told("epoch_changed")
	for _, g := range l.gateways {
		resyncs(t, g, slices.Concat(l.kept[:5], l.lost), "epoch_changed")
	}
	l.h.judge(t, lawtest.Options{MustReach: true, Restored: true, Log: l.gateways[0].log()})
}

// Without a guard the gateways go on by themselves on a standby that had fallen behind. The fence still protects the
// readers: who has events of the lost branch is told to resync, and who has not goes on, in the same epoch.
func TestFailoverThatLostEventsWithoutAGuard(t *testing.T) {
	l := newLag(t, "off")
	l.grow()
	l.told("log_reset", "history_changed", "cursor_ahead")
	for _, g := range l.gateways {
		resyncs(t, g, l.lost, "history_changed")
		resumes(t, g, l.kept[:50])
	}
	if got := l.gateways[0].audit(); !slices.Contains(got, "restore.adopt") {
		t.Errorf("the audit trail has %v", got)
	}
	for i := range l.h.records {
		if rec := &l.h.records[i]; rec.Kind == lawtest.KindPublish && strings.HasPrefix(rec.ID, "lost") {
			rec.Lost = true
		}
	}
	l.h.judge(t, lawtest.Options{MustReach: true, Log: l.gateways[0].log()})
}
