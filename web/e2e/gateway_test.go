//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quick is the reconnect delay of most tests: the smallest that every browser honours.
const quick = 500 * time.Millisecond

// gateway is one running gapless program.
type gateway struct {
	t       *testing.T
	args    []string
	addr    string // host:port that it listens on
	url     string
	process *exec.Cmd
	exited  chan struct{} // closed once process has been waited for
	output  *tailBuffer
}

// event is an event as the JSON catch-up gives it.
type event struct {
	Seq    uint64          `json:"seq"`
	Epoch  string          `json:"epoch"`
	ID     string          `json:"id"`
	Time   string          `json:"time"`
	Type   string          `json:"type"`
	Topic  string          `json:"topic"`
	Data   json.RawMessage `json:"data"`
	Cursor string          `json:"cursor"`
}

// startGateway starts `gapless serve` with the memory store on a free port and waits until it says that it listens.
func startGateway(t *testing.T, args ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, args: args, addr: "127.0.0.1:0", output: &tailBuffer{}}
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			t.Logf("gapless printed:\n%s", g.output)
		}
	})
	g.start()
	return g
}

// start runs the program; a second start uses the port of the first.
func (g *gateway) start() {
	g.t.Helper()
	args := append([]string{"serve", "--listen", g.addr, "--reconnect-delay", quick.String()}, g.args...)
	g.process = exec.Command(suite.binary, args...)
	g.process.Stderr = g.output
	stdout, err := g.process.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.process.Start(); err != nil {
		g.t.Fatalf("starting gapless: %v", err)
	}
	ready := make(chan string, 1)
	exited := make(chan struct{})
	g.exited = exited
	process := g.process
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
				ready <- url
			}
		}
		process.Wait()
		close(exited)
	}()
	select {
	case g.url = <-ready:
		g.addr = strings.TrimPrefix(g.url, "http://")
	case <-exited:
		g.t.Fatalf("gapless ended before it listened:\n%s", g.output)
	case <-time.After(patience):
		g.t.Fatalf("gapless never said that it listens:\n%s", g.output)
	}
}

// stop ends the program with a signal and waits until it has gone.
func (g *gateway) stop(signal syscall.Signal) {
	g.t.Helper()
	if err := g.process.Process.Signal(signal); err != nil {
		g.t.Fatalf("sending %v: %v", signal, err)
	}
	select {
	case <-g.exited:
	case <-time.After(patience):
		g.t.Fatalf("gapless did not end after %v", signal)
	}
	if code := g.process.ProcessState.ExitCode(); signal == syscall.SIGTERM && code != 0 {
		g.t.Errorf("gapless ended with %d after SIGTERM", code)
	}
}

func (g *gateway) kill() {
	if g.process == nil || g.process.Process == nil {
		return
	}
	g.process.Process.Kill()
	if g.exited != nil {
		<-g.exited
	}
}

// stream is the address of /events with query parameters given as name, value pairs.
func (g *gateway) stream(pairs ...string) string { return streamAt(g.url, pairs...) }

func streamAt(base string, pairs ...string) string {
	if len(pairs) == 0 {
		return base + "/events"
	}
	return base + "/events?" + encode(pairs...)
}

func encode(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

// call makes one request on a connection of its own, so that none outlives a restart.
func call(t *testing.T, method, url, contentType, body string) (int, http.Header, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Close = true
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return response.StatusCode, response.Header, content
}

// draft is an event to publish.
type draft struct {
	Type  string `json:"type,omitempty"`
	Topic string `json:"topic,omitempty"`
	ID    string `json:"id,omitempty"`
	Data  any    `json:"data"`
}

// publish appends events as one batch and returns the seq of the first.
func (g *gateway) publish(drafts ...draft) uint64 {
	g.t.Helper()
	body, err := json.Marshal(drafts)
	if err != nil {
		g.t.Fatal(err)
	}
	status, _, content := call(g.t, http.MethodPost, g.url+"/api/v1/events", "application/json", string(body))
	if status != http.StatusCreated {
		g.t.Fatalf("publish: %d %s", status, content)
	}
	var answer struct {
		Events []struct {
			Seq uint64 `json:"seq"`
		} `json:"events"`
	}
	if err := json.Unmarshal(content, &answer); err != nil || len(answer.Events) != len(drafts) {
		g.t.Fatalf("publish: %v: %s", err, content)
	}
	return answer.Events[0].Seq
}

// orders makes n events of type order.created, numbered from first.
func orders(first, n int) []draft {
	drafts := make([]draft, n)
	for i := range drafts {
		drafts[i] = draft{Type: "order.created", Topic: "orders.eu", Data: map[string]any{"n": first + i}}
	}
	return drafts
}

// events reads the retained log page by page; pairs are further query parameters.
func (g *gateway) events(pairs ...string) []event {
	g.t.Helper()
	var all []event
	position := []string{"start", "all"}
	for {
		query := encode(append(append([]string{"limit", "500"}, position...), pairs...)...)
		status, _, content := call(g.t, http.MethodGet, g.url+"/api/v1/events?"+query, "", "")
		if status != http.StatusOK {
			g.t.Fatalf("reading the log: %d %s", status, content)
		}
		var answer struct {
			Events  []event `json:"events"`
			Cursor  string  `json:"cursor"`
			HasMore bool    `json:"has_more"`
		}
		if err := json.Unmarshal(content, &answer); err != nil {
			g.t.Fatalf("reading the log: %v: %s", err, content)
		}
		all = append(all, answer.Events...)
		if !answer.HasMore {
			return all
		}
		position = []string{"cursor", answer.Cursor}
	}
}

// status is the part of /api/v1/status that tests use.
type status struct {
	Epoch       string `json:"epoch"`
	OldestSeq   uint64 `json:"oldest_seq"`
	HeadSeq     uint64 `json:"head_seq"`
	Connections struct {
		Total int `json:"total"`
	} `json:"connections"`
	Resyncs map[string]int `json:"resyncs"`
}

func (g *gateway) status() status {
	g.t.Helper()
	code, _, content := call(g.t, http.MethodGet, g.url+"/api/v1/status", "", "")
	var s status
	if err := json.Unmarshal(content, &s); code != http.StatusOK || err != nil {
		g.t.Fatalf("status: %d %v: %s", code, err, content)
	}
	return s
}

// connections lists the ids of the open streams.
func (g *gateway) connections() []string {
	g.t.Helper()
	code, _, content := call(g.t, http.MethodGet, g.url+"/api/v1/connections", "", "")
	var answer struct {
		Connections []struct {
			ID string `json:"id"`
		} `json:"connections"`
	}
	if err := json.Unmarshal(content, &answer); code != http.StatusOK || err != nil {
		g.t.Fatalf("connections: %d %v: %s", code, err, content)
	}
	ids := []string{}
	for _, c := range answer.Connections {
		ids = append(ids, c.ID)
	}
	return ids
}

// cut ends one connection through the API.
func (g *gateway) cut(id string) {
	g.t.Helper()
	code, _, content := call(g.t, http.MethodDelete, g.url+"/api/v1/connections/"+id, "", "")
	if code != http.StatusNoContent {
		g.t.Fatalf("cutting %s: %d %s", id, code, content)
	}
}

// compact returns JSON without insignificant space, so that two spellings can be compared.
func compact(raw []byte) string {
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return fmt.Sprintf("not JSON (%v): %s", err, raw)
	}
	return out.String()
}
