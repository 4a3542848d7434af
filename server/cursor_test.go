package server_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"gapless/feed"
)

// timeline is a log that holds 7…10 of ten events, with the cursor of each.
type timeline struct {
	*gateway
	epoch   string
	cursors []string // by seq
}

func newTimeline(t *testing.T) timeline {
	g := start(t, func(o *options) { o.log.Retention = feed.Retention{Events: 4} })
	tl := timeline{gateway: g, cursors: make([]string, 1, 11)}
	s := g.subscribe("")
	s.want("server.connected")
	for seq := 1; seq <= 10; seq++ {
		if seq > 1 {
			tl.epoch = g.publishN(seq, 1).Epoch
		}
		for {
			b, ok := s.next()
			if !ok {
				t.Fatal("the stream ended")
			}
			if b.event == "n" || b.event == "server.status" {
				tl.cursors = append(tl.cursors, b.id)
				break
			}
		}
	}
	s.close()
	return tl
}

const foreignEpoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCD"

func TestCursorTable(t *testing.T) {
	tl := newTimeline(t)
	e := tl.epoch
	at := func(seq int) string { return fmt.Sprintf("%s-%d", e, seq) }
	const wrongFence = "-00000000"
	all := []int{7, 8, 9, 10}
	cases := []struct {
		name, header, query string
		reason              string // of the resync, else
		start               string // of server.connected
		seqs                []int
	}{
		{name: "nothing", start: "snapshot", seqs: all},
		{name: "empty header", header: "", query: "", start: "snapshot", seqs: all},
		{name: "zero of this epoch", header: at(0), start: "snapshot", seqs: all},
		{name: "zero of another epoch", header: foreignEpoch + "-0", start: "snapshot", seqs: all},
		{name: "zero and start=live", header: at(0), query: "start=live", start: "live"},
		{name: "zero and last:2", header: at(0), query: "start=last:2", start: "snapshot", seqs: []int{9, 10}},
		{name: "last:0", query: "start=last:0", start: "snapshot"},
		{name: "start=all", query: "start=all", start: "snapshot", seqs: all},
		{name: "bare zero", header: "0", start: "snapshot", seqs: all},
		{name: "bare zero and start", header: "0", query: "start=last:1", start: "snapshot", seqs: []int{10}},
		{name: "cursor wins over start", header: at(9), query: "start=all", start: "resume", seqs: []int{10}},

		{name: "oldest−2", header: at(5), reason: "cursor_expired"},
		{name: "oldest−2 with fence", header: tl.cursors[5], reason: "cursor_expired"},
		{name: "oldest−1", header: at(6), start: "resume", seqs: all},
		{name: "oldest−1 with fence", header: tl.cursors[6], start: "resume", seqs: all},
		{name: "oldest−1 with another fence", header: at(6) + wrongFence, reason: "history_changed"},
		{name: "oldest", header: at(7), start: "resume", seqs: []int{8, 9, 10}},
		{name: "oldest with fence", header: tl.cursors[7], start: "resume", seqs: []int{8, 9, 10}},
		{name: "oldest with another fence", header: at(7) + wrongFence, reason: "history_changed"},
		{name: "head", header: at(10), start: "resume"},
		{name: "head with fence", header: tl.cursors[10], start: "resume"},
		{name: "head with another fence", header: at(10) + wrongFence, reason: "history_changed"},
		{name: "head+1", header: at(11), reason: "cursor_ahead"},
		{name: "far ahead", header: e + "-18446744073709551615", reason: "cursor_ahead"},

		{name: "bare, no epoch", header: "9", reason: "epoch_missing"},
		{name: "bare, epoch", header: "9", query: "epoch=" + e, start: "resume", seqs: []int{10}},
		{name: "bare, epoch 0", header: "9", query: "epoch=0", reason: "epoch_changed"},
		{name: "another epoch", header: foreignEpoch + "-9", reason: "epoch_changed"},

		// The order of the checks.
		{name: "unparsable before zero", header: e + "-00", reason: "cursor_invalid"},
		{name: "epoch before ahead", header: foreignEpoch + "-99", reason: "epoch_changed"},
		{name: "epoch before expired", header: foreignEpoch + "-1", reason: "epoch_changed"},
		{name: "missing epoch before expired", header: "1", reason: "epoch_missing"},
		{name: "expired before fence", header: at(5) + wrongFence, reason: "cursor_expired"},
		{name: "ahead before fence", header: at(11) + wrongFence, reason: "cursor_ahead"},

		{name: "garbage", header: "garbage", reason: "cursor_invalid"},
		{name: "lower case epoch", header: strings.ToLower(e) + "-9", reason: "cursor_invalid"},
		{name: "lower case fence", header: at(9) + "-abcdefgh", reason: "cursor_invalid"},
		{name: "short fence", header: at(9) + "-AAAA", reason: "cursor_invalid"},
		{name: "negative", header: "-1", reason: "cursor_invalid"},
		{name: "plus", header: "+1", reason: "cursor_invalid"},
		{name: "leading zero", header: "09", reason: "cursor_invalid"},
		{name: "too large a number", header: e + "-18446744073709551616", reason: "cursor_invalid"},
		{name: "long", header: strings.Repeat("9", 5000), reason: "cursor_invalid"},
		{name: "not ASCII", header: "é", reason: "cursor_invalid"},

		{name: "cursor parameter", query: "cursor=" + at(9), start: "resume", seqs: []int{10}},
		{name: "last_event_id parameter", query: "last_event_id=" + tl.cursors[9], start: "resume", seqs: []int{10}},
		{name: "bare cursor parameter", query: "cursor=9&epoch=" + e, start: "resume", seqs: []int{10}},
		{name: "empty cursor parameter", query: "cursor=", start: "snapshot", seqs: all},
		{name: "since_seq 0", query: "since_seq=0", start: "snapshot", seqs: all},
		{name: "since_seq 0, any epoch", query: "since_seq=0&epoch=nonsense", start: "snapshot", seqs: all},
		{name: "since_seq", query: "since_seq=9&epoch=" + e, start: "resume", seqs: []int{10}},
		{name: "since_seq, no epoch", query: "since_seq=9", reason: "epoch_missing"},
		{name: "since_seq, empty epoch", query: "since_seq=9&epoch=", reason: "epoch_missing"},
		{name: "since_seq, epoch 0", query: "since_seq=9&epoch=0", reason: "epoch_changed"},
		{name: "since_seq, another epoch", query: "since_seq=9&epoch=" + foreignEpoch, reason: "epoch_changed"},
		{name: "since_seq, malformed epoch", query: "since_seq=9&epoch=%00%0a", reason: "epoch_changed"},
		{name: "since_seq, lower case epoch", query: "since_seq=9&epoch=" + strings.ToLower(e), reason: "epoch_changed"},
		{name: "header wins over since_seq", header: at(9), query: "since_seq=1", start: "resume", seqs: []int{10}},
		{name: "header wins over a dead cursor", header: at(0), query: "cursor=" + foreignEpoch + "-9", start: "snapshot", seqs: all},
		{name: "header wins over two positions", header: at(9), query: "cursor=1&since_seq=2", start: "resume", seqs: []int{10}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.header != "" {
				headers = append(headers, "Last-Event-ID: "+c.header)
			}
			s := tl.subscribe("?"+c.query, headers...)
			s.t = t
			defer s.close()
			if c.reason != "" {
				wantResync(t, s, c.reason, e)
				return
			}
			var connected struct {
				Start    string
				Epoch    string
				SinceSeq uint64 `json:"since_seq"`
			}
			first := s.want("server.connected")
			if err := json.Unmarshal([]byte(first.data), &connected); err != nil {
				t.Fatal(err)
			}
			if connected.Start != c.start || connected.Epoch != e {
				t.Errorf("connected %+v, want start %s", connected, c.start)
			}
			switch c.start {
			case "snapshot":
				if first.id != e+"-0" {
					t.Errorf("id %s, want %s-0", first.id, e)
				}
			case "live":
				if first.id != tl.cursors[10] {
					t.Errorf("id %s, want the head's %s", first.id, tl.cursors[10])
				}
			case "resume":
				if want := tl.cursors[connected.SinceSeq]; first.id != want {
					t.Errorf("id %s, want %s", first.id, want)
				}
			}
			var got []int
			for {
				b, ok := s.next()
				if !ok {
					t.Fatal("the stream ended")
				}
				if b.event == "server.live" {
					if b.id != tl.cursors[10] {
						t.Errorf("server.live at %s, want the head's %s", b.id, tl.cursors[10])
					}
					break
				}
				if b.id != tl.cursors[7+len(got)+len(all)-len(c.seqs)] {
					t.Errorf("unexpected id %s", b.id)
				}
				got = append(got, seqOf(t, b))
			}
			if !slices.Equal(got, c.seqs) {
				t.Errorf("got %v, want %v", got, c.seqs)
			}
		})
	}
}

