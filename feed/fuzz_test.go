package feed_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"gapless/feed"
)

// FuzzParseCursor: what is taken for a cursor is what its text form says, and
// nothing else is taken.
func FuzzParseCursor(f *testing.F) {
	const epoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCD"
	for _, s := range []string{
		epoch + "-42-7K3M9Q2P", epoch + "-42", epoch + "-0", epoch + "-18446744073709551615-ZZZZZZZZ", "0", "42", "18446744073709551615",
		"", "-", "--", "-42", "+1", "00", "007", " 42", "42\n", "1\nid: 2", "4e2", "18446744073709551616", "٤٢",
		epoch, epoch + "-", epoch + "-x", epoch + "-42-", epoch + "-042", epoch + "-42-7k3m9q2p", epoch + "-42-7K3M9Q2", epoch + "-42-ILOUILOU",
		epoch + "-42-7K3M9Q2P-1", epoch + "-0-7K3M9Q2P", strings.ToLower(epoch) + "-1", "81KB7Q3V9W8ZJ4M2T6R5N0XYCD-1", "01KB7Q3V9W8ZJ4M2T6R5N0XYC-1",
		epoch + "-42-7K3M9Q2P\x00", epoch + "--42", strings.Repeat("9", 100),
	} {
		f.Add(s)
	}
	shape := regexp.MustCompile(`^(?:([0-7][0-9A-HJKMNP-TV-Z]{25})-)?(0|[1-9][0-9]{0,19})(?:-([0-9A-HJKMNP-TV-Z]{8}))?$`)
	f.Fuzz(func(t *testing.T, s string) {
		c, err := feed.ParseCursor(s)
		m := shape.FindStringSubmatch(s)
		if err != nil {
			if feed.CodeOf(err) != feed.CodeInvalid {
				t.Errorf("%q: code %s", s, feed.CodeOf(err))
			}
			// All that the pattern allows is taken, but a fence without an epoch, and a
			// seq above 64 bits.
			if m != nil && (m[1] != "" || m[3] == "") && len(m[2]) < 20 {
				t.Errorf("%q is refused", s)
			}
			return
		}
		if m != nil && m[2] == "0" { // where there is no event, a fence says nothing
			s = strings.TrimSuffix(s, "-"+m[3])
			m[3] = ""
		}
		if m == nil || string(c.Epoch) != m[1] || c.Fence.String() != m[3] || m[1] == "" && m[3] != "" {
			t.Fatalf("%q is taken as %+v", s, c)
		}
		if got := c.String(); got != s {
			t.Errorf("%q is written as %q", s, got)
		}
	})
}

// FuzzTopics compares validation and matching with the rules as they stand in
// the documentation.
func FuzzTopics(f *testing.F) {
	for _, s := range [][2]string{
		{"orders.eu.7", "orders.*.7"}, {"orders", ">"}, {"orders", "orders.>"}, {"orders.eu", "orders.>"}, {"a.b", "*"}, {"a", "*.*"},
		{"a", "a.b"}, {"a.b", "a"}, {"a.b.c", "*.>"}, {"gapless.status", "gapless.>"}, {"gapless.status", ">"}, {"gapless", "*"}, {"gaplessly", ">"}, {"", ""}, {".", "."}, {"a.", ".a"}, {"a..b", "a..b"},
		{"*", "*"}, {">", ">"}, {"a>", "a*"}, {"a.b", ">.b"}, {"ünï", "ünï"}, {"a\r\nevent: x", ">\n"}, {"a b", "a\x00"},
		{strings.Repeat("a.", 15) + "a", strings.Repeat("*.", 15) + ">"}, {strings.Repeat("a.", 16) + "a", strings.Repeat("*.", 16) + ">"},
		{strings.Repeat("t", 255), ">"}, {strings.Repeat("t", 256), ">"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, topic, pattern string) {
		if err := feed.ValidateTopic(topic); (err == nil) != validTopic(topic, false) || err != nil && feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("topic %q: %v", topic, err)
		}
		err := feed.ValidatePattern(pattern)
		if (err == nil) != validTopic(pattern, true) || err != nil && feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("pattern %q: %v", pattern, err)
		}
		if err != nil || !validTopic(topic, false) {
			return
		}
		want := matches(strings.Split(pattern, "."), strings.Split(topic, "."))
		for _, byName := range []bool{false, true} {
			filter, err := feed.NewFilter([]string{pattern}, nil, byName)
			if err != nil {
				t.Fatal(err)
			}
			want := want
			if byName && (topic == "gapless" || strings.HasPrefix(topic, "gapless.")) {
				want = want && strings.HasPrefix(pattern, "gapless")
			}
			if got := filter.Match(topic, "any"); got != want {
				t.Errorf("pattern %q, topic %q, by name %v: %v", pattern, topic, byName, got)
			}
		}
	})
}

