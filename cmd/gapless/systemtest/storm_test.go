//go:build linux && e2e

package systemtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"gapless/feed/lawtest"
	"gapless/feed/postgres/pgtest"
)

// Three gateways are restarted one after the other, as a rolling upgrade does, under load: each ends with 0, publishers
// and readers go to the others, and nobody notices more than that.
func TestRollingRestart(t *testing.T) {
	c := newCrowd(t, serveOn(t, pgtest.New(t).Database(t), 3, "--drain-delay", "300ms")...)
	c.read(15)
	c.write(16, 20*time.Millisecond)
	for range scaled(1, 5) {
		for _, g := range c.gateways {
			c.more(300)
			g.signal(syscall.SIGTERM)
			if code := g.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			c.more(100) // the others go on
			g.start()
		}
	}
	c.more(300)
	c.oneOrder(c.finish(lawtest.Options{}))
	c.noResync()
}

// All kinds of trouble come at random to three gateways and their database: gateways are killed or stopped, connections
// are cut or stall, the database is killed or restarted. Streams and pollers see every event once, in one order.
func TestStorm(t *testing.T) {
	cluster := pgtest.New(t)
	database := cluster.Database(t)
	j := newJunction(t, database)
	c := newCrowd(t, serveOn(t, j.url(t, database), 3)...)
	c.read(20)
	polled := c.poll(4)
	c.write(32, 30*time.Millisecond)
	rnd, pick := c.random(-1)
	for range scaled(15, 100) {
		c.more(1 + rnd.IntN(300))
		pause(c.ctx, time.Duration(rnd.IntN(20))*time.Millisecond)
		switch g := pick(); rnd.IntN(7) {
		case 0, 1:
			g.kill()
			g.start()
		case 2:
			g.signal(syscall.SIGTERM)
			g.wait()
			g.start()
		case 3, 4:
			j.cut()
		case 5:
			release := j.stall()
			pause(c.ctx, time.Duration(rnd.IntN(1500))*time.Millisecond)
			release()
		case 6:
			if rnd.IntN(2) == 0 {
				cluster.Kill(t)
				cluster.Start(t)
			} else {
				cluster.Restart(t)
			}
		}
	}
	c.more(500)
	log := c.finish(lawtest.Options{})
	c.oneOrder(log)
	c.noResync()
	for i, got := range polled() {
		var want []string
		for _, rec := range log {
			if rec.Topic == c.topics[i] || rec.Topic == "end" {
				want = append(want, rec.Cursor)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the poller of %s got %d events, want %d", c.topics[i], len(got), len(want))
		}
	}
}

// poll starts clients that read page by page, from the beginning, each at a topic of its own and the next page at any
// gateway. The returned function waits until each has the last event, and gives their cursors.
func (c *crowd) poll(n int) (wait func() [][]string) {
	got := make([][]string, n)
	clients := herd{t: c.t}
	for i := range n {
		rnd, pick := c.random(2000 + i)
		clients.run(func() (err error) {
			got[i], err = pollToEnd(c.ctx, c.topics[i], rnd, pick)
			return err
		})
	}
	return func() [][]string { clients.wait(); return got }
}

func pollToEnd(ctx context.Context, topic string, rnd *rand.Rand, pick func() *gateway) ([]string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var got []string
	query := "start=all"
	for {
		var page struct {
			Events []struct {
				Cursor string `json:"cursor"`
				Type   string `json:"type"`
			} `json:"events"`
			Cursor string `json:"cursor"`
		}
		address := fmt.Sprintf("http://%s/api/v1/events?topic=%s&topic=end&limit=%d&wait=2s&%s", pick().addr, topic, 1+rnd.IntN(50), query)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return got, err
		}
		resp, err := client.Do(req)
		if err == nil {
			switch resp.StatusCode {
			case http.StatusOK:
				err = json.NewDecoder(resp.Body).Decode(&page)
			case http.StatusServiceUnavailable:
				err = fmt.Errorf("%s", resp.Status)
			default:
				resp.Body.Close()
				return got, fmt.Errorf("a page of %s behind %s: %s", topic, query, resp.Status)
			}
			resp.Body.Close()
		}
		if err != nil {
			if !pause(ctx, 50*time.Millisecond) {
				return got, fmt.Errorf("a page of %s behind %s: %w", topic, query, err)
			}
			continue
		}
		for _, e := range page.Events {
			got = append(got, e.Cursor)
			if e.Type == "end" {
				return got, nil
			}
		}
		query = "cursor=" + url.QueryEscape(page.Cursor)
	}
}
