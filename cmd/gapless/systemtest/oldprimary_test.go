//go:build linux && e2e

package systemtest_test

import (
	"net/http"
	"testing"

	"gapless/feed/lawtest"
)

// The old primary comes back after a failover, and the gateways are led to it again, as by a proxy or a name that
// switches back: gateways that ran on the new one serve and take nothing there, whether their operator finalized the
// failover or their guard adopted it. Led to the new one again, they go on.
func TestTheOldPrimaryIsNotServed(t *testing.T) {
	for _, guard := range []string{"strict", "verify"} {
		t.Run(guard, func(t *testing.T) {
			p := newPair(t, true)
			g := serveOn(t, p.url, 1, "--restore-guard", guard)[0]
			h := &history{}
			pub := newPublisher(t, g, h, "p", 32, "orders")
			ready := func() {
				t.Helper()
				eventually(t, "the gateway is ready", func() bool { return g.ask(http.MethodGet, "/readyz", "", nil).status == http.StatusOK })
			}
			pub.must(t, 50, 10)
			p.failOver()
			if guard == "strict" {
				g.shut()
				succeed(t, "restore", "finalize", "--yes", "--url", "http://"+g.addr)
			}
			ready()
			pub.outbox = true // the first may meet a connection that was cut
			if err := pub.persist(bounded(t), 50, nil); err != nil {
				t.Fatal(err)
			}
			// Its standby is gone, and it must not wait for it: this is the worst that can come back.
			p.primary.Configure(t, "synchronous_commit = local")
			p.primary.Start(t)
			p.junction.to(hostOf(t, p.primary.URL("postgres")))
			eventually(t, "the gateway is not ready", func() bool { return g.ask(http.MethodGet, "/readyz", "", nil).status == http.StatusServiceUnavailable })
			for range 3 {
				if a := g.ask(http.MethodPost, "/api/v1/events", "", []byte(`{"topic":"orders","data":1}`)); a.status != http.StatusServiceUnavailable {
					t.Errorf("publish at the old primary: %d %s", a.status, a.body)
				}
			}
			p.junction.to(hostOf(t, p.standby.URL("postgres")))
			ready()
			if err := pub.persist(bounded(t), 10, nil); err != nil {
				t.Fatal(err)
			}
			log := g.log()
			h.judge(t, lawtest.Options{Restored: true, Log: log})
			h.kept(t, log)
		})
	}
}
