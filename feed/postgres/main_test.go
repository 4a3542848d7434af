//go:build linux && e2e

package postgres

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"gapless/feed"
	"gapless/feed/postgres/pgtest"
)

// cluster is one server for the tests that do not harm it. It loses what it
// holds when it crashes; tests of durability and speed make their own.
var cluster struct {
	once     sync.Once
	template sync.Once
	host     *host
	*pgtest.Cluster
}

// scaled is the first value, or with GAPLESS_LONG=1 the second.
func scaled[T any](short, full T) T {
	if os.Getenv("GAPLESS_LONG") == "1" {
		return full
	}
	return short
}

func TestMain(m *testing.M) {
	code := m.Run()
	if cluster.host != nil {
		cluster.host.cleanUp()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// host is a testing.TB that outlives every test.
type host struct {
	testing.TB
	cleanups []func()
}

func (h *host) Helper()                   {}
func (h *host) Failed() bool              { return false }
func (h *host) Cleanup(f func())          { h.cleanups = append(h.cleanups, f) }
func (h *host) Error(args ...any)         { fmt.Fprintln(os.Stderr, args...) }
func (h *host) Logf(f string, a ...any)   { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (h *host) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (h *host) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func (h *host) cleanUp() {
	for i := len(h.cleanups) - 1; i >= 0; i-- {
		h.cleanups[i]()
	}
}

// sharedCluster starts the server at its first use.
func sharedCluster(t testing.TB) *pgtest.Cluster {
	t.Helper()
	cluster.once.Do(func() {
		cluster.host = &host{}
		cluster.Cluster = pgtest.New(cluster.host, "fsync=off", "full_page_writes=off", "max_connections=300", "autovacuum_naptime=1s")
	})
	return cluster.Cluster
}

// database makes a new database on the shared server, migrated. It is a copy
// of one that was, and in which no log was set up yet: that takes half the time.
func database(t testing.TB) string {
	t.Helper()
	const template = "migrated"
	c := sharedCluster(t)
	cluster.template.Do(func() {
		c.Exec(t, "postgres", "create database "+template)
		if _, _, err := Migrate(t.Context(), c.URL(template)); err != nil {
			t.Fatal(err)
		}
		c.Exec(t, template, "truncate gapless.instance, gapless.audit restart identity")
	})
	url := c.Database(t, template)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return url
}

// openStore opens a store that the test's end closes. Outboxes are left alone
// unless the configuration says otherwise.
func openStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.OutboxPoll == 0 {
		cfg.OutboxPoll = -1
	}
	if cfg.Logger.GetLevel() == zerolog.DebugLevel && os.Getenv("POSTGRES_TEST_LOG") != "" {
		cfg.Logger = zerolog.New(zerolog.NewTestWriter(t))
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// draft makes a valid draft with an id.
func draft(id string, n int) feed.Draft {
	return feed.Draft{ID: id, Type: "made", Topic: "t", Data: []byte(`"` + strings.Repeat("x", n) + `"`)}
}

// patience bounds what a test waits for.
const patience = 60 * time.Second

func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
