package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
)

// What needs a store that outlives the process is not there without one.
func TestAdminWithoutADurableStore(t *testing.T) {
	g := start(t)
	for _, c := range [][3]string{
		{"GET", "/api/v1/audit", ""}, {"GET", "/api/v1/admin/restore", ""},
		{"POST", "/api/v1/admin/restore/finalize", `{}`}, {"POST", "/api/v1/admin/backup", `{"directory":"/x"}`},
	} {
		if a := g.do(c[0], c[1], c[2], jsonType); a.status != 404 || a.code() != "not_found" {
			t.Errorf("%s %s: %d %s", c[0], c[1], a.status, a.body)
		}
	}
}

// Operators' routes are guarded as publishing is.
func TestAdminIsGuarded(t *testing.T) {
	d := newDurable(t)
	keyed := start(t, d.serve, func(o *options) { o.server.PublishKeys = []string{"k"} })
	local := start(t, newDurable(t).serve)
	// Consent to open writes is none to this.
	open := start(t, newDurable(t).serve, func(o *options) { o.server.Open = true })
	for _, c := range [][3]string{
		{"GET", "/api/v1/audit", ""}, {"GET", "/api/v1/admin/restore", ""},
		{"POST", "/api/v1/admin/restore/finalize", `{"dry_run":true}`}, {"POST", "/api/v1/admin/backup", `{"directory":"/x"}`},
	} {
		if a := keyed.do(c[0], c[1], c[2], jsonType); a.status != 401 {
			t.Errorf("%s %s without a key: %d", c[0], c[1], a.status)
		}
		if a := keyed.do(c[0], c[1], c[2], jsonType, "Authorization: Bearer no"); a.status != 403 {
			t.Errorf("%s %s with another key: %d", c[0], c[1], a.status)
		}
		if a := keyed.do(c[0], c[1], c[2], jsonType, "Authorization: Bearer k"); a.status != 200 {
			t.Errorf("%s %s with the key: %d %s", c[0], c[1], a.status, a.body)
		}
		for name, g := range map[string]*gateway{"closed": local, "open": open} {
			for _, header := range []string{"Host: evil.example", "Host: 10.0.0.1:8080", "Origin: https://evil.example"} {
				a := g.do(c[0], c[1], c[2], jsonType, header)
				if a.status != 403 || a.code() != "forbidden" || !strings.Contains(string(a.body), "--publish-key") {
					t.Errorf("%s: %s %s with %s: %d %s", name, c[0], c[1], header, a.status, a.body)
				}
			}
			for remote, status := range map[string]int{"127.0.0.1:5": 200, "[::1]:5": 200, "[::ffff:127.0.0.1]:5": 200, "192.0.2.1:5": 403, "[2001:db8::1]:5": 403, "": 403, "@": 403} {
				if got := g.from(remote, c[0], c[1], c[2]); got != status {
					t.Errorf("%s: %s %s from the peer %q: %d, want %d", name, c[0], c[1], remote, got, status)
				}
			}
		}
	}
}

// Without a key, what says that it came through a proxy is not local, whoever
// its peer is; with one, the key decides. Publishing is not concerned.
func TestAdminThroughAProxyNeedsAKey(t *testing.T) {
	keyed := start(t, newDurable(t).serve, func(o *options) { o.server.PublishKeys = []string{"k"} })
	local := start(t, newDurable(t).serve)
	open := start(t, newDurable(t).serve, func(o *options) { o.server.Open = true })
	for _, header := range []string{
		"X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 127.0.0.1", "Forwarded: for=192.0.2.1", "Via: 1.1 proxy", "X-Real-IP: 192.0.2.1", "X-Forwarded-For: ",
	} {
		for _, c := range [][3]string{
			{"GET", "/api/v1/audit", ""}, {"HEAD", "/api/v1/admin/restore", ""}, {"GET", "/api/v1/admin/restore", ""},
			{"POST", "/api/v1/admin/restore/finalize", `{"dry_run":true}`}, {"POST", "/api/v1/admin/backup", `{"directory":"/x"}`},
		} {
			for name, g := range map[string]*gateway{"closed": local, "open": open} {
				a := g.do(c[0], c[1], c[2], jsonType, header)
				if a.status != 403 || c[0] != "HEAD" && (a.code() != "forbidden" || !strings.Contains(string(a.body), "to administer through a proxy")) {
					t.Errorf("%s: %s %s with %s: %d %s", name, c[0], c[1], header, a.status, a.body)
				}
			}
			if a := keyed.do(c[0], c[1], c[2], jsonType, header, "Authorization: Bearer k"); a.status != 200 {
				t.Errorf("%s %s with %s and the key: %d %s", c[0], c[1], header, a.status, a.body)
			}
		}
		for name, g := range map[string]*gateway{"closed": local, "open": open} {
			if a := g.do("POST", "/api/v1/events", `{}`, jsonType, header); a.status != 201 {
				t.Errorf("%s: publishing with %s: %d %s", name, header, a.status, a.body)
			}
		}
	}
}

