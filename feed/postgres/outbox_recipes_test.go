//go:build linux && e2e

package postgres

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// blocks returns the code blocks of a document in one language.
func blocks(t *testing.T, document, language string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", document))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		list = append(list, match[1])
	}
	return list
}

// shop makes a database with an application's table in it, and the role that
// the documents speak of. It returns the application's address.
func shop(t *testing.T) (url, application string) {
	t.Helper()
	url = database(t)
	admin := dial(t, url)
	terminal(t, admin.PgConn(), "drop role if exists shop; create role shop login; create schema shop authorization shop; alter role shop set search_path = shop")
	t.Cleanup(func() { sharedCluster(t).Exec(t, admin.Config().Database, "drop owned by shop; drop role shop") })
	application = strings.Replace(url, "postgres@", "shop@", 1)
	terminal(t, dial(t, application).PgConn(), "create table orders (id bigint generated always as identity primary key, customer text, total int)")
	return url, application
}

// terminal runs statements as a terminal does.
func terminal(t *testing.T, conn *pgconn.PgConn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s\n%v", sql, err)
	}
}

func TestTheSQLOfTheDocumentRuns(t *testing.T) {
	url, application := shop(t)
	s := open(t, url, quiet)
	admin, app := dial(t, url), dial(t, application)
	list := blocks(t, "outbox.md", "sql")
	for _, sql := range list {
		if strings.HasPrefix(sql, "grant ") {
			terminal(t, admin.PgConn(), sql)
		}
	}
	ran := 0
	for _, sql := range list {
		switch {
		case strings.HasPrefix(sql, "grant "):
		case strings.Contains(sql, "parked") || strings.Contains(sql, "count(*)"):
			if ran == 2 {
				exec(t, app, "select gapless.publish('orders eu', 'order.created', '1')")
				exec(t, app, "select gapless.publish('orders eu', 'order created', '2')")
			}
			moveAll(t, s)
			terminal(t, admin.PgConn(), sql)
			ran++
		default:
			terminal(t, app.PgConn(), sql)
			ran++
		}
	}
	if ran < 6 {
		t.Errorf("%d blocks ran", ran)
	}
	moveAll(t, s)
	wantPayloads(t, s, `{"customer":"ada","total":42}`, `{"order":7}`, "1")
	if list := events(t, s); list[0].Topic != "orders.eu" || list[0].Type != "order.created" || list[1].Type != "order.paid" {
		t.Errorf("the events are %+v and %+v", list[0], list[1])
	}
	if n := scan[int](t, admin, "select count(*) from shop.orders"); n != 1 {
		t.Errorf("%d orders", n)
	}
}

func TestTheGoOfTheDocumentRuns(t *testing.T) {
	url, application := shop(t)
	s := open(t, url, quiet)
	terminal(t, dial(t, url).PgConn(), "grant execute on function gapless.publish(text, text, json, text, text, json) to shop")
	list := blocks(t, "recipes/go.md", "go")
	if len(list) != 2 {
		t.Fatalf("the document has %d programs", len(list))
	}
	for _, program := range list {
		dir := t.TempDir()
		source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
		if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		// In this module's directory, whose dependencies it uses.
		if out, err := osexec.Command("go", "build", "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		run := osexec.Command(binary)
		run.Env = append(os.Environ(), "DATABASE_URL="+application)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	moveAll(t, s)
	wantPayloads(t, s, `{"customer":"ada","total":42}`, `{"customer":"ada","total":42}`)
	for i, ev := range events(t, s) {
		if want := []string{"order-1", "order-2"}[i]; ev.ID != want || ev.Topic != "orders.eu" || ev.Type != "order.created" {
			t.Errorf("event %d is %+v", i+1, ev)
		}
	}
}
