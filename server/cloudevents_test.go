package server_test

import (
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/event"
)

const (
	cloudType  = "Content-Type: application/cloudevents+json"
	batchType  = "Content-Type: application/cloudevents-batch+json; charset=utf-8"
	cloudHead  = `"specversion":"1.0","id":"A","source":"/s","type":"t.x"`
	cloudEmpty = `{` + cloudHead + `}`
)

func TestStructuredCloudEvents(t *testing.T) {
	g := start(t)
	cases := []struct {
		name, path, body string
		topic, data, ce  string
	}{
		{"least", "", cloudEmpty, "default", "null", `{"source":"/s"}`},
		{"all", "", `{` + cloudHead + `,"subject":"s","time":"2026-01-02T03:04:05.678+01:00","datacontenttype":"application/json","dataschema":"http://x/y","ext1":"e","n":5,"b":true,"data":{"a": 1.0}}`,
			"default", `{"a":1.0}`,
			`{"source":"/s","subject":"s","time":"2026-01-02T03:04:05.678+01:00","datacontenttype":"application/json","dataschema":"http://x/y","ext1":"e","n":5,"b":true}`},
		{"topic by extension", "", `{` + cloudHead + `,"gaplesstopic":"a.b"}`, "a.b", "null", `{"source":"/s"}`},
		{"topic by query", "?topic=c", `{` + cloudHead + `,"gaplesstopic":"a.b"}`, "c", "null", `{"source":"/s"}`},
		{"null is absent", "", `{` + cloudHead + `,"subject":null,"x":null,"data":null}`, "default", "null", `{"source":"/s"}`},
		{"text", "", `{` + cloudHead + `,"datacontenttype":"text/plain","data":"a\nb"}`, "default", `"a\nb"`, `{"source":"/s","datacontenttype":"text/plain"}`},
		{"base64 JSON", "", `{` + cloudHead + `,"data_base64":"eyJhIjoxfQ=="}`, "default", `{"a":1}`, `{"source":"/s"}`},
		{"base64 text", "", `{` + cloudHead + `,"datacontenttype":"text/plain","data_base64":"aMOp"}`, "default", `"hé"`, `{"source":"/s","datacontenttype":"text/plain"}`},
		{"byte order mark", "", "\ufeff" + cloudEmpty, "default", "null", `{"source":"/s"}`},
		{"source as it came", "", `{"specversion":"1.0","id":"A","source":"http://x/ä?q=%20","type":"t.x"}`, "default", "null", `{"source":"http://x/ä?q=%20"}`},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			id := "id-" + string(rune('a'+i))
			body := strings.Replace(c.body, `"id":"A"`, `"id":"`+id+`"`, 1)
			a := g.do("POST", "/api/v1/events"+c.path, body, cloudType)
			if a.status != 201 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			e := g.last()
			if e.ID != id || e.Type != "t.x" || e.Topic != c.topic || string(e.Data) != c.data || string(e.CE) != c.ce {
				t.Errorf("%+v\ndata %s\nce %s", e, e.Data, e.CE)
			}
		})
	}
}

func TestCloudEventBatch(t *testing.T) {
	g := start(t)
	a := g.do("POST", "/api/v1/events", `[{`+cloudHead+`,"data":1},{"specversion":"1.0","id":"A","source":"/other","type":"t.x","data":2}]`, batchType)
	var p published
	a.decode(t, &p)
	if a.status != 201 || len(p.Events) != 2 || p.Events[1].Duplicate {
		t.Errorf("%d %s: the source is part of the key", a.status, a.body)
	}
	a = g.do("POST", "/api/v1/events", `[{`+cloudHead+`,"data":1}]`, batchType)
	a.decode(t, &p)
	if a.status != 200 || !p.Events[0].Duplicate {
		t.Errorf("%d %s, want a duplicate", a.status, a.body)
	}
	if a := g.do("POST", "/api/v1/events", `[`+strings.Repeat(cloudEmpty+",", 1000)+cloudEmpty+`]`, batchType); a.status != 413 {
		t.Errorf("1,001 events: %d %s", a.status, a.body)
	}
	if a := g.do("POST", "/api/v1/events", `[]`, batchType); a.status != 400 {
		t.Errorf("no events: %d %s", a.status, a.body)
	}
}

