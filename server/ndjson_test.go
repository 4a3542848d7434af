package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"gapless/feed"
)

const linesType = "Content-Type: application/x-ndjson"

// counts is what an NDJSON publish answers, in success and in failure.
type counts struct {
	Epoch      string
	Accepted   int
	Duplicates int
	FirstSeq   uint64 `json:"first_seq"`
	LastSeq    uint64 `json:"last_seq"`
	Line       int
	Code       string
	Detail     string
}

func (g *gateway) lines(body string, headers ...string) (int, counts) {
	g.t.Helper()
	a := g.do("POST", "/api/v1/events", body, append([]string{linesType}, headers...)...)
	var c counts
	a.decode(g.t, &c)
	return a.status, c
}

func TestLines(t *testing.T) {
	g := start(t, func(o *options) { o.log.Retention = feed.Retention{Events: 10000} })
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, "{\"data\":%d}\n", i)
	}
	long := `{"data":"` + strings.Repeat("a", 200_000) + `"}`
	cases := []struct {
		name, body string
		status     int
		accepted   int
		line       int
		code       string
	}{
		{"one line", "{\"data\":1}\n", 201, 1, 0, ""},
		{"no last line end", "{\"data\":1}\n{\"data\":2}", 201, 2, 0, ""},
		{"CRLF and blank lines", "\r\n{\"data\":1}\r\n\n  \n{\"data\":2}\r\n", 201, 2, 0, ""},
		{"byte order mark", "\ufeff{\"data\":1}\n", 201, 1, 0, ""},
		{"more than a chunk", many.String(), 201, 3000, 0, ""},
		{"lines beyond the buffer", long + "\n" + long + "\n{}\n" + long, 201, 4, 0, ""},
		{"nothing", "", 200, 0, 0, ""},
		{"blank", "\n\n", 200, 0, 0, ""},
		{"bad JSON", "{\"data\":1}\n{\"data\":2}\n\nnonsense\n{\"data\":3}\n", 400, 2, 4, "invalid"},
		{"bad first line", "[]\n{}\n", 400, 0, 1, "invalid"},
		{"unknown member", "{}\n{\"x\":1}\n", 400, 1, 2, "invalid"},
		{"bad topic, found by the feed", "{}\n{}\n{\"topic\":\"a b\"}\n{}\n", 400, 2, 3, "invalid"},
		{"reserved", "{}\n{\"type\":\"heartbeat\"}\n{}\n", 400, 1, 2, "invalid"},
		{"unfinished last line", "{}\n{\"data\":", 400, 1, 2, "invalid"},
		{"white space that is not JSON's", "{}\n\u00a0{}\n", 400, 1, 2, "invalid"},
		{"second mark", "{}\n\ufeff{}\n", 400, 1, 2, "invalid"},
		{"conflict", "{\"id\":\"c\",\"data\":1}\n{}\n{\"id\":\"c\",\"data\":2}\n{}\n", 409, 2, 3, "id_conflict"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			head := g.head()
			status, got := g.lines(c.body)
			if status != c.status || got.Accepted != c.accepted || got.Line != c.line || got.Code != c.code || got.Epoch == "" {
				t.Errorf("%d %+v", status, got)
			}
			if now := g.head(); now != head+c.accepted {
				t.Errorf("%d events were stored, want %d", now-head, c.accepted)
			}
			if c.accepted > 0 && (got.FirstSeq != uint64(head+1) || got.LastSeq != uint64(head+c.accepted)) {
				t.Errorf("%+v, want seqs %d to %d", got, head+1, head+c.accepted)
			}
		})
	}
	status, got := g.lines("{}\n{\"data\":\"" + strings.Repeat("a", feed.MaxDataBytes+1<<20) + "\"}\n{}\n")
	if status != 413 || got.Code != "too_large" || got.Accepted != 1 || got.Line != 2 {
		t.Errorf("a line beyond all bounds: %d %+v", status, got)
	}
}

// Every line's data is its own, be the line shorter or longer than what is
// read at once.
func TestLinesKeepTheirData(t *testing.T) {
	g := start(t)
	var body strings.Builder
	var want []string
	for i := range 60 {
		data := fmt.Sprintf(`"%d%s"`, i, strings.Repeat(string(rune('a'+i%26)), i%7*15_000))
		want = append(want, data)
		fmt.Fprintf(&body, "{\"topic\":\"d\",\"data\":%s}\n", data)
	}
	if status, got := g.lines(body.String()); status != 201 || got.Accepted != len(want) {
		t.Fatalf("%d %+v", status, got)
	}
	for i, e := range g.subscribe("?topic=d").events(len(want)) {
		if string(e.Data) != want[i] {
			t.Errorf("line %d became %.40s, want %.40s", i+1, e.Data, want[i])
		}
	}
}

