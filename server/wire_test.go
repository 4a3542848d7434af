package server_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gapless/feed"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/wire anew from what the server answers")

// A transcript is a request's literal bytes and the answer's. In the file,
// each part follows its heading; a line of a head ends in CRLF on the wire,
// and what differs from run to run is a placeholder.
type transcript struct {
	name    string
	publish string // before the request
	request string // with {epoch} for the running one
	durable bool   // on a store that outlives the process
	keyed   bool   // where there is a publish key, K
	after   func(*gateway)
}

const host = "Host: localhost\r\n"

func transcripts() []transcript {
	two := `[{"type":"order.created","topic":"orders.eu","id":"o-1","data":{"n": 7}},{"type":"note","topic":"orders.us","id":"o-2","data":"two\nlines"}]`
	get := func(target, headers string) string {
		return "GET " + target + " HTTP/1.0\r\n" + host + headers + "\r\n"
	}
	post := func(target, contentType, body, headers string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\n%sContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n%s", target, host, contentType, len(body), headers, body)
	}
	cutWhenLive := func(g *gateway) {
		eventually(g.t, "the live stream", func() bool {
			subs := g.feed.Subscribers()
			return len(subs) == 1 && subs[0].State.String() == "live" && subs[0].QueueFrames == 0 && g.feed.Cut(subs[0].ID)
		})
	}
	return []transcript{
		{name: "snapshot", publish: two, request: get("/events", ""), after: cutWhenLive},
		{name: "snapshot_raw_unnamed", publish: two, request: get("/events?format=raw&named=false&topic=orders.>", ""), after: cutWhenLive},
		{name: "snapshot_raw", publish: two, request: get("/events?format=raw&type=note", ""), after: cutWhenLive},
		{name: "resume", publish: two, request: get("/events", "Last-Event-ID: {epoch}-2\r\n"), after: cutWhenLive},
		{name: "start_live", publish: two, request: get("/events?start=live", ""), after: cutWhenLive},
		{name: "chunked", publish: two, request: "GET /events?start=live HTTP/1.1\r\n" + host + "Last-Event-ID: nonsense\r\n\r\n"},
		{name: "resync_epoch_changed", request: get("/events", "Last-Event-ID: 01KB7Q3V9W8ZJ4M2T6R5N0XYCD-42-7K3M9Q2P\r\n")},
		{name: "resync_cursor_invalid", request: get("/events", "Last-Event-ID: nonsense\r\n")},
		{name: "resync_cursor_ahead", request: get("/events?cursor={epoch}-9", "")},
		{name: "malformed_query", request: get("/events?cursor=nonsense", "Accept: text/event-stream\r\n")},
		{name: "head", request: "HEAD /events HTTP/1.1\r\n" + host + "\r\n"},
		{name: "options", request: "OPTIONS /events HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n"},
		{name: "preflight", request: "OPTIONS /events HTTP/1.1\r\n" + host + "Origin: http://localhost:3000\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: last-event-id\r\nConnection: close\r\n\r\n"},
		{name: "publish", request: post("/api/v1/events", "application/json", `{"type":"order.created","topic":"orders.eu","id":"o-1","data":{"n":7}}`, "")},
		{name: "publish_duplicate", publish: two, request: post("/api/v1/events", "application/json", two, "")},
		{name: "publish_conflict", publish: two, request: post("/api/v1/events", "application/json", `{"type":"note","topic":"orders.eu","id":"o-1","data":8}`, "")},
		{name: "publish_invalid", request: post("/api/v1/events", "application/json", `{"payload":1}`, "")},
		{name: "publish_text", request: post("/api/v1/events?type=note&topic=orders.eu&id=t-1", "text/plain", "two\nlines", "")},
		{name: "publish_ndjson", request: post("/api/v1/events", "application/x-ndjson", "{\"data\":1}\n{\"data\":2}\n", "Idempotency-Key: K\r\n")},
		{name: "publish_ndjson_bad_line", request: post("/api/v1/events", "application/x-ndjson", "{\"data\":1}\n\nnonsense\n", "")},
		{name: "publish_cloudevent", request: post("/api/v1/events", "application/cloudevents+json", `{"specversion":"1.0","id":"A-1","source":"/shop","type":"order.created","gaplesstopic":"orders.eu","subject":"7","data":{"n":7}}`, "")},
		{name: "publish_form", request: post("/api/v1/events", "application/x-www-form-urlencoded", `{"data":1}`, "")},
		{name: "catch_up", publish: two, request: get("/api/v1/events?topic=orders.*&limit=1", "")},
		{name: "catch_up_gone", publish: two, request: get("/api/v1/events?since_seq=1", "")},
		{name: "audit", durable: true, request: get("/api/v1/audit?limit=1", "")},
		{name: "audit_memory", request: get("/api/v1/audit", "")},
		{name: "restore_status", durable: true, request: get("/api/v1/admin/restore", "")},
		{name: "restore_status_memory", request: get("/api/v1/admin/restore", "")},
		{name: "restore_status_unauthorized", durable: true, keyed: true, request: get("/api/v1/admin/restore", "")},
		{name: "restore_status_foreign_host", durable: true, request: "GET /api/v1/admin/restore HTTP/1.0\r\nHost: gateway.example\r\n\r\n"},
		{name: "restore_finalize", durable: true, keyed: true, request: post("/api/v1/admin/restore/finalize", "application/json", `{"actor":"J. Doe"}`, "Authorization: Bearer K\r\n")},
		{name: "restore_finalize_dry_run", durable: true, request: post("/api/v1/admin/restore/finalize", "application/json", `{"dry_run":true}`, "")},
		{name: "restore_finalize_null", durable: true, request: post("/api/v1/admin/restore/finalize", "application/json", `{"relocation":null}`, "")},
		{name: "restore_relocate", durable: true, request: post("/api/v1/admin/restore/finalize", "application/json",
			`{"actor":"J. Doe","relocation":{"format":1,"store":"sqlite","epoch":"01KB7Q3V9W8ZJ4M2T6R5N0XYCD","oldest_seq":1,"head_seq":8,"head_fence":"7K3M9Q2P","identity":"there","final":true,"time":"2026-11-30T12:00:00Z","files":[]}}`, "")},
		{name: "backup", durable: true, request: post("/api/v1/admin/backup", "application/json", `{"directory":"/var/backups/monday","actor":"J. Doe"}`, "")},
		{name: "backup_relative", durable: true, request: post("/api/v1/admin/backup", "application/json", `{"directory":"monday"}`, "")},
		{name: "not_found", request: get("/nothing", "")},
		{name: "method_not_allowed", request: post("/events", "application/json", "{}", "")},
	}
}

