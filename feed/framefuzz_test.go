package feed_test

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"gapless/feed"
	"gapless/feed/memory"
)

// wire is a running feed with a live subscriber in every shape.
type wire struct {
	feed *feed.Feed
	subs map[feed.Shape]*feed.Subscriber
	read map[feed.Shape]*eventStream
}

func newWire(f *testing.F) *wire {
	// Every append is later than the window of the one before, so that ids come
	// again.
	var ticks atomic.Int64
	log, err := memory.New(memory.Config{
		Retention:    feed.Retention{Events: 16},
		DedupeWindow: time.Millisecond,
		Now:          func() time.Time { return time.UnixMilli(ticks.Add(1)) },
	})
	if err != nil {
		f.Fatal(err)
	}
	// A heartbeat would come in between.
	w := &wire{subs: make(map[feed.Shape]*feed.Subscriber), read: make(map[feed.Shape]*eventStream)}
	if w.feed, err = feed.New(feed.Config{Log: log, Heartbeat: 24 * time.Hour}); err != nil {
		f.Fatal(err)
	}
	stop := running(f, w.feed)
	f.Cleanup(stop)
	for _, format := range []feed.Format{feed.FormatEnvelope, feed.FormatRaw} {
		for _, unnamed := range []bool{false, true} {
			shape := feed.Shape{Format: format, Unnamed: unnamed}
			sub, err := w.feed.Subscribe(f.Context(), feed.SubscribeOptions{From: feed.From{Start: feed.Start{Mode: feed.StartLive}}, Shape: shape})
			if err != nil {
				f.Fatal(err)
			}
			f.Cleanup(sub.Close)
			w.subs[shape], w.read[shape] = sub, &eventStream{begun: true}
			for range 2 { // server.connected, server.live
				if _, err := sub.Next(f.Context()); err != nil {
					f.Fatal(err)
				}
			}
		}
	}
	return w
}

// publish puts a draft through the feed and returns what the clients of the
// four shapes have dispatched. Nil: the draft was refused, as invalid input.
func (w *wire) publish(t *testing.T, d feed.Draft) (uint64, map[feed.Shape]message) {
	receipt, err := w.feed.Publish(t.Context(), []feed.Draft{d})
	if err != nil {
		if code := feed.CodeOf(err); code != feed.CodeInvalid && code != feed.CodeTooLarge {
			t.Fatalf("%+v: %v", d, err)
		}
		return 0, nil
	}
	got := make(map[feed.Shape]message)
	for shape, sub := range w.subs {
		frames, err := sub.Next(t.Context())
		if err != nil || len(frames) != 1 {
			t.Fatalf("%d frames, %v", len(frames), err)
		}
		messages := w.read[shape].write(frames[0].Bytes)
		if len(messages) != 1 || len(w.read[shape].rest) != 0 || w.read[shape].hasData {
			t.Fatalf("%+v makes %d events: %q", d, len(messages), frames[0].Bytes)
		}
		m := messages[0]
		c, err := feed.ParseCursor(m.id)
		if err != nil || c.Position != frames[0].Position || c.Seq != receipt.Events[0].Seq || c.Epoch != receipt.Epoch || m.retry != "" {
			t.Fatalf("%+v came back as %+v", d, m)
		}
		got[shape] = m
	}
	return receipt.Events[0].Seq, got
}

// envelope is what a client decodes from the default format.
type envelope struct {
	Seq                   uint64
	Epoch                 feed.Epoch
	ID, Time, Type, Topic string
	Data, CE              json.RawMessage
}

