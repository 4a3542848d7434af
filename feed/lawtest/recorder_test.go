package lawtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestHistoryRoundTrip(t *testing.T) {
	want := []Record{
		{Kind: KindSubscribe, Time: time.Date(2026, 11, 30, 1, 2, 3, 4, time.UTC), Client: "c", Conn: 1, Topics: []string{"a.>"}, Types: []string{"t"}, Start: "last:3"},
		{Kind: KindEvent, Client: "c", Conn: 1, Cursor: "01A-1-F1", Raw: true, Data: "<b>\u2028\n&"},
		{Kind: KindPublish, ID: "e1", Source: "/s", DataHash: "x", TextHash: "y", Outcome: OutcomeRefused, Status: 409, Lost: true},
		{Kind: KindCut, Client: "c", Conn: 1, By: CutBySelf},
	}
	var file bytes.Buffer
	rec := NewRecorder(&file)
	for _, r := range want {
		if err := rec.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(file.String(), "\n"); n != len(want) {
		t.Errorf("%d lines for %d records", n, len(want))
	}
	got, err := ReadHistory(&file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestRecorderIsSafeForConcurrentUse(t *testing.T) {
	var file bytes.Buffer
	rec := NewRecorder(&file)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if err := rec.Record(Record{Kind: KindCut, Client: fmt.Sprint(i), Conn: 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	history, err := ReadHistory(&file)
	if err != nil || len(history) != 400 {
		t.Errorf("got %d records, %v", len(history), err)
	}
}

type failingWriter struct{ calls int }

func (w *failingWriter) Write([]byte) (int, error) { w.calls++; return 0, io.ErrShortWrite }

func TestRecorderErrors(t *testing.T) {
	w := &failingWriter{}
	rec := NewRecorder(w)
	if err := rec.Record(Record{Kind: "hum"}); err == nil || w.calls != 0 {
		t.Errorf("an unknown kind: %v, %d writes", err, w.calls)
	}
	for range 2 {
		if err := rec.Record(Record{Kind: KindCut}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("got %v, want the writer's error, and again", err)
		}
	}
	if w.calls != 1 {
		t.Errorf("%d writes after the first failed", w.calls)
	}
}

func TestReadHistoryErrors(t *testing.T) {
	const good = `{"kind":"cut","client":"c","conn":1}` + "\n"
	for _, tt := range []struct {
		name, in string
		records  int
		want     string // part of the error
	}{
		{"empty", "", 0, ""},
		{"blank lines and no last line end", good + "\n" + strings.TrimSpace(good), 2, ""},
		{"a misspelt field", good + `{"kind":"cut","clinet":"c"}` + "\n", 1, "line 2"},
		{"an unknown kind", `{"kind":"hum"}`, 0, `kind "hum"`},
		{"two values on a line", `{"kind":"cut"}{"kind":"cut"}` + "\n", 0, "more than one"},
		{"a line cut in the writing", good + good[:12], 1, io.ErrUnexpectedEOF.Error()},
		{"a broken line in the middle", good[:12] + "\n" + good, 0, "line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			history, err := ReadHistory(strings.NewReader(tt.in))
			if len(history) != tt.records || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %d records, %v, want %d, %q", len(history), err, tt.records, tt.want)
			}
		})
	}
	if _, err := ReadHistory(strings.NewReader(good[:8] + "\n" + good)); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut line in the middle: got %v", err)
	}
	if _, err := ReadHistory(strings.NewReader(good[:12])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut line: got %v", err)
	}
}