func TestWire(t *testing.T) {
	for _, tr := range transcripts() {
		t.Run(tr.name, func(t *testing.T) {
			g := start(t, func(o *options) {
				o.server.CORSOrigins = []string{"http://localhost:*"}
				if tr.keyed {
					o.server.PublishKeys = []string{"K"}
				}
				if tr.durable {
					d := newDurable(t)
					entry := feed.AuditEntry{Actor: "J. Doe", Action: feed.ActionBackup, Detail: []byte(`{"head_seq":8}`)}
					if err := d.RecordAudit(t.Context(), entry); err != nil {
						t.Fatal(err)
					}
					d.serve(o)
				}
			})
			if tr.publish != "" {
				g.publish(tr.publish)
			}
			eventually(t, "the pump", func() bool { return int(g.feed.Status().Head.Seq) == g.head() })
			epoch := string(g.feed.Status().Epoch)
			c := g.dial(strings.ReplaceAll(tr.request, "{epoch}", epoch))
			if tr.after != nil {
				tr.after(g)
			}
			b, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			got := "-- request --\n" + tr.request + "\n-- answer --\n" + normal(t, string(b), epoch)
			got = strings.ReplaceAll(got, "\r\n", "\n")
			if strings.Contains(got, "\r") {
				t.Errorf("a lone carriage return in %q", got)
			}
			file := filepath.Join("testdata", "wire", tr.name+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// normal puts placeholders for what differs from run to run, and checks its
// form on the way.
func normal(t *testing.T, text, epoch string) string {
	t.Helper()
	text = strings.ReplaceAll(text, epoch, "{epoch}")
	for _, p := range []struct{ pattern, placeholder string }{
		{`Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`, "Date: {date}"},
		{`-(\d+)-[0-9A-HJKMNP-TV-Z]{8}\b`, "-$1-{fence}"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`, "{time}"},
		{`("connection_id":|"id":)"[0-9A-HJKMNP-TV-Z]{26}"`, `$1"{ulid}"`},
	} {
		text = regexp.MustCompile(p.pattern).ReplaceAllString(text, p.placeholder)
	}
	return regexp.MustCompile(`retry: (\d+)`).ReplaceAllStringFunc(text, func(line string) string {
		wantRetry(t, block{retry: strings.TrimPrefix(line, "retry: ")}, 500, 60000)
		return "retry: {retry}"
	})
}
