//go:build e2e

package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// startHAProxy runs HAProxy with the time-outs of Debian's haproxy.cfg, client and server alike, until the test ends.
// It returns the address that it listens on.
func startHAProxy(t *testing.T, target, timeout string) string {
	t.Helper()
	addr := freeAddr(t)
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	conf := fmt.Sprintf(`
defaults
  mode http
  timeout connect 5s
  timeout client %[1]s
  timeout server %[1]s
frontend front
  bind %[2]s
  default_backend gapless
backend gapless
  server one %[3]s
`, timeout, addr, target)
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	process := exec.Command("haproxy", "-db", "-f", path)
	output := &tailBuffer{}
	process.Stdout, process.Stderr = output, output
	if err := process.Start(); err != nil {
		t.Fatalf("starting HAProxy: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		process.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		process.Process.Signal(os.Interrupt)
		select {
		case <-exited:
		case <-time.After(patience):
			process.Process.Kill()
		}
	})
	eventually(t, "HAProxy listens", func() bool {
		select {
		case <-exited:
			t.Fatalf("HAProxy ended at once:\n%s", output)
		default:
		}
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return addr
}
