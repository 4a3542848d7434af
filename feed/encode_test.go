package feed_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"gapless/feed"
	"gapless/feed/feedtest"
	"gapless/feed/memory"
)

// TestAnEventIsEncodedOncePerShapeInUse, whatever the number of readers, and
// not at all without readers.
func TestAnEventIsEncodedOncePerShapeInUse(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 100)
		synctest.Wait()
		if n := r.feed.Stats().Encodings; n[feed.Shape{}] != 0 {
			t.Fatalf("%v encodings without a reader", n)
		}
		raw := feed.Shape{Format: feed.FormatRaw, Unnamed: true}
		var readers []*reader
		for i := range 20 {
			opts := fromStart(feed.StartAll)
			if i%2 == 1 {
				opts.Shape = raw
			}
			readers = append(readers, r.subscribe(opts))
		}
		r.publish(101, 300)
		for _, rd := range readers {
			rd.drain()
			if n := len(rd.blocks); n < 302 {
				t.Errorf("%d blocks, want 300 events and two control frames", n)
			}
		}
		encodings := r.feed.Stats().Encodings
		if encodings[feed.Shape{}] != 300 || encodings[raw] != 300 || len(encodings) != 4 {
			t.Errorf("%v encodings, want 300 in each of two shapes", encodings)
		}
		if h := r.feed.Stats().FrameSizes; h.Count != 600 || h.Sum == 0 {
			t.Errorf("frame sizes %+v", h)
		}
		for _, rd := range readers {
			rd.close()
		}
	})
}

// TestFrameBytes holds the bytes of one event in each shape against literal
// ones.
func TestFrameBytes(t *testing.T) {
	for shape, want := range map[feed.Shape]string{
		{}: "event: order.created\n" +
			`data: {"seq":1,"epoch":"E","id":"a\"\\b","time":"T","type":"order.created","topic":"orders.eu","data":{"n":1.00,"b":[],"a":"<é>"},"ce":{"source":"/s"}}` +
			"\nid: C\n\n",
		{Unnamed: true}: `data: {"seq":1,"epoch":"E","id":"a\"\\b","time":"T","type":"order.created","topic":"orders.eu","data":{"n":1.00,"b":[],"a":"<é>"},"ce":{"source":"/s"}}` +
			"\nid: C\n\n",
		{Format: feed.FormatRaw}:                "event: order.created\ndata: {\"n\":1.00,\"b\":[],\"a\":\"<é>\"}\nid: C\n\n",
		{Format: feed.FormatRaw, Unnamed: true}: "data: {\"n\":1.00,\"b\":[],\"a\":\"<é>\"}\nid: C\n\n",
	} {
		inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
			_, err := r.feed.Publish(r.Context(), []feed.Draft{{
				ID: `a"\b`, Type: "order.created", Topic: "orders.eu",
				Data: json.RawMessage(`{ "n" : 1.00, "b": [ ], "a": "<é>" }`), CE: json.RawMessage(`{"source": "/s"}`),
			}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			opts := fromStart(feed.StartAll)
			opts.Shape = shape
			rd := r.subscribe(opts)
			rd.step()
			frames, err := rd.sub.Next(r.Context())
			if err != nil {
				t.Fatal(err)
			}
			page, err := log.Read(r.Context(), 0, feed.Limit{Events: 1})
			if err != nil {
				t.Fatal(err)
			}
			ev := page.Events[0]
			cursor := feed.Cursor{Epoch: page.Epoch, Position: ev.Position()}.String()
			got := strings.NewReplacer(cursor, "C", string(page.Epoch), "E", ev.Time.Format(feed.TimeFormat), "T").Replace(string(frames[0].Bytes))
			if got != want {
				t.Errorf("%v:\n%q\nwant\n%q", shape, got, want)
			}
			rd.close()
		})
	}
}