func TestCloudEventsRefused(t *testing.T) {
	g := start(t)
	head := g.head()
	with := func(more string) string { return `{` + cloudHead + `,` + more + `}` }
	for _, c := range []struct {
		name, body, says string
		status           int
	}{
		{"no specversion", `{"id":"A","source":"/s","type":"t"}`, "specversion", 400},
		{"version 0.3", `{"specversion":"0.3","id":"A","source":"/s","type":"t"}`, "specversion", 400},
		{"no id", `{"specversion":"1.0","source":"/s","type":"t"}`, "id", 400},
		{"no source", `{"specversion":"1.0","id":"A","type":"t"}`, "source", 400},
		{"empty source", `{"specversion":"1.0","id":"A","source":"","type":"t"}`, "source", 400},
		{"no type", `{"specversion":"1.0","id":"A","source":"/s"}`, "type", 400},
		{"type with a space", `{"specversion":"1.0","id":"A","source":"/s","type":"a b"}`, "type", 400},
		{"id is a number", `{"specversion":"1.0","id":1,"source":"/s","type":"t"}`, "id", 400},
		{"bad time", with(`"time":"yesterday"`), "time", 400},
		{"empty subject", with(`"subject":""`), "subject", 400},
		{"bad schema", with(`"dataschema":"%zz"`), "dataschema", 400},
		{"upper case name", with(`"Ext":"x"`), "Ext", 400},
		{"name with LF", with(`"a\nb":"x"`), "attribute names", 400},
		{"empty name", with(`"":"x"`), "attribute names", 400},
		{"extension is an object", with(`"ext":{}`), "ext", 400},
		{"extension is a fraction", with(`"ext":1.5`), "ext", 400},
		{"extension beyond 32 bits", with(`"ext":2147483648`), "ext", 400},
		{"name twice", with(`"id":"B"`), "id: given twice", 400},
		{"both data", with(`"data":1,"data_base64":"MQ=="`), "one of them", 400},
		{"bad base64", with(`"data_base64":"!"`), "data_base64", 400},
		{"base64 is a number", with(`"data_base64":5`), "data_base64", 400},
		{"base64 of no JSON", with(`"data_base64":"/w=="`), "not valid JSON", 400},
		{"base64 of bytes", with(`"datacontenttype":"image/png","data_base64":"/w=="`), "image/png", 415},
		{"base64 of bytes that are said to be text", with(`"datacontenttype":"text/plain","data_base64":"/w=="`), "UTF-8", 400},
		{"topic is a number", with(`"gaplesstopic":1`), "gaplesstopic", 400},
		{"system topic", with(`"gaplesstopic":"gapless.x"`), "reserved", 400},
		{"an array", `[` + cloudEmpty + `]`, "JSON object", 400},
		{"not JSON", `{`, "not valid JSON", 400},
	} {
		a := g.do("POST", "/api/v1/events", c.body, cloudType)
		if a.status != c.status || !strings.Contains(jsonDetail(t, a), c.says) {
			t.Errorf("%s: %d %s, want %d that says %q", c.name, a.status, a.body, c.status, c.says)
		}
	}
	if now := g.head(); now != head {
		t.Errorf("%d events were stored", now-head)
	}
}