// validTopic is the rule for topics and, with wild cards, for patterns.
func validTopic(s string, wild bool) bool {
	tokens := strings.Split(s, ".")
	for i, tok := range tokens {
		if !anyToken.MatchString(tok) && (!wild || tok != "*" && (tok != ">" || i < len(tokens)-1)) {
			return false
		}
	}
	return len(tokens) <= 16 && len(s) <= 255
}

var anyToken = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// matches is the rule for patterns, token by token.
func matches(pattern, topic []string) bool {
	switch {
	case len(pattern) == 0 || len(topic) == 0:
		return len(pattern) == len(topic)
	case pattern[0] == ">":
		return true
	case pattern[0] == "*" || pattern[0] == topic[0]:
		return matches(pattern[1:], topic[1:])
	}
	return false
}

// hostile is text that has broken framing elsewhere.
func hostile() []string {
	return []string{
		"", " ", "a", "a\n", "\n\n", "\r", "\r\n", "\n\r", "a\revent: x\rid: 9", "a\nevent: x\nid: 9\n\n", "a\r\n\r\nretry: 1\r\n\r\n",
		"data: x", ": comment", "id", " leading", "\ttab", "a\u2028b\u2029c\u0085d", "\ufeffbom", "\x00nul\x00", "\x7f\x1b[2J", "\U0001F600",
		"ünï", "\xff\xfe", "\xed\xa0\x80", "<script>&amp;</script>", `"quoted\"`, `\ud800`, "heartbeat", "server.connected",
		strings.Repeat("x", 65_535), strings.Repeat("x", 65_536), strings.Repeat("y\n", 32_768) + "z", strings.Repeat("\r\n", 1000),
	}
}

// FuzzNormalize: a draft that is taken keeps every rule, in memory of its own;
// one that is refused is refused with a code for the publisher.
// controls are the characters that no source may hold.
var controls = func() string {
	var b strings.Builder
	for c := range rune(0x20) {
		b.WriteRune(c)
	}
	return b.String() + "\x7f"
}()

func FuzzNormalize(f *testing.F) {
	for _, s := range hostile() {
		if len(s) < 1000 {
			f.Add(s, s, s, s, []byte(s), []byte(s))
			f.Add("id", "type", "topic", s, []byte(`{"text": 1}`), []byte(s))
		}
	}
	for _, s := range texts() {
		f.Add("", "", "", "", []byte(s), []byte(nil))
		f.Add("", "", "", "", []byte("1"), []byte(s))
	}
	f.Add("", "", "", "", []byte(" [1, 2.50, \"\\ud83d\\ude00\"] "), []byte(nil))
	f.Add(strings.Repeat("i", 129), "", "", "", []byte("1"), []byte("{}"))
	f.Add("", strings.Repeat("t", 129), "", strings.Repeat("s", 2049), []byte("1"), []byte("{}"))
	f.Fuzz(func(t *testing.T, id, typ, topic, source string, data, ce []byte) {
		d := feed.Draft{ID: id, Type: typ, Topic: topic, Source: source, Data: slices.Clone(data), CE: slices.Clone(ce)}
		input := d
		if err := d.Normalize(); err != nil {
			if code := feed.CodeOf(err); code != feed.CodeInvalid {
				t.Errorf("code %s: %v", code, err)
			}
			if anyType.MatchString(typ) && anyID.MatchString(id) && (topic == "" || validTopic(topic, false)) && utf8.ValidString(source) &&
				len(source) <= 2048 && !strings.ContainsAny(source, controls) && (len(data) == 0 || portable(data)) && (len(ce) == 0 || portable(ce)) {
				t.Errorf("%+v is refused: %v", input, err)
			}
			return
		}
		if !anyID.MatchString(d.ID) || !anyType.MatchString(d.Type) || d.Type == "" || !validTopic(d.Topic, false) || !utf8.ValidString(d.Source) {
			t.Errorf("taken: %+v", d)
		}
		if d.ID != id || d.Source != source || typ != "" && d.Type != typ || topic != "" && d.Topic != topic {
			t.Errorf("%+v became %+v", input, d)
		}
		for _, raw := range []json.RawMessage{d.Data, d.CE} {
			var compact bytes.Buffer
			if len(raw) > 0 && (json.Compact(&compact, raw) != nil || !bytes.Equal(compact.Bytes(), raw) || !portable(raw)) {
				t.Errorf("taken: %q", raw)
			}
		}
		if len(d.Data) == 0 {
			t.Errorf("no data")
		}
		again := d
		if err := again.Normalize(); err != nil || again.ID != d.ID || !bytes.Equal(again.Data, d.Data) || !bytes.Equal(again.CE, d.CE) {
			t.Errorf("%+v becomes %+v, %v", d, again, err)
		}
		before := slices.Clone(d.Data)
		for i := range input.Data {
			input.Data[i] = 'x'
		}
		if !bytes.Equal(d.Data, before) {
			t.Errorf("the data is the caller's memory")
		}
	})
}