// TestHiddenTypesReachNobody, and take no room in any queue.
func TestHiddenTypesReachNobody(t *testing.T) {
	inBubble(t, 0, feed.Config{HideTypes: []string{"secret"}, QueueFrames: 2}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.drain()
		for range 50 {
			if _, err := r.feed.Publish(r.Context(), []feed.Draft{{Type: "secret", Topic: "t.0"}}); err != nil {
				t.Fatal(err)
			}
		}
		r.publish(51, 51)
		synctest.Wait()
		if info := rd.sub.Info(); info.QueueFrames != 1 || info.QueueHighWater != 1 {
			t.Errorf("%+v, want one frame queued", info)
		}
		rd.drain()
		rd.wantSeqs([]uint64{51})
		rd.close()
		page, err := r.feed.Read(r.Context(), feed.ReadOptions{Limit: 10})
		if err != nil || len(page.Events) != 1 {
			t.Errorf("catch-up: %d events, %v", len(page.Events), err)
		}
		if n := r.feed.Stats().Encodings[feed.Shape{}]; n != 1 {
			t.Errorf("%d encodings, want 1", n)
		}
	})
}

// TestTheServersOwnEventsReachSomeStreamsOnlyByName: raw and unnamed streams
// get topics under gapless. only where a pattern names them.
func TestTheServersOwnEventsReachSomeStreamsOnlyByName(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		if _, err := r.feed.Announce(r.Context(), feed.Draft{Type: feed.TypeStatus, Topic: "gapless.status"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			patterns []string
			byName   bool
			want     int
		}{
			{nil, false, 1}, {[]string{">"}, false, 1}, {[]string{"*.status"}, false, 1},
			{nil, true, 0}, {[]string{">"}, true, 0}, {[]string{"*.status"}, true, 0},
			{[]string{"gapless.>"}, true, 1}, {[]string{">", "gapless.status"}, true, 1}, {[]string{"t.0"}, false, 0},
		} {
			filter, err := feed.NewFilter(c.patterns, nil, c.byName)
			if err != nil {
				t.Fatal(err)
			}
			page, err := r.feed.Read(r.Context(), feed.ReadOptions{Filter: filter, Limit: 10})
			if err != nil || len(page.Events) != c.want {
				t.Errorf("%v, by name %v: %d events, %v; want %d", c.patterns, c.byName, len(page.Events), err, c.want)
			}
		}
	})
}

