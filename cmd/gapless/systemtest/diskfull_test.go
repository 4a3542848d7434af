//go:build linux

package systemtest_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gapless/feed/lawtest"
)

// A SQLite store that cannot grow refuses publishers, and says that they may try again, while the streams live on.
// When there is space again it goes on by itself. Nothing that was acknowledged is lost, not even by a kill while it
// was full. Space ends once by a limit on the size of a file, and, where the test may mount, on a file system that is full.
func TestDiskFullAndSpaceAgain(t *testing.T) {
	t.Parallel()
	t.Run("file size", func(t *testing.T) {
		dir := t.TempDir()
		g := serve(t, "--store", "sqlite:"+filepath.Join(dir, "events.db"), "--reconnect-delay", "500ms", "--heartbeat", "200ms")
		limit := func(size uint64) {
			t.Helper()
			lim := unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}
			err := unix.Prlimit(g.process.Process.Pid, unix.RLIMIT_FSIZE, &lim, nil)
			if err != nil && !errors.Is(err, unix.ESRCH) { // after a kill there is nothing to limit
				t.Fatal(err)
			}
		}
		const room = 4 << 20
		fill(t, g, func() { limit(room) }, func() { limit(unix.RLIM_INFINITY) })
	})
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Logf("no file system of the test's own, as it may not mount one: %v", err)
		return
	}
	t.Run("file system", func(t *testing.T) {
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		g := serve(t, "--store", "sqlite:"+filepath.Join(dir, "events.db"), "--reconnect-delay", "500ms", "--heartbeat", "200ms")
		ballast := filepath.Join(dir, "ballast")
		occupy := func() {
			f, err := os.Create(ballast)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for chunk := make([]byte, 64<<10); err == nil; {
				_, err = f.Write(chunk)
			}
		}
		fill(t, g, occupy, func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// fill publishes until the store cannot take more, and goes on after release gave it space.
func fill(t *testing.T, g *gateway, occupy, release func()) {
	t.Helper()
	ctx := bounded(t)
	h := &history{}
	r := newReader(g, h, "reader", "bulk", "end")
	clients := herd{t: t}
	clients.run(func() error { return r.toEnd(ctx) })
	eventually(t, "the reader is live", func() bool { return deliveredToAll([]*reader{r}, lawtest.KindLive, 1) })
	p := newPublisher(t, g, h, "p", 8<<10, "bulk")
	p.outbox = true
	p.must(t, 20, 10)
	occupy()
	// Many batches of 80 KiB: more than any room that is left.
	var pending []draft
	for range 200 {
		pending = p.drafts(10)
		if _, err := p.send(ctx, pending); err != nil {
			wantRetryable(t, err)
			break
		}
		pending = nil
	}
	if pending == nil {
		t.Fatal("the store was never full")
	}
	conns := len(h.of("reader", lawtest.KindSubscribe))
	before, _ := r.state(lawtest.KindHeartbeat)
	eventually(t, "heartbeats on a full disk", func() bool { n, _ := r.state(lawtest.KindHeartbeat); return n >= before+3 })
	// A checkpoint may have made a little room meanwhile; then the batch is taken, and another one is refused.
	for tries := 0; ; tries++ {
		if _, err := p.send(ctx, pending); err != nil {
			wantRetryable(t, err)
			break
		}
		if tries == 200 {
			t.Fatal("a full store takes all")
		}
		pending = p.drafts(10)
	}
	if a := g.ask(http.MethodGet, "/healthz", "", nil); a.status != http.StatusOK {
		t.Errorf("/healthz: %d", a.status)
	}
	release()
	deadline := time.Now().Add(patience)
	for {
		_, err := p.send(ctx, pending)
		if err == nil {
			break
		}
		wantRetryable(t, err)
		if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			t.Fatalf("there is space, and still: %v", err)
		}
	}
	if n := len(h.of("reader", lawtest.KindSubscribe)); n != conns {
		t.Errorf("the stream was cut: %d connections, had %d", n, conns)
	}
	p.must(t, 20, 10)

	// Full once more, and killed so.
	occupy()
	for range 200 {
		pending = p.drafts(10)
		if _, err := p.send(ctx, pending); err != nil {
			break
		}
	}
	g.kill()
	release()
	g.start()
	if err := p.resend(ctx, pending, nil); err != nil {
		t.Fatal(err)
	}
	p.must(t, 20, 10)
	if a := g.ask(http.MethodGet, "/readyz", "", nil); a.status != http.StatusOK {
		t.Errorf("/readyz: %d %s", a.status, a.body)
	}
	p.end(t)
	clients.wait()
	if told := h.of("reader", lawtest.KindResync); len(told) > 0 {
		t.Errorf("the reader was told to resync: %+v", told)
	}
	h.judge(t, lawtest.Options{MustReach: true, Log: g.log()})
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// wantRetryable fails the test where a refusal is another than 503, unavailable.
func wantRetryable(t *testing.T, err error) {
	t.Helper()
	no, ok := err.(*refused)
	if !ok || no.status != http.StatusServiceUnavailable || no.code != "unavailable" && no.code != "not_ready" {
		t.Errorf("refused by %v, want 503 unavailable", err)
	}
}
