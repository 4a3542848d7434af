package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long a script waits for what must come. Nothing takes as
// long unless it is broken.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gapless": main})
}

// TestScripts runs the program as its users do. Besides testscript's own,
// scripts have these commands:
//
//	exits CODE COMMAND…    run the command and compare its exit code
//	serve [ARG…]           start gapless serve, wait for its ready line; sets
//	                       GAPLESS_URL and ADDR, writes serve.out, serve.err
//	bind [ARG…]            the same, and wait only until it is bound
//	ready                  wait for the ready line of a server that was bound
//	signal NAME            send a signal to that process
//	stopped CODE           wait for that process and compare its exit code
//	until REGEXP PATH      ask the gateway's path until the answer matches
//	seen FILE REGEXP       wait until a file has the text
//	lossy N                set GAPLESS_URL to a proxy that drops N answers
//	answers STATUS BODY    set GAPLESS_URL to a server that always answers so
//	cut                    cut every stream, through the API
//	stall PATH             open a stream and never read it
//	lines N FILE           write an NDJSON file of N events
func TestScripts(t *testing.T) {
	testscript.Run(t, scripts("testdata/script", func(*testscript.Env) error { return nil }))
}

// scripts are those of a directory; setUp is called before each of them.
func scripts(dir string, setUp func(*testscript.Env) error) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(4 * time.Minute), // a command that does not end is killed
		Setup: func(env *testscript.Env) error {
			// A program under the race detector lingers for a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			s := &process{}
			env.Values[processKey{}] = s
			env.Defer(s.kill)
			return setUp(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   cmdExits,
			"serve":   cmdServe,
			"bind":    cmdBind,
			"ready":   cmdReady,
			"signal":  cmdSignal,
			"stopped": cmdStopped,
			"until":   cmdUntil,
			"seen":    cmdSeen,
			"lossy":   cmdLossy,
			"answers": cmdAnswers,
			"cut":     cmdCut,
			"stall":   cmdStall,
			"lines":   cmdLines,
		},
	}
}

func need(ts *testscript.TestScript, neg bool, args []string, n int, usage string) {
	if neg || len(args) < n {
		ts.Fatalf("usage: %s", usage)
	}
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "exits CODE COMMAND…")
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		code = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// eventually calls try until it reports true.
func eventually(ts *testscript.TestScript, what string, try func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !try() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "until REGEXP PATH")
	want := regexp.MustCompile(args[0])
	eventually(ts, args[0], func() bool {
		res, err := http.Get("http://" + ts.Getenv("ADDR") + args[1])
		if err != nil {
			return false
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return err == nil && want.Match(body)
	})
}

func cmdSeen(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "seen FILE REGEXP")
	want := regexp.MustCompile(args[1])
	eventually(ts, args[1], func() bool {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && want.Match(text)
	})
}

// listen serves HTTP for the rest of the script.
func listen(ts *testscript.TestScript, handler http.Handler) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	hs := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() { defer close(done); _ = hs.Serve(ln) }()
	ts.Defer(func() {
		_ = hs.Close()
		<-done
	})
	ts.Setenv("GAPLESS_URL", "http://"+ln.Addr().String())
}

func cmdLossy(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, "lossy N")
	left, err := strconv.Atoi(args[0])
	ts.Check(err)
	var mu sync.Mutex
	lose := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: ts.Getenv("ADDR")})
	proxy.ModifyResponse = func(*http.Response) error {
		if lose() {
			return errors.New("the gateway has it, and the client will not know")
		}
		return nil
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	listen(ts, proxy)
}

func cmdAnswers(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "answers STATUS BODY")
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	listen(ts, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprint(w, args[1])
	}))
}

func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, "cut")
	base := "http://" + ts.Getenv("ADDR") + "/api/v1/connections"
	res, err := http.Get(base)
	ts.Check(err)
	defer res.Body.Close()
	var page struct{ Connections []struct{ ID string } }
	ts.Check(json.NewDecoder(res.Body).Decode(&page))
	if len(page.Connections) == 0 {
		ts.Fatalf("no stream to cut")
	}
	for _, c := range page.Connections {
		req, err := http.NewRequest(http.MethodDelete, base+"/"+c.ID, nil)
		ts.Check(err)
		res, err := http.DefaultClient.Do(req)
		ts.Check(err)
		ts.Check(res.Body.Close())
		if res.StatusCode != http.StatusNoContent {
			ts.Fatalf("DELETE answered %s", res.Status)
		}
	}
}

func cmdStall(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, "stall PATH")
	conn, err := net.Dial("tcp", ts.Getenv("ADDR"))
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() })
	ts.Check(conn.(*net.TCPConn).SetReadBuffer(4 << 10))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", args[0])
	ts.Check(err)
}

func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, "lines N FILE")
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "{\"type\":\"line\",\"topic\":\"import.a\",\"data\":{\"n\":%d}}\n", i+1)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text.String()), 0o600))
}
