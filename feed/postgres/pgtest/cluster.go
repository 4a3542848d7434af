//go:build linux

// Package pgtest runs real PostgreSQL clusters for tests: each in a temporary
// directory, on a free loopback port, ended with the test that started it.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Superuser is the role that the clusters are made with; it needs no password.
const Superuser = "postgres"

// patience bounds every start and stop.
const patience = 60 * time.Second

// Cluster is one PostgreSQL server and its data directory.
type Cluster struct {
	Dir  string // the data directory
	Port int

	owner *syscall.Credential // nil: this process's own user
	cmd   *exec.Cmd
	ended chan struct{}
	log   syncBuffer
	names atomic.Int64
}

// Binary returns the path of a PostgreSQL program, such as pg_dump.
func Binary(tb testing.TB, name string) string {
	tb.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if len(found) > 0 {
		return found[0]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("PostgreSQL's %s is not installed: on Debian, apt-get install postgresql", name)
	}
	return path
}

func version(path string) int {
	v, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return v
}

// New makes a cluster and starts it. Settings are lines of postgresql.conf.
// It is durable (fsync is on) unless a setting says otherwise.
func New(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	c := Unstarted(tb)
	c.Run(tb, Binary(tb, "initdb"), "-D", c.Dir, "-U", Superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	c.Configure(tb, settings...)
	c.Start(tb)
	return c
}

// Unstarted returns a cluster with an empty data directory and a free port,
// for tests that fill it from a backup. The test's end stops and removes it.
func Unstarted(tb testing.TB) *Cluster {
	tb.Helper()
	c := &Cluster{}
	if os.Geteuid() == 0 {
		// The server refuses to run as root.
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				tb.Fatal(err)
			}
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		c.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	// A short path: a socket's name has at most 107 bytes.
	parent, err := os.MkdirTemp("", "pg")
	if err != nil {
		tb.Fatal(err)
	}
	c.Dir = filepath.Join(parent, "data")
	tb.Cleanup(func() {
		c.Stop(tb, syscall.SIGQUIT)
		if tb.Failed() {
			tb.Logf("PostgreSQL's log ends:\n%s", c.log.tail(4000))
		}
		if err := os.RemoveAll(parent); err != nil {
			tb.Error(err)
		}
	})
	if err := errors.Join(os.Mkdir(c.Dir, 0o700), c.own(parent), c.own(c.Dir)); err != nil {
		tb.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c.Port = ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil {
		tb.Fatal(err)
	}
	return c
}

func (c *Cluster) own(path string) error {
	if c.owner == nil {
		return nil
	}
	return os.Chown(path, int(c.owner.Uid), int(c.owner.Gid))
}

// Configure appends lines to postgresql.conf. A running server does not see
// them before its next start.
func (c *Cluster) Configure(tb testing.TB, settings ...string) {
	tb.Helper()
	f, err := os.OpenFile(filepath.Join(c.Dir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.WriteString(strings.Join(settings, "\n") + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
}

// Run runs a program as the cluster's owner and returns its output. It fails
// the test where the program fails.
func (c *Cluster) Run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := c.Command(name, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v\n%s%s", filepath.Base(name), err, out, errOut.Bytes())
	}
	return string(out)
}

// Command prepares a program to run as the cluster's owner, beside the data
// directory, connecting to this cluster by default.
func (c *Cluster) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = filepath.Dir(c.Dir)
	cmd.Env = append(os.Environ(), "PGHOST=127.0.0.1", "PGPORT="+strconv.Itoa(c.Port), "PGUSER="+Superuser, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.owner}
	return cmd
}

// Start starts the server and waits until it takes connections.
func (c *Cluster) Start(tb testing.TB) {
	tb.Helper()
	c.cmd = c.Command(Binary(tb, "postgres"), "-D", c.Dir, "-p", strconv.Itoa(c.Port), "-h", "127.0.0.1", "-k", filepath.Dir(c.Dir))
	c.cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.ended = make(chan struct{})
	if err := c.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	cmd, ended := c.cmd, c.ended
	go func() { _ = cmd.Wait(); close(ended) }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.URL(Superuser))
		if err == nil {
			if err := conn.Close(ctx); err != nil {
				tb.Fatal(err)
			}
			return
		}
		select {
		case <-ended:
			tb.Fatalf("PostgreSQL ended at its start:\n%s", c.log.tail(4000))
		case <-ctx.Done():
			tb.Fatalf("PostgreSQL does not answer: %v\n%s", err, c.log.tail(4000))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends the server and waits: SIGINT is a fast shutdown, SIGQUIT an
// immediate one that leaves recovery to the next start. Where nothing runs,
// it does nothing.
func (c *Cluster) Stop(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(sig)
	select {
	case <-c.ended:
	case <-time.After(patience):
		_ = c.cmd.Process.Kill()
		tb.Error("PostgreSQL did not stop")
	}
	c.cmd = nil
}

// Kill ends the server as a crash of it does: SIGKILL to the postmaster, whose
// children then end by themselves.
func (c *Cluster) Kill(tb testing.TB) { c.Stop(tb, syscall.SIGKILL) }

// Restart stops the server with a fast shutdown and starts it again.
func (c *Cluster) Restart(tb testing.TB) {
	c.Stop(tb, syscall.SIGINT)
	c.Start(tb)
}

// URL returns the address of a database, as the superuser.
func (c *Cluster) URL(database string) string { return c.URLAs(Superuser, database) }

// URLAs returns the address of a database, as any role.
func (c *Cluster) URLAs(role, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Database makes a new database, empty or a copy of another one that nobody is
// connected to, and returns its address.
func (c *Cluster) Database(tb testing.TB, template ...string) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", c.names.Add(1))
	sql := "create database " + name
	if len(template) > 0 {
		sql += " template " + template[0]
	}
	c.Exec(tb, Superuser, sql)
	return c.URL(name)
}

// Exec runs SQL as the superuser in a database.
func (c *Cluster) Exec(tb testing.TB, database, sql string, args ...any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL(database))
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// syncBuffer keeps what the server says.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.buf.Bytes()
	return string(text[max(0, len(text)-n):])
}
