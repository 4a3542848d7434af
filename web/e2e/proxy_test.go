//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nginx as everybody sets it up, with its response buffering on: an event is on the page before the next one is
// published, and a cut stream resumes.
func TestStockNginx(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		n := startNginx(t, "", stock(g.addr))
		page := b.open(t, recorderAt(n.url(), "/events", "order.created", "server.status"))
		page.wait(holds("server.live", 1))
		for i := range 5 {
			last := g.publish(orders(i+1, 1)...)
			page.wait(holdsSeq(g.status().Epoch, last))
		}
		g.cut(g.connections()[0])
		g.publish(orders(6, 50)...)
		page.wait(holds("order.created", 55))

		settle(t, page)
		seen := page.testimony()
		same(t, "resyncs", seen.reasons(t, "resync_required"))
		same(t, "starts", seen.starts(t), "snapshot", "resume")
		sameAsLog(t, seen.list(t), g.events())
		neverTwice(t, seen)
	})
}

// The configuration that we ship is one that nginx takes.
func TestShippedNginxConfIsValid(t *testing.T) {
	prefix := nginxPrefix(t)
	writeNginxConf(t, prefix, "worker_shutdown_timeout 30s;", shippedConf(t, freeAddr(t), "127.0.0.1:8080", prefix))
	if out, err := nginxCommand(prefix, "-t").CombinedOutput(); err != nil || strings.Contains(string(out), "[warn]") {
		t.Fatalf("nginx -t: %v\n%s", err, out)
	}
}

func startShippedNginx(t *testing.T, g *gateway) *nginx {
	t.Helper()
	return startNginx(t, "worker_shutdown_timeout 1s;", func(addr, prefix string) string {
		return shippedConf(t, addr, g.addr, prefix)
	})
}

// With the configuration that we ship, a page survives a restart of the gateway behind nginx: where nginx would answer
// 502, which is final for a browser, it answers a stream that says when to come back.
func TestRestartBehindShippedNginx(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		n := startShippedNginx(t, g)
		g.publish(orders(1, 3)...)
		page := b.record(t, streamAt(n.url(), "topic", ">", "topic", "gapless.>"), "order.created", "server.status")
		page.wait(holds("order.created", 3))

		g.stop(syscall.SIGTERM)
		// While the gateway is away, nginx answers in its place, and a page that is loaded now lives as well.
		page.wait(`seen.events.some(e => e.type === "server.draining" && e.data.includes("upstream_unavailable"))`)
		late := b.record(t, streamAt(n.url()), "order.created", "server.status")
		late.wait(`seen.events.some(e => e.type === "server.draining" && e.data.includes("upstream_unavailable"))`)
		g.start()
		last := g.publish(orders(4, 3)...) + 2
		for _, p := range []*tab{page, late} {
			p.wait(holdsSeq(g.status().Epoch, last))
		}
		settle(t, page, late)
		for _, p := range []*tab{page, late} {
			sameAsLog(t, p.testimony().list(t), g.events())
		}
		same(t, "resyncs", page.testimony().reasons(t, "resync_required"), "epoch_changed")
		same(t, "resyncs of the late page", late.testimony().reasons(t, "resync_required"))
	})
}

// Only reading goes through the shipped configuration, and no query string reaches a log file.
func TestShippedNginxExposesReadingOnly(t *testing.T) {
	g := startGateway(t)
	n := startShippedNginx(t, g)
	g.publish(orders(1, 3)...)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/api/v1/events?start=all&topic=secret", http.StatusOK},
		{http.MethodHead, "/api/v1/events?start=all&topic=secret", http.StatusOK},
		{http.MethodGet, "/api/v1/status?x=secret", http.StatusOK},
		{http.MethodGet, "/healthz?x=secret", http.StatusOK},
		{http.MethodGet, "/openapi.yaml", http.StatusOK},
		{http.MethodGet, "/example", http.StatusOK},
		{http.MethodGet, "/client.js", http.StatusOK},
		{http.MethodHead, "/events?topic=secret", http.StatusOK},
		{http.MethodPost, "/api/v1/events?type=secret", http.StatusForbidden},
		{http.MethodPost, "/events", http.StatusForbidden},
		{http.MethodGet, "/api/v1/connections", http.StatusNotFound},
		{http.MethodDelete, "/api/v1/connections/x", http.StatusNotFound},
		{http.MethodGet, "/metrics", http.StatusNotFound},
		{http.MethodGet, "/api/v1/admin/restore", http.StatusNotFound},
		{http.MethodGet, "/", http.StatusNotFound},
	} {
		code, _, content := call(t, c.method, n.url()+c.path, "", "")
		if code != c.want {
			t.Errorf("%s %s: %d, want %d\n%s", c.method, c.path, code, c.want, content)
		}
	}
	g.stop(syscall.SIGTERM)
	if code, header, content := call(t, http.MethodGet, n.url()+"/events?topic=secret", "", ""); code != http.StatusOK ||
		header.Get("Content-Type") != "text/event-stream" || !regexp.MustCompile(`^retry: [1-3]\d00\nevent: server.draining\ndata: `).Match(content) {
		t.Errorf("while the gateway is away: %d %v\n%s", code, header, content)
	}
	if code, _, _ := call(t, http.MethodGet, n.url()+"/api/v1/status?x=secret", "", ""); code != http.StatusBadGateway {
		t.Errorf("status while the gateway is away: %d, want 502", code)
	}
	for _, file := range []string{"gapless.access.log", "gapless.error.log"} {
		if text := n.read(file); strings.Contains(text, "secret") || strings.Contains(text, "?") {
			t.Errorf("%s holds a query:\n%s", file, text)
		}
	}
	if !strings.Contains(n.read("gapless.access.log"), "GET /events HTTP/1.1 200") {
		t.Errorf("the access log misses the stream:\n%s", n.read("gapless.access.log"))
	}
}

