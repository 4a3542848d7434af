//go:build e2e

package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
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

const (
	slowMark = "slow" // marks what front delivers slowly
	foreign  = -1     // for a status: the stream of another server at this address
)

// front is a proxy before a gateway, on an origin that serves the page as well. It does to streams what the real ones do.
type front struct {
	url     string
	gateway *gateway
	client  *http.Client

	mu       sync.Mutex    // guards what follows
	statuses []int         // of the answers to come; 200, or none: the gateway's own
	asked    []string      // path and query of each stream that reached the gateway
	muted    int           // streams up to this one get no more bytes
	slowness time.Duration // of events with slowMark
}

func startFront(t *testing.T, g *gateway) *front {
	t.Helper()
	f := &front{gateway: g, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	server := httptest.NewServer(f)
	f.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/page" {
		serveClientPage(w, r)
		return
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, f.gateway.url+r.URL.RequestURI(), nil)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	request.Header = r.Header.Clone()
	response, err := f.client.Do(request)
	if err != nil { // the gateway is away
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "retry: 500\nevent: server.draining\ndata: {\"reason\":\"upstream_unavailable\"}\n\n")
		return
	}
	defer response.Body.Close()
	number, status := 0, response.StatusCode
	if r.URL.Path == "/events" {
		number, status = f.asks(r)
	}
	switch status {
	case http.StatusOK:
	case foreign:
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "retry: 500\ndata: {\"type\":\"foreign\"}\nid: not a cursor!\n\n")
		return
	default:
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	f.copy(w, r, response.Body, number)
}

// asks notes a stream and returns its number, from 1, and the status of its answer.
func (f *front) asks(r *http.Request) (number, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.URL.RequestURI())
	status = http.StatusOK
	if len(f.statuses) > 0 {
		status, f.statuses = f.statuses[0], f.statuses[1:]
	}
	return len(f.asked), status
}

// copy hands on what comes: at once, late, or not at all.
func (f *front) copy(w http.ResponseWriter, r *http.Request, from io.Reader, number int) {
	flush := http.NewResponseController(w).Flush
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		f.mu.Lock()
		muted, slowness := number > 0 && number <= f.muted, f.slowness
		f.mu.Unlock()
		rest := chunk[:n]
		if slowness > 0 && bytes.Contains(rest, []byte(slowMark+slowMark)) {
			w.Write(rest[:n/2])
			flush()
			rest = rest[n/2:]
			select {
			case <-time.After(slowness):
			case <-r.Context().Done():
			}
		}
		if !muted {
			w.Write(rest)
			flush()
		}
		if err != nil {
			return
		}
	}
}

// answer gives the statuses of the next streams that reach the gateway.
func (f *front) answer(statuses ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses = statuses
}

// mute lets the streams that are open now fall silent.
func (f *front) mute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.muted = len(f.asked)
}

// delay slows events with slowMark down.
func (f *front) delay(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slowness = d
}

// questions lists path and query of each stream that reached the gateway.
func (f *front) questions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}
