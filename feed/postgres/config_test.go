package postgres

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"gapless/feed"
)

// TestAConnectionStringIsNeverRepeated: an error of it names no part of it,
// since each can hold the password.
func TestAConnectionStringIsNeverRepeated(t *testing.T) {
	for _, url := range []string{
		"postgres://app:s3/cr3t@localhost/x", "postgres://app:s3cr3t@localhost:port/x", "postgres://app:%zzs3cr3t@localhost/x",
		"host=localhost password='s3cr3t", "postgres://app:s3cr3t@localhost/x?sslmode=s3cr3t", "s3cr3t", "postgres://a:s3cr3t@h/x?default_query_exec_mode=s3cr3t",
	} {
		_, err := Open(t.Context(), Config{URL: url})
		if feed.CodeOf(err) != feed.CodeInvalid || strings.Contains(err.Error(), "cr3t") {
			t.Errorf("%s: %v", url, err)
		}
		_, _, err = Migrate(t.Context(), url)
		if feed.CodeOf(err) != feed.CodeInvalid || strings.Contains(err.Error(), "cr3t") {
			t.Errorf("migrating %s: %v", url, err)
		}
	}
}

func TestImpossibleOptionsAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{DedupeWindow: -1}, {Retention: feed.Retention{Age: -1}}, {Retention: feed.Retention{Bytes: -1}},
		{MaxConns: 2}, {MaxConns: -1}, {MaxConns: 1 << 20}, {Guard: "lax"},
	} {
		cfg.URL = "postgres://localhost/x"
		if _, err := Open(t.Context(), cfg); feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	got, err := Config{URL: "x"}.normalized()
	want := Config{
		URL: "x", Retention: feed.Retention{Events: 1_000_000, Bytes: 1 << 30}, DedupeWindow: 10 * time.Minute, Guard: feed.GuardStrict,
		MaxConns: 8, OutboxPoll: 100 * time.Millisecond, tryPatience: tryPatience,
	}
	if err != nil || got.Retention != want.Retention || got.DedupeWindow != want.DedupeWindow || got.Guard != want.Guard ||
		got.MaxConns != want.MaxConns || got.OutboxPoll != want.OutboxPoll || got.tryPatience != want.tryPatience {
		t.Errorf("%+v, want %+v, %v", got, want, err)
	}
}

// TestMigrationsAreNumberedWithoutAHole, those of this package too.
func TestMigrationsAreNumberedWithoutAHole(t *testing.T) {
	steps, err := migrations(migrationFiles)
	if err != nil || len(steps) == 0 || steps[0].name != "0001_log" {
		t.Errorf("%d steps, %v", len(steps), err)
	}
	for _, names := range [][]string{{"0002_a"}, {"0001_a", "0003_b"}, {"0001_a", "0001_b"}, {"1_a"}, {"a"}} {
		files := fstest.MapFS{}
		for _, name := range names {
			files["migrations/"+name+".sql"] = &fstest.MapFile{}
		}
		if _, err := migrations(files); err == nil {
			t.Errorf("%v is taken", names)
		}
	}
}

func TestIdentityText(t *testing.T) {
	id := identity{System: 1<<63 + 5, Timeline: 3, Database: 1<<32 - 1}
	if got := id.String(); got != "system 9223372036854775813, timeline 3, database 4294967295" {
		t.Errorf("%q", got)
	}
	if back, err := parseIdentity(id.system(), int64(id.Timeline), int64(id.Database)); err != nil || back != id {
		t.Errorf("%v, %v", back, err)
	}
	if got := (identity{}).String(); got != "" {
		t.Errorf("an unknown identity is %q", got)
	}
}

// TestTheModeOfSendingStatementsIsAParameter, and not anything that reads so.
func TestTheModeOfSendingStatementsIsAParameter(t *testing.T) {
	for url, want := range map[string]bool{
		"postgres://u@localhost/x?default_query_exec_mode=exec":                    true,
		"host=localhost default_query_exec_mode=exec":                              true,
		"postgres://u:default_query_exec_mode@localhost/x":                         false,
		"postgres://u@localhost/default_query_exec_mode":                           false,
		"postgres://u@localhost/x?application_name=default_query_exec_mode%3Dexec": false,
	} {
		if _, got, err := parseURL(url); err != nil || got != want {
			t.Errorf("%s: %v, %v", url, got, err)
		}
	}
}
