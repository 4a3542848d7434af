//go:build linux

package systemtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// crowd is publishers and readers that use one or more gateways at once. Each publisher supplies ids and sends a batch
// until it is acknowledged; each reader comes back after every cut. Both go to another gateway each time.
type crowd struct {
	t        *testing.T
	ctx      context.Context
	h        *history
	gateways []*gateway
	topics   []string
	seed     uint64
	readers  []*reader

	publishing   context.Context
	cease        context.CancelFunc // ends publishing
	writing      herd
	reading      herd
	acknowledged atomic.Int64
	refusals     atomic.Int64 // publishers' tries that had to be repeated
}

// newCrowd makes a crowd of nobody yet.
func newCrowd(t *testing.T, gateways ...*gateway) *crowd {
	c := &crowd{t: t, ctx: bounded(t), h: &history{}, gateways: gateways, seed: uint64(time.Now().UnixNano()), writing: herd{t: t}, reading: herd{t: t}}
	t.Logf("seed %d", c.seed)
	for i := range 8 {
		c.topics = append(c.topics, fmt.Sprintf("load.%d", i))
	}
	c.publishing, c.cease = context.WithCancel(c.ctx)
	t.Cleanup(c.cease)
	return c
}

// random is a source for one goroutine, and pick one that chooses gateways with it.
func (c *crowd) random(who int) (rnd *rand.Rand, pick func() *gateway) {
	rnd = rand.New(rand.NewPCG(c.seed, uint64(who)))
	return rnd, func() *gateway { return c.gateways[rnd.IntN(len(c.gateways))] }
}

// read starts n readers and waits until they are live. Every fifth reads all topics and the others one of them; every
// second also cuts its connection itself now and then.
func (c *crowd) read(n int) {
	c.t.Helper()
	for i := range n {
		r := newReader(c.gateways[0], c.h, fmt.Sprintf("r-%d", i), c.topics[i%len(c.topics)], "end")
		if i%5 == 0 {
			r.topics = []string{"load.*", "end"}
		}
		rnd, pick := c.random(i)
		r.pick, r.impatient = pick, 2*time.Second
		c.readers = append(c.readers, r)
		ended := func(rec lawtest.Record) bool { return rec.Type == "end" }
		c.reading.run(func() error {
			if i%2 == 0 {
				return r.follow(c.ctx, ended)
			}
			return r.roam(c.ctx, rnd, ended)
		})
	}
	eventually(c.t, "all readers are live", func() bool { return deliveredToAll(c.readers, lawtest.KindLive, 1) })
}

// write starts n publishers. Each sends a batch of one to five events, then rests for up to the given time.
func (c *crowd) write(n int, rest time.Duration) {
	for i := range n {
		rnd, pick := c.random(1000 + i)
		p := newPublisher(c.t, c.gateways[0], c.h, fmt.Sprintf("p%d", i), 48+rnd.IntN(400), c.topics...)
		p.tries = &c.refusals
		c.writing.run(func() error {
			for c.publishing.Err() == nil {
				events := 1
				if rnd.IntN(4) == 0 {
					events = 5
				}
				// Not even the end of the test's publishing leaves a batch that nobody knows about.
				if err := p.persist(c.ctx, events, pick); err != nil {
					return err
				}
				c.acknowledged.Add(int64(events))
				pause(c.publishing, time.Duration(rnd.Int64N(int64(rest))))
			}
			return nil
		})
	}
}

// more waits until so many more events are acknowledged.
func (c *crowd) more(events int) {
	c.t.Helper()
	want := c.acknowledged.Load() + int64(events)
	eventually(c.t, fmt.Sprintf("%d more events are acknowledged", events), func() bool { return c.acknowledged.Load() >= want })
}

// stop ends the publishing, and returns once every batch is acknowledged.
func (c *crowd) stop() {
	c.cease()
	c.writing.wait()
}

// finish stops the publishing, waits until every reader has all, lets a newcomer read all from the start, and judges.
// It returns the log.
func (c *crowd) finish(opts lawtest.Options) []lawtest.Record {
	c.t.Helper()
	c.stop()
	// A gateway whose store has failed appends announces itself when it takes
	// them again: no such event is to come behind the end.
	for _, g := range c.gateways {
		eventually(c.t, "the gateway is ready", func() bool { return g.ask(http.MethodGet, "/readyz", "", nil).status == http.StatusOK })
	}
	last := newPublisher(c.t, c.gateways[0], c.h, "last", 0, "end")
	if err := last.resend(c.ctx, []draft{{ID: "last-1", Topic: "end", Type: "end", Data: "null"}}, nil); err != nil {
		c.t.Fatal(err)
	}
	c.reading.wait()
	late := newReader(c.gateways[0], c.h, "late")
	late.start = "all"
	if err := late.toEnd(c.ctx); err != nil {
		c.t.Error(err)
	}
	opts.Log, opts.MustReach = c.gateways[0].log(), true
	c.h.judge(c.t, opts)
	c.h.kept(c.t, opts.Log)
	c.t.Logf("%d events acknowledged, %d tries repeated, %d in the log", c.acknowledged.Load(), c.refusals.Load(), len(opts.Log))
	return opts.Log
}

// noResync fails the test where a reader was told to resync.
func (c *crowd) noResync() {
	c.t.Helper()
	for i, rec := range c.h.of("", lawtest.KindResync) {
		if i == 5 {
			c.t.Error("and more")
			return
		}
		c.t.Errorf("%s, connection %d, was told to resync: %s", rec.Client, rec.Conn, rec.Reason)
	}
}
