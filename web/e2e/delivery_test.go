//go:build e2e

package e2e_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A stream on which nothing happens opens at once all the same. Firefox fires `open` only at the first byte of the
// body, so the first frame must not wait for an event either.
func TestIdleStreamOpensAtOnce(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		stockNginx := startNginx(t, "", stock(g.addr))
		for name, base := range map[string]string{"direct": g.url, "through stock nginx": stockNginx.url()} {
			stream := streamAt(base, "topic", "nothing.happens.here")
			best := time.Hour
			for range 3 { // a machine under load may be late once, a server that holds its head back always is
				page := b.record(t, stream)
				page.wait("seen.opens.length > 0")
				page.wait(holds("server.live", 1))
				seen := page.testimony()
				if len(seen.list(t)) != 0 {
					t.Fatalf("%s: events on a topic that has none: %v", name, seen.list(t))
				}
				if best = min(best, seconds(seen.Opens[0])); best < time.Second {
					break
				}
			}
			if best >= time.Second {
				t.Errorf("%s: `open` fired after %v", name, best)
			}
		}
	})
}

// By the standard an event with a name reaches only listeners of that name.
func TestNamedAndUnnamed(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		mixed := append(orders(1, 2), draft{Topic: "orders.eu", Data: "plain"})

		named := b.record(t, g.stream("topic", "orders.>"), "order.created")
		unnamed := b.record(t, g.stream("topic", "orders.>", "named", "false"), "order.created")
		named.wait(holds("server.live", 1))
		unnamed.wait(holds("server.live", 1))
		g.publish(mixed...)
		log := g.events("topic", "orders.>")

		named.wait("seen.events.filter(e => e.id && e.type !== 'heartbeat').length >= 5")
		seen := named.testimony()
		sameAsLog(t, seen.list(t), log)
		if seen.Messages != 1 || len(seen.of("order.created")) != 2 {
			t.Errorf("named: %d reached onmessage and %d their listener, want 1 and 2", seen.Messages, len(seen.of("order.created")))
		}

		unnamed.wait("seen.messages >= 3")
		seen = unnamed.testimony()
		sameAsLog(t, seen.list(t), log)
		if seen.Messages != 3 || len(seen.of("order.created")) != 0 {
			t.Errorf("unnamed: %d reached onmessage and %d a listener, want 3 and 0", seen.Messages, len(seen.of("order.created")))
		}
	})
}

// One batch as large as the API takes, to a page that is there and to one that comes later.
func TestBurst(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		there := b.record(t, g.stream(), "order.created", "server.status")
		there.wait(holds("server.live", 1))
		g.publish(orders(1, 1000)...)
		later := b.record(t, g.stream(), "order.created", "server.status")
		log := g.events()
		for _, page := range []*tab{there, later} {
			page.wait(holds("order.created", 1000))
			seen := page.testimony()
			sameAsLog(t, seen.list(t), log)
			same(t, "resyncs", seen.reasons(t, "resync_required"))
			same(t, "starts", seen.starts(t), "snapshot")
		}
	})
}

// What a page gets is what was published, byte for byte where that matters.
func TestFaithfulData(t *testing.T) {
	texts := []string{"", " leading blank", "a\nb", "a\rb", "a\r\nb\n", "\n\n", "id: 9\revent: x", "a\u2028b\u0085c", "\ufeffbom", "🙂 ünï",
		strings.Repeat("x", 65_535), strings.Repeat("y", 65_537)}
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		page := b.record(t, g.stream("format", "raw", "topic", "notes"), "note")
		page.wait(holds("server.live", 1))
		for _, text := range texts {
			code, _, content := call(t, http.MethodPost, g.url+"/api/v1/events?type=note&topic=notes", "text/plain; charset=utf-8", text)
			if code != http.StatusCreated {
				t.Fatalf("publishing %q: %d %s", text, code, content)
			}
		}
		page.wait(holds("note", len(texts)))
		got := page.testimony().of("note")
		if len(got) != len(texts) {
			t.Fatalf("%d events, want %d", len(got), len(texts))
		}
		for i, text := range texts {
			// The format has one kind of line end, so every one that a text holds arrives as LF.
			want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
			if got[i].Data != want {
				t.Errorf("published %q, the page has %q", shorten(text), shorten(got[i].Data))
			}
		}
	})
}