// from is the status of a request whose peer has this address, and which
// calls the host localhost.
func (g *gateway) from(remote, method, path, body string) int {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.RemoteAddr = remote
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.server.Handler().ServeHTTP(w, r)
	return w.Code
}

func TestAudit(t *testing.T) {
	d := newDurable(t)
	g := start(t, d.serve)
	for i := range 5 {
		if err := d.RecordAudit(t.Context(), feed.AuditEntry{Actor: "me", Action: feed.ActionBackup, Detail: fmt.Appendf(nil, `{"n":%d}`, i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	for query := ""; ; {
		var page struct{ Entries []feed.AuditEntry }
		g.do("GET", "/api/v1/audit?limit=2"+query, "").decode(t, &page)
		if len(page.Entries) == 0 {
			break
		}
		for _, e := range page.Entries {
			seen = append(seen, string(e.Detail))
			if e.Actor != "me" || e.Action != "backup" || e.Time.IsZero() {
				t.Errorf("%+v", e)
			}
		}
		query = fmt.Sprintf("&before=%d", page.Entries[len(page.Entries)-1].Seq)
	}
	if got := strings.Join(seen, ""); got != `{"n":5}{"n":4}{"n":3}{"n":2}{"n":1}` {
		t.Errorf("%s", got)
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "before=-1", "before=+1", "before=x", "before=1&before=2"} {
		if a := g.do("GET", "/api/v1/audit?"+query, ""); a.status != 400 {
			t.Errorf("%s: %d", query, a.status)
		}
	}
	if a := g.do("HEAD", "/api/v1/audit", ""); a.status != 200 {
		t.Errorf("HEAD: %d", a.status)
	}
}

func TestFinalizeTakesWhatItKnows(t *testing.T) {
	d := newDurable(t)
	g := start(t, d.serve)
	manifest := manifestJSON(t, someManifest(true))
	post := func(body string, headers ...string) answer {
		return g.do("POST", "/api/v1/admin/restore/finalize", body, append([]string{jsonType}, headers...)...)
	}
	for _, body := range []string{
		``, `null`, `[]`, `{"dry_run":1}`, `{"dry_run":null}`, `{"actor":7}`, `{"dryrun":true}`, `{"relocation":{}}`, `{"relocation":7}`,
		// Who meant to relocate must not begin a new epoch.
		`{"relocation":null}`, `{"relocation": null }`, `{"relocation":[]}`, `{"relocation":""}`, `{"actor":null}`,
		`{"actor":"a\nb"}`, `{"actor":"` + strings.Repeat("x", 129) + `"}`, `{"dry_run":true,"relocation":` + manifest + `}`,
		`{"relocation":` + strings.Replace(manifest, `"format":1`, `"format":2`, 1) + `}`, `{"dry_run":true,"dry_run":true}`,
		`{"epoch":""}`, `{"epoch":null}`, `{"epoch":7}`, `{"epoch":"01KB7Q3V9W8ZJ4M2T6R5N0XYCD","relocation":` + manifest + `}`,
	} {
		if a := post(body); a.status != 400 || a.code() != "invalid" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := g.do("POST", "/api/v1/admin/restore/finalize", `{}`, "Content-Type: text/plain"); a.status != 415 {
		t.Errorf("as text: %d", a.status)
	}
	if a := post(`{"actor":"` + strings.Repeat("x", 1<<20) + `"}`); a.status != 413 {
		t.Errorf("too long: %d", a.status)
	}
	if len(d.final)+len(d.moved) > 0 {
		t.Fatalf("what was refused was done: %+v", d.final)
	}

	var dry struct{ Finalized feed.Finalized }
	post(`{"dry_run":true}`).decode(t, &dry)
	if !dry.Finalized.DryRun || dry.Finalized.NewEpoch != "" || !d.final[0].DryRun || d.final[0].Actor != "a client at 127.0.0.1" {
		t.Errorf("%+v, %+v", dry, d.final)
	}
	var moved struct{ Relocated feed.Relocated }
	post(`{"actor":"me","relocation":`+manifest+`}`).decode(t, &moved)
	if len(d.moved) != 1 || d.moved[0].HeadSeq != 8 || d.actor != "me" || moved.Relocated.Epoch != "01KB7Q3V9W8ZJ4M2T6R5N0XYCD" {
		t.Errorf("%+v", moved)
	}
	post(`{"epoch":"01KB7Q3V9W8ZJ4M2T6R5N0XYCD"}`)
	if last := d.final[len(d.final)-1]; last.Epoch != "01KB7Q3V9W8ZJ4M2T6R5N0XYCD" || d.final[0].Epoch != "" {
		t.Errorf("%+v", d.final)
	}
	d.set(func(d *durableLog) { d.disagree = true })
	if a := post(`{"relocation":` + manifest + `}`); a.status != 409 || a.code() != "conflict" || !strings.Contains(string(a.body), "the head is 7, the manifest says 8") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestBackup(t *testing.T) {
	d := newDurable(t)
	// Longer than a write may take: an answer has its own time.
	g := start(t, d.serve, func(o *options) { o.server.WriteTimeout = 50 * time.Millisecond })
	for _, body := range []string{`{}`, `{"directory":""}`, `{"directory":"a"}`, `{"directory":"../a"}`, `{"directory":7}`, `{"directory":"/a","final":"yes"}`, `{"directory":"/a","x":1}`, `{"directory":"/a\u0000"}`} {
		if a := g.do("POST", "/api/v1/admin/backup", body, jsonType); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if page := statusPageOf(t, g); page.Sealed {
		t.Error("sealed before its time")
	}
	begun, goOn := make(chan feed.BackupOptions), make(chan struct{})
	d.set(func(d *durableLog) { d.backups, d.goOn = begun, goOn })
	answers := make(chan answer)
	go func() {
		answers <- g.do("POST", "/api/v1/admin/backup", `{"directory":"/var/x","final":true,"actor":"me"}`, jsonType)
	}()
	if opts := <-begun; !opts.Final || opts.Actor != "me" {
		t.Errorf("%+v", opts)
	}
	if a := g.do("POST", "/api/v1/admin/backup", `{"directory":"/var/y"}`, jsonType); a.status != 409 || a.code() != "conflict" {
		t.Errorf("a second one: %d %s", a.status, a.body)
	}
	time.Sleep(200 * time.Millisecond) // four times what a write may take
	close(goOn)
	a := <-answers
	var m feed.Manifest
	if a.decode(t, &m); a.status != 200 || !m.Final || m.HeadSeq != 8 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if page := statusPageOf(t, g); !page.Sealed {
		t.Error("the status page does not know of the seal")
	}
}

// A client that goes away, and a server that stops, give a backup up.
func TestABackupIsGivenUp(t *testing.T) {
	d := newDurable(t)
	g := start(t, d.serve, func(o *options) { o.drain = patience })
	begun := make(chan feed.BackupOptions)
	d.set(func(d *durableLog) { d.backups, d.goOn = begun, make(chan struct{}) })
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req := g.request("POST", "/api/v1/admin/backup", strings.NewReader(`{"directory":"/x"}`), jsonType)
		if resp, err := g.client.Do(req.WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
	}()
	<-begun
	cancel()
	<-gone
	eventually(t, "the end of the backup", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.cause != nil
	})
	d.set(func(d *durableLog) { d.cause = nil })

	answers := make(chan answer)
	go func() { answers <- g.do("POST", "/api/v1/admin/backup", `{"directory":"/x"}`, jsonType) }()
	<-begun
	began := time.Now()
	g.stop()
	a := <-answers
	if a.status != 503 || a.code() != "not_ready" || !strings.Contains(string(a.body), `"given up; the server stops"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the stop waited for the backup: %v", took)
	}
}

// A final backup seals the store, whatever becomes of the copy. A stop in the
// middle does not keep that from the operator, and the log has it in any case.
func TestAFinalBackupTellsOfItsSeal(t *testing.T) {
	const warning = `"level":"warn","actor":"me","message":"the store is sealed`
	backup := func(g *gateway) answer {
		return g.do("POST", "/api/v1/admin/backup", `{"directory":"/x","final":true,"actor":"me"}`, jsonType)
	}
	begin := func(change func(*durableLog)) (*durableLog, *gateway, *bytes.Buffer) {
		d, logged := newDurable(t), new(bytes.Buffer)
		g := start(t, d.serve, func(o *options) { o.server.Logger = zerolog.New(zerolog.SyncWriter(logged)) })
		d.set(change)
		return d, g, logged
	}
	t.Run("stopped", func(t *testing.T) {
		begun := make(chan feed.BackupOptions)
		_, g, logged := begin(func(d *durableLog) { d.backups, d.goOn = begun, make(chan struct{}) })
		answers := make(chan answer)
		go func() { answers <- backup(g) }()
		<-begun
		g.stop()
		a := <-answers
		if a.status != 503 || a.code() != "not_ready" || !strings.Contains(string(a.body), `"the store stays sealed: given up; the server stops"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if !strings.Contains(logged.String(), warning) {
			t.Errorf("no warning in\n%s", logged)
		}
	})
	t.Run("failed", func(t *testing.T) {
		_, g, logged := begin(func(d *durableLog) { d.fails = errors.New("no space") })
		a := backup(g)
		if a.status != 500 || a.code() != "internal" || !strings.Contains(string(a.body), `"the store stays sealed; the server's log says why"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if g.stop(); !strings.Contains(logged.String(), warning) || !strings.Contains(logged.String(), "no space") {
			t.Errorf("no warning, or no cause, in\n%s", logged)
		}
	})
	t.Run("done", func(t *testing.T) {
		_, g, logged := begin(func(*durableLog) {})
		if a := backup(g); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if g.stop(); !strings.Contains(logged.String(), warning) {
			t.Errorf("no warning in\n%s", logged)
		}
	})
	t.Run("silent", func(t *testing.T) {
		d, g, logged := begin(func(d *durableLog) { d.hangs = make(chan struct{}) })
		if a := backup(g); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		close(d.hangs)
		if g.stop(); !strings.Contains(logged.String(), `"level":"warn","actor":"me","message":"a final backup has ended, and the store does not say`) {
			t.Errorf("no warning in\n%s", logged)
		}
	})
}

// What a store says of a failure reaches the operator who caused it, though
// not those who read or publish.
func TestOperatorsAreToldWhatTheStoreSays(t *testing.T) {
	d := newDurable(t)
	g := start(t, d.serve)
	d.set(func(d *durableLog) {
		d.fails = &feed.Error{Code: feed.CodeUnavailable, Op: "x", Msg: "make the witness file writable", Err: errors.New("hush")}
	})
	for _, c := range [][2]string{
		{"/api/v1/admin/restore/finalize", `{}`}, {"/api/v1/admin/restore/finalize", `{"relocation":` + manifestJSON(t, someManifest(true)) + `}`},
		{"/api/v1/admin/backup", `{"directory":"/x"}`},
	} {
		a := g.do("POST", c[0], c[1], jsonType)
		if a.status != 503 || a.code() != "unavailable" || !strings.Contains(string(a.body), `"detail":"make the witness file writable"`) || a.header.Get("Retry-After") == "" {
			t.Errorf("%s %s: %d %s", c[0], c[1], a.status, a.body)
		}
	}
}

// A directory that the server cannot write to is the client's to mend.
func TestABackupIntoADirectoryThatIsRefused(t *testing.T) {
	d := newDurable(t)
	g := start(t, d.serve)
	for _, c := range []struct {
		path  string
		cause error
		want  int
	}{
		{"/var/x", syscall.EACCES, 400}, {"/var/x/gapless.db", syscall.EROFS, 400}, {"/var", syscall.ENOTDIR, 400},
		{"/var/x/gapless.db", syscall.EIO, 503}, {"/srv/gapless.db", syscall.EACCES, 503},
		{"/", syscall.EACCES, 400}, {"/var/x/", syscall.EACCES, 400},
		// Of these, one path begins with the letters of the other.
		{"/va", syscall.EACCES, 503}, {"/var/xy/gapless.db", syscall.EACCES, 503}, {"", syscall.EACCES, 503},
	} {
		d.set(func(d *durableLog) {
			d.fails = &feed.Error{Code: feed.CodeUnavailable, Op: "backup", Msg: "it cannot be made", Err: &fs.PathError{Op: "open", Path: c.path, Err: c.cause}}
		})
		a := g.do("POST", "/api/v1/admin/backup", `{"directory":"/var/x"}`, jsonType)
		told := strings.Contains(string(a.body), "it cannot be made: open "+c.path+": "+c.cause.Error())
		if a.status != c.want || told != (c.want == 400) {
			t.Errorf("%s, %v: %d %s", c.path, c.cause, a.status, a.body)
		}
	}
}

// A server that has not seen its log yet says so in a word for machines.
func TestReadyzTellsAStart(t *testing.T) {
	g := start(t, func(o *options) { o.unready = true })
	var p struct{ Code, Reason string }
	g.do("GET", "/readyz", "").decode(t, &p)
	if p.Code != "not_ready" || p.Reason != "starting" {
		t.Errorf("%+v", p)
	}
}
