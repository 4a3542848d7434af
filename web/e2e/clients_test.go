//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// reader is a command that prints what it reads from a stream, until the test ends.
type reader struct {
	t  *testing.T
	mu sync.Mutex // guards out
	// out is all that the command printed so far.
	out bytes.Buffer
}

func startReader(t *testing.T, name string, args ...string) *reader {
	t.Helper()
	r := &reader{t: t}
	command := exec.Command(name, args...)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(r, stdout)
	}()
	t.Cleanup(func() {
		command.Process.Kill()
		<-copied
		command.Wait()
	})
	return r
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *reader) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// until waits for text in what the command prints.
func (r *reader) until(text string) {
	r.t.Helper()
	eventually(r.t, "the client prints "+text, func() bool { return strings.Contains(r.text(), text) })
}

// curl, npm's eventsource and both browsers get the same events from the same stream.
func TestSameEventsForEveryClient(t *testing.T) {
	g := startGateway(t)
	g.publish(orders(1, 20)...)
	types := []string{"order.created", "server.status", "note"}

	curl := startReader(t, "curl", "-sN", g.stream())
	npm := startReader(t, suite.node, "npmclient.mjs", g.stream(), strings.Join(append(types, controlTypes...), ","))
	curl.until("event: server.live")
	npm.until(`"server.live"`)
	g.publish(orders(21, 20)...)
	g.publish(draft{Topic: "orders.eu", Data: "no type of its own"},
		draft{Type: "note", Topic: "notes", Data: map[string]any{"text": "line\nfeed, quote \" and \u2028 🙂", "big": json.Number("12345678901234567890.10")}},
		draft{Type: "note", Topic: "notes", Data: strings.Repeat("long ", 20_000)},
		draft{Type: "note", Topic: "notes", ID: "last", Data: nil})
	curl.until(`"id":"last"`)
	npm.until(`\"id\":\"last\"`)
	log := g.events()

	fromCurl := parseStream(t, curl.text())
	sameAsLog(t, testimony{Events: fromCurl}.list(t), log)
	idIsLast(t, curl.text())

	fromNPM := sightings(t, npm.text())
	sameAsLog(t, testimony{Events: fromNPM}.list(t), log)
	for i := range min(len(fromCurl), len(fromNPM)) {
		if c, n := fromCurl[i], fromNPM[i]; c.Type != n.Type || (c.stored() && c != n) {
			t.Errorf("curl read %v, npm eventsource %v", c, n)
		}
	}

	eachBrowser(t, func(t *testing.T, b *browser) {
		page := b.record(t, g.stream(), types...)
		page.wait(holdsSeq(g.status().Epoch, log[len(log)-1].Seq))
		sameAsLog(t, page.testimony().list(t), log)
	})
}

// npm's eventsource comes back by itself after a cut, with its cursor.
func TestNPMEventSourceResumes(t *testing.T) {
	g := startGateway(t)
	var plans []cutPlan
	for i := range 6 {
		plans = append(plans, cutPlan{after: 900 + 417*i, reset: i%2 == 1})
	}
	network := startCutter(t, g.addr, plans...)
	npm := startReader(t, suite.node, "npmclient.mjs", streamAt(network.url), strings.Join(append([]string{"order.created", "server.status"}, controlTypes...), ","))
	published := 0
	for network.left() > 0 {
		g.publish(orders(published+1, 10)...)
		if published += 10; published > 900 {
			t.Fatalf("%d cuts are left after %d events", network.left(), published)
		}
		pause(t, quick/4)
	}
	g.publish(draft{Type: "order.created", ID: "last", Data: 0})
	npm.until(`\"id\":\"last\"`)
	seen := testimony{Events: sightings(t, npm.text())}
	same(t, "resyncs", seen.reasons(t, "resync_required"))
	sameAsLog(t, seen.list(t), g.events())
	neverTwice(t, seen)
}

// sightings reads what npmclient.mjs printed.
func sightings(t *testing.T, text string) []sighting {
	t.Helper()
	var all []sighting
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var s sighting
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("npm eventsource printed %q", shorten(lines.Text()))
		}
		if s.Type != "(open)" {
			all = append(all, s)
		}
	}
	return all
}
