package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"gapless/feed"
)

// A query and a header, whatever they say, are a place to begin or a 400; a
// header alone is never a 400.
func FuzzPosition(f *testing.F) {
	const epoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCD"
	for _, seed := range [][2]string{
		{"", ""}, {"cursor=" + epoch + "-42-7K3M9Q2P", ""}, {"since_seq=1&epoch=" + epoch, ""}, {"since_seq=0", "7"},
		{"start=last:5&topic=a.*&type=b", epoch + "-1"}, {"cursor=1&last_event_id=2", ""}, {"%zz", "\x00"},
		{"epoch=0&since_seq=9", "09"}, {"since_seq=18446744073709551615", epoch + "-18446744073709551616"}, {"a;b", "é"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, raw, header string) {
		q := parseQuery(raw)
		from := q.from(header)
		q.filter(false)
		if header != "" {
			c, err := feed.ParseCursor(header)
			if from.Invalid != (err != nil) {
				t.Errorf("header %q: invalid %v, parses with %v", header, from.Invalid, err)
			}
			if err == nil && from.Cursor.Position != c.Position {
				t.Errorf("header %q became %v", header, from.Cursor)
			}
		} else if from.Invalid {
			t.Error("a query is never an invalid cursor")
		}
		if err := q.mistake(); err != nil && problemOf(err).Status != 400 {
			t.Errorf("%v", err)
		}
		if bare := parseQuery(""); header != "" {
			bare.from(header)
			if err := bare.mistake(); err != nil {
				t.Errorf("header %q: %v", header, err)
			}
		}
	})
}

// A publish body is refused with a problem of its own, or is what
// encoding/json reads of it too.
func FuzzPublishJSON(f *testing.F) {
	for _, seed := range []string{
		`{"type":"a","topic":"b","id":"c","data":{"n":1.0}}`, `[{},{"data":null}]`, "\ufeff{}", `{"data":1,"data":2}`, `{"d\u0061ta":"\ud800"}`,
		`{"x":1}`, `[1]`, `[]`, `{`, ``, ` `, `"`, `{"type":1}`, `{"data":"]}\"["}`, "{\"data\":\"\xff\"}", `{"":0}`, `[[[[]]]]`, `{"data":[{"a":[]},"\\"]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		drafts, err := decodeJSON(body, defaults{})
		if err != nil {
			var p *problem
			if !errors.As(err, &p) || p.Status != 400 && p.Status != 413 {
				t.Errorf("%v", err)
			}
			return
		}
		type object struct {
			Type, Topic, ID string
			Data            json.RawMessage
		}
		trimmed := bytes.TrimPrefix(body, bom)
		var want []object
		if isArray(trimmed) {
			err = json.Unmarshal(trimmed, &want)
		} else {
			want = make([]object, 1)
			err = json.Unmarshal(trimmed, &want[0])
		}
		if err != nil || len(want) != len(drafts) {
			t.Fatalf("taken as %d events; encoding/json reads %d, %v", len(drafts), len(want), err)
		}
		for i, d := range drafts {
			if w := want[i]; d.Type != w.Type || d.Topic != w.Topic || d.ID != w.ID || string(d.Data) != string(w.Data) {
				t.Errorf("event %d: %+v, want %+v", i, d, w)
			}
		}
	})
}

// Lines come out the same however the body arrives, and a body that is cut
// gives no more than whole lines.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{"{}\n{}\n", "{}\r\n\r\n{}", "\ufeff{}\n", "", "\n", "a", strings.Repeat("x", 100) + "\n" + strings.Repeat("y", 40)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		read := func(r io.Reader) (lines []string, err error) {
			in := lineReader{in: bufio.NewReaderSize(r, 16)}
			for {
				line, err := in.next()
				if err != nil {
					return lines, err
				}
				if in.number != len(lines)+1 {
					t.Fatalf("line %d has number %d", len(lines)+1, in.number)
				}
				lines = append(lines, strings.TrimSuffix(string(line), "\n"))
			}
		}
		want := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
		if len(body) == 0 {
			want = nil
		}
		for name, r := range map[string]io.Reader{
			"whole": bytes.NewReader(body), "bytes": iotest.OneByteReader(bytes.NewReader(body)), "data with EOF": iotest.DataErrReader(bytes.NewReader(body)),
		} {
			got, err := read(r)
			if err != io.EOF || strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
				t.Errorf("%s: %q, %v, want %q", name, got, err, want)
			}
		}
		got, err := read(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF)))
		whole := strings.SplitAfter(string(body), "\n")
		if err == io.EOF || strings.Join(got, "\n") != strings.TrimSuffix(strings.Join(whole[:len(whole)-1], ""), "\n") || len(got) != len(whole)-1 {
			t.Errorf("cut: %q, %v of %q", got, err, body)
		}
	})
}

// CloudEvents are refused with a problem, or make drafts that the feed can
// judge.
func FuzzCloudEvent(f *testing.F) {
	for _, seed := range []string{
		`{"specversion":"1.0","id":"A","source":"/s","type":"t"}`,
		`{"specversion":"1.0","id":"A","source":"/s","type":"t","data_base64":"MQ==","time":"2026-01-02T03:04:05Z","n":1,"b":true,"x":"y"}`,
		`{"specversion":"1.0","id":"A","source":"%","type":"t","dataschema":":","datacontenttype":"/","data":null,"data_base64":5}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		draft, err := decodeCloudEvent(body, "")
		if err != nil {
			if p := problemOf(err); p.Status != 400 && p.Status != 415 {
				t.Errorf("%v", err)
			}
			return
		}
		if draft.ID == "" || draft.Type == "" || draft.Source == "" || !json.Valid(draft.CE) {
			t.Errorf("%+v with ce %s", draft, draft.CE)
		}
		if err := draft.Normalize(); err != nil && feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("%v", err)
		}
	})
}