func TestBinaryCloudEvents(t *testing.T) {
	g := start(t)
	base := []string{"ce-specversion: 1.0", "ce-source: /s", "ce-type: t.x"}
	for _, c := range []struct {
		name, id, body string
		headers        []string
		status         int
		data, ce       string
	}{
		{"JSON", "1", `{"a": 1}`, []string{jsonType, "ce-time: 2026-01-02T03:04:05Z"}, 201, `{"a":1}`, `{"source":"/s","time":"2026-01-02T03:04:05Z","datacontenttype":"application/json"}`},
		{"text", "2", "hi", []string{"Content-Type: text/plain"}, 201, `"hi"`, `{"source":"/s","datacontenttype":"text/plain"}`},
		{"no data", "3", "", nil, 201, "null", `{"source":"/s"}`},
		{"percent-encoded", "4", "", []string{"ce-subject: Euro%20%E2%82%AC%22"}, 201, "null", `{"source":"/s","subject":"Euro €\""}`},
		{"NDJSON as data", "5", "{}\n", []string{"Content-Type: text/x"}, 201, `"{}\n"`, ""},
		{"bytes", "6", "\xff", []string{"Content-Type: image/png"}, 415, "", ""},
		{"bad JSON", "7", "{", []string{jsonType}, 400, "", ""},
		{"bad percent", "8", "", []string{"ce-subject: %zz"}, 400, "", ""},
		{"invalid UTF-8 in percent", "9", "", []string{"ce-subject: %ff"}, 400, "", ""},
		{"name twice", "10", "", []string{"ce-subject: a", "ce-subject: b"}, 400, "", ""},
		{"bad name", "11", "", []string{"ce-a_b: x"}, 400, "", ""},
		{"type of the data as an attribute", "12", "", []string{"ce-datacontenttype: text/plain"}, 400, "", ""},
		{"injection", "13", "", []string{"ce-type2: x", "ce-subject: a%0Ab"}, 201, "null", `{"source":"/s","subject":"a\nb","type2":"x"}`},
		{"id with LF", "14%0Aid: 1", "", nil, 400, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := g.do("POST", "/api/v1/events?topic=b", c.body, append(append([]string{"ce-id: " + c.id}, base...), c.headers...)...)
			if a.status != c.status {
				t.Fatalf("%d %s, want %d", a.status, a.body, c.status)
			}
			if c.status != 201 {
				return
			}
			e := g.last()
			if e.ID != c.id || e.Topic != "b" || string(e.Data) != c.data || c.ce != "" && string(e.CE) != c.ce {
				t.Errorf("%+v\ndata %s\nce %s", e, e.Data, e.CE)
			}
		})
	}
	if a := g.do("POST", "/api/v1/events", "{}", jsonType, "ce-id: 1"); a.status != 400 || !strings.Contains(string(a.body), "specversion") {
		t.Errorf("without specversion: %d %s", a.status, a.body)
	}
}

// The SDK's own client publishes what we read.
func TestCloudEventsSDKClient(t *testing.T) {
	g := start(t)
	client, err := cloudevents.NewClientHTTP(cloudevents.WithTarget("http://" + g.addr + "/api/v1/events"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.idle()
	for _, mode := range []string{"binary", "structured"} {
		e := cloudevents.NewEvent()
		e.SetID(mode)
		e.SetType("order.created")
		e.SetSource("urn:shop")
		e.SetSubject("ä b")
		e.SetExtension("gaplesstopic", "orders.eu")
		if err := e.SetData(event.ApplicationJSON, map[string]any{"n": 1}); err != nil {
			t.Fatal(err)
		}
		ctx := cloudevents.WithEncodingBinary(t.Context())
		if mode == "structured" {
			ctx = cloudevents.WithEncodingStructured(t.Context())
		}
		if result := client.Send(ctx, e); !cloudevents.IsACK(result) {
			t.Fatalf("%s: %v", mode, result)
		}
		got := g.last()
		if got.ID != mode || got.Type != "order.created" || got.Topic != "orders.eu" || string(got.Data) != `{"n":1}` || !strings.Contains(string(got.CE), `"subject":"ä b"`) {
			t.Errorf("%s: %+v\ndata %s\nce %s", mode, got, got.Data, got.CE)
		}
	}
}
