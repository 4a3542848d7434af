//go:build linux && e2e

package main

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gapless/feed/postgres"
	"gapless/feed/postgres/pgtest"
)

// TestScriptsOnPostgreSQL runs the scripts that need a real cluster. Each has
// one of its own, which does not run at first, and DATABASE, the URL of an
// empty database there. Besides the commands of TestScripts there is:
//
//	cluster start|stop|kill    the server; it runs on the same port each time
func TestScriptsOnPostgreSQL(t *testing.T) {
	params := scripts("testdata/postgres", func(env *testscript.Env) error {
		tb := env.T().(testing.TB)
		c := pgtest.New(tb)
		env.Setenv("DATABASE", c.Database(tb))
		c.Stop(tb, syscall.SIGINT)
		env.Values[clusterKey{}] = cluster{c, tb}
		return nil
	})
	params.Cmds["cluster"] = cmdCluster
	testscript.Run(t, params)
}

type clusterKey struct{}

type cluster struct {
	*pgtest.Cluster
	tb testing.TB
}

func cmdCluster(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 1, "cluster start|stop|kill")
	c := ts.Value(clusterKey{}).(cluster)
	switch args[0] {
	case "start":
		c.Start(c.tb)
	case "stop":
		c.Stop(c.tb, syscall.SIGINT)
	case "kill":
		c.Kill(c.tb)
	default:
		ts.Fatalf("cluster %s: want start, stop or kill", args[0])
	}
}

// TestALookAtARestoredDatabase: the command alone speaks, and once.
func TestALookAtARestoredDatabase(t *testing.T) {
	c := pgtest.New(t)
	from := c.Database(t)
	if _, _, err := postgres.Migrate(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	name := strings.Trim(mustURL(t, from).Path, "/")
	c.Exec(t, "postgres", "create database restored template "+name)
	var out, told bytes.Buffer
	cmd := &restoreStatusCommand{targetFlags: targetFlags{storeFlags: storeFlags{Store: c.URL("restored")}}}
	parsed, err := newParser(t.Context(), &console{}, "test").Parse([]string{"restore", "status", "--store", cmd.Store})
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Run(t.Context(), parsed, &console{out: &out, err: &told})
	if coded := (*exitError)(nil); !errors.As(err, &coded) || coded.code != exitUnavailable {
		t.Errorf("%v", err)
	}
	text := out.String()
	if told.Len() > 0 || strings.Contains(text, "gapless restore status") || strings.Count(strings.ToLower(text), "nothing is served") != 1 || strings.Contains(text, "3. ") {
		t.Errorf("told %q and\n%s", told.String(), text)
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
