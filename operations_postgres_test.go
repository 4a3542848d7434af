//go:build e2e && linux

package gapless_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gapless/feed/postgres/pgtest"
)

// database is the guide's database in a cluster: made, migrated, granted.
type database struct {
	*pgtest.Cluster
	t *testing.T
}

func openDatabase(g *guide) database {
	g.t.Helper()
	d := database{pgtest.New(g.t, "fsync = off"), g.t}
	blocks := g.blocks("PostgreSQL: roles", "sql")
	if len(blocks) != 2 {
		g.t.Fatalf("%d blocks", len(blocks))
	}
	d.roles(g)
	g.run("gapless migrate --store '" + d.URLAs("gapless_owner", "events") + "'")
	d.psql("gapless_owner", "events", blocks[1])
	g.store = d.URLAs("gapless", "events")
	return d
}

// roles makes the database and its roles, as the guide says.
func (d database) roles(g *guide) {
	d.t.Helper()
	d.psql(pgtest.Superuser, "postgres", g.blocks("PostgreSQL: roles", "sql")[0])
	d.psql(pgtest.Superuser, "postgres", "create role shop login")
}

// psql runs statements one by one, as if they were typed.
func (d database) psql(role, name, sql string) string {
	d.t.Helper()
	out, err := d.trySQL(role, name, sql)
	if err != nil {
		d.t.Fatalf("%s\n%v\n%s", sql, err, out)
	}
	return out
}

