//go:build linux

package systemtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gapless/feed/lawtest"
)

// first is the first frame with which a gateway answers a cursor, and behind server.connected the second.
func first(t *testing.T, g *gateway, cursor string) (one, two lawtest.Record) {
	t.Helper()
	r := newReader(g, &history{}, "probe")
	r.cursor = cursor
	s, err := r.open(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if one, err = s.next(); err != nil {
		t.Fatal(err)
	}
	if one.Kind == lawtest.KindConnected {
		if two, err = s.next(); err != nil {
			t.Fatal(err)
		}
	}
	return one, two
}

// resyncs fails the test where a cursor of the list is served, or refused for another reason.
func resyncs(t *testing.T, g *gateway, cursors []string, reason string) {
	t.Helper()
	for _, cursor := range cursors {
		if one, _ := first(t, g, cursor); one.Kind != lawtest.KindResync || one.Reason != reason {
			t.Errorf("cursor %s got %s %s, want a resync for %s", cursor, one.Kind, one.Reason, reason)
		}
		if a := g.ask(http.MethodGet, "/api/v1/events?cursor="+cursor, "", nil); a.status != http.StatusGone || a.reason != reason {
			t.Errorf("cursor %s got %d %s, want 410 for %s", cursor, a.status, a.reason, reason)
		}
	}
}

// resumes fails the test where a cursor of the list is not answered with just the event behind it. There has to be one.
func resumes(t *testing.T, g *gateway, cursors []string) {
	t.Helper()
	for _, cursor := range cursors {
		var seq uint64
		parts := strings.Split(cursor, "-")
		if _, err := fmt.Sscan(parts[1], &seq); err != nil {
			t.Fatal(err)
		}
		one, two := first(t, g, cursor)
		if one.Kind != lawtest.KindConnected || one.Start != "resume" || one.Cursor != cursor ||
			two.Kind != lawtest.KindEvent || two.Seq != seq+1 || two.Epoch != parts[0] {
			t.Errorf("cursor %s got %+v, then %+v; want a resume with the next event", cursor, one, two)
		}
	}
}

// kept fails the test where the log has a hole, an acknowledged event is not in it, or one is in it twice.
func (h *history) kept(t *testing.T, log []lawtest.Record) {
	t.Helper()
	in := map[[2]string]int{}
	for i, rec := range log {
		if i > 0 && rec.Seq != log[i-1].Seq+1 {
			t.Errorf("seq %d stands behind seq %d", rec.Seq, log[i-1].Seq)
		}
		in[[2]string{rec.Topic, rec.ID}]++
	}
	lost := 0
	for _, rec := range h.of("", lawtest.KindPublish) {
		if n := in[[2]string{rec.Topic, rec.ID}]; rec.Outcome == lawtest.OutcomeAcknowledged && n == 0 {
			if lost++; lost <= 5 {
				t.Errorf("%s on %s was acknowledged as seq %d of %s and is not in the log", rec.ID, rec.Topic, rec.Seq, rec.Epoch)
			}
		} else if n > 1 {
			t.Errorf("%s on %s is in the log %d times", rec.ID, rec.Topic, n)
		}
	}
	if lost > 0 {
		t.Errorf("%d acknowledged events are lost", lost)
	}
}