func (w *wire) envelope(t *testing.T, m message) envelope {
	var e envelope
	dec := json.NewDecoder(strings.NewReader(m.data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		t.Fatalf("envelope %q: %v", m.data, err)
	}
	return e
}

var (
	anyType  = regexp.MustCompile(`^[A-Za-z0-9._:/-]{0,128}$`)
	anyID    = regexp.MustCompile(`^[ -~]{0,128}$`)
	ofServer = regexp.MustCompile(`^(server\.(connected|live|draining|status)|heartbeat|resync_required|error|open)$`)
)

// publishable is what a publisher may send; empty fields get defaults.
func publishable(typ, topic, id string) bool {
	return anyType.MatchString(typ) && !ofServer.MatchString(typ) && anyID.MatchString(id) &&
		(topic == "" || validTopic(topic, false) && strings.Split(topic, ".")[0] != "gapless")
}

// FuzzText: a text comes back whole in every shape, with its line ends as LF,
// and no field of another can be forged through text, type, topic or id.
func FuzzText(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s, "", "", "")
		if len(s) < 1000 {
			f.Add("text", s, "", "")
			f.Add("text", "", s, "")
			f.Add("text", "", "", s)
		}
	}
	for _, typ := range []string{feed.TypeConnected, feed.TypeLive, feed.TypeHeartbeat, feed.TypeResync, feed.TypeDraining, feed.TypeStatus, "error", "open"} {
		f.Add("text", typ, "", "")
		f.Add("text", typ+".x", typ, "id")
		f.Add("other text", typ+".x", typ, "id")
	}
	f.Add("text", "x\ndata: y", "t", "1\nid: 2")
	w := newWire(f)
	f.Fuzz(func(t *testing.T, text, typ, topic, id string) {
		data, err := feed.TextData([]byte(text))
		if (err == nil) != utf8.ValidString(text) || err != nil && feed.CodeOf(err) != feed.CodeInvalid {
			t.Fatalf("%q: %v", text, err)
		}
		if err != nil {
			return
		}
		seq, got := w.publish(t, feed.Draft{Type: typ, Topic: topic, ID: id, Data: data})
		if valid := publishable(typ, topic, id); valid != (got != nil) {
			t.Fatalf("type %q, topic %q, id %q, text %q: taken %v", typ, topic, id, text, got != nil)
		}
		if got == nil {
			return
		}
		if typ == "" {
			typ = "message"
		}
		for shape, m := range got {
			if want := map[bool]string{false: typ, true: "message"}[shape.Unnamed]; m.event != want {
				t.Errorf("%v: event %q, want %q", shape, m.event, want)
			}
			if shape.Format == feed.FormatRaw {
				if m.data != unixLines(text) {
					t.Errorf("%v: %q came back as %q", shape, text, m.data)
				}
				continue
			}
			e := w.envelope(t, m)
			var decoded string
			if err := json.Unmarshal(e.Data, &decoded); err != nil || decoded != text {
				t.Errorf("%v: %q came back as %q, %v", shape, text, decoded, err)
			}
			if e.Seq != seq || e.Type != typ || topic != "" && e.Topic != topic || id != "" && e.ID != id || strings.ContainsAny(m.data, "\r\n") {
				t.Errorf("%v: %+v", shape, e)
			}
		}
	})
}

// unixLines is a text as a client gets it back.
func unixLines(text string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
}

// FuzzJSON: JSON comes back with its digits, its keys in their order and
// number, on one line.
func FuzzJSON(f *testing.F) {
	for _, s := range append(hostile(), texts()...) {
		f.Add([]byte(s))
	}
	w := newWire(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, got := w.publish(t, feed.Draft{Data: slices.Clone(data)})
		if (got != nil) != (len(data) == 0 || portable(data)) {
			t.Fatalf("%q: taken %v", data, got != nil)
		}
		if got == nil {
			return
		}
		if len(data) == 0 {
			data = []byte("null")
		}
		for shape, m := range got {
			raw := []byte(m.data)
			if shape.Format == feed.FormatEnvelope {
				raw = w.envelope(t, m).Data
			} else if sent := bytes.TrimSpace(data); sent[0] == '"' {
				var text string
				if err := json.Unmarshal(sent, &text); err != nil || m.data != unixLines(text) {
					t.Errorf("%v: %q came back as %q, %v", shape, data, m.data, err)
				}
				continue
			}
			if bytes.ContainsAny(raw, "\r\n") || !slices.Equal(tokens(t, raw), tokens(t, data)) {
				t.Errorf("%v: %q came back as %q", shape, data, raw)
			}
		}
	})
}

// tokens lists a JSON text's tokens, numbers as their digits.
func tokens(t *testing.T, data []byte) []any {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var list []any
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		list = append(list, tok)
	}
}
