//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// browser is one running Chromium or Firefox behind drive.mjs.
type browser struct {
	kind    string
	process *exec.Cmd
	stderr  *tailBuffer
	done    chan struct{} // closed when the driver has gone

	mu      sync.Mutex // guards what follows
	stdin   io.WriteCloser
	lastID  int
	waiting map[int]chan driverAnswer
}

type driverAnswer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

func startBrowser(h *harness, kind string) (*browser, error) {
	executable, err := exec.LookPath(map[string]string{"chromium": "chromium", "firefox": "firefox-esr"}[kind])
	if err != nil {
		return nil, err
	}
	profile := filepath.Join(h.work, "profile-"+kind)
	if err := os.MkdirAll(profile, 0o700); err != nil {
		return nil, err
	}
	b := &browser{kind: kind, stderr: &tailBuffer{}, done: make(chan struct{}), waiting: map[int]chan driverAnswer{}}
	b.process = exec.Command(h.node, "drive.mjs", kind, executable, profile)
	b.process.Stderr = b.stderr
	b.process.Env = append(os.Environ(), "HOME="+h.work, "MOZ_HEADLESS=1")
	if b.stdin, err = b.process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := b.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	ready := make(chan driverAnswer, 1)
	b.waiting[0] = ready
	if err := b.process.Start(); err != nil {
		return nil, err
	}
	go b.read(stdout)
	select {
	case <-ready:
		return b, nil
	case <-b.done:
		return nil, fmt.Errorf("the driver ended: %s", b.stderr)
	case <-time.After(2 * time.Minute):
		b.quit()
		return nil, fmt.Errorf("no answer from the driver: %s", b.stderr)
	}
}

// read hands the driver's answers to whoever waits for them.
func (b *browser) read(stdout io.Reader) {
	defer close(b.done)
	lines := bufio.NewReaderSize(stdout, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var answer driverAnswer
		if json.Unmarshal(line, &answer) != nil {
			continue
		}
		b.mu.Lock()
		to := b.waiting[answer.ID]
		delete(b.waiting, answer.ID)
		b.mu.Unlock()
		if to != nil {
			to <- answer
		}
	}
}

// do sends one command and decodes its result into out, which may be nil.
func (b *browser) do(ctx context.Context, out any, op string, fields map[string]any) error {
	command := map[string]any{"op": op}
	for k, v := range fields {
		command[k] = v
	}
	answers := make(chan driverAnswer, 1)

	b.mu.Lock()
	b.lastID++
	id := b.lastID
	command["id"] = id
	line, err := json.Marshal(command)
	if err == nil {
		b.waiting[id] = answers
		_, err = b.stdin.Write(append(line, '\n'))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}

	select {
	case answer := <-answers:
		if answer.Error != "" {
			return errors.New(answer.Error)
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(answer.Result, out)
	case <-b.done:
		return fmt.Errorf("the driver ended: %s", b.stderr)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quit ends the browser and its driver.
func (b *browser) quit() {
	b.mu.Lock()
	io.WriteString(b.stdin, "{\"op\":\"quit\"}\n")
	b.stdin.Close()
	b.mu.Unlock()
	select {
	case <-b.done:
	case <-time.After(15 * time.Second):
		b.process.Process.Kill()
	}
	b.process.Wait()
}

// tab is one open page.
type tab struct {
	t *testing.T
	b *browser
	n int
}

// openOptions says how a tab looks at the page. The zero value is a light desktop.
type openOptions struct {
	dark  bool
	width int // CSS pixels
}

// open opens a tab and closes it when the test ends.
func (b *browser) open(t *testing.T, url string, options ...openOptions) *tab {
	t.Helper()
	var o openOptions
	if len(options) > 0 {
		o = options[0]
	}
	p := &tab{t: t, b: b}
	fields := map[string]any{"url": url, "dark": o.dark, "width": o.width}
	if err := p.do(&p.n, "open", fields); err != nil {
		t.Fatalf("%s: opening %s: %v", b.kind, url, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.do(ctx, nil, "close", map[string]any{"page": p.n}); err != nil {
			t.Logf("%s: closing the page: %v", b.kind, err)
		}
	})
	return p
}

// record opens the recorder page, from an origin that is not the stream's, on a stream.
func (b *browser) record(t *testing.T, stream string, types ...string) *tab {
	t.Helper()
	return b.open(t, recorderAt(suite.pages.URL, stream, types...))
}

func (p *tab) do(out any, op string, fields map[string]any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*patience)
	defer cancel()
	if fields == nil {
		fields = map[string]any{}
	}
	fields["page"] = p.n
	return p.b.do(ctx, out, op, fields)
}

// eval runs an expression in the page and decodes its value into out.
func (p *tab) eval(out any, expression string) {
	p.t.Helper()
	if err := p.do(out, "eval", map[string]any{"expr": expression}); err != nil {
		p.t.Fatalf("%s: %s: %v", p.b.kind, expression, err)
	}
}

// wait blocks until an expression is true in the page.
func (p *tab) wait(expression string) {
	p.t.Helper()
	err := p.do(nil, "wait", map[string]any{"expr": expression, "ms": patience.Milliseconds()})
	if err == nil {
		return
	}
	var title, text string
	p.do(&title, "eval", map[string]any{"expr": "document.title"})
	p.do(&text, "eval", map[string]any{"expr": `typeof seen !== "undefined" && seen.events ? JSON.stringify(seen, null, 1) : document.body.innerText`})
	if len(text) > 6000 {
		text = text[:2000] + "\n…\n" + text[len(text)-4000:]
	}
	p.t.Fatalf("%s: never true: %s (%v)\npage %q holds:\n%s", p.b.kind, expression, err, title, text)
}

// click and press act as a person would.
func (p *tab) click(selector string) {
	p.t.Helper()
	if err := p.do(nil, "click", map[string]any{"selector": selector}); err != nil {
		p.t.Fatalf("%s: clicking %s: %v", p.b.kind, selector, err)
	}
}

func (p *tab) press(key string) {
	p.t.Helper()
	if err := p.do(nil, "key", map[string]any{"key": key}); err != nil {
		p.t.Fatalf("%s: pressing %s: %v", p.b.kind, key, err)
	}
}

// pageLog is what a tab printed, threw and asked the network for.
type pageLog struct {
	Console []struct {
		Level string `json:"level"`
		Text  string `json:"text"`
	} `json:"console"`
	Errors   []string `json:"errors"`
	Requests []string `json:"requests"`
}

func (p *tab) log() pageLog {
	p.t.Helper()
	var l pageLog
	if err := p.do(&l, "log", nil); err != nil {
		p.t.Fatalf("%s: reading the page's log: %v", p.b.kind, err)
	}
	return l
}

// tailBuffer keeps the last 16 KiB of what a process prints.
type tailBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *tailBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if over := w.buf.Len() - 16<<10; over > 0 {
		w.buf.Next(over)
	}
	return len(p), nil
}

func (w *tailBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