func (d database) trySQL(role, name, sql string) (string, error) {
	d.t.Helper()
	cmd := d.Command(pgtest.Binary(d.t, "psql"), "-X", "-Atq", "-v", "ON_ERROR_STOP=1", "-d", d.URLAs(role, name))
	cmd.Stdin = strings.NewReader(sql)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs one of PostgreSQL's programs with the guide's arguments.
func (d database) run(dir, command string) {
	d.t.Helper()
	words := strings.Fields(command)
	cmd := d.Command(pgtest.Binary(d.t, words[0]), words[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("%s\n%v\n%s", command, err, out)
	}
}

// mayPublish fails the test unless the application may publish and somebody
// without a grant may not.
func (d database) mayPublish() {
	d.t.Helper()
	const publish = `select gapless.publish('orders', 'order.created', '{"n":1}')`
	d.psql("shop", "events", publish)
	d.psql(pgtest.Superuser, "events", "create role stranger login")
	for _, sql := range []string{publish, "select gapless.requeue_parked()", "select * from gapless.events"} {
		if out, err := d.trySQL("stranger", "events", sql); err == nil || !strings.Contains(out, "permission denied") {
			d.t.Errorf("without a grant, %s: %v %s", sql, err, out)
		}
	}
	if out, err := d.trySQL("shop", "events", "select gapless.requeue_parked()"); err == nil || !strings.Contains(out, "permission denied") {
		d.t.Errorf("an application requeues: %v %s", err, out)
	}
}

const applicationGrant = "grant execute on function gapless.publish(text, text, json, text, text, json) to shop"

// The gateway's role can do what the guide grants it, and that is enough.
func followRolesOfPostgreSQL(t *testing.T, binary string) {
	g := openGuide(t, binary)
	d := openDatabase(g)
	g.start()
	cursor := g.publish("first")
	d.psql("gapless_owner", "events", `select gapless.publish('orders', 'order.created', '{"n":1}'::json, 'from-the-outbox')`)
	_, page := g.request(http.MethodGet, "/api/v1/events?wait=20s&topic=orders&cursor="+cursor, "")
	if !strings.Contains(page, `"id":"from-the-outbox"`) {
		t.Errorf("the outbox is not moved: %s", page)
	}
	out := g.run("gapless restore finalize --url http://127.0.0.1:8080")
	if _, page := g.request(http.MethodGet, "/api/v1/events?cursor="+cursor, ""); !strings.Contains(page, `"epoch_changed"`) {
		t.Errorf("after a finalize (%s): %s", out, page)
	}
	// The backup's command, with the same role.
	g.run("gapless backup --store '" + g.store + "' backup && gapless backup verify backup")
}

// A move to another cluster: what the gateways' role seals, the owner copies,
// and no cursor is lost.
func followMoveOfPostgreSQL(t *testing.T, binary string) {
	g := openGuide(t, binary)
	old := openDatabase(g)
	g.start()
	cursor := g.publish("moved")
	steps := regexp.MustCompile("`(gapless [^`]*(?:OLD|NEW)-STORE[^`]*)`").FindAllStringSubmatch(g.section("Moving a store"), -1)
	if len(steps) != 2 {
		t.Fatalf("%d commands: %v", len(steps), steps)
	}
	stores := func(command string, d database) string {
		path := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(path, []byte(d.URLAs("gapless", "events")), 0o600); err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile("(OLD|NEW)-STORE").ReplaceAllString(command, path)
	}
	g.run(stores(steps[0][1], old))
	if status, body := g.request(http.MethodPost, "/api/v1/events", `{}`); status != http.StatusServiceUnavailable || !strings.Contains(body, `"sealed"`) {
		t.Errorf("publishing to a sealed store: %d %s", status, body)
	}
	if out, err := old.trySQL("gapless_owner", "events", `select gapless.publish('orders', 'order.created', '1')`); err == nil || !strings.Contains(out, "sealed") {
		t.Errorf("an application's transaction at a sealed store: %v %s", err, out)
	}
	if out, err := g.shell(stores(steps[1][1], old)); err == nil {
		t.Errorf("the source takes its own manifest: %s", out)
	}
	dir := exchange(t)
	old.run(dir, g.blocks("Backups", "sh")[1])

	d := database{pgtest.New(t, "fsync = off"), t}
	d.roles(g)
	d.run(dir, g.blocks("Restoring PostgreSQL", "sh")[0])
	g.run(stores(steps[1][1], d))
	g.stop()
	g.store = d.URLAs("gapless", "events")
	g.start()
	g.publish("after")
	if status, body := g.request(http.MethodGet, "/api/v1/events?topic=orders&cursor="+cursor, ""); status != http.StatusOK || !strings.Contains(body, `"id":"after"`) {
		t.Errorf("a cursor from before the move: %d %s", status, body)
	}
}

// exchange returns a folder that both clusters' user reaches.
func exchange(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// dumpRestored follows the guide from a database with two events to a new
// cluster with what a dump held of them. Finish restores, given the guide's
// command for it.
func dumpRestored(t *testing.T, binary string, finish func(g *guide, d database, dir, restore string)) (*guide, database) {
	g := openGuide(t, binary)
	old := openDatabase(g)
	old.psql("gapless_owner", "events", applicationGrant)
	g.start()
	g.publish("kept")
	dir := exchange(t)
	old.run(dir, g.blocks("Backups", "sh")[1])
	lost := g.publish("lost")
	g.stop()

	d := database{pgtest.New(t, "fsync = off"), t}
	d.roles(g)
	finish(g, d, dir, g.blocks("Restoring PostgreSQL", "sh")[0])
	d.mayPublish()

	// A gateway on it waits for an operator.
	status := g.run("gapless restore status --store '" + g.store + "'")
	if !strings.Contains(status, "The guard keeps this store shut") {
		t.Errorf("the status of the copy: %s", status)
	}
	g.run("gapless restore finalize --store '" + g.store + "'")
	g.start()
	if got := g.ids(); !strings.HasPrefix(got, "kept") || strings.Contains(got, "lost") {
		t.Errorf("the restored log holds %q", got)
	}
	g.publish("new")
	if status, body := g.request(http.MethodGet, "/api/v1/events?cursor="+lost, ""); status != http.StatusGone {
		t.Errorf("a cursor of the lost branch: %d %s", status, body)
	}
	return g, d
}

// A dump that is restored as the guide says brings owner and rights along.
func followRestoreOfPostgreSQL(t *testing.T, binary string) {
	dumpRestored(t, binary, func(g *guide, d database, dir, restore string) {
		d.run(dir, restore)
		g.store = d.URLAs("gapless", "events")
	})
}

// Restored without them, for roles with other names, it gets the rights that
// the guide lists, and nobody gets more.
func followRestoreOfPostgreSQLForOtherRoles(t *testing.T, binary string) {
	dumpRestored(t, binary, func(g *guide, d database, dir, restore string) {
		d.psql(pgtest.Superuser, "events", "create role other_owner login; create role other login; grant create on database events to other_owner")
		restore = strings.Replace(restore, "--username=gapless_owner", "--username=other_owner --no-owner --no-privileges", 1)
		d.run(dir, restore)
		for _, sql := range []string{
			g.blocks("Restoring PostgreSQL", "sql")[0],
			regexp.MustCompile(`\bto gapless;`).ReplaceAllString(g.blocks("PostgreSQL: roles", "sql")[1], "to other;"),
			applicationGrant,
		} {
			d.psql("other_owner", "events", sql)
		}
		g.store = d.URLAs("other", "events")
	})
}
