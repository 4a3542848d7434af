//go:build linux

package systemtest_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// gateway is one gapless program and the port that it keeps over restarts.
type gateway struct {
	t      *testing.T
	args   []string
	env    []string
	shell  string // shell commands that run first in the program's process; empty: no shell
	addr   string // host:port
	stderr output

	process *exec.Cmd
	ready   chan string   // what the program says that it listens on, once it is ready
	exited  chan struct{} // closed once process has been waited for
}

// serve starts a gateway with these flags and waits until it is ready.
func serve(t *testing.T, args ...string) *gateway {
	t.Helper()
	g := prepare(t, args...)
	g.start()
	return g
}

// prepare makes a gateway that is not started yet.
func prepare(t *testing.T, args ...string) *gateway {
	g := &gateway{t: t, args: args, addr: "127.0.0.1:0"}
	t.Cleanup(func() {
		if g.process != nil {
			g.kill()
		}
		if t.Failed() {
			t.Logf("gapless printed at last:\n%s", g.stderr.tail())
		}
	})
	return g
}

// start runs the program, after the first time on the port that it had, and waits until it is ready.
func (g *gateway) start() {
	g.t.Helper()
	g.run()
	g.await()
}

// launch runs a program that need not become ready, on a port that is known before. It waits until it answers.
func (g *gateway) launch() {
	g.t.Helper()
	if g.addr == "127.0.0.1:0" {
		ln, err := net.Listen("tcp", g.addr)
		if err != nil {
			g.t.Fatal(err)
		}
		g.addr = ln.Addr().String()
		if err := ln.Close(); err != nil {
			g.t.Fatal(err)
		}
	}
	g.run()
	eventually(g.t, "gapless answers", func() bool {
		select {
		case <-g.exited:
			g.t.Fatalf("gapless ended before it answered:\n%s", g.stderr.tail())
		default:
		}
		conn, err := net.Dial("tcp", g.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// run starts the program.
func (g *gateway) run() {
	g.t.Helper()
	args := append([]string{"serve", "--listen", g.addr, "--log-level", "warn"}, g.args...)
	cmd := exec.Command(binary, args...)
	if g.shell != "" {
		cmd = exec.Command("/bin/sh", append([]string{"-c", g.shell + `; exec "$0" "$@"`, binary}, args...)...)
	}
	cmd.Env = append(os.Environ(), g.env...)
	// Should the tests end without their clean-up, the program ends too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &g.stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		g.t.Fatalf("starting gapless: %v", err)
	}
	ready, exited := make(chan string, 1), make(chan struct{})
	g.process, g.ready, g.exited = cmd, ready, exited
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if addr, ok := strings.CutPrefix(lines.Text(), "listening on http://"); ok {
				ready <- addr
			}
		}
		_ = cmd.Wait() // the exit code is read from the process's state
		close(exited)
	}()
}

// await waits until the program says that it is ready.
func (g *gateway) await() {
	g.t.Helper()
	select {
	case addr := <-g.ready:
		if g.addr != addr { // after the first time it is the same, and clients read it
			g.addr = addr
		}
	case <-g.exited:
		g.t.Fatalf("gapless ended before it listened:\n%s", g.stderr.tail())
	case <-time.After(patience):
		g.t.Fatalf("gapless never said that it listens:\n%s", g.stderr.tail())
	}
}

// signal sends a signal to the program.
func (g *gateway) signal(s syscall.Signal) {
	g.t.Helper()
	if err := g.process.Process.Signal(s); err != nil {
		g.t.Fatalf("sending %v: %v", s, err)
	}
}

// wait waits until the program has ended, and returns its exit code.
func (g *gateway) wait() int {
	g.t.Helper()
	select {
	case <-g.exited:
	case <-time.After(patience):
		g.t.Fatal("gapless did not end")
	}
	return g.process.ProcessState.ExitCode()
}

// kill ends the program without a warning, and waits until it has gone.
func (g *gateway) kill() {
	_ = g.process.Process.Kill() // it may have ended by itself
	<-g.exited
}

// get reads one resource on a connection of its own.
func (g *gateway) get(path string) []byte {
	g.t.Helper()
	return g.call(http.MethodGet, path, http.StatusOK)
}

func (g *gateway) call(method, path string, want int) []byte {
	g.t.Helper()
	req, err := http.NewRequestWithContext(bounded(g.t), method, "http://"+g.addr+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		g.t.Fatalf("%s %s: %d %v: %s", method, path, resp.StatusCode, err, body)
	}
	return body
}

// connection is the part of a connection's description that tests use.
type connection struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	State string    `json:"state"`
}

// connections lists the open streams.
func (g *gateway) connections() []connection {
	g.t.Helper()
	var page struct {
		Connections []connection `json:"connections"`
	}
	decode(g.t, g.get("/api/v1/connections"), &page)
	return page.Connections
}

// log reads what the log retains, as the reference for the judge.
func (g *gateway) log() []lawtest.Record {
	g.t.Helper()
	var log []lawtest.Record
	for query := "start=all"; ; {
		var page struct {
			Events []struct {
				lawtest.Record
				Data json.RawMessage `json:"data"`
			} `json:"events"`
			Cursor  string `json:"cursor"`
			HasMore bool   `json:"has_more"`
		}
		decode(g.t, g.get("/api/v1/events?limit=1000&"+query), &page)
		for _, e := range page.Events {
			e.Kind, e.Record.Data = lawtest.KindEvent, string(e.Data)
			log = append(log, e.Record)
		}
		if !page.HasMore {
			return log
		}
		query = "cursor=" + url.QueryEscape(page.Cursor)
	}
}

// metrics are samples by name and labels, as the text format writes them.
type metrics map[string]float64

func (g *gateway) metrics() metrics {
	g.t.Helper()
	m := metrics{}
	for line := range strings.Lines(string(g.get("/metrics"))) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			g.t.Fatalf("metric %q: %v", line, err)
		}
		m[name] = n
	}
	return m
}

// sum adds up a metric over all its labels.
func (m metrics) sum(t *testing.T, name string) float64 {
	t.Helper()
	total, found := 0.0, false
	for key, value := range m {
		if key == name || strings.HasPrefix(key, name+"{") {
			total, found = total+value, true
		}
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return total
}
