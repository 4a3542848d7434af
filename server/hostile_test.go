package server_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// payloads are texts that have broken other servers' framing, or their
// clients.
func payloads() map[string]string {
	return map[string]string{
		"empty":              "",
		"space":              " ",
		"leading spaces":     "  a",
		"leading colon":      ": a",
		"LF":                 "\n",
		"two LF":             "\n\n",
		"three LF":           "\n\n\n",
		"last LF":            "a\n",
		"inner LF":           "a\nb",
		"injected fields":    "a\nevent: x\nid: 9\n\ndata: z",
		"NUL":                "a\x00b",
		"controls":           "\x01\x02\x07\x08\x0b\x0c\x1b\x1f\x7f",
		"next line":          "a\u0085b",
		"line separator":     "a\u2028b\u2029c",
		"byte order mark":    "\ufeffa\ufeff",
		"non-characters":     "\ufffe\uffff\U0010ffff",
		"emoji":              "😀\u200d😀",
		"quotes":             `"\"'\\` + "`",
		"markup":             "<script>alert('&amp;')</script>",
		"backslashes":        strings.Repeat(`\`, 99),
		"65,535 bytes":       strings.Repeat("a", 65535),
		"65,536 bytes":       strings.Repeat("b", 65536),
		"65,537 bytes":       strings.Repeat("c", 65537),
		"65,536 lines":       strings.Repeat("\n", 65536),
		"1 MiB":              strings.Repeat("d", 1<<20),
		"1 MiB, two bytes":   strings.Repeat("é", 1<<19),
		"piece less one":     strings.Repeat("e", 16<<10-1),
		"several pieces":     strings.Repeat("f", 3*16<<10),
		"looks like a frame": "event: resync_required\ndata: {}\nid: x-0\n\n",
	}
}

// carriage holds texts with carriage returns: SSE cannot carry those in raw
// format, where each line end becomes LF.
func carriage() map[string]string {
	return map[string]string{
		"CR":              "\r",
		"CRLF":            "\r\n",
		"inner CR":        "a\rb",
		"CR injection":    "a\revent: x\rid: 9",
		"CRLF injection":  "a\r\nevent: x\r\nid: 9\r\n\r\n",
		"LFCR":            "a\n\rb",
		"CR CR LF":        "a\r\r\nb",
		"ends in CR":      "a\r",
		"CR before a BOM": "\r\ufeff",
	}
}

func TestHostileText(t *testing.T) {
	t.Parallel()
	g := start(t)
	envelopes, raw := g.subscribe("?topic=h"), g.subscribe("?topic=h&format=raw")
	for _, s := range []*stream{envelopes, raw} {
		s.want("server.connected")
		s.want("server.live")
	}
	check := func(name, text, wantRaw string) {
		t.Helper()
		var back string
		if err := json.Unmarshal(envelopes.events(1)[0].Data, &back); err != nil || back != text {
			t.Errorf("%s: the envelope has %.80q (%v), want %.80q", name, back, err, text)
		}
		if b := raw.want("note"); !b.hasData || b.data != wantRaw {
			t.Errorf("%s: raw is %.80q, want %.80q", name, b.data, wantRaw)
		}
		if len(text) > 100_000 {
			return
		}
		if err := json.Unmarshal(g.last().Data, &back); err != nil || back != text {
			t.Errorf("%s: the page has %.80q (%v), want %.80q", name, back, err, text)
		}
	}
	asLF := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	for _, texts := range []map[string]string{payloads(), carriage()} {
		for name, text := range texts {
			if a := g.do("POST", "/api/v1/events?topic=h&type=note", text, "Content-Type: text/plain"); a.status != 201 {
				t.Fatalf("%s: %d %s", name, a.status, a.body)
			}
			check(name+" as text", text, asLF.Replace(text))
			if len(text) > 100_000 {
				continue // the same size as JSON is the same work
			}
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			g.publish(`{"topic":"h","type":"note","data":` + string(quoted) + `}`)
			check(name+" as JSON", text, asLF.Replace(text))
		}
	}
}

func TestHostileJSON(t *testing.T) {
	g := start(t)
	envelopes, raw := g.subscribe("?topic=h"), g.subscribe("?topic=h&format=raw")
	for _, s := range []*stream{envelopes, raw} {
		s.want("server.connected")
		s.want("server.live")
	}
	for name, c := range map[string]struct{ in, out string }{
		"CR as white space":    {"{\"a\":\r1,\r\n\t\"b\":2}", `{"a":1,"b":2}`},
		"big integer":          {"123456789012345678901234567890", "123456789012345678901234567890"},
		"big exponent":         {"[1e999999,-1E-999999]", "[1e999999,-1E-999999]"},
		"duplicate keys":       {`{"a":1,"a":2}`, `{"a":1,"a":2}`},
		"prototype":            {`{"__proto__":{"x":1}}`, `{"__proto__":{"x":1}}`},
		"escaped NUL":          {`"\u0000"`, `"\u0000"`},
		"escaped line ends":    {`{"a\r\nid: 9":"\u000d\u000a"}`, `{"a\r\nid: 9":"\u000d\u000a"}`},
		"surrogate pair":       {`"\ud83d\ude00"`, `"\ud83d\ude00"`},
		"line separator":       {"\"\u2028\"", "\"\u2028\""},
		"deep":                 {strings.Repeat("[", 1000) + strings.Repeat("]", 1000), strings.Repeat("[", 1000) + strings.Repeat("]", 1000)},
		"deep objects":         {strings.Repeat(`{"a":`, 900) + "1" + strings.Repeat("}", 900), strings.Repeat(`{"a":`, 900) + "1" + strings.Repeat("}", 900)},
		"brackets in a string": {`"[[[{{{\"]]"`, `"[[[{{{\"]]"`},
		"null":                 {"null", "null"},
		"wide":                 {"[" + strings.Repeat("0,", 200000) + "0]", "[" + strings.Repeat("0,", 200000) + "0]"},
	} {
		g.publish(`{"topic":"h","type":"note","data":` + c.in + `}`)
		if got := string(envelopes.events(1)[0].Data); got != c.out {
			t.Errorf("%s: the envelope has %.80q, want %.80q", name, got, c.out)
		}
		b := raw.want("note")
		want := c.out
		if want[0] == '"' {
			if err := json.Unmarshal([]byte(want), &want); err != nil {
				t.Fatal(err)
			}
		}
		if b.data != want {
			t.Errorf("%s: raw is %.80q, want %.80q", name, b.data, want)
		}
	}
	for name, data := range map[string]string{
		"lone high surrogate":        `"\ud800"`,
		"lone low surrogate":         `{"a":["\udc00"]}`,
		"swapped surrogates":         `"\ude00\ud83d"`,
		"high surrogate and text":    `"\ud83dabc"`,
		"lone surrogate in a name":   `{"\ud800":1}`,
		"invalid UTF-8":              "\"\xff\"",
		"overlong UTF-8":             "\"\xc0\x80\"",
		"surrogate in UTF-8":         "\"\xed\xa0\x80\"",
		"cut UTF-8":                  "\"\xe2\x82\"",
		"bare NUL":                   "\"\x00\"",
		"bare LF in a string":        "\"a\nb\"",
		"byte order mark inside":     "\ufeff1",
		"NaN":                        "NaN",
		"leading zero":               "01",
		"single quotes":              "'a'",
		"comment":                    "1/*x*/",
		"trailing comma":             "[1,]",
		"line separator outside":     "\u20281",
		"non-breaking space outside": "\u00a01",
	} {
		a := g.do("POST", "/api/v1/events", `{"data":`+data+`}`, jsonType)
		if a.status != 400 || a.code() != "invalid" {
			t.Errorf("%s: %d %s, want 400", name, a.status, a.body)
		}
	}
	for _, text := range []string{"\xff", "a\xc0\x80", "\xed\xa0\x80"} {
		if a := g.do("POST", "/api/v1/events", text, "Content-Type: text/plain"); a.status != 400 {
			t.Errorf("text %q: %d %s, want 400", text, a.status, a.body)
		}
	}
}