// TestWhatPublishRefuses, and with which code.
func TestWhatPublishRefuses(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		long := strings.Repeat("a", 129)
		for name, c := range map[string]struct {
			draft feed.Draft
			code  feed.Code
		}{
			"id with a line break":      {feed.Draft{ID: "1\nid: 2"}, feed.CodeInvalid},
			"id beyond ASCII":           {feed.Draft{ID: "é"}, feed.CodeInvalid},
			"long id":                   {feed.Draft{ID: long}, feed.CodeInvalid},
			"type with a line break":    {feed.Draft{Type: "x\ndata: y"}, feed.CodeInvalid},
			"type with a space":         {feed.Draft{Type: "a b"}, feed.CodeInvalid},
			"long type":                 {feed.Draft{Type: long}, feed.CodeInvalid},
			"type error":                {feed.Draft{Type: "error"}, feed.CodeInvalid},
			"type open":                 {feed.Draft{Type: "open"}, feed.CodeInvalid},
			"type heartbeat":            {feed.Draft{Type: "heartbeat"}, feed.CodeInvalid},
			"type resync_required":      {feed.Draft{Type: "resync_required"}, feed.CodeInvalid},
			"type server.connected":     {feed.Draft{Type: "server.connected"}, feed.CodeInvalid},
			"topic gapless":             {feed.Draft{Topic: "gapless"}, feed.CodeInvalid},
			"topic under gapless":       {feed.Draft{Topic: "gapless.status"}, feed.CodeInvalid},
			"topic with a wildcard":     {feed.Draft{Topic: "a.*"}, feed.CodeInvalid},
			"topic with an empty token": {feed.Draft{Topic: "a..b"}, feed.CodeInvalid},
			"topic of 17 tokens":        {feed.Draft{Topic: strings.Repeat("a.", 16) + "a"}, feed.CodeInvalid},
			"long topic":                {feed.Draft{Topic: strings.Repeat("a", 256)}, feed.CodeInvalid},
			"no JSON":                   {feed.Draft{Data: json.RawMessage("{")}, feed.CodeInvalid},
			"two JSON texts":            {feed.Draft{Data: json.RawMessage("1 2")}, feed.CodeInvalid},
			"invalid UTF-8":             {feed.Draft{Data: json.RawMessage("\"\xff\"")}, feed.CodeInvalid},
			"lone high surrogate":       {feed.Draft{Data: json.RawMessage(`"\ud800"`)}, feed.CodeInvalid},
			"lone low surrogate":        {feed.Draft{Data: json.RawMessage(`"\udc00 x"`)}, feed.CodeInvalid},
			"surrogates swapped":        {feed.Draft{Data: json.RawMessage(`"\udc00\ud800"`)}, feed.CodeInvalid},
			"high surrogate, letter":    {feed.Draft{Data: json.RawMessage(`"\ud800\u0041"`)}, feed.CodeInvalid},
			"nested too deep":           {feed.Draft{Data: json.RawMessage(strings.Repeat("[", 1001) + strings.Repeat("]", 1001))}, feed.CodeInvalid},
			"ce no JSON":                {feed.Draft{CE: json.RawMessage("x")}, feed.CodeInvalid},
			"data too large":            {feed.Draft{Data: json.RawMessage(`"` + strings.Repeat("x", feed.MaxDataBytes) + `"`)}, feed.CodeTooLarge},
		} {
			_, err := r.feed.Publish(r.Context(), []feed.Draft{{Data: json.RawMessage("1")}, c.draft})
			if feed.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", name, err, c.code)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%s: a line break in the message %q", name, err)
			}
		}
		if head := r.feed.Status().Head.Seq; head != 0 {
			t.Errorf("head %d: a refused batch left something behind", head)
		}
		for _, good := range []string{`"\ud83d\ude00"`, `"\\ud800"`, `"\u0000"`, "\"\u2028\ufeff\"", `1e400`, strings.Repeat("[", 1000) + `"]\"["` + strings.Repeat("]", 1000), `12345678901234567890123`, `{"a":1,"a":2}`} {
			if _, err := r.feed.Publish(r.Context(), []feed.Draft{{Data: json.RawMessage(good)}}); err != nil {
				t.Errorf("%s: %v", good, err)
			}
		}
		if _, err := r.feed.Publish(r.Context(), nil); feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("no events: %v", err)
		}
		if _, err := r.feed.Publish(r.Context(), make([]feed.Draft, 1001)); feed.CodeOf(err) != feed.CodeTooLarge {
			t.Errorf("1,001 events: %v", err)
		}
	})
}

// TestAPublisherMayRetry: the same id and content is one event, other content
// a conflict.
func TestAPublisherMayRetry(t *testing.T) {
	inMemory(t, feed.Retention{}, feed.Config{}, func(r *rig) {
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.drain()
		draft := feed.Draft{ID: "1", Topic: "a", Type: "n", Data: json.RawMessage(`{"x": 1}`)}
		for i := range 3 {
			receipt, err := r.feed.Publish(r.Context(), []feed.Draft{draft})
			if err != nil || receipt.Events[0].Seq != 1 || receipt.Events[0].Duplicate != (i > 0) {
				t.Errorf("try %d: %+v, %v", i, receipt, err)
			}
			draft.Data = json.RawMessage(`{"x":1}`)
		}
		draft.Data = json.RawMessage(`{"x":2}`)
		if _, err := r.feed.Publish(r.Context(), []feed.Draft{draft}); feed.CodeOf(err) != feed.CodeIDConflict {
			t.Errorf("other content: %v", err)
		}
		rd.drain()
		rd.wantSeqs([]uint64{1})
		rd.close()
		if s := r.feed.Stats(); s.Duplicates != 2 || s.EventsPublished != 1 || s.Batches != 3 {
			t.Errorf("%d duplicates, %d events, %d batches", s.Duplicates, s.EventsPublished, s.Batches)
		}
	})
}

