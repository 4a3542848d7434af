//go:build linux && e2e

package postgres

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// dial opens a plain connection.
func dial(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(patient(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func newest(t testing.TB) int {
	t.Helper()
	steps, err := migrations(migrationFiles)
	if err != nil {
		t.Fatal(err)
	}
	return len(steps)
}

// TestMigrateBringsTheSchemaUpToDate from nothing, and then does nothing.
func TestMigrateBringsTheSchemaUpToDate(t *testing.T) {
	url := sharedCluster(t).Database(t)
	if from, to, err := Migrate(patient(t), url); err != nil || from != 0 || to != newest(t) {
		t.Errorf("from %d to %d, %v", from, to, err)
	}
	s := openStore(t, Config{URL: url})
	at := headOf(t, s)
	if from, to, err := Migrate(patient(t), url); err != nil || from != newest(t) || to != newest(t) {
		t.Errorf("again from %d to %d, %v", from, to, err)
	}
	if again := headOf(t, s); again != at {
		t.Errorf("the log was set up again: %v, was %v", again, at)
	}
	var setUps int
	if err := dial(t, url).QueryRow(patient(t), `select count(*) from gapless.audit where action = $1`, feed.ActionSetUp).Scan(&setUps); err != nil || setUps != 1 {
		t.Errorf("%d entries of a set-up, %v", setUps, err)
	}
}

// TestMigratorsAtOnce: eight gateways start on an empty database and each
// would migrate it. One does; all serve one log.
func TestMigratorsAtOnce(t *testing.T) {
	url := sharedCluster(t).Database(t)
	var wg sync.WaitGroup
	heads := make([]feed.Cursor, 8)
	for i := range heads {
		s := openStore(t, Config{URL: url, AutoMigrate: true})
		wg.Go(func() {
			page, err := s.Read(patient(t), 0, feed.Limit{})
			if err != nil {
				t.Errorf("read: %v", err)
			}
			heads[i] = feed.Cursor{Epoch: page.Epoch, Position: page.Head}
		})
	}
	wg.Wait()
	for _, at := range heads {
		if at != heads[0] || at.Epoch == "" {
			t.Errorf("%v and %v", at, heads[0])
		}
	}
}

// TestWithoutItsSchemaAStoreSaysWhatToDo, and serves once that was done.
func TestWithoutItsSchemaAStoreSaysWhatToDo(t *testing.T) {
	url := sharedCluster(t).Database(t)
	s := openStore(t, Config{URL: url})
	wantSchemaMissing := func() {
		t.Helper()
		_, err := s.Append(patient(t), []feed.Draft{draft("a", 1)})
		if feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "gapless migrate") || !strings.Contains(err.Error(), "--auto-migrate") {
			t.Errorf("%v", err)
		}
	}
	wantSchemaMissing()
	if _, _, err := Migrate(patient(t), url); err != nil {
		t.Fatal(err)
	}
	appendOne(t, s, draft("a", 1))
	// An older schema.
	conn := dial(t, url)
	if _, err := conn.Exec(patient(t), `delete from gapless.migration where version = $1`, newest(t)); err != nil {
		t.Fatal(err)
	}
	old := openStore(t, Config{URL: url})
	if _, err := old.Read(patient(t), 0, feed.Limit{}); feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "older") {
		t.Errorf("%v", err)
	}
	// Taken away under a running store.
	if _, err := conn.Exec(patient(t), `drop schema gapless cascade`); err != nil {
		t.Fatal(err)
	}
	wantSchemaMissing()
}

// TestWhatIsTakenAwayIsNotMadeAgain: a schema that was there is being restored
// when it is gone, and a new one would be in the way.
func TestWhatIsTakenAwayIsNotMadeAgain(t *testing.T) {
	url := sharedCluster(t).Database(t)
	s := openStore(t, Config{URL: url, AutoMigrate: true})
	appendOne(t, s, draft("a", 1))
	conn := dial(t, url)
	if _, err := conn.Exec(patient(t), `drop schema gapless cascade`); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Append(patient(t), []feed.Draft{draft("b", 1)}); feed.CodeOf(err) != feed.CodeUnavailable {
			t.Errorf("%v", err)
		}
	}
	var there bool
	if err := conn.QueryRow(patient(t), `select to_regnamespace('gapless') is not null`).Scan(&there); err != nil || there {
		t.Errorf("the schema is there: %v, %v", there, err)
	}
}