func TestLinesAreIdempotent(t *testing.T) {
	g := start(t)
	body := "{\"data\":1}\n\n{\"data\":2,\"id\":\"own\"}\n{\"data\":3}\n"
	status, first := g.lines(body, "Idempotency-Key: import-7")
	if status != 201 || first.Accepted != 3 || first.Duplicates != 0 {
		t.Fatalf("%d %+v", status, first)
	}
	var ids []string
	for _, e := range wantPage(t, g.do("GET", "/api/v1/events?start=last:3", "")).Events {
		ids = append(ids, e.ID)
	}
	if fmt.Sprint(ids) != "[import-7:1 own import-7:4]" {
		t.Errorf("ids %v", ids)
	}
	status, again := g.lines(body+"{\"data\":4}", "Idempotency-Key: import-7")
	if status != 201 || again.Accepted != 4 || again.Duplicates != 3 || again.FirstSeq != first.FirstSeq || again.LastSeq != first.LastSeq+1 {
		t.Errorf("%d %+v", status, again)
	}
	if status, all := g.lines(body, "Idempotency-Key: import-7"); status != 200 || all.Duplicates != 3 {
		t.Errorf("%d %+v, want 200: all are duplicates", status, all)
	}
}

// producer writes an NDJSON body bit by bit.
type producer struct {
	t *testing.T
	net.Conn
}

func (g *gateway) produce() producer {
	g.t.Helper()
	return producer{g.t, g.dial("POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\n" + linesType + "\r\nTransfer-Encoding: chunked\r\n\r\n")}
}

func (p producer) send(text string) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p, "%x\r\n%s\r\n", len(text), text); err != nil {
		p.t.Fatal(err)
	}
}

func (p producer) answer() (*http.Response, string) {
	p.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(p), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, string(b)
}

// A line is published when it arrives, not when its neighbours do.
func TestSlowProducer(t *testing.T) {
	g := start(t)
	s := g.subscribe("?topic=default")
	s.want("server.connected")
	p := g.produce()
	for i := range 5 {
		line := fmt.Sprintf("{\"data\":%d}\n", i)
		p.send(line[:4])
		p.send(line[4:])
		if e := s.events(1)[0]; string(e.Data) != fmt.Sprint(i) {
			t.Errorf("got %s, want %d", e.Data, i)
		}
	}
	p.send("{\"data\":5}")
	if _, err := io.WriteString(p, "0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if resp, body := p.answer(); resp.StatusCode != 201 || !strings.Contains(body, `"accepted":6`) {
		t.Errorf("%s %s", resp.Status, body)
	}
}

// The answer to a bad line does not wait for the rest of the body.
func TestBadLineIsAnsweredAtOnce(t *testing.T) {
	g := start(t)
	p := g.produce()
	p.send("{\"data\":1}\nbad\n")
	if resp, body := p.answer(); resp.StatusCode != 400 || !strings.Contains(body, `"line":2`) || !strings.Contains(body, `"accepted":1`) {
		t.Errorf("%s %s", resp.Status, body)
	}
}

// A cut in the middle of a line publishes what came before, and not the line,
// also where what has arrived of it would be a line of its own.
func TestCutProducer(t *testing.T) {
	g := start(t)
	p := g.produce()
	p.send("{\"data\":1}\n{\"data\":2}")
	if err := p.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if resp, body := p.answer(); resp.StatusCode != 400 || !strings.Contains(body, `"accepted":1`) || !strings.Contains(body, `"line":2`) {
		t.Errorf("%s %s", resp.Status, body)
	}
	if head := g.head(); head != 2 {
		t.Errorf("head %d, want 2", head)
	}
}

// The refusal of a body that is not read reaches a client that is still
// sending it.
func TestRefusalReachesASendingClient(t *testing.T) {
	g := start(t, func(o *options) { o.server.MaxBodyBytes = 1 << 20 })
	body := strings.Repeat(" ", 8<<20)
	for i := range 6 {
		req := g.request("POST", "/api/v1/events", strings.NewReader(body), jsonType)
		if i%2 == 1 {
			req.ContentLength = -1
		}
		if a := g.send(req); a.status != 413 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}
