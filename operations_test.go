//go:build e2e && linux

package gapless_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// guide is docs/operations.md on a machine of the test's own: a folder for
// each of its places, and a gateway that systemctl starts and stops.
type guide struct {
	t       *testing.T
	text    string
	binary  string
	root    string // /var/lib/gapless and /mnt/backups are below it
	store   string // what the gateway is started with
	address string // of the gateway, while it runs
	stop    func()
	kill    func()
}

// What the guide tells operators to type does what it says.
func TestOperations(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "gapless")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/gapless").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, follow := range map[string]func(t *testing.T, binary string){
		"restore SQLite":                       followRestoreOfSQLite,
		"restore SQLite, with a step left out": followRestoreOfSQLiteCarelessly,
		"move SQLite":                          followMoveOfSQLite,
		"roles of PostgreSQL":                  followRolesOfPostgreSQL,
		"move PostgreSQL":                      followMoveOfPostgreSQL,
		"restore PostgreSQL":                   followRestoreOfPostgreSQL,
		"restore PostgreSQL for other roles":   followRestoreOfPostgreSQLForOtherRoles,
	} {
		t.Run(name, func(t *testing.T) { follow(t, binary) })
	}
}

func openGuide(t *testing.T, binary string) *guide {
	t.Helper()
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	g := &guide{t: t, text: string(text), binary: binary, root: t.TempDir()}
	for _, dir := range []string{"/var/lib/private/gapless", "/mnt/backups"} {
		if err := os.MkdirAll(g.root+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// As systemd makes it for a service whose user is its own.
	if err := os.Symlink("private/gapless", g.root+"/var/lib/gapless"); err != nil {
		t.Fatal(err)
	}
	g.store = "sqlite:" + g.root + "/var/lib/gapless/events.db"
	return g
}

// section returns what stands under a heading.
func (g *guide) section(heading string) string {
	g.t.Helper()
	_, after, ok := strings.Cut(g.text, "\n## "+heading+"\n")
	if !ok {
		g.t.Fatalf("there is no section %q", heading)
	}
	section, _, _ := strings.Cut(after, "\n## ")
	return section
}

// blocks returns a section's blocks of a language.
func (g *guide) blocks(heading, language string) []string {
	g.t.Helper()
	var blocks []string
	for _, m := range regexp.MustCompile("(?sm)^( *)```"+language+"\n(.*?)```").FindAllStringSubmatch(g.section(heading), -1) {
		blocks = append(blocks, regexp.MustCompile("(?m)^"+m[1]).ReplaceAllString(m[2], ""))
	}
	return blocks
}

// start starts the gateway.
func (g *guide) start() {
	g.t.Helper()
	p := serve(g.t, g.root, g.binary+" serve --listen 127.0.0.1:0 --store '"+g.store+"'")
	g.address, g.stop, g.kill = p.address, p.stop, p.kill
}

// commands splits a block as a shell would: a line each, but what stands in
// parentheses, on lines of their own, is one.
func commands(script string) []string {
	return regexp.MustCompile(`(?ms)^\(\n.*?^\)$|^[^\n]+$`).FindAllString(strings.TrimSpace(script), -1)
}

// run runs one block, command by command, as the operator would, and returns
// what it printed.
func (g *guide) run(script string) string {
	g.t.Helper()
	said := ""
	for _, command := range commands(script) {
		switch command {
		case "systemctl stop gapless":
			g.stop()
			continue
		case "systemctl start gapless":
			g.start()
			continue
		}
		out, err := g.shell(command)
		if err != nil {
			g.t.Fatalf("%s\n%v\n%s", command, err, out)
		}
		said += out
	}
	return said
}

// shell runs one command with the guide's places turned into the test's.
func (g *guide) shell(command string) (string, error) {
	g.t.Helper()
	for _, place := range []string{"/var/lib/gapless", "/mnt/backups"} {
		command = strings.ReplaceAll(command, place, g.root+place)
	}
	command = strings.ReplaceAll(command, "http://127.0.0.1:8080", "http://"+g.address)
	if strings.Contains(command, " finalize ") || strings.Contains(command, " --final ") {
		command += " --yes" // nobody sits at a terminal
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = g.root
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(g.binary)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if strings.Contains(command, "restore status") && cmd.ProcessState.ExitCode() == 3 {
		err = nil // the store is shut, it says
	}
	return string(out), err
}

// request asks the gateway, and returns status and body.
func (g *guide) request(method, path, body string) (int, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.address+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// publish publishes one event and returns the cursor behind it.
func (g *guide) publish(id string) string {
	g.t.Helper()
	if status, body := g.request(http.MethodPost, "/api/v1/events", `{"topic":"orders","id":"`+id+`"}`); status != http.StatusCreated {
		g.t.Fatalf("publishing %s: %d %s", id, status, body)
	}
	_, page := g.request(http.MethodGet, "/api/v1/events?start=live", "")
	m := regexp.MustCompile(`"cursor":"([^"]+)"`).FindStringSubmatch(page)
	if m == nil {
		g.t.Fatalf("no cursor: %s", page)
	}
	return m[1]
}

func (g *guide) ids() string {
	g.t.Helper()
	_, page := g.request(http.MethodGet, "/api/v1/events?start=all&topic=orders", "")
	var ids []string
	for _, m := range regexp.MustCompile(`"id":"([^"]+)"`).FindAllStringSubmatch(page, -1) {
		ids = append(ids, m[1])
	}
	return strings.Join(ids, " ")
}

// backup runs the guide's command for a copy, and brings it where the rest of
// the guide looks for it.
func (g *guide) backup() {
	g.t.Helper()
	command := regexp.MustCompile("`(gapless backup --url [^`]*/backups/monday)`").FindStringSubmatch(g.section("Backups"))
	if command == nil {
		g.t.Fatal("the guide shows no backup")
	}
	g.run("mkdir /var/lib/gapless/backups\n" + command[1] + "\nmv /var/lib/gapless/backups/monday /mnt/backups/monday")
}

// disaster brings a gateway to where the guide's restore begins: there is a
// backup, and events since; it was killed, so that its write-ahead log lies
// beside its file. It returns a cursor that the backup does not have.
func (g *guide) disaster() (lost string) {
	g.t.Helper()
	g.start()
	g.publish("kept")
	g.backup()
	g.run(g.blocks("Backups", "sh")[0])
	lost = g.publish("lost")
	g.kill()
	if wal, err := os.Stat(g.root + "/var/lib/gapless/events.db-wal"); err != nil || wal.Size() == 0 {
		g.t.Fatalf("the killed gateway left no write-ahead log: %v", err)
	}
	return lost
}

func followRestoreOfSQLite(t *testing.T, binary string) {
	g := openGuide(t, binary)
	lost := g.disaster()
	said := ""
	for i, block := range g.blocks("Restoring SQLite", "sh") {
		said += g.run(block)
		if i > 0 {
			continue
		}
		for _, name := range []string{"events.db", "events.db-wal"} {
			if _, err := os.Stat(g.root + "/var/lib/gapless/broken/" + name); err != nil {
				t.Errorf("it was not put aside: %v", err)
			}
		}
	}
	if !strings.Contains(said, "The guard keeps this store shut") {
		t.Errorf("the status of the copy is not told: %s", said)
	}
	if got := g.ids(); got != "kept" {
		t.Errorf("the restored log holds %q", got)
	}
	g.publish("new") // has the number of the lost one
	if status, body := g.request(http.MethodGet, "/api/v1/events?cursor="+lost, ""); status != http.StatusGone || !strings.Contains(body, `"epoch_changed"`) {
		t.Errorf("a cursor of the lost branch: %d %s", status, body)
	}
	if _, audit := g.request(http.MethodGet, "/api/v1/audit", ""); !strings.Contains(audit, "restore.finalize") {
		t.Errorf("it is not in the audit: %s", audit)
	}
}

// Whatever step does not do what it should, the block stops before it touches
// the log.
func followRestoreOfSQLiteCarelessly(t *testing.T, binary string) {
	for name, spoil := range map[string]func(block string) string{
		"nothing is put aside": func(block string) string {
			return regexp.MustCompile(`(?m)^ *find .*\n`).ReplaceAllString(block, "")
		},
		"a symbolic link is not followed": func(block string) string {
			return strings.Replace(block, "find . ", "find /var/lib/gapless ", 1)
		},
		"the write-ahead log stays": func(block string) string {
			return strings.Replace(block, "'events.db*'", "'events.db'", 1)
		},
		"the copy is damaged": func(block string) string {
			return "echo damage >>/mnt/backups/monday/gapless.db\n" + block
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := openGuide(t, binary)
			g.disaster()
			block := strings.Replace(g.blocks("Restoring SQLite", "sh")[0], "systemctl stop gapless\n", "", 1)
			spoiled := spoil(block)
			if spoiled == block {
				t.Fatal("the guide does not have the step")
			}
			if out, err := g.shell(spoiled); err == nil {
				t.Errorf("it goes on: %s", out)
			}
			at := g.root + "/var/lib/gapless/"
			if _, err := os.Stat(at + "events.db"); err != nil {
				at += "broken/"
			}
			if err := exec.Command("cmp", "--quiet", at+"events.db", g.root+"/mnt/backups/monday/gapless.db").Run(); err == nil {
				t.Error("the copy is in place")
			}
			// Put back what was put aside: nothing is lost.
			g.run("find /var/lib/gapless/ -path '*/broken/*' -exec mv -t /var/lib/gapless {} +\n")
			g.start()
			if got := g.ids(); got != "kept lost" {
				t.Errorf("the log holds %q", got)
			}
		})
	}
}

func followMoveOfSQLite(t *testing.T, binary string) {
	old := openGuide(t, binary)
	old.start()
	cursor := old.publish("moved")
	blocks := old.blocks("Moving a store", "sh")
	if len(blocks) != 4 {
		t.Fatalf("%d blocks", len(blocks))
	}
	old.run(blocks[0])
	if status, body := old.request(http.MethodPost, "/api/v1/events", `{}`); status != http.StatusServiceUnavailable || !strings.Contains(body, `"sealed"`) {
		t.Errorf("publishing to a sealed store: %d %s", status, body)
	}
	if got := old.ids(); got != "moved" {
		t.Errorf("the sealed store serves %q", got)
	}

	moved := openGuide(t, binary)
	if out, err := exec.Command("cp", "-r", old.root+"/var/lib/gapless/move", moved.root+"/var/lib/gapless/").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	moved.run(blocks[1])
	if out, err := moved.shell(blocks[1]); err == nil {
		t.Errorf("it is put over a log that is there: %s", out)
	}
	moved.run(blocks[2] + blocks[3])
	moved.publish("after")
	if status, body := moved.request(http.MethodGet, "/api/v1/events?topic=orders&cursor="+cursor, ""); status != http.StatusOK || !strings.Contains(body, `"id":"after"`) {
		t.Errorf("a cursor from before the move: %d %s", status, body)
	}
}