// texts is JSON at the edges of what is portable.
func texts() []string {
	return []string{
		`{"a":` + "\r" + `1}`, "[1,\n2]", "\t{ }\r\n", `{"b":1,"a":2,"a":3}`, `123456789012345678901234567890.10e+99`, `-0`, `1.0`, `0.1e1`,
		`"\ud83d\ude00"`, `"\ud800"`, `"\udc00"`, `"\udc00\ud800"`, `{"\ud800":1}`, `"\\ud800"`, `"\ud800\\udc00"`, `"\uD83D\uDE00"`, `"\uDFFF"`,
		`"a\r\nb"`, `"a\u000a\u000db"`, `"\u0000"`, `"\u2028"`, "\"\u2028\"", "\"\xff\"", "{\"\xed\xa0\x80\":1}",
		`null`, `true`, `01`, `+1`, `{"a":1,}`, `nan`, `"a"b`, `[[[[[[]]]]]]`, "\ufeff{}",
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000), strings.Repeat("[", 1001) + strings.Repeat("]", 1001),
		strings.Repeat(`{"[":`, 1000) + "1" + strings.Repeat("}", 1000), strings.Repeat(`[],`, 2000), `["` + strings.Repeat("[", 2000) + `"]`,
	}
}

// portable reports whether data is JSON that every client decodes to the same
// value: no deeper than 1,000, in UTF-8, with whole characters.
func portable(data []byte) bool {
	if !json.Valid(data) || !utf8.Valid(data) || hasHalf(data) {
		return false
	}
	depth := 0
	for dec := json.NewDecoder(bytes.NewReader(data)); depth <= feed.MaxDataDepth; {
		switch tok, err := dec.Token(); {
		case err != nil:
			return true
		case tok == json.Delim('['), tok == json.Delim('{'):
			depth++
		case tok == json.Delim(']'), tok == json.Delim('}'):
			depth--
		}
	}
	return false
}

// hasHalf reports whether JSON has an escape of half a surrogate pair.
func hasHalf(raw []byte) bool {
	escape := regexp.MustCompile(`\\(?:u([0-9A-Fa-f]{4})|[^u])`)
	var last rune // a high half that waits for its low one
	end := -1
	for _, m := range escape.FindAllSubmatchIndex(raw, -1) {
		var unit rune
		if m[2] >= 0 {
			for _, c := range strings.ToLower(string(raw[m[2]:m[3]])) {
				unit = unit<<4 | rune(strings.IndexRune("0123456789abcdef", c))
			}
		}
		switch {
		case last != 0 && (m[0] != end || utf16.DecodeRune(last, unit) == utf8.RuneError):
			return true
		case last != 0:
			last = 0
		case unit >= 0xdc00 && unit < 0xe000:
			return true
		case unit >= 0xd800 && unit < 0xdc00:
			last = unit
		}
		end = m[1]
	}
	return last != 0
}
