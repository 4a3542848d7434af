//go:build e2e

package e2e_test

import (
	"syscall"
	"testing"
)

// The memory store begins a new timeline at each boot, so a page must learn once that its cursor is void and then
// show the new timeline. A plain EventSource does that without a line of script.
func TestServerRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"drained": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			eachBrowser(t, func(t *testing.T, b *browser) {
				g := startGateway(t)
				g.publish(orders(1, 3)...)
				page := b.record(t, g.stream(), "order.created", "server.status")
				page.wait(holds("order.created", 3))
				sameAsLog(t, page.testimony().list(t), g.events())
				old := g.status().Epoch

				g.stop(signal)
				g.start()
				if g.status().Epoch == old {
					t.Fatal("the memory store kept its epoch across a restart")
				}
				page.wait(`seen.events.filter(e => e.type === "server.connected").length >= 2`)
				last := g.publish(orders(4, 2)...) + 1
				page.wait(holdsSeq(g.status().Epoch, last))

				settle(t, page)
				seen := page.testimony()
				same(t, "resyncs", seen.reasons(t, "resync_required"), "epoch_changed")
				same(t, "starts", seen.starts(t), "snapshot", "snapshot")
				if signal == syscall.SIGTERM {
					same(t, "farewells", seen.reasons(t, "server.draining"), "shutdown")
				}
				sameAsLog(t, seen.list(t), g.events())
			})
		})
	}
}

// A second restart with nothing published between must not leave a page with a dead cursor beside a live epoch.
func TestRestartTwiceWithNothingPublished(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		g.publish(orders(1, 1)...)
		page := b.record(t, g.stream(), "order.created", "server.status")
		page.wait(holds("order.created", 1))
		for n := 2; n <= 3; n++ {
			g.stop(syscall.SIGTERM)
			g.start()
			page.wait(holds("server.connected", n))
		}
		g.publish(orders(2, 1)...)
		page.wait(holds("order.created", 2))
		settle(t, page)
		sameAsLog(t, page.testimony().list(t), g.events())
	})
}
