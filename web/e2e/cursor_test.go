//go:build e2e

package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// foreignEpoch is a well-formed epoch that no gateway here ever had.
const foreignEpoch = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// A dead cursor that stands in the page's URL is sent again at every reconnect. The id of the resync frame outranks
// it, so the page heals all the same and does not go round in circles.
func TestDeadCursorInURLHeals(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t, "--retain-events", "8")
		g.publish(orders(1, 30)...)
		epoch, head := g.status().Epoch, g.status().HeadSeq
		cases := []struct {
			name, reason string
			query        []string
		}{
			{"evicted cursor", "cursor_expired", []string{"cursor", epoch + "-2-7K3M9Q2P"}},
			{"evicted cursor, no fence", "cursor_expired", []string{"last_event_id", epoch + "-2"}},
			{"evicted number", "cursor_expired", []string{"since_seq", "2", "epoch", epoch}},
			{"other epoch", "epoch_changed", []string{"cursor", foreignEpoch + "-5-7K3M9Q2P"}},
			{"number of another epoch", "epoch_changed", []string{"since_seq", "5", "epoch", foreignEpoch}},
			{"number without an epoch", "epoch_missing", []string{"since_seq", "5"}},
			{"ahead of the head", "cursor_ahead", []string{"cursor", epoch + "-4000-7K3M9Q2P"}},
			{"lost branch", "history_changed", []string{"cursor", fmt.Sprintf("%s-%d-00000000", epoch, head)}},
		}
		pages := make([]*tab, len(cases))
		for i, c := range cases {
			// A host of its own for each page: browsers allow one host six streams.
			pages[i] = b.record(t, streamAt(startCutter(t, g.addr).url, c.query...), "order.created", "server.status")
		}
		for _, page := range pages {
			page.wait(holdsSeq(epoch, head))
		}
		last := g.publish(orders(31, 1)...)
		for _, page := range pages {
			page.wait(holdsSeq(epoch, last))
		}
		settle(t, pages...)
		log := g.events()
		for i, c := range cases {
			seen := pages[i].testimony()
			same(t, c.name+": resyncs", seen.reasons(t, "resync_required"), c.reason)
			same(t, c.name+": starts", seen.starts(t), "snapshot")
			// The list begins one event before what is retained by now.
			if list := seen.list(t); len(list) != len(log)+1 {
				t.Errorf("%s: the page has %d events, the log %d", c.name, len(list), len(log))
			} else {
				sameAsLog(t, list[1:], log)
			}
		}
	})
}

// A malformed query is the mistake of whoever wrote the page: one honest 400, and the browser does not come back.
func TestGarbageCursorInURLIsRefusedOnce(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		network := startCutter(t, g.addr)
		page := b.record(t, streamAt(network.url, "cursor", "not a cursor!"), "order.created")
		page.wait("source.readyState === EventSource.CLOSED")
		settle(t, page)
		if seen := page.testimony(); len(seen.Errors) != 1 || len(seen.Events) != 0 {
			t.Errorf("%d errors and %d events, want 1 and 0", len(seen.Errors), len(seen.Events))
		}
		code, header, content := call(t, http.MethodGet, g.stream("cursor", "not a cursor!"), "", "")
		if code != http.StatusBadRequest || !strings.HasPrefix(header.Get("Content-Type"), "application/problem+json") {
			t.Errorf("%d %s: %s", code, header.Get("Content-Type"), content)
		}
	})
}

// A garbage cursor in the header is what a browser brings along when another server spoke at this address before.
// Any status but 200 would kill it, so it is told to resync and heals.
func TestGarbageCursorInHeaderHeals(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		g := startGateway(t)
		g.publish(orders(1, 4)...)
		ids := []string{"garbage", "12;DROP", "{}", "ünï", strings.Repeat("9", 300), foreignEpoch, foreignEpoch + "-x-y"}
		pages := make([]*tab, len(ids))
		for i, id := range ids {
			pages[i] = b.record(t, impostor(t, g, id).URL+"/events", "order.created", "server.status")
		}
		for _, page := range pages {
			page.wait(holdsSeq(g.status().Epoch, g.status().HeadSeq))
		}
		settle(t, pages...)
		for i, id := range ids {
			seen := pages[i].testimony()
			same(t, id+": resyncs", seen.reasons(t, "resync_required"), "cursor_invalid")
			same(t, id+": starts", seen.starts(t), "snapshot")
			sameAsLog(t, seen.list(t), g.events())
		}
	})
}

// impostor is another server at the gateway's address: its first stream hands out an id of its own and ends, then
// the gateway answers.
func impostor(t *testing.T, g *gateway, id string) *httptest.Server {
	t.Helper()
	target, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}
	var answered atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answered.CompareAndSwap(false, true) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			io.WriteString(w, "retry: 500\nevent: other\ndata: {}\nid: "+id+"\n\n")
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front
}
