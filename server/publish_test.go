package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// last returns the newest event, as the catch-up page shows it.
func (g *gateway) last() envelope {
	g.t.Helper()
	p := wantPage(g.t, g.do("GET", "/api/v1/events?start=last:1", ""))
	if len(p.Events) != 1 {
		g.t.Fatalf("%d events", len(p.Events))
	}
	return p.Events[0]
}

// head returns the log's head; the feed's status may be a moment behind.
func (g *gateway) head() int {
	g.t.Helper()
	return wantPage(g.t, g.do("GET", "/api/v1/events?start=live", "")).HeadSeq
}

func TestPublishJSON(t *testing.T) {
	g := start(t)
	cases := []struct {
		name, body     string
		typ, topic, id string
		data           string
	}{
		{"all members", `{"type":"a.b/c:d-e_f","topic":"x.y","id":"my id!","data":{"n":1}}`, "a.b/c:d-e_f", "x.y", "my id!", `{"n":1}`},
		{"defaults", `{}`, "message", "default", "", "null"},
		{"white space", " {\r\n\t\"data\" : [ 1 , \r 2 ] } \n", "message", "default", "", "[1,2]"},
		{"byte order mark", "\ufeff{\"data\":1}", "message", "default", "", "1"},
		{"escaped names", `{"d\u0061ta":1,"typ\u0065":"\u0061"}`, "a", "default", "", "1"},
		{"numbers keep their digits", `{"data":[1.0,1e400,-0,123456789012345678901234567890,0.1000]}`, "message", "default", "", `[1.0,1e400,-0,123456789012345678901234567890,0.1000]`},
		{"order and repeats inside stay", `{"data":{"b":1,"a":2,"b":3,"":4}}`, "message", "default", "", `{"b":1,"a":2,"b":3,"":4}`},
		{"escapes stay", `{"data":"\u00e9\/\u2028 \ud83d\ude00"}`, "message", "default", "", `"\u00e9\/\u2028 \ud83d\ude00"`},
		{"array of one", `[{"data":"one"}]`, "message", "default", "", `"one"`},
		{"data false", `{"data":false}`, "message", "default", "", "false"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := g.publish(c.body)
			if len(p.Events) != 1 || p.Events[0].Duplicate {
				t.Fatalf("%+v", p)
			}
			e := g.last()
			if e.Seq != p.Events[0].Seq || e.Type != c.typ || e.Topic != c.topic || string(e.Data) != c.data || e.ID != p.Events[0].ID {
				t.Errorf("%+v with data %s", e, e.Data)
			}
			if c.id != "" && e.ID != c.id || c.id == "" && len(e.ID) != 26 {
				t.Errorf("id %q", e.ID)
			}
			if strings.Contains(c.name, "keep") || strings.Contains(c.name, "stay") {
				// Decoding an envelope could hide what became of the bytes.
				if a := g.do("GET", "/api/v1/events?start=last:1", ""); !bytes.Contains(a.body, []byte(c.data)) {
					t.Errorf("%s is not in %s", c.data, a.body)
				}
			}
		})
	}
}

