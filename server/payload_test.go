package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gapless/feed"
)

func TestPublishText(t *testing.T) {
	g := start(t)
	cases := []struct{ contentType, body, data string }{
		{"text/plain", "hello", `"hello"`},
		{"text/plain; charset=utf-8", "é", `"é"`},
		{"text/plain; charset=US-ASCII", "e", `"e"`},
		{"text/html;charset=UTF-8", "<b>\"1\"</b>\n", `"<b>\"1\"</b>\n"`},
		{"text/plain", "", `""`},
		{"text/plain", "\ufeffx", "\"\ufeffx\""},
		{"text/csv", "a,b\r\n1,2\r\n", `"a,b\r\n1,2\r\n"`},
		{"application/xml", "<a/>", `"<a/>"`},
		{"image/svg+xml", "<svg/>", `"<svg/>"`},
		{"application/yaml", "a: 1", `"a: 1"`},
		{"application/vnd.example+json", ` {"a": 1}`, `{"a":1}`},
	}
	for _, c := range cases {
		a := g.do("POST", "/api/v1/events?type=note&topic=a.b&id="+url.QueryEscape(c.contentType+c.body[:min(len(c.body), 1)]), c.body, "Content-Type: "+c.contentType)
		if a.status != 201 {
			if !strings.ContainsAny(c.body, "é\ufeff") {
				t.Errorf("%s: %d %s", c.contentType, a.status, a.body)
			}
			a = g.do("POST", "/api/v1/events?type=note&topic=a.b", c.body, "Content-Type: "+c.contentType)
			if a.status != 201 {
				t.Errorf("%s: %d %s", c.contentType, a.status, a.body)
				continue
			}
		}
		if e := g.last(); string(e.Data) != c.data || e.Type != "note" || e.Topic != "a.b" {
			t.Errorf("%s %q: %+v with data %s", c.contentType, c.body, e, e.Data)
		}
	}
	if a := g.do("POST", "/api/v1/events", "\xff", "Content-Type: text/plain"); a.status != 400 || a.code() != "invalid" {
		t.Errorf("invalid UTF-8: %d %s", a.status, a.body)
	}
	if a := g.do("POST", "/api/v1/events?id=x%0Ay", "a", "Content-Type: text/plain"); a.status != 400 {
		t.Errorf("id with LF: %d %s", a.status, a.body)
	}
	if a := g.do("POST", "/api/v1/events", "{", "Content-Type: application/geo+json"); a.status != 400 {
		t.Errorf("malformed JSON payload: %d %s", a.status, a.body)
	}
}

func TestUnsupportedBodies(t *testing.T) {
	g := start(t)
	for _, headers := range [][]string{
		{"Content-Type: application/octet-stream"},
		{"Content-Type: image/png"},
		{"Content-Type: application/x-www-form-urlencoded"},
		{"Content-Type: multipart/form-data; boundary=x"},
		{"Content-Type: application/cloudevents+xml"},
		{"Content-Type: application/cloudevents"},
		{"Content-Type: text/plain; charset=iso-8859-1"},
		{"Content-Type: application/json; charset=utf-16"},
		{"Content-Type: nonsense/"},
		{"Content-Type: application/json", "Content-Encoding: gzip"},
		{"Content-Type: application/json", "Content-Encoding: identity", "Content-Encoding: gzip"},
		{"Content-Type: application/json", "Content-Encoding: identity, gzip"},
		{"Content-Type: application/json", "Content-Type: text/plain"},
		{},
	} {
		if a := g.do("POST", "/api/v1/events", "{}", headers...); a.status != 415 || a.code() != "unsupported_media_type" {
			t.Errorf("%v: %d %s, want 415", headers, a.status, a.body)
		}
	}
	for _, headers := range [][]string{{"Content-Type: application/json;charset=UTF-8"}, {jsonType, "Content-Encoding: identity"}} {
		if a := g.do("POST", "/api/v1/events", "{}", headers...); a.status != 201 {
			t.Errorf("%v: %d %s, want 201", headers, a.status, a.body)
		}
	}
}

// A client that waits for 100 Continue gets it where its body is wanted, and
// the refusal at once where it is not.
func TestExpectContinue(t *testing.T) {
	g := start(t)
	ask := func(contentType string, length int) (*bufio.Reader, io.Writer) {
		c := g.dial(fmt.Sprintf("POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", contentType, length))
		return bufio.NewReader(c), c
	}
	in, out := ask("application/json", 2)
	if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	if _, err := io.WriteString(out, "{}"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 201 {
		t.Errorf("%v %v", resp, err)
	}
	in, _ = ask("image/png", 2)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 415 ") {
		t.Errorf("%q %v", line, err)
	}
	in, _ = ask("application/json", 1<<30)
	if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
		t.Errorf("%q %v", line, err)
	}
}

func TestPublishNeedsTheWholeBody(t *testing.T) {
	g := start(t)
	head := g.head()
	for _, contentType := range []string{"application/json", "text/plain"} {
		c := g.dial("POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + contentType + "\r\nContent-Length: 100\r\n\r\n{}")
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(c); !strings.HasPrefix(string(b), "HTTP/1.1 400 ") {
			t.Errorf("%q, want 400", b)
		}
	}
	if now := g.head(); now != head {
		t.Errorf("%d events were stored", now-head)
	}
}

func TestBodyLimit(t *testing.T) {
	g := start(t, func(o *options) { o.server.MaxBodyBytes = 1000 })
	for _, contentType := range []string{"application/json", "text/plain", "application/cloudevents+json"} {
		for _, chunked := range []bool{false, true} {
			for size, status := range map[int]int{1000: 0, 1001: 413} {
				req := g.request("POST", "/api/v1/events", strings.NewReader(strings.Repeat(" ", size)), "Content-Type: "+contentType)
				if chunked {
					req.ContentLength = -1
				}
				if a := g.send(req); (a.status == 413) != (status == 413) {
					t.Errorf("%d bytes of %s: %d %s", size, contentType, a.status, a.body)
				}
			}
		}
	}
}

func TestPublishSizes(t *testing.T) {
	t.Parallel()
	g := start(t)
	batch := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	if p := g.publish(batch(1000)); len(p.Events) != 1000 || p.Events[999].Seq != p.Events[0].Seq+999 {
		t.Errorf("%d events", len(p.Events))
	}
	text := func(n int) string { return `{"data":"` + strings.Repeat("a", n) + `"}` }
	if p := g.publish(text(feed.MaxDataBytes - 2)); len(p.Events) != 1 {
		t.Errorf("%+v", p)
	}
	for name, body := range map[string]string{"1,001 events": batch(1001), "payload above 16 MiB": text(feed.MaxDataBytes - 1)} {
		if a := g.do("POST", "/api/v1/events", body, jsonType); a.status != 413 || a.code() != "too_large" {
			t.Errorf("%s: %d %s, want 413", name, a.status, a.body)
		}
	}
}
