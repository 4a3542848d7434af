//go:build linux && e2e

package postgres

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
	"gapless/feed/feedtest"
	"gapless/feed/postgres/pgtest"
)

// pooler runs PgBouncer in transaction mode before a server, and returns what
// turns a database's address into the one through it.
func pooler(t testing.TB, c *pgtest.Cluster) (through func(address string) string) {
	t.Helper()
	program, err := osexec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; !exists(program) {
			t.Fatal("PgBouncer is not installed: on Debian, apt-get install pgbouncer")
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	dir, err := os.MkdirTemp("", "pgb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nauth_type = any\npool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 4\nlog_connections = 0\nlog_disconnections = 0\n",
		c.Port, pgtest.Superuser, port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := c.Command(program, config)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("PgBouncer said:\n%s", out.String())
		}
	})
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Since(began) > patience {
			t.Fatalf("PgBouncer does not answer: %v\n%s", err, out.String())
		}
	}
	return func(database string) string {
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = address
		return u.String()
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lockedBuffer takes what several goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestConformanceBehindAPooler: all that a log promises holds behind PgBouncer
// in transaction mode.
func TestConformanceBehindAPooler(t *testing.T) {
	through := pooler(t, sharedCluster(t))
	feedtest.Run(t, func(t *testing.T, cfg feedtest.Config) feed.Log {
		return openStore(t, Config{URL: through(database(t)), Retention: cfg.Retention, DedupeWindow: cfg.DedupeWindow})
	}, feedtest.LacksClock)
}

// TestBehindAPoolerTheHeadIsPolled: nobody listens there, which is said once,
// and what others append arrives all the same.
func TestBehindAPoolerTheHeadIsPolled(t *testing.T) {
	address := database(t)
	var log lockedBuffer
	s := openStore(t, Config{URL: pooler(t, sharedCluster(t))(address), Logger: zerolog.New(&log)})
	other := openStore(t, Config{URL: address})
	at := headOf(t, s)
	for n := range 5 {
		appendOne(t, other, draft(fmt.Sprint(n), 10))
		for head := at.Seq; head <= at.Seq; {
			if err := s.Wait(patient(t), at); err != nil {
				t.Fatal(err)
			}
			head = headOf(t, s).Seq
		}
		at = headOf(t, s)
	}
	if at.Seq != 5 {
		t.Errorf("head %d, want 5", at.Seq)
	}
	if n := strings.Count(log.String(), "pooler"); n != 1 {
		t.Errorf("the pooler is mentioned %d times:\n%s", n, log.String())
	}
}
