//go:build linux

package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// ran is what a command of the program did.
type ran struct {
	out, err string
	code     int
}

// command runs a command of the program to its end, with nothing on its standard input.
func command(t *testing.T, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("gapless %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errOut.Bytes())
	}
	return ran{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// succeed runs a command that must end with 0, and returns what it printed on its standard output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	r := command(t, args...)
	if r.code != 0 {
		t.Fatalf("gapless %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// refuse runs a command that must fail, and returns all that it printed, in which each of the parts must be.
func refuse(t *testing.T, parts []string, args ...string) string {
	t.Helper()
	r := command(t, args...)
	said := r.out + r.err
	if r.code == 0 {
		t.Errorf("gapless %s: exit code 0, want a refusal\n%s", strings.Join(args, " "), said)
	}
	contains(t, "gapless "+strings.Join(args, " "), said, parts...)
	return said
}

// contains fails the test where a text lacks a part.
func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q:\n%s", what, part, text)
		}
	}
}

// answer is what a gateway said to one request.
type answer struct {
	status int
	header http.Header
	body   []byte
	code   string // of the problem, where it is one
	reason string
}

// ask sends one request on a connection of its own and takes any answer.
func (g *gateway) ask(method, path, accept string, body []byte) answer {
	g.t.Helper()
	req, err := http.NewRequestWithContext(bounded(g.t), method, "http://"+g.addr+path, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Close = true
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	var problem struct {
		Code   string `json:"code"`
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(content, &problem) // what is no problem has no code
	return answer{resp.StatusCode, resp.Header, content, problem.Code, problem.Reason}
}

// shut fails the test where a gateway is not kept shut by its store's guard: not ready, no publish, no stream, and
// each answer says why and when to come back.
func (g *gateway) shut() {
	g.t.Helper()
	eventually(g.t, "the guard keeps the gateway shut", func() bool {
		a := g.ask(http.MethodGet, "/readyz", "", nil)
		return a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), "restore_not_finalized")
	})
	if a := g.ask(http.MethodGet, "/healthz", "", nil); a.status != http.StatusOK {
		g.t.Errorf("/healthz: %d: it is alive, though not ready", a.status)
	}
	a := g.ask(http.MethodPost, "/api/v1/events", "", []byte(`{"topic":"shut","data":1}`))
	if a.status != http.StatusServiceUnavailable || a.code != "restore_not_finalized" || a.header.Get("Retry-After") == "" {
		g.t.Errorf("publish: %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	contains(g.t, "the refusal of a publish", string(a.body), "gapless restore status")
	if a := g.ask(http.MethodGet, "/events", "application/json", nil); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		g.t.Errorf("a stream for a client that is no EventSource: %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	if a := g.ask(http.MethodGet, "/api/v1/events?start=all", "", nil); a.status != http.StatusServiceUnavailable {
		g.t.Errorf("catch-up: %d: %s", a.status, a.body)
	}
	r := newReader(g, &history{}, "event-source")
	s, err := r.open(bounded(g.t))
	if err != nil {
		g.t.Error(err)
		return
	}
	rec, err := s.next()
	if err != nil || rec.Kind != "draining" || rec.Reason != "not_ready" || rec.RetryMillis < (30*time.Second).Milliseconds() || rec.RetryMillis > time.Minute.Milliseconds() {
		g.t.Errorf("an EventSource got %+v, %v; want server.draining, not_ready, and to come back in 30 to 60 s", rec, err)
	}
	if rec, err := s.next(); err == nil {
		g.t.Errorf("the stream went on: %+v", rec)
	}
}

// status is the part of the server's status that tests use.
type status struct {
	Status    string `json:"status"`
	Store     string `json:"store"`
	Epoch     string `json:"epoch"`
	OldestSeq uint64 `json:"oldest_seq"`
	HeadSeq   uint64 `json:"head_seq"`
	Bytes     int64  `json:"retained_bytes"`
}

func (g *gateway) status() status {
	g.t.Helper()
	var st status
	decode(g.t, g.get("/api/v1/status"), &st)
	return st
}

// audit lists the actions that the store's audit trail has, newest first.
func (g *gateway) audit() (actions []string) {
	g.t.Helper()
	var page struct {
		Entries []struct {
			Action string          `json:"action"`
			Actor  string          `json:"actor"`
			Detail json.RawMessage `json:"detail"`
		} `json:"entries"`
	}
	decode(g.t, g.get("/api/v1/audit?limit=100"), &page)
	for _, e := range page.Entries {
		actions = append(actions, e.Action)
	}
	return actions
}
