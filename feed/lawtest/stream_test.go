package lawtest

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const transcript = `retry: 2100
event: server.connected
data: {"connection_id":"x","epoch":"01A","start":"snapshot","since_seq":0,"oldest_seq":1,"head_seq":2,"heartbeat_ms":15000}
id: 01A-0

event: t
data: {"seq":1,"epoch":"01A","id":"e1","time":"2026-11-30T15:41:00.5Z","type":"t","topic":"a","data":{"n":1.0},"ce":{"source":"/s"}}
id: 01A-1-F1

event: server.live
data: {"epoch":"01A","head_seq":2}
id: 01A-2-F2

event: heartbeat
data: {"epoch":"01A","head_seq":2}
id: 01A-2-F2

event: server.draining
data: {"epoch":"01A","reason":"shutdown"}

event: resync_required
data: {"seq":0,"reason":"lagged","epoch":"01A","oldest_seq":1,"head_seq":2}
id: 01A-0

`

func parse(t *testing.T, r io.Reader, s Stream) ([]Record, error) {
	t.Helper()
	var records []Record
	err := ParseFrames(r, s, func(rec Record) error {
		records = append(records, rec)
		return nil
	})
	return records, err
}

func TestParseFramesRecordsEveryKind(t *testing.T) {
	got, err := parse(t, strings.NewReader(transcript), Stream{Client: "c", Conn: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{Kind: KindConnected, Cursor: "01A-0", Epoch: "01A", Start: "snapshot", OldestSeq: 1, HeadSeq: 2, RetryMillis: 2100},
		{Kind: KindEvent, Cursor: "01A-1-F1", Epoch: "01A", Seq: 1, ID: "e1", Type: "t", Topic: "a", Source: "/s", Data: `{"n":1.0}`,
			Time: time.Date(2026, 11, 30, 15, 41, 0, 5e8, time.UTC)},
		{Kind: KindLive, Cursor: "01A-2-F2", Epoch: "01A", HeadSeq: 2},
		{Kind: KindHeartbeat, Cursor: "01A-2-F2", Epoch: "01A", HeadSeq: 2},
		{Kind: KindDraining, Cursor: "01A-2-F2", Epoch: "01A", Reason: "shutdown"},
		{Kind: KindResync, Cursor: "01A-0", Epoch: "01A", Reason: "lagged", OldestSeq: 1, HeadSeq: 2},
	}
	for i := range want {
		want[i].Client, want[i].Conn = "c", 1
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	sub := Record{Kind: KindSubscribe, Client: "c", Conn: 1, Topics: []string{"a"}}
	if violations := Check(append([]Record{sub}, got...), Options{}); violations != nil {
		t.Errorf("the transcript breaks the law: %v", violations)
	}
}

func TestParseFramesKeepsHashes(t *testing.T) {
	got, err := parse(t, strings.NewReader(transcript), Stream{Client: "c", Conn: 1, HashData: true})
	if err != nil || got[1].Data != "" || got[1].DataHash != HashJSON(` {"n" : 1.0} `) {
		t.Errorf("envelope: got %+v, %v", got[1], err)
	}
	got, err = parse(t, strings.NewReader("data: a\ndata: b\nid: 01A-1\n\n"), Stream{Client: "c", Conn: 1, Raw: true, HashData: true})
	if err != nil || got[0].Data != "" || got[0].DataHash != HashText("a\r\nb") {
		t.Errorf("raw: got %+v, %v", got[0], err)
	}
}

func TestParseFramesOfRawAndUnnamedStreams(t *testing.T) {
	const block = "event: t\ndata: <b>\nid: 01A-1-F1\n\n"
	got, err := parse(t, strings.NewReader(block), Stream{Client: "c", Conn: 1, Raw: true})
	want := Record{Kind: KindEvent, Client: "c", Conn: 1, Cursor: "01A-1-F1", Raw: true, Type: "t", Data: "<b>"}
	if err != nil || !reflect.DeepEqual(got, []Record{want}) {
		t.Errorf("named: got %+v, %v", got, err)
	}
	got, err = parse(t, strings.NewReader(block), Stream{Client: "c", Conn: 1, Raw: true, Unnamed: true})
	want.Type = "" // not to be seen on such a stream
	if err != nil || !reflect.DeepEqual(got, []Record{want}) {
		t.Errorf("unnamed: got %+v, %v", got, err)
	}
}

func TestParseFramesFails(t *testing.T) {
	const event = `{"seq":1,"epoch":"01A","id":"e1","type":"t","topic":"a","data":1}`
	stop := errors.New("stop")
	for _, tt := range []struct {
		name, stream string
		unnamed      bool
		want         string
	}{
		{"an envelope that is no JSON", "event: t\ndata: {\nid: 01A-1\n\n", false, "envelope of event 01A-1"},
		{"an envelope without data", "event: t\ndata: {\"seq\":1}\nid: 01A-1\n\n", false, "lacks a field"},
		{"control data that is no JSON", "event: heartbeat\ndata: x\n\n", false, "data of a heartbeat frame"},
		{"another event field than type", "event: u\ndata: " + event + "\n\n", false, `event field "u"`},
		{"an event field on an unnamed stream", "event: t\ndata: " + event + "\n\n", true, `event field "t"`},
		{"a cut", "event: t\ndata: " + event + "\n", false, "read frame"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := io.MultiReader(strings.NewReader(tt.stream), iotest.ErrReader(io.ErrUnexpectedEOF))
			got, err := parse(t, r, Stream{Client: "c", Conn: 1, Unnamed: tt.unnamed})
			if len(got) != 0 || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v, want an error with %q", got, err, tt.want)
			}
		})
	}
	err := ParseFrames(strings.NewReader(transcript), Stream{Client: "c", Conn: 1}, func(Record) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want the error of emit", err)
	}
}