func shorten(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// One event that is far larger than any buffer on the way, through nginx, to a page that is there and to one that
// replays it.
func TestLargeEvent(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		n := startNginx(t, "", stock(g.addr))
		stream := streamAt(n.url(), "format", "raw", "topic", "large")
		there := b.record(t, stream, "blob")
		there.wait(holds("server.live", 1))
		blob := strings.Repeat("0123456789abcdef", 8<<20/16)
		code, _, content := call(t, http.MethodPost, g.url+"/api/v1/events?type=blob&topic=large", "text/plain; charset=utf-8", blob)
		if code != http.StatusCreated {
			t.Fatalf("publishing 8 MiB: %d %s", code, content)
		}
		g.publish(draft{Type: "blob", Topic: "large", Data: "after"})
		for _, page := range []*tab{there, b.record(t, stream, "blob")} {
			page.wait(holds("blob", 2))
			var lengths []int
			page.eval(&lengths, `seen.events.filter(e => e.type === "blob").map(e => e.data.length)`)
			var whole bool
			page.eval(&whole, `seen.events.find(e => e.type === "blob").data === "0123456789abcdef".repeat(8 << 16)`)
			if !whole || len(lengths) != 2 || lengths[1] != len("after") {
				t.Errorf("events of %v characters, the large one whole: %v", lengths, whole)
			}
			var opens int
			if page.eval(&opens, "seen.opens.length"); opens != 1 {
				t.Errorf("%d connections for one large event", opens)
			}
		}
	})
}

// A page of a developer's own server may read a gateway on the same machine, and nobody else's may.
func TestOrigins(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		g.publish(orders(1, 2)...)
		_, port, _ := strings.Cut(strings.TrimPrefix(suite.pages.URL, "http://"), ":")

		for _, origin := range []string{"http://localhost:" + port, "http://127.0.0.1:" + port} {
			page := b.open(t, recorderAt(origin, g.stream(), "order.created", "server.status"))
			page.wait(holds("order.created", 2))
			sameAsLog(t, page.testimony().list(t), g.events())
			// Reading is all that is allowed: a page cannot publish from another origin.
			refusesToPublish(t, page, g)
		}

		// A list of origins opens reading, whoever is on it.
		everybody := startGateway(t, "--cors-origins", "*")
		everybody.publish(orders(1, 2)...)
		reader := b.open(t, recorderAt("http://evil.localhost:"+port, everybody.stream(), "order.created", "server.status"))
		reader.wait(holds("order.created", 2))
		refusesToPublish(t, reader, everybody)

		// Browsers take every name under localhost to this machine, so this one stands for a page on the web.
		foreign := b.open(t, recorderAt("http://evil.localhost:"+port, g.stream(), "order.created"))
		foreign.wait("source.readyState === EventSource.CLOSED")
		if seen := foreign.testimony(); len(seen.Events)+len(seen.Opens) != 0 {
			t.Errorf("a foreign origin read %d events", len(seen.Events))
		}
		refusesToPublish(t, foreign, g)
	})
}

// refusesToPublish tries the request that no browser asks permission for: a POST of plain text.
func refusesToPublish(t *testing.T, page *tab, g *gateway) {
	t.Helper()
	before := g.status().HeadSeq
	var outcome string
	page.eval(&outcome, `fetch("`+g.url+`/api/v1/events?type=intruder", {method: "POST", mode: "no-cors", body: "x"}).then(() => "sent", e => "failed: " + e)`)
	if after := g.status().HeadSeq; after != before {
		t.Errorf("a page of %s published (head %d → %d, fetch %s)", page.origin(), before, after, outcome)
	}
}

// origin is where the page came from.
func (p *tab) origin() string {
	var href string
	p.eval(&href, "location.href")
	u, err := url.Parse(href)
	if err != nil {
		p.t.Fatal(err)
	}
	return u.Scheme + "://" + u.Host
}
