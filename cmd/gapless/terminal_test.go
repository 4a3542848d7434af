package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/upstream"
)

const someStatus = `{"version":"0.1.0","node":"n1","status":"ready","reason":"","store":"memory","epoch":"E1",
"oldest_seq":5,"head_seq":9,"retained_events":5,"retained_bytes":2048,"retention":{"events":1024,"bytes":268435456,"age_seconds":3600},
"uptime_seconds":61.5,"connections":{"total":6,"replaying":1,"live":3,"lagging":2},"published_total":9,"delivered_total":40,
"resyncs":{"lagged":2,"cursor_expired":1,"log_reset":0},"last_resync":{"time":"2026-01-02T03:04:05Z","reason":"lagged"}}`

func statusOf(t *testing.T, body string, terminal bool) (string, error) {
	t.Helper()
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
	defer hs.Close()
	var out bytes.Buffer
	cmd := statusCommand{clientFlags: clientFlags{URL: hs.URL}}
	err := cmd.Run(t.Context(), &console{out: &out, outTerminal: terminal})
	return out.String(), err
}

func TestStatusIsATableOnATerminal(t *testing.T) {
	got, err := statusOf(t, someStatus, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^status +ready`,
		`(?m)^node +n1, gapless 0.1.0, up 1m1s$`,
		`(?m)^store +memory, epoch E1$`,
		`(?m)^log +5 to 9: 5 events, 2 KiB$`,
		`(?m)^keeps +at most 1024 events, 256 MiB, 1h$`,
		`(?m)^connections +6: 3 live, 1 replaying, 2 lagging$`,
		`(?m)^published +9 `,
		`(?m)^delivered +40 `,
		`(?m)^resyncs +1 cursor_expired, 2 lagged; last lagged at 202[56]-`,
	} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestStatusTellsOfTheGuardAndTheSeal(t *testing.T) {
	got, err := statusOf(t, strings.Replace(someStatus, `"store":"memory"`, `"store":"sqlite","sealed":true,"restore":{"guard":"strict","finalized":true}`, 1), true)
	if want := `(?m)^store +sqlite, epoch E1, guard strict, sealed by a final backup: it takes no events$`; err != nil || !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("%v: no %s in\n%s", err, want, got)
	}
}

func TestStatusIsTheServersJSONInAPipe(t *testing.T) {
	got, err := statusOf(t, someStatus, false)
	if err != nil || !json.Valid([]byte(got)) || strings.TrimSpace(got) != someStatus {
		t.Errorf("%v: %s", err, got)
	}
}

func TestStatusFailsWhereTheGatewayDoesNotServe(t *testing.T) {
	_, err := statusOf(t, `{"status":"draining","reason":"shutdown"}`, true)
	if coded, ok := err.(*exitError); !ok || coded.code != exitUnavailable || !strings.Contains(err.Error(), "draining shutdown") {
		t.Errorf("draining: %v", err)
	}
	for _, body := range []string{`<html>`, `{}`, `[]`} {
		if _, err := statusOf(t, body, true); err == nil || !strings.Contains(err.Error(), "no gapless status") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestHealthAsksWhetherTheGatewayServesOrOnlyLives(t *testing.T) {
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer hs.Close()
	cmd := healthCommand{clientFlags: clientFlags{URL: hs.URL}, Timeout: time.Minute}
	if err := cmd.Run(t.Context()); err == nil {
		t.Error("a gateway that does not serve counts as healthy")
	}
	cmd.Live = true
	if err := cmd.Run(t.Context()); err != nil {
		t.Errorf("a gateway that lives counts as dead: %v", err)
	}
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		p := newProgress(&console{err: &out, errTerminal: terminal})
		p.add(500, 1<<20)
		p.add(100, 1<<20)
		p.end()
		p.end()
		got := out.String()
		if terminal && (!strings.Contains(got, "500 events, 1.0 MiB, ") || !strings.Contains(got, "600 events, 2.0 MiB, ") || strings.Count(got, "\n") != 1) || !terminal && got != "" {
			t.Errorf("terminal %v: %q", terminal, got)
		}
	}
}

func TestTailTellsEveryResyncInEveryFormat(t *testing.T) {
	meanings := make(map[string]bool)
	for _, format := range []string{"pretty", "json", "raw"} {
		for _, reason := range feed.Reasons() {
			var out, notices bytes.Buffer
			p := &printer{out: &out, notices: &notices, format: format}
			printed, err := p.print(upstream.Event{Type: feed.TypeResync, Data: []byte(`{"seq":0,"reason":"` + string(reason) + `"}`)})
			if printed || err != nil || out.Len() > 0 {
				t.Errorf("%s %s: printed %v, %v, %q", format, reason, printed, err, out.String())
			}
			text := notices.String()
			if !strings.Contains(text, "resync ("+string(reason)+"): ") {
				t.Errorf("%s %s: %q", format, reason, text)
			}
			meanings[text] = true
		}
	}
	if len(meanings) != len(feed.Reasons()) {
		t.Errorf("%d meanings for %d reasons", len(meanings), len(feed.Reasons()))
	}
}

func TestTailKeepsTerminalsSafe(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out, format: "pretty"}
	_, err := p.print(upstream.Event{Type: "message", Data: []byte(`{"seq":1,"type":"message","topic":"t","data":"a\u001b]0;x\u0007\u009b2J\nb"}`)})
	if err != nil || strings.ContainsAny(strings.TrimSuffix(out.String(), "\n"), "\x1b\x07\u009b\n") {
		t.Errorf("%v: %q", err, out.String())
	}
}

func TestReceiptAddsUp(t *testing.T) {
	var r receipt
	r.add(receipt{Epoch: "A", Accepted: 2, FirstSeq: 3, LastSeq: 4})
	r.add(receipt{Epoch: "A"})
	r.add(receipt{Epoch: "A", Accepted: 3, Duplicates: 3, FirstSeq: 1, LastSeq: 4})
	if want := (receipt{Epoch: "A", Accepted: 5, Duplicates: 3, FirstSeq: 1, LastSeq: 4}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	r.add(receipt{Epoch: "B", Accepted: 1, FirstSeq: 2, LastSeq: 2})
	if want := (receipt{Epoch: "B", Accepted: 6, Duplicates: 3, FirstSeq: 2, LastSeq: 2}); r != want {
		t.Errorf("after a new epoch: %+v, want %+v", r, want)
	}
}

func TestDefaultURLIsWhereTheGatewayListens(t *testing.T) {
	for listen, want := range map[string]string{
		"":               "http://127.0.0.1:8080",
		"0.0.0.0:9000":   "http://127.0.0.1:9000",
		":9000":          "http://127.0.0.1:9000",
		"[::]:9000":      "http://[::1]:9000",
		"10.1.2.3:9000":  "http://10.1.2.3:9000",
		"localhost:9000": "http://localhost:9000",
	} {
		if got := defaultURL(listen); got != want {
			t.Errorf("%q: %s, want %s", listen, got, want)
		}
	}
}
