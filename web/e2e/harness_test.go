//go:build e2e

// Package e2e_test drives real browsers, real proxies and other people's clients against the real gapless
// program, and compares what each of them was handed with the log.
//
// It needs nginx, haproxy, chromium, firefox-esr and curl on the machine and `npm ci` in this folder; .ci/test installs both.
package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every single wait of the suite. It is only ever reached by a failure.
const patience = 30 * time.Second

// suite is what all tests share: the program under test, the two browsers, the server of the recorder page.
type harness struct {
	binary   string           // the gapless program
	node     string           // Node.js 22
	work     string           // scratch folder
	pages    *httptest.Server // serves recorder.html from an origin of its own
	mu       sync.Mutex       // guards browsers
	browsers map[string]*browser
}

var suite *harness

func TestMain(m *testing.M) {
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (int, error) {
	work, err := os.MkdirTemp("", "gapless-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)

	suite = &harness{work: work, browsers: map[string]*browser{}}
	if suite.node, err = findNode(); err != nil {
		return 0, err
	}
	suite.binary = filepath.Join(work, "gapless")
	build := exec.Command("go", "build", "-o", suite.binary, "gapless/cmd/gapless")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building gapless: %w\n%s", err, out)
	}

	suite.pages = httptest.NewServer(http.FileServerFS(recorderOnly{os.DirFS(".")}))
	defer suite.pages.Close()
	defer suite.closeBrowsers()
	return m.Run(), nil
}

// recorderOnly is a file system that holds recorder.html and nothing else.
type recorderOnly struct{ fs.FS }

func (r recorderOnly) Open(name string) (fs.File, error) {
	if name != "recorder.html" {
		return nil, fs.ErrNotExist
	}
	return r.FS.Open(name)
}

// findNode returns the Node.js that npm installed for this machine's processor.
func findNode() (string, error) {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	path, err := filepath.Abs(filepath.Join("node_modules", "node-linux-"+arch, "bin", "node"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", errors.New("Node.js is not installed here: run `npm ci` in web/e2e, or .ci/test")
	}
	return path, nil
}

// browser returns the running browser of that kind, and starts it at its first use.
func (h *harness) browser(kind string) (*browser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.browsers[kind]; b != nil {
		return b, nil
	}
	b, err := startBrowser(h, kind)
	if err != nil {
		return nil, err
	}
	h.browsers[kind] = b
	return b, nil
}

func (h *harness) closeBrowsers() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.browsers {
		b.quit()
	}
}

// recorderAt is the recorder page's address on an origin, for a stream and the event types to listen for.
func recorderAt(origin, stream string, types ...string) string {
	return origin + "/recorder.html?" + encode("url", stream, "types", strings.Join(append(types, controlTypes...), ","))
}

// eachBrowser runs a test in Chromium and in Firefox, both at the same time.
func eachBrowser(t *testing.T, test func(t *testing.T, b *browser)) {
	for _, kind := range []string{"chromium", "firefox"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b, err := suite.browser(kind)
			if err != nil {
				t.Fatalf("starting %s: %v", kind, err)
			}
			test(t, b)
		})
	}
}

// eventually polls until ok is true and fails the test with what() if that takes longer than patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v in vain: %s", patience, what)
		case <-tick.C:
		}
	}
}

// pause lets real time pass, where a test has to see that nothing happens.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended while it was watching")
	}
}

// long reports whether the long checks were asked for: real minutes instead of scaled ones.
func long() bool { return os.Getenv("GAPLESS_LONG") == "1" }
