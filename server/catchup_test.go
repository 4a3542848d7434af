package server_test

import (
	"net/http"
	"testing"
)

// The same positions, asked for as JSON, are a page or a 410; a malformed
// header is then the developer's mistake too.
func TestCatchUpCursorTable(t *testing.T) {
	tl := newTimeline(t)
	e := tl.epoch
	cases := []struct {
		name, header, query string
		status              int
		reason              string
		first, n            int
	}{
		{name: "snapshot", status: 200, first: 7, n: 4},
		{name: "oldest−2", query: "cursor=" + e + "-5", status: 410, reason: "cursor_expired"},
		{name: "oldest−1", query: "cursor=" + tl.cursors[6], status: 200, first: 7, n: 4},
		{name: "oldest", query: "since_seq=7&epoch=" + e, status: 200, first: 8, n: 3},
		{name: "head", query: "cursor=" + e + "-10", status: 200},
		{name: "head+1", query: "cursor=" + e + "-11", status: 410, reason: "cursor_ahead"},
		{name: "epoch before number", query: "since_seq=11&epoch=" + foreignEpoch, status: 410, reason: "epoch_changed"},
		{name: "no epoch", query: "since_seq=8", status: 410, reason: "epoch_missing"},
		{name: "epoch 0", query: "since_seq=8&epoch=0", status: 410, reason: "epoch_changed"},
		{name: "fence", query: "cursor=" + e + "-8-00000000", status: 410, reason: "history_changed"},
		{name: "header", header: tl.cursors[9], status: 200, first: 10, n: 1},
		{name: "header wins", header: tl.cursors[9], query: "cursor=garbage", status: 200, first: 10, n: 1},
		{name: "malformed header", header: "garbage", status: 400},
		{name: "malformed cursor", query: "cursor=garbage", status: 400},
		{name: "live", query: "start=live", status: 200},
		{name: "limit", query: "limit=2", status: 200, first: 7, n: 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.header != "" {
				headers = append(headers, "Last-Event-ID: "+c.header)
			}
			a := tl.do("GET", "/api/v1/events?"+c.query, "", headers...)
			if a.status != c.status {
				t.Fatalf("%d %s, want %d", a.status, a.body, c.status)
			}
			if a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("Cache-Control %q", a.header.Get("Cache-Control"))
			}
			switch c.status {
			case 410:
				var p struct {
					Code, Reason, Epoch string
					OldestSeq           int `json:"oldest_seq"`
					HeadSeq             int `json:"head_seq"`
				}
				a.decode(t, &p)
				if p.Code != "resync_required" || p.Reason != c.reason || p.Epoch != e || p.OldestSeq != 7 || p.HeadSeq != 10 {
					t.Errorf("%s, want reason %s", a.body, c.reason)
				}
			case 400:
				if a.code() != "invalid" {
					t.Errorf("%s", a.body)
				}
			default:
				p := wantPage(t, a)
				if len(p.Events) != c.n {
					t.Fatalf("%d events, want %d", len(p.Events), c.n)
				}
				for i, ev := range p.Events {
					if want := c.first + i; int(ev.Seq) != want || ev.Cursor != tl.cursors[want] {
						t.Errorf("event %d with cursor %s, want %d, %s", ev.Seq, ev.Cursor, want, tl.cursors[want])
					}
				}
				last := 10
				if c.n > 0 {
					last = c.first + c.n - 1
				}
				if p.Cursor != tl.cursors[last] || p.LastSeq != last || p.HeadSeq != 10 || p.HasMore != (last < 10) || p.Epoch != e {
					t.Errorf("%s, want to be at %s", a.body, tl.cursors[last])
				}
			}
		})
	}
}

// page is a catch-up page.
type page struct {
	Epoch   string
	Events  []envelope
	LastSeq int `json:"last_seq"`
	Cursor  string
	HeadSeq int  `json:"head_seq"`
	HasMore bool `json:"has_more"`
}

func wantPage(t *testing.T, a answer) page {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var p page
	a.decode(t, &p)
	return p
}