// TestALaterMigrationUnderARunningStore is a rolling upgrade: the next
// version's schema comes while this version appends and reads.
func TestALaterMigrationUnderARunningStore(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url})
	ctx := patient(t)
	done := make(chan int)
	stop := make(chan struct{})
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			if _, err := s.Append(ctx, []feed.Draft{draft(fmt.Sprint(n), 10)}); err != nil {
				t.Errorf("append: %v", err)
			}
			if _, err := s.Read(ctx, 0, feed.Limit{Events: 3}); err != nil {
				t.Errorf("read: %v", err)
			}
		}
	}()
	next := fstest.MapFS{}
	for _, step := range must(migrations(migrationFiles)) {
		next["migrations/"+step.name+".sql"] = &fstest.MapFile{Data: []byte(step.sql)}
	}
	next[fmt.Sprintf("migrations/%04d_later.sql", newest(t)+1)] = &fstest.MapFile{Data: []byte(`
		alter table gapless.events add column later text not null default '';
		alter table gapless.instance add column later bigint;
		alter table gapless.dedupe add column later text;
		create table gapless.later (n int primary key);`)}
	from, to, err := migrate(ctx, dial(t, url), next)
	if err != nil || from != newest(t) || to != newest(t)+1 {
		t.Errorf("from %d to %d, %v", from, to, err)
	}
	appendOne(t, s, draft("after", 10))
	close(stop)
	n := <-done
	wantLog(t, s, uint64(n)+1)
	// This version starts on the newer schema, too, and leaves it.
	late := openStore(t, Config{URL: url, AutoMigrate: true})
	appendOne(t, late, draft("late", 10))
	wantLog(t, late, uint64(n)+2)
	if from, to, err := Migrate(ctx, url); err != nil || from != newest(t)+1 || to != from {
		t.Errorf("from %d to %d, %v", from, to, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestAFailedMigrationLeavesNothing of its step behind.
func TestAFailedMigrationLeavesNothing(t *testing.T) {
	url := sharedCluster(t).Database(t)
	broken := fstest.MapFS{
		"migrations/0001_log.sql":    &fstest.MapFile{Data: must(fs.ReadFile(migrationFiles, "migrations/0001_log.sql"))},
		"migrations/0002_broken.sql": &fstest.MapFile{Data: []byte(`create table gapless.half (n int); create table nowhere.broken (n int);`)},
	}
	conn := dial(t, url)
	if _, _, err := migrate(patient(t), conn, broken); err == nil || !strings.Contains(err.Error(), "0002_broken") {
		t.Errorf("%v", err)
	}
	var version int
	var half bool
	if err := conn.QueryRow(patient(t), `select (select max(version) from gapless.migration), to_regclass('gapless.half') is not null`).Scan(&version, &half); err != nil || version != 1 || half {
		t.Errorf("version %d, half %v, %v", version, half, err)
	}
	if from, to, err := Migrate(patient(t), url); err != nil || from != 1 || to != newest(t) {
		t.Errorf("from %d to %d, %v", from, to, err)
	}
}

// TestARoleWithoutDDLServes: the grants of the package's documentation are
// enough to run, and not enough to migrate.
func TestARoleWithoutDDLServes(t *testing.T) {
	url := database(t)
	role := "app_" + url[strings.LastIndex(url, "/")+1:strings.Index(url, "?")]
	conn := dial(t, url)
	for _, sql := range append([]string{"create role app login"}, documentedGrants(t)...) {
		sql = strings.ReplaceAll(sql, "app", role)
		if _, err := conn.Exec(patient(t), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	t.Cleanup(func() {
		sharedCluster(t).Exec(t, name, "drop owned by "+role)
		sharedCluster(t).Exec(t, name, "drop role "+role)
	})
	as := sharedCluster(t).URLAs(role, name)
	s := openStore(t, Config{URL: as, Retention: feed.Retention{Events: 3}, AutoMigrate: true, Guard: feed.GuardOff})
	for n := range 6 {
		appendOne(t, s, draft(fmt.Sprint(n), 10))
	}
	if err := s.Trim(patient(t)); err != nil {
		t.Error(err)
	}
	if _, err := s.Search(patient(t), feed.Search{N: 2}); err != nil {
		t.Error(err)
	}
	pretend(t, url, 9) // off: taken over, with an audit entry
	appendOne(t, s, draft("adopted", 10))
	if _, err := dial(t, as).Exec(patient(t), "create table gapless.x (n int)"); err == nil {
		t.Error("the role can create tables")
	}
	if _, err := dial(t, as).Exec(patient(t), "truncate gapless.events"); err == nil {
		t.Error("the role can truncate")
	}
}

// documentedGrants reads the GRANT statements of doc.go.
func documentedGrants(t testing.TB) (statements []string) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	_, text, _ = strings.Cut(text, "needs no more than")
	for statement := range strings.SplitSeq(text, ";") {
		statement = strings.Join(strings.Fields(strings.ReplaceAll(statement, "//", "")), " ")
		if !strings.HasPrefix(statement, "grant ") {
			break
		}
		statements = append(statements, statement)
	}
	if len(statements) < 5 {
		t.Fatalf("the documentation has the grants %q", statements)
	}
	return statements
}

// TestAnotherEncodingIsRefused: text would come back changed, or not at all.
func TestAnotherEncodingIsRefused(t *testing.T) {
	c := sharedCluster(t)
	c.Exec(t, "postgres", "create database latin1 encoding 'LATIN1' locale 'C' template template0")
	if _, _, err := Migrate(patient(t), c.URL("latin1")); feed.CodeOf(err) != feed.CodeInvalid || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("%v", err)
	}
	s := openStore(t, Config{URL: c.URL("latin1")})
	if _, err := s.Read(patient(t), 0, feed.Limit{}); err == nil || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("%v", err)
	}
}

// TestTheEncodingOfARoleIsOverruled: in another one, what is stored would be
// another text than what was published.
func TestTheEncodingOfARoleIsOverruled(t *testing.T) {
	c := sharedCluster(t)
	url := database(t)
	c.Exec(t, "postgres", "create role latin login superuser")
	c.Exec(t, "postgres", "alter role latin set client_encoding = 'LATIN1'")
	d := draft("a", 1)
	d.Data = []byte(`"é €"`)
	appendOne(t, openStore(t, Config{URL: strings.Replace(url, "postgres@", "latin@", 1)}), d)
	if list := retained(t, openStore(t, Config{URL: url})); len(list) != 1 || string(list[0].Data) != string(d.Data) {
		t.Errorf("%s", list[0].Data)
	}
}
