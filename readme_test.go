//go:build e2e

package gapless_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestREADME runs every command of the README, in order, against a server
// that its first command starts, on a port of its own.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("web/example/index.html")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```html\n"+strings.TrimSpace(string(example))+"\n```") {
		t.Error("the page in the README is not the one that is served at /example")
	}

	binary := filepath.Join(t.TempDir(), "gapless")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/gapless").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var address string // of the server that the first block started
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		script := strings.TrimSpace(block[1])
		ran++
		switch {
		case script == ".ci/test":
			if info, err := os.Stat(script); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s is not there, or not executable: %v", script, err)
			}
		case strings.Contains(script, "--store sqlite:"):
			script = strings.Replace(script, "go run ./cmd/gapless", binary, 1)
			keeps(t, script+" --listen 127.0.0.1:0")
		case strings.Contains(script, "/gapless serve"):
			script = strings.Replace(script, "go run ./cmd/gapless", binary, 1)
			if strings.Contains(script, "--listen ") {
				script = strings.Replace(script, "0.0.0.0:8080", "127.0.0.1:0", 1)
			} else {
				script += " --listen 127.0.0.1:0"
			}
			started := serve(t, "", script)
			if address == "" {
				address = started.address
			}
		default:
			script = strings.ReplaceAll(script, "go run ./cmd/gapless", binary)
			script = strings.ReplaceAll(script, "127.0.0.1:8080", address)
			runREADME(t, script, address)
		}
	}
	if ran < 8 {
		t.Errorf("only %d blocks of commands", ran)
	}
}

// keeps runs a serve command twice in the same folder: what was published to
// the first is there in the second, under the same cursor.
func keeps(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	page := func(address, query string) string {
		res, err := http.Get("http://" + address + "/api/v1/events?" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("status %d, %v: %s", res.StatusCode, err, body)
		}
		return string(body)
	}
	first := serve(t, dir, script)
	address := first.address
	res, err := http.Post("http://"+address+"/api/v1/events", "application/json", strings.NewReader(`{"id":"order-8","data":{"n":8}}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	cursor := regexp.MustCompile(`"id":"order-8".*?"cursor":"([^"]+)"|"cursor":"([^"]+)"[^{}]*"id":"order-8"`).FindStringSubmatch(page(address, "start=all&topic=default"))
	if res.StatusCode != http.StatusCreated || cursor == nil {
		t.Fatalf("%s: it was not published: %s", script, res.Status)
	}
	first.stop()
	address = serve(t, dir, script).address
	if got := page(address, "start=all&topic=default"); !strings.Contains(got, `"id":"order-8"`) {
		t.Errorf("%s: the event is gone: %s", script, got)
	}
	page(address, "cursor="+cursor[1]+cursor[2])
}

// process is a gateway that runs.
type process struct {
	address string
	stop    func() // with SIGTERM; fails the test where it does not end with 0
	kill    func() // with SIGKILL
}

// serve runs a serve command in a folder, until it is ended or the test is.
func serve(t *testing.T, dir, script string) process {
	t.Helper()
	cmd := exec.Command("bash", "-c", "exec env "+script)
	cmd.Dir = dir
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end := func(sig syscall.Signal) {
		once.Do(func() {
			if err := cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil && sig != syscall.SIGKILL {
				t.Errorf("%s: %v", script, err)
			}
		})
	}
	p := process{stop: func() { end(syscall.SIGTERM) }, kill: func() { end(syscall.SIGKILL) }}
	t.Cleanup(p.stop)
	impatient := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if !impatient.Stop() || err != nil {
		t.Fatalf("%s: it is not ready: %v", script, err)
	}
	p.address = strings.TrimSpace(strings.TrimPrefix(line, "listening on http://"))
	return p
}

// runREADME runs one block. A stream is read for a while, and has to bring
// events.
func runREADME(t *testing.T, script, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stream := strings.Contains(script, "curl -N")
	if stream {
		script = strings.Replace(script, "curl -N", "timeout 3 curl -sN", 1)
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "GAPLESS_URL=http://"+address)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if stream && errors.As(err, &exit) && exit.ExitCode() == 124 {
		err = nil
	}
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	want := `"seq":`
	switch {
	case strings.Contains(script, "Last-Event-ID"):
		want = `"start":"resume"`
	case strings.Contains(script, "gapless status"), strings.Contains(script, " status"):
		want = "head"
	}
	if !strings.Contains(string(out), want) {
		t.Errorf("%s\nprinted no %s:\n%.600s", script, want, out)
	}
}
