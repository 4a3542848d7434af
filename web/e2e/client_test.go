//go:build e2e

package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clientPage follows a stream with the module of /client.js and keeps its record in the words of the recorder page.
// ?module= and ?url= say where the two are, ?throw= which handlers throw, each once, after they did their work.
const clientPage = `<!doctype html>
<meta charset="utf-8">
<title>client</title>
<link rel="icon" href="data:,">
<script>
const query = new URLSearchParams(location.search);
const seen = { events: [], opens: [], errors: [], states: [], lives: 0, reported: [] };
let stream;
addEventListener('error', e => seen.reported.push(e.message.replace(/^.*: /, '')));
const faults = new Set((query.get('throw') || '').split(','));
const fail = name => { if (faults.delete(name)) throw new Error(name); };
const record = (type, id, data) => seen.events.push({ type, id, data: JSON.stringify(data), at: 0 });
const handlers = {
  onSnapshot() { record('server.connected', '', { start: 'snapshot' }); fail('snapshot'); },
  onEvent(event, cursor) {
    record(event.type, cursor, event);
    if (event.data === 'close') stream.close();
    if (event.data === 'throw') fail('event');
  },
  onLive() { seen.lives++; fail('live'); },
  onResync(reason) { record('resync_required', '', { reason }); fail('resync'); },
  onState(state, detail) {
    seen.states.push(state + ' ' + detail);
    if (state === 'replaying') seen.opens.push(0);
    if (state === 'waiting') seen.errors.push({ state: 0, at: 0 });
    fail('state');
  },
};
</script>
<script type="module">
import(query.get('module')).then(({ subscribe }) => {
  stream = subscribe(query.get('url'), { ...handlers, ...JSON.parse(query.get('options') || '{}') });
});
</script>
`

// clientPages answers with the page on an origin that is not the gateway's, as a dev server does.
func clientPages(t *testing.T) string {
	pages := httptest.NewServer(http.HandlerFunc(serveClientPage))
	t.Cleanup(pages.Close)
	return pages.URL + "/page"
}

func serveClientPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, clientPage)
}

// followed checks a page's list against the log, that nothing came twice, and that it was told these resyncs.
func followed(t *testing.T, page *tab, g *gateway, resyncs ...string) {
	t.Helper()
	seen := page.testimony()
	same(t, "resyncs", seen.reasons(t, "resync_required"), resyncs...)
	sameAsLog(t, seen.list(t), g.events("topic", "orders.>"))
	neverTwice(t, seen)
}

// states are the words that the page was told since it began, without what follows them.
func (p *tab) states() []string {
	p.t.Helper()
	var states []string
	p.eval(&states, "seen.states")
	return states
}

const isLive = `stream && stream.state === "live"`

// The module of /client.js in a page: where the browser resumes it only watches, where the browser gives up it returns.
func TestClient(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		for name, test := range map[string]func(*testing.T, *browser){
			"cut, restart, close": clientCutRestartClose,
			"refused":             clientRefused,
			"silent":              clientSilent,
			"slow line":           clientSlowLine,
			"options":             clientOptions,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, b)
			})
		}
	})
}

// A page of a dev server imports the module from the gateway. Each handler throws once, which stops nothing.
func clientCutRestartClose(t *testing.T, b *browser) {
	g := startGateway(t)
	g.publish(orders(1, 4)...)
	g.publish(draft{Type: "order.created", Topic: "orders.eu", Data: "throw"})
	page := b.open(t, clientPages(t)+"?"+encode("module", g.url+"/client.js", "url", g.stream(), "throw", "snapshot,event,live,resync,state"))
	page.wait(isLive)
	followed(t, page, g)

	for i := range 2 {
		var id string
		if page.eval(&id, "stream.connectionId"); id == "" {
			t.Fatal("a live stream without a connection id")
		}
		g.cut(id)
		g.publish(orders(6+i*5, 5)...)
		page.wait(holds("order.created", 10+i*5))
	}
	page.wait(isLive)
	followed(t, page, g)

	g.stop(syscall.SIGTERM)
	g.start()
	g.publish(orders(16, 3)...)
	page.wait(holds("order.created", 18))
	page.wait(isLive)
	settle(t, page)
	followed(t, page, g, "epoch_changed")
	seen := page.testimony()
	same(t, "snapshots", seen.starts(t), "snapshot", "snapshot")

	// While the gateway is away the browser tries as often as it likes, so the farewell is the last fixed word.
	states := strings.Join(page.states(), ", ")
	told := "connecting , replaying snapshot, live , waiting cut, replaying resume, live , waiting cut, replaying resume, live , waiting shutdown, "
	if !strings.HasPrefix(states, told) || !strings.HasSuffix(states, "waiting resync, replaying snapshot, live ") {
		t.Errorf("states: %s", states)
	}
	var reported []string
	page.eval(&reported, "seen.reported.sort()")
	same(t, "reported", reported, "event", "live", "resync", "snapshot", "state")

	// Closed by the handler of an event, whose cursor counts.
	closing := g.publish(draft{Type: "order.created", Topic: "orders.eu", Data: "close"}, draft{Type: "order.created", Topic: "orders.eu", Data: "after"})
	page.wait(`stream.state === "closed"`)
	eventually(t, "the gateway has no stream", func() bool { return len(g.connections()) == 0 })
	pause(t, 4*quick)
	list := page.testimony().list(t)
	var cursor string
	page.eval(&cursor, "stream.cursor")
	if log := g.events("topic", "orders.>"); list[len(list)-1].ID != cursor || log[len(log)-2].Cursor != cursor || log[len(log)-2].Seq != closing {
		t.Errorf("closed at %s, with the list at %s", cursor, list[len(list)-1].ID)
	}
	if ids := g.connections(); len(ids) != 0 {
		t.Errorf("%d streams after close()", len(ids))
	}
	if states := page.states(); states[len(states)-1] != "closed " {
		t.Errorf("the last state is %q", states[len(states)-1])
	}
}