func seqOf(t *testing.T, b block) int {
	t.Helper()
	var e envelope
	if err := json.Unmarshal([]byte(b.data), &e); err != nil {
		t.Fatalf("%v in %q", err, b.data)
	}
	return int(e.Seq)
}

// wantResync reads a stream that holds resync_required alone.
func wantResync(t *testing.T, s *stream, reason, epoch string) {
	t.Helper()
	b := s.want("resync_required")
	var data struct {
		Seq       uint64
		Reason    string
		Epoch     string
		OldestSeq uint64 `json:"oldest_seq"`
		HeadSeq   uint64 `json:"head_seq"`
	}
	if err := json.Unmarshal([]byte(b.data), &data); err != nil {
		t.Fatal(err)
	}
	if data.Reason != reason || data.Epoch != epoch || data.Seq != 0 || data.OldestSeq != 7 || data.HeadSeq != 10 {
		t.Errorf("%+v, want reason %s of epoch %s", data, reason, epoch)
	}
	if b.id != epoch+"-0" {
		t.Errorf("id %q, want %s-0", b.id, epoch)
	}
	wantRetry(t, b, 1500, 2500)
	s.wantEnd()
}

func wantRetry(t *testing.T, b block, least, most int) {
	t.Helper()
	var ms int
	if _, err := fmt.Sscan(b.retry, &ms); err != nil || ms < least || ms > most {
		t.Errorf("retry %q, want %d to %d", b.retry, least, most)
	}
}

