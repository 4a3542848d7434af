package lawtest

import (
	"strings"
	"testing"
)

func TestMatchTopic(t *testing.T) {
	for _, tt := range []struct {
		pattern, topic string
		want           bool
	}{
		{">", "a", true}, {">", "a.b.c", true}, {"a", "a", true}, {"a", "ab", false}, {"a", "a.b", false}, {"a.b", "a", false},
		{"*", "a", true}, {"*", "a.b", false}, {"a.*", "a.b", true}, {"a.*", "a", false}, {"*.b", "a.b", true}, {"a.*.c", "a.b.c", true},
		{"a.*.c", "a.b.d", false}, {"a.>", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "a", false}, {"*.>", "a", false}, {"a.*", "b.b", false},
	} {
		if got := matchTopic(tt.pattern, tt.topic); got != tt.want {
			t.Errorf("%s, %s: got %v", tt.pattern, tt.topic, got)
		}
	}
}

func TestWants(t *testing.T) {
	for _, tt := range []struct {
		subscribe  Record
		topic, typ string
		want       bool
	}{
		{Record{}, "gapless.status", "t", true},
		{Record{Raw: true}, "gapless.status", "t", false},
		{Record{Unnamed: true, Topics: []string{"*.status"}}, "gapless.status", "t", false},
		{Record{Unnamed: true, Topics: []string{"a", "gapless.>"}}, "gapless.status", "t", true},
		{Record{Topics: []string{"a", "b"}, Types: []string{"t", "u"}}, "b", "u", true},
		{Record{Topics: []string{"a", "b"}, Types: []string{"t", "u"}}, "b", "v", false},
	} {
		if got := tt.subscribe.wants(tt.topic, tt.typ); got != tt.want {
			t.Errorf("%+v, %s, %s: got %v", tt.subscribe, tt.topic, tt.typ, got)
		}
	}
}

func TestParseCursor(t *testing.T) {
	for s, want := range map[string]position{
		"01A-0":                            {"01A", 0, ""},
		"01A-42-7K3M":                      {"01A", 42, "7K3M"},
		"01A-18446744073709551615":         {"01A", 1<<64 - 1, ""},
		"01A-18446744073709551616":         {},
		"01A":                              {},
		"01A-":                             {},
		"-1":                               {},
		"01A-+1":                           {},
		"01A-1-":                           {},
		"01A-1-F-G":                        {},
		"01a-1":                            {},
		"01A-1-" + strings.Repeat("F", 60): {},
	} {
		if got, ok := parseCursor(s); got != want || ok != (want.epoch != "") {
			t.Errorf("%s: got %v, %v", s, got, ok)
		}
	}
}

func TestHashJSON(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[true,null]}`, " {\"a\" :\r1,\t\"b\":[true, null] }\n", true},
		{`"\u00e9\/\n\"\\"`, "\"é/\\u000a\\u0022\\u005C\"", true},
		{`"\ud83d\ude00\u003c"`, `"😀<"`, true},
		{`"\ud800"`, `"\uD800"`, true},
		{`"\ud800\ud83d\ude00"`, `"\ud800😀"`, true},
		{`"\ud800"`, `"\ufffd"`, false},
		{`"a\\"`, `"a"`, false},
		{`1.0`, `1`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`{"a":1,"a":2}`, `{"a":2}`, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, false},
		{`"a b"`, `"ab"`, false},
		{`"1"`, `1`, false},
		{`{`, `{`, true},
		{`{`, `[`, false},
	} {
		if got := HashJSON(tt.a) == HashJSON(tt.b); got != tt.same {
			t.Errorf("%s and %s: same is %v", tt.a, tt.b, got)
		}
	}
	if got := TextData("<a>\u2028\"\r"); HashJSON(got) != HashJSON(`"<a>\u2028\u0022\u000d"`) {
		t.Errorf("TextData gives %s", got)
	}
}