// A status other than 200 ends a native EventSource. The module makes a new one with its cursor, and where the position
// was lost, with the cursor that the resync gave. After close() it does not.
func clientRefused(t *testing.T, b *browser) {
	g := startGateway(t)
	front := startFront(t, g)
	g.publish(orders(1, 4)...)
	g.publish(draft{Type: "order.created", Topic: "orders.eu", Data: "throw"})
	page := b.open(t, front.url+"/page?"+encode("module", "/client.js", "url", "events?since_seq=0&start=all", "throw", "event"))
	page.wait(isLive)

	// What a handler threw at was delivered: it does not come again. The id of a stream that is no gateway's is no cursor.
	front.answer(foreign, http.StatusServiceUnavailable)
	g.cut(g.connections()[0])
	page.wait(`seen.states.at(-1) === "waiting refused"`)
	g.publish(orders(6, 3)...)
	page.wait(holds("order.created", 8))
	page.wait(isLive)
	followed(t, page, g)

	// By now a cursor stands in the URL. The browser's own, which is newer, wins.
	g.cut(g.connections()[0])
	g.publish(orders(9, 2)...)
	page.wait(holds("order.created", 10))
	page.wait(isLive)
	followed(t, page, g)
	same(t, "starts", page.testimony().starts(t), "snapshot")

	// Refused right behind the resync.
	front.answer(http.StatusOK, http.StatusBadGateway)
	g.stop(syscall.SIGKILL)
	g.start()
	g.publish(orders(11, 3)...)
	page.wait(`seen.states.includes("waiting resync")`)
	page.wait(holds("order.created", 13))
	page.wait(isLive)
	followed(t, page, g, "epoch_changed")
	asked := front.questions()
	if last := asked[len(asked)-1]; !strings.Contains(last, "last_event_id="+g.status().Epoch+"-0") || !strings.Contains(last, "start=all") || !strings.Contains(last, "named=false") {
		t.Errorf("after the resync it asked for %s, the epoch is %s", last, g.status().Epoch)
	}

	front.answer(http.StatusNotFound)
	g.cut(g.connections()[0])
	page.wait(`seen.states.at(-1) === "waiting refused"`)
	page.eval(nil, "stream.close()")
	before := len(front.questions())
	pause(t, 4500*time.Millisecond) // the longest first delay, and some
	if after := len(front.questions()); after != before {
		t.Errorf("%d more requests after close()", after-before)
	}
}

// A connection that is open and dead, as behind a proxy that lost its other side.
func clientSilent(t *testing.T, b *browser) {
	g := startGateway(t, "--heartbeat", "1s")
	front := startFront(t, g)
	g.publish(orders(1, 3)...)
	page := b.open(t, front.url+"/page?"+encode("module", "/client.js", "url", "/events"))
	page.wait(isLive)
	pause(t, 3*time.Second) // heartbeats are no silence
	same(t, "states", page.states(), "connecting ", "replaying snapshot", "live ")

	front.mute()
	g.publish(orders(4, 3)...)
	page.wait(`seen.states.includes("waiting silent")`)
	page.wait(holds("order.created", 6))
	page.wait(isLive)
	followed(t, page, g)
	same(t, "starts", page.testimony().starts(t), "snapshot")
}

// An event that takes longer to arrive than silence may last is silence, too. It must not be asked for in a circle.
func clientSlowLine(t *testing.T, b *browser) {
	g := startGateway(t, "--heartbeat", "1s")
	front := startFront(t, g)
	front.delay(3500 * time.Millisecond)
	page := b.open(t, front.url+"/page?"+encode("module", "/client.js", "url", "/events"))
	page.wait(isLive)
	g.publish(draft{Type: "order.created", Topic: "orders.eu", Data: strings.Repeat(slowMark, 200)})
	page.wait(holds("order.created", 1))
	page.wait(isLive)
	followed(t, page, g)
	if states := strings.Join(page.states(), ", "); !strings.Contains(states, "waiting silent") {
		t.Errorf("the event came in time, which tests nothing: %s", states)
	}
}

// What the options ask for, beside what stands in the URL.
func clientOptions(t *testing.T, b *browser) {
	g := startGateway(t)
	g.publish(append(orders(1, 3), draft{Type: "note", Topic: "notes.eu", Data: "a note"}, draft{Type: "other", Topic: "notes.eu", Data: "no"})...)
	front := startFront(t, g)
	page := b.open(t, front.url+"/page?"+encode("module", "/client.js", "url", "/events?topic=orders.>&start=live&x=1",
		"options", `{"topics":["notes.*"],"types":["note","order.created"],"start":"last:2","format":"raw"}`))
	page.wait(isLive)
	asked := front.questions()[0]
	if want := "/events?topic=orders.%3E&start=last%3A2&x=1&named=false&topic=notes.*&type=note&type=order.created&format=raw"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	var texts []string
	page.eval(&texts, `seen.events.filter(e => e.id).map(e => JSON.parse(e.data))`)
	same(t, "raw events", texts, `{"n":3}`, "a note")
}