func TestResyncOfALiveStartHasTheHead(t *testing.T) {
	tl := newTimeline(t)
	s := tl.subscribe("?start=live", "Last-Event-ID: "+foreignEpoch+"-9")
	if b := s.want("resync_required"); b.id != tl.cursors[10] {
		t.Errorf("id %s, want the head's %s", b.id, tl.cursors[10])
	}
	s.wantEnd()
}

// A snapshot is the last events that match; since_seq=0 is all that is there.
func TestSnapshotAndEverything(t *testing.T) {
	g := start(t, func(o *options) { o.feed.SnapshotEvents = 2 })
	g.publishN(1, 5)
	for query, want := range map[string]int{
		"topic=t": 2, "topic=t&start=snapshot": 2, "topic=t&start=all": 5, "topic=t&since_seq=0": 5, "topic=t&cursor=0": 5,
		"topic=t&since_seq=0&start=snapshot": 2, "topic=t&start=last:3": 3,
	} {
		if p := wantPage(t, g.do("GET", "/api/v1/events?"+query, "")); len(p.Events) != want {
			t.Errorf("%s: %d events, want %d", query, len(p.Events), want)
		}
	}
	if p := wantPage(t, g.do("GET", "/api/v1/events?topic=t", "", "Last-Event-ID: 0")); len(p.Events) != 5 {
		t.Errorf("header 0: %d events, want 5", len(p.Events))
	}
}

func TestMalformedQueries(t *testing.T) {
	g := start(t)
	e := g.publishN(1, 1).Epoch
	both := []string{
		"cursor=garbage", "cursor=-1", "cursor=" + strings.ToLower(e) + "-1", "last_event_id=1-2-3-4",
		"since_seq=-1", "since_seq=x", "since_seq=1.0", "since_seq=" + e + "-1", "since_seq=18446744073709551616",
		"cursor=1&last_event_id=1", "cursor=1&since_seq=1", "last_event_id=1&since_seq=1",
		"cursor=1&cursor=1", "epoch=a&epoch=b&since_seq=1", "start=all&start=all",
		"start=never", "start=last:", "start=last:x", "start=last:-1", "start=LIVE",
		"topic=", "topic=a..b", "topic=" + url.QueryEscape("a.>.b"), "topic=%C3%A9", "type=", "type=%20", "type=a%0Ab",
		"topic=%zz", "a;b", "consumer=x", "consumer=",
	}
	for _, q := range both {
		for _, path := range []string{"/events?", "/api/v1/events?"} {
			if a := g.do("GET", path+q, "", "Accept: text/event-stream"); a.status != 400 || a.code() != "invalid" {
				t.Errorf("GET %s%s: %d %s, want 400", path, q, a.status, a.body)
			}
		}
		if a := g.do("HEAD", "/events?"+q, ""); a.status != 400 {
			t.Errorf("HEAD /events?%s: %d, want 400", q, a.status)
		}
	}
	for _, q := range []string{"format=xml", "format=raw&format=raw", "named=1", "named=TRUE", "named=true&named=true"} {
		if a := g.do("GET", "/events?"+q, ""); a.status != 400 || a.code() != "invalid" {
			t.Errorf("GET /events?%s: %d %s, want 400", q, a.status, a.body)
		}
	}
	for _, q := range []string{
		"limit=0", "limit=1001", "limit=x", "limit=+5", "limit=1&limit=2",
		"wait=x", "wait=-1s", "wait=61s", "wait=61", "wait=1h", "wait=1s&wait=1s",
	} {
		if a := g.do("GET", "/api/v1/events?"+q, ""); a.status != 400 || a.code() != "invalid" {
			t.Errorf("GET /api/v1/events?%s: %d %s, want 400", q, a.status, a.body)
		}
	}
	for _, q := range []string{"utm=x&utm=y", "wait=", "limit=", "format=", "cursor=&last_event_id=&since_seq="} {
		if a := g.do("GET", "/api/v1/events?"+q, ""); a.status != 200 {
			t.Errorf("GET /api/v1/events?%s: %d %s, want 200", q, a.status, a.body)
		}
	}
}