// TestThePumpHoldsFastPublishersBack: flat-out publishers on a short log do
// not trim what live readers were not offered, whichever bound is the short one.
func TestThePumpHoldsFastPublishersBack(t *testing.T) {
	for name, c := range map[string]struct {
		retention     feed.Retention
		batches, each int
		data          int
	}{
		"events": {feed.Retention{Events: 1024}, 50, 100, 1},
		"bytes":  {feed.Retention{Bytes: 1 << 20}, 50, 2, 50_000},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := memory.New(memory.Config{Retention: c.retention})
			if err != nil {
				t.Fatal(err)
			}
			const publishers = 4
			total := publishers * c.batches * c.each
			r := start(t, log, feed.Config{QueueFrames: total, QueueBytes: 1 << 30})
			defer r.stop()
			rd := r.subscribe(fromStart(feed.StartLive))
			defer rd.close()
			rd.drain()
			data := json.RawMessage(`"` + strings.Repeat("x", c.data) + `"`)
			done := make(chan error, publishers)
			for range publishers {
				go func() {
					for range c.batches {
						drafts := make([]feed.Draft, c.each)
						for i := range drafts {
							drafts[i] = feed.Draft{Type: "n", Topic: "t.0", Data: data}
						}
						if _, err := r.feed.Publish(t.Context(), drafts); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			const control = 2 // connected, live
			for len(rd.blocks) < control+total && rd.step() {
			}
			rd.wantSeqs(upTo(1, uint64(total)))
			for range publishers {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestShapesHaveNames(t *testing.T) {
	var names []string
	for _, s := range []feed.Shape{{}, {Unnamed: true}, {Format: feed.FormatRaw}, {Format: feed.FormatRaw, Unnamed: true}} {
		names = append(names, s.String())
	}
	if got, want := fmt.Sprint(names), "[envelope envelope_unnamed raw raw_unnamed]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := feed.ParseFormat("xml"); feed.CodeOf(err) != feed.CodeInvalid {
		t.Errorf("format xml: %v", err)
	}
}

// TestWhiteSpaceIsNotKept: the event holds no more memory than retention
// counts.
func TestWhiteSpaceIsNotKept(t *testing.T) {
	spaced := json.RawMessage("[" + strings.Repeat(" ", 1<<20) + "1]")
	draft := feed.Draft{Data: spaced, CE: spaced}
	if err := draft.Normalize(); err != nil {
		t.Fatal(err)
	}
	if cap(draft.Data) > 64 || cap(draft.CE) > 64 {
		t.Errorf("%d bytes held for data, %d for ce", cap(draft.Data), cap(draft.CE))
	}
}

// TestReplaysBeyondTheRingShareFrames: readers that are stalled in the same
// part of the log hold one frame, encoded once.
func TestReplaysBeyondTheRingShareFrames(t *testing.T) {
	inBubble(t, 0, feed.Config{RingEvents: 1}, func(r *rig, log *feedtest.Log) {
		for range 20 {
			r.publishTo("t.0", `"`+strings.Repeat("x", 5000)+`"`)
		}
		synctest.Wait()
		var first *feed.Frame
		for range 30 {
			rd := r.subscribe(fromStart(feed.StartAll))
			defer rd.close()
			rd.step()
			frames, err := rd.sub.Next(r.Context())
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = frames[0]
			}
			if frames[0] != first {
				t.Fatal("a frame of its own")
			}
		}
		if n := r.feed.Stats().Encodings[feed.Shape{}]; n > 20 {
			t.Errorf("%d encodings of 20 events", n)
		}
	})
}
