//go:build e2e

package e2e_test

import (
	"testing"
)

// A connection that the API cuts comes back with its cursor: nothing is missing and nothing comes twice.
func TestCutThroughAPI(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		g.publish(orders(1, 5)...)
		page := b.record(t, g.stream(), "order.created", "server.status")
		page.wait(holds("order.created", 5))

		for i := range 3 {
			id := page.testimony().of("server.connected")[i].control(t).ConnectionID
			g.cut(id)
			g.publish(orders(6+i*5, 5)...)
			page.wait(holds("server.connected", i+2))
		}
		page.wait(holds("order.created", 20))

		settle(t, page)
		seen := page.testimony()
		same(t, "resyncs", seen.reasons(t, "resync_required"))
		same(t, "farewells", seen.reasons(t, "server.draining"), "cut", "cut", "cut")
		same(t, "starts", seen.starts(t), "snapshot", "resume", "resume", "resume")
		sameAsLog(t, seen.list(t), g.events())
	})
}

// A network that ends connections anywhere, in the middle of a frame too, by FIN and by RST.
func TestCutInMidStream(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		var plans []cutPlan
		for i := range 10 {
			plans = append(plans, cutPlan{after: 700 + 331*i, reset: i%2 == 0})
		}
		network := startCutter(t, g.addr, plans...)
		page := b.record(t, streamAt(network.url), "order.created", "server.status")

		published := 0
		for network.left() > 0 {
			g.publish(orders(published+1, 10)...)
			if published += 10; published > 900 {
				t.Fatalf("%d cuts are left after %d events", network.left(), published)
			}
			pause(t, quick/4)
		}
		last := g.publish(orders(published+1, 1)...)
		page.wait(holdsSeq(g.status().Epoch, last))

		settle(t, page)
		seen := page.testimony()
		same(t, "resyncs", seen.reasons(t, "resync_required"))
		if resumed := len(seen.of("server.connected")) - 1; resumed < 3 {
			t.Errorf("the page resumed only %d times", resumed)
		}
		for _, start := range seen.starts(t)[1:] {
			if start != "resume" && start != "snapshot" {
				t.Errorf("the stream started as %q after a cut", start)
			}
		}
		sameAsLog(t, seen.list(t), g.events())
		neverTwice(t, seen)
	})
}

// Everybody's network goes at once, with events published while nobody is connected.
func TestEventsPublishedWhileAway(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		network := startCutter(t, g.addr)
		page := b.record(t, streamAt(network.url), "order.created", "server.status")
		g.publish(orders(1, 3)...)
		page.wait(holds("order.created", 3))

		network.cutAll()
		g.publish(orders(4, 100)...)
		page.wait(holds("order.created", 103))

		settle(t, page)
		seen := page.testimony()
		same(t, "resyncs", seen.reasons(t, "resync_required"))
		same(t, "starts", seen.starts(t), "snapshot", "resume")
		sameAsLog(t, seen.list(t), g.events())
		neverTwice(t, seen)
	})
}

// neverTwice fails where an event was handed over again, other than by a snapshot that begins the list anew.
func neverTwice(t *testing.T, seen testimony) {
	t.Helper()
	last := map[string]bool{}
	for _, s := range seen.Events {
		if s.Type == "server.connected" && s.control(t).Start == "snapshot" {
			clear(last)
		}
		if s.stored() && last[s.ID] {
			t.Errorf("%s came twice", s.ID)
		}
		last[s.ID] = s.stored()
	}
}