// A reload ends the old workers' streams after worker_shutdown_timeout. The pages resume through the new ones.
func TestNginxReload(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		n := startShippedNginx(t, g)
		page := b.record(t, streamAt(n.url(), "topic", ">", "topic", "gapless.>"), "order.created", "server.status")
		g.publish(orders(1, 5)...)
		page.wait(holds("order.created", 5))

		for round := 1; round <= 2; round++ {
			n.reload()
			for i := range 10 { // while the stream changes hands
				g.publish(orders(5+(round-1)*10+i+1, 1)...)
				pause(t, quick/4)
			}
			page.wait(holds("server.connected", round+1))
		}
		page.wait(holds("order.created", 25))

		settle(t, page)
		seen := page.testimony()
		same(t, "resyncs", seen.reasons(t, "resync_required"))
		same(t, "starts", seen.starts(t), "snapshot", "resume", "resume")
		sameAsLog(t, seen.list(t), g.events())
		neverTwice(t, seen)
	})
}

// A silent topic behind proxies that cut what is silent. Heartbeats keep the stream; where they are too rare, the cut
// costs nothing either. The long check uses the proxies' own defaults (nginx 60 s, HAProxy's Debian package 50 s) and
// our own 15 s, for five minutes.
func TestSilentTopicBehindProxies(t *testing.T) {
	nginxTimeout, haproxyTimeout, heartbeat, rare, silence := "2s", "2s", "500ms", "1h", 6*time.Second
	if long() {
		nginxTimeout, haproxyTimeout, heartbeat, rare, silence = "60s", "50s", "15s", "90s", 5*time.Minute
	}
	eachBrowser(t, func(t *testing.T, b *browser) {
		kept := startGateway(t, "--heartbeat", heartbeat)
		cut := startGateway(t, "--heartbeat", rare)
		pages := map[string]*tab{}
		for name, g := range map[string]*gateway{"kept": kept, "cut": cut} {
			n := startNginx(t, "", stock(g.addr, "proxy_read_timeout "+nginxTimeout+";"))
			h := startHAProxy(t, g.addr, haproxyTimeout)
			for proxy, base := range map[string]string{"nginx": n.url(), "HAProxy": "http://" + h} {
				page := b.record(t, streamAt(base, "topic", "quiet"), "note")
				page.wait(holds("server.live", 1))
				pages[proxy+" "+name] = page
			}
			g.publish(orders(1, 20)...) // elsewhere
		}
		pause(t, silence)
		for name, page := range pages {
			seen := page.testimony()
			if !strings.HasSuffix(name, "kept") {
				if len(seen.Opens) == 1 {
					t.Errorf("%s: the proxy cut nothing", name)
				}
				continue
			}
			if len(seen.Opens) != 1 {
				t.Errorf("%s: %d connections during the silence", name, len(seen.Opens))
			}
			beats := seen.of("heartbeat")
			if len(beats) == 0 {
				t.Fatalf("%s: no heartbeat in the silence", name)
			}
			// The bookmark moves on with the other topics, so a quiet page never falls out of the window.
			head := fmt.Sprintf("%s-%d-", kept.status().Epoch, kept.status().HeadSeq)
			if last := beats[len(beats)-1]; !strings.HasPrefix(last.ID, head) {
				t.Errorf("%s: the heartbeat's id is %s, head is %s", name, last.ID, head)
			}
		}
		for _, g := range []*gateway{kept, cut} {
			g.publish(draft{Type: "note", Topic: "quiet", Data: 1})
		}
		for name, page := range pages {
			page.wait(holds("note", 1))
			seen := page.testimony()
			same(t, name+": resyncs", seen.reasons(t, "resync_required"))
			g := kept
			if strings.HasSuffix(name, "cut") {
				g = cut
			}
			sameAsLog(t, seen.list(t), g.events("topic", "quiet"))
		}
	})
}