func TestPublishJSONRefused(t *testing.T) {
	g := start(t)
	head := g.head()
	cases := []struct{ name, body, says string }{
		{"nothing", "", "not valid JSON"},
		{"a word", "hello", "not valid JSON"},
		{"unfinished", `{"data":1`, "not valid JSON"},
		{"trailing garbage", `{"data":1} x`, "not valid JSON"},
		{"two objects", `{"data":1}{"data":2}`, "not valid JSON"},
		{"a comma too many", `[{"data":1},]`, "not valid JSON"},
		{"a number", "1", "JSON object"},
		{"null", "null", "JSON object"},
		{"a string", `"x"`, "JSON object"},
		{"array of numbers", `[1]`, "event 0 of the batch"},
		{"array of arrays", `[[]]`, "event 0 of the batch"},
		{"empty array", `[]`, "no events"},
		{"unknown member", `{"payload":1}`, `"payload"`},
		{"unknown member, other case", `{"Data":1}`, `"Data"`},
		{"member twice", `{"data":1,"data":2}`, "data: given twice"},
		{"member twice, escaped", `{"data":1,"d\u0061ta":2}`, "data: given twice"},
		{"type is a number", `{"type":1}`, "type: want a string"},
		{"topic is null", `{"topic":null}`, "topic: want a string"},
		{"id is an object", `{"id":{}}`, "id: want a string"},
		{"empty id", `{"id":""}`, "id: is empty"},
		{"reserved type", `{"type":"server.connected"}`, "reserved"},
		{"type error", `{"type":"error"}`, "reserved"},
		{"type open", `{"type":"open"}`, "reserved"},
		{"system topic", `{"topic":"gapless.x"}`, "reserved"},
		{"system topic itself", `{"topic":"gapless"}`, "reserved"},
		{"type with LF", `{"type":"x\ndata: y"}`, "type:"},
		{"type with CR", `{"type":"x\r"}`, "type:"},
		{"type with NUL", `{"type":"x\u0000"}`, "type:"},
		{"type with a space", `{"type":"a b"}`, "type:"},
		{"long type", `{"type":"` + strings.Repeat("a", 129) + `"}`, "type:"},
		{"id with LF", `{"id":"1\nid: 2"}`, "id:"},
		{"id with CR", `{"id":"1\rdata: x"}`, "id:"},
		{"id with NUL", `{"id":"\u0000"}`, "id:"},
		{"id not ASCII", `{"id":"é"}`, "id:"},
		{"long id", `{"id":"` + strings.Repeat("a", 129) + `"}`, "id:"},
		{"topic with LF", `{"topic":"a\nb"}`, "topic:"},
		{"topic is a pattern", `{"topic":"a.*"}`, "topic:"},
		{"topic >", `{"topic":">"}`, "topic:"},
		{"17 tokens", `{"topic":"a` + strings.Repeat(".a", 16) + `"}`, "topic:"},
		{"lone surrogate in the type", `{"type":"\ud800"}`, "type:"},
		{"one bad in a batch", `[{"data":1},{"type":"a b"},{"data":3}]`, "event 1 of the batch"},
		{"one with an unknown member", `[{"data":1},{"x":1}]`, "event 1 of the batch"},
		{"deep", `{"data":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}`, "nested"},
		{"very deep", `{"data":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := g.do("POST", "/api/v1/events", c.body, jsonType)
			if a.status != 400 || a.code() != "invalid" || !strings.Contains(jsonDetail(t, a), c.says) {
				t.Errorf("%d %s, want 400 that says %q", a.status, a.body, c.says)
			}
		})
	}
	if now := g.head(); now != head {
		t.Errorf("%d events were stored", now-head)
	}
}

func jsonDetail(t *testing.T, a answer) string {
	t.Helper()
	var p struct{ Detail string }
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Errorf("%v in %q", err, a.body)
	}
	return p.Detail
}

func TestPublishIsIdempotent(t *testing.T) {
	g := start(t)
	const body = `{"id":"a","topic":"t","data":1}`
	first := g.publish(body)
	a := g.do("POST", "/api/v1/events", body, jsonType)
	var again published
	a.decode(t, &again)
	if a.status != 200 || !again.Events[0].Duplicate || again.Events[0].Seq != first.Events[0].Seq || again.Epoch != first.Epoch {
		t.Errorf("%d %s, want 200 and a duplicate of %d", a.status, a.body, first.Events[0].Seq)
	}
	mixed := g.publish(`[` + body + `,{"id":"b","topic":"t","data":2},{"id":"b","topic":"t","data":2}]`)
	if d := mixed.Events; !d[0].Duplicate || d[1].Duplicate || !d[2].Duplicate || d[2].Seq != d[1].Seq {
		t.Errorf("%+v", d)
	}
	if a := g.do("POST", "/api/v1/events", `{"id":"a","topic":"t","data":2}`, jsonType); a.status != 409 || a.code() != "id_conflict" {
		t.Errorf("%d %s, want 409", a.status, a.body)
	}
	if p := g.publish(`{"id":"a","topic":"other","data":2}`); p.Events[0].Duplicate {
		t.Errorf("%+v: the topic is part of the key", p)
	}
	keyed := func() published {
		var p published
		g.do("POST", "/api/v1/events", `[{"data":1},{"data":2,"id":"own"}]`, jsonType, "Idempotency-Key: K").decode(t, &p)
		return p
	}
	if p := keyed(); p.Events[0].ID != "K:1" || p.Events[1].ID != "own" || p.Events[0].Duplicate {
		t.Errorf("%+v", p)
	}
	if p := keyed(); !p.Events[0].Duplicate || !p.Events[1].Duplicate {
		t.Errorf("%+v, want duplicates", p)
	}
	for _, key := range []string{strings.Repeat("k", 101), "é"} {
		if a := g.do("POST", "/api/v1/events", "{}", jsonType, "Idempotency-Key: "+key); a.status != 400 {
			t.Errorf("key %q: %d", key, a.status)
		}
	}
}

func TestQueryFillsWhatEventsLeaveOut(t *testing.T) {
	g := start(t)
	post := func(path, body, contentType string) {
		if a := g.do("POST", path, body, "Content-Type: "+contentType); a.status != 201 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	post("/api/v1/events?type=T&topic=x", `[{},{"type":"own","topic":"y"}]`, "application/json")
	post("/api/v1/events?type=T&topic=x", "{}\n", "application/x-ndjson")
	var got []string
	for _, e := range wantPage(t, g.do("GET", "/api/v1/events?start=last:3", "")).Events {
		got = append(got, e.Type+"@"+e.Topic)
	}
	if fmt.Sprint(got) != "[T@x own@y T@x]" {
		t.Errorf("%v", got)
	}
	one := func(path, body string, headers ...string) answer { return g.do("POST", path, body, headers...) }
	for range 2 {
		if a := one("/api/v1/events?id=q-1", `{"data":1}`, jsonType); a.status > 201 || g.last().ID != "q-1" {
			t.Errorf("%d %s, want the query's id", a.status, a.body)
		}
	}
	for contentType, body := range map[string]string{
		"application/json": `{"id":"own"}`, "application/json; x=array": `[{}]`, "application/x-ndjson": "{}\n", "application/cloudevents+json": cloudEmpty,
		"application/cloudevents-batch+json": "[" + cloudEmpty + "]",
	} {
		if a := one("/api/v1/events?id=q-2", body, "Content-Type: "+contentType); a.status != 400 || !strings.Contains(jsonDetail(t, a), "id:") {
			t.Errorf("?id= beside %s: %d %s", contentType, a.status, a.body)
		}
	}
	for _, q := range []string{"type=a&type=b", "topic=a&topic=b", "id=a&id=b", "topic=%zz"} {
		if a := g.do("POST", "/api/v1/events?"+q, "{}", jsonType); a.status != 400 {
			t.Errorf("%s: %d", q, a.status)
		}
	}
}

func TestTimesAreTheServers(t *testing.T) {
	g := start(t)
	before := time.Now().Add(-time.Second)
	g.publish(`{"data":1}`)
	if e := g.last(); e.Time.Before(before) || e.Time.After(time.Now().Add(time.Second)) {
		t.Errorf("time %v", e.Time)
	}
}
