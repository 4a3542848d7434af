package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

type processKey struct{}

// process is a script's gapless serve.
type process struct {
	cmd    *exec.Cmd
	stdout sync.WaitGroup // the copy of its output
	line   chan struct{}  // closed when its first line is written, or it has ended
}

func (s *process) kill() {
	if s.cmd != nil && s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		s.stdout.Wait()
		_ = s.cmd.Wait()
	}
}

func processOf(ts *testscript.TestScript) *process { return ts.Value(processKey{}).(*process) }

func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, "serve [ARG…]")
	begin(ts, args)
	cmdReady(ts, neg, nil)
}

func cmdBind(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, "bind [ARG…]")
	begin(ts, args)
	bound := regexp.MustCompile(`"address":"([0-9.:]+)".*"message":"bound"`)
	eventually(ts, "the bound line", func() bool {
		m := bound.FindStringSubmatch(ts.ReadFile("serve.err"))
		if m != nil {
			setAddress(ts, m[1])
		}
		return m != nil
	})
}

func cmdReady(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, "ready")
	s := processOf(ts)
	select {
	case <-s.line:
	case <-time.After(patience):
	}
	line := ts.ReadFile("serve.out")
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on http://")
	if !ok {
		s.kill()
		ts.Fatalf("no ready line but %q: %s", line, ts.ReadFile("serve.err"))
	}
	setAddress(ts, address)
}

func setAddress(ts *testscript.TestScript, address string) {
	ts.Setenv("ADDR", address)
	ts.Setenv("GAPLESS_URL", "http://"+address)
}

// begin starts gapless serve.
func begin(ts *testscript.TestScript, args []string) {
	s := processOf(ts)
	if s.cmd != nil && s.cmd.ProcessState == nil {
		ts.Fatalf("a server runs already")
	}
	if !strings.Contains(strings.Join(args, " "), "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	s.cmd = exec.Command("gapless", append([]string{"serve"}, args...)...)
	s.cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"GAPLESS_CONFIG", "GAPLESS_PUBLISH_KEY", "GAPLESS_PUBLISH_KEY_FILE", "GAPLESS_STORE", "GAPLESS_STORE_FILE", "GORACE"} {
		if value := ts.Getenv(name); value != "" {
			s.cmd.Env = append(s.cmd.Env, name+"="+value)
		}
	}
	stdout, err := s.cmd.StdoutPipe()
	ts.Check(err)
	outFile, err := os.Create(ts.MkAbs("serve.out"))
	ts.Check(err)
	errFile, err := os.Create(ts.MkAbs("serve.err"))
	ts.Check(err)
	s.cmd.Stderr = errFile
	ts.Check(s.cmd.Start())
	ts.Check(errFile.Close())
	s.line = make(chan struct{})
	s.stdout.Go(func() {
		reader := bufio.NewReader(stdout)
		line, _ := reader.ReadString('\n')
		fmt.Fprint(outFile, line)
		close(s.line)
		_, _ = io.Copy(outFile, reader)
		_ = outFile.Close()
	})
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, "signal TERM|INT")
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": os.Interrupt}
	ts.Check(processOf(ts).cmd.Process.Signal(signals[args[0]]))
}

func cmdStopped(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, "stopped CODE")
	s := processOf(ts)
	timer := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	s.stdout.Wait()
	_ = s.cmd.Wait()
	if code := s.cmd.ProcessState.ExitCode(); strconv.Itoa(code) != args[0] {
		ts.Fatalf("serve ended with %d, want %s: %s", code, args[0], ts.ReadFile("serve.err"))
	}
}
