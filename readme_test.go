//go:build e2e

package gapless_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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
		case strings.Contains(script, "/gapless serve"):
			script = strings.Replace(script, "go run ./cmd/gapless", binary, 1)
			if strings.Contains(script, "--listen ") {
				script = strings.Replace(script, "0.0.0.0:8080", "127.0.0.1:0", 1)
			} else {
				script += " --listen 127.0.0.1:0"
			}
			started := serve(t, script)
			if address == "" {
				address = started
			}
		default:
			script = strings.ReplaceAll(script, "go run ./cmd/gapless", binary)
			script = strings.ReplaceAll(script, "127.0.0.1:8080", address)
			runREADME(t, script, address)
		}
	}
	if ran < 7 {
		t.Errorf("only %d blocks of commands", ran)
	}
}

// serve runs a serve command until the test ends, and returns its address.
func serve(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", "exec env "+script)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on http://"))
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
