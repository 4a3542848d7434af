//go:build e2e

package e2e_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A store that its guard keeps shut, after an older copy was put back: the page says why, in words that name the
// command, and is live soon after an operator has finalized the restore, though clients are asked to stay away for long.
func TestDashboardOfAShutStore(t *testing.T) {
	eachBrowser(t, func(t *testing.T, b *browser) {
		file := filepath.Join(t.TempDir(), "events.db")
		g := startGateway(t, "--store", "sqlite:"+file)
		g.publish(orders(1, 2)...)
		g.stop(syscall.SIGTERM)
		older, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		g.start()
		g.publish(orders(3, 20)...)
		g.stop(syscall.SIGTERM)
		if err := os.WriteFile(file, older, 0o600); err != nil {
			t.Fatal(err)
		}

		// It prints no ready line, so that it is not the harness that starts it.
		shut := exec.Command(suite.binary, "serve", "--listen", g.addr, "--store", "sqlite:"+file)
		shut.Stderr = g.output
		if err := shut.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			shut.Process.Kill()
			shut.Wait()
		})
		eventually(t, "the gateway is bound", func() bool {
			response, err := http.Get(g.url + "/healthz")
			if err != nil {
				return false
			}
			response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
		page := b.open(t, g.url+"/", openOptions{width: 1200})
		page.wait(textOf("phase-note") + `.includes("The server is not ready: ")`)
		page.wait(textOf("phase-note") + `.includes("gapless restore status")`)
		page.wait(`document.documentElement.dataset.phase === "waiting"`)
		finalize := exec.Command(suite.binary, "restore", "finalize", "--url", g.url, "--yes")
		if out, err := finalize.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("finalized: epoch")) {
			t.Fatalf("%v: %s", err, out)
		}
		page.wait(`document.documentElement.dataset.phase === "live"`)
		page.wait(textOf("phase-note") + ` === ""`)
	})
}
