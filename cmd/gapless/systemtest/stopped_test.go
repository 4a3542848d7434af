//go:build linux

package systemtest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"gapless/feed/lawtest"
)

// The operator's commands work on the file of a stopped store, and through the server of a running one; on the file of
// a running one they refuse and say how it is done.
func TestCommandsOnAStoppedAndARunningStore(t *testing.T) {
	t.Parallel()
	store, path := sqliteStore(t)
	g := serve(t, "--store", store, "--reconnect-delay", "500ms")
	w := &past{t: t, g: g, h: &history{}, path: path, epoch: g.status().Epoch}
	w.p = newPublisher(t, g, w.h, "p", 64, "orders")
	w.p.must(t, 50, 10)
	url := "http://" + g.addr
	var seen struct {
		Finalized bool   `json:"finalized"`
		Epoch     string `json:"epoch"`
		HeadSeq   uint64 `json:"head_seq"`
	}
	look := func(how ...string) {
		t.Helper()
		out := succeed(t, append([]string{"restore", "status", "--json"}, how...)...)
		if err := json.Unmarshal([]byte(out), &seen); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !seen.Finalized || seen.Epoch != w.epoch || seen.HeadSeq < 51 {
			t.Errorf("restore status %v: %+v", how, seen)
		}
	}

	look("--url", url)
	for _, args := range [][]string{
		{"restore", "status", "--store", store},
		{"restore", "finalize", "--yes", "--store", store},
		{"backup", "--store", store, filepath.Join(t.TempDir(), "b")},
		{"check", "--store", store},
	} {
		refuse(t, []string{"--url", path}, args...)
	}
	if epoch := g.status().Epoch; epoch != w.epoch {
		t.Errorf("the epoch is %s, was %s: a refused command changed it", epoch, w.epoch)
	}
	running := filepath.Join(t.TempDir(), "running")
	succeed(t, "backup", "--url", url, running)
	w.p.must(t, 10, 10) // the refusals did no harm to the server

	w.stop()
	look("--store", store)
	succeed(t, "check", "--store", store)
	stopped := filepath.Join(t.TempDir(), "stopped")
	succeed(t, "backup", "--store", store, stopped)
	for _, dir := range []string{running, stopped} {
		succeed(t, "backup", "verify", dir)
		flip(t, filepath.Join(dir, "gapless.db"))
		refuse(t, []string{"gapless.db"}, "backup", "verify", dir)
	}
	succeed(t, "restore", "finalize", "--yes", "--store", store)
	for _, args := range [][]string{{"restore", "status"}, {"check"}, {"backup", filepath.Join(t.TempDir(), "b")}} {
		missing := filepath.Join(t.TempDir(), "missing.db")
		refuse(t, []string{missing}, append(args, "--store", "sqlite:"+missing)...)
		if _, err := os.Stat(missing); err == nil {
			t.Errorf("%v made a new store", args)
		}
	}
	g.start()
	if epoch := g.status().Epoch; epoch == w.epoch {
		t.Error("the epoch stayed")
	}
	w.p.must(t, 10, 10)
	w.h.judge(t, lawtest.Options{Restored: true, Log: g.log()})
}

// flip changes one byte in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
