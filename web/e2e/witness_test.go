//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// controlTypes are the frames that belong to one connection and are never stored.
var controlTypes = []string{"server.connected", "server.live", "heartbeat", "resync_required", "server.draining"}

// sighting is one event as a client was handed it.
type sighting struct {
	Type string  `json:"type"`
	ID   string  `json:"id"` // lastEventId
	Data string  `json:"data"`
	At   float64 `json:"at"` // ms since the page created its EventSource
}

// control is the data of a control frame, as far as tests look at it.
type control struct {
	ConnectionID string `json:"connection_id"`
	Epoch        string `json:"epoch"`
	Start        string `json:"start"`
	Reason       string `json:"reason"`
	SinceSeq     uint64 `json:"since_seq"`
	HeadSeq      uint64 `json:"head_seq"`
}

func (s sighting) control(t *testing.T) control {
	t.Helper()
	var c control
	if err := json.Unmarshal([]byte(s.Data), &c); err != nil {
		t.Fatalf("%s: data is no JSON: %q", s.Type, s.Data)
	}
	return c
}

func (s sighting) stored() bool {
	for _, c := range controlTypes {
		if s.Type == c {
			return false
		}
	}
	return true
}

// testimony is all that the recorder page saw.
type testimony struct {
	Events   []sighting `json:"events"`
	Opens    []float64  `json:"opens"` // ms since the EventSource was created
	Messages int        `json:"messages"`
	Errors   []struct {
		State int     `json:"state"` // EventSource.readyState
		At    float64 `json:"at"`
	} `json:"errors"`
}

func (p *tab) testimony() testimony {
	p.t.Helper()
	var seen testimony
	p.eval(&seen, "JSON.parse(JSON.stringify(seen))")
	return seen
}

// of returns the sightings of one type.
func (w testimony) of(kind string) []sighting {
	var found []sighting
	for _, s := range w.Events {
		if s.Type == kind {
			found = append(found, s)
		}
	}
	return found
}

// reasons lists the reasons of every resync_required or server.draining that came.
func (w testimony) reasons(t *testing.T, kind string) []string {
	reasons := []string{}
	for _, s := range w.of(kind) {
		reasons = append(reasons, s.control(t).Reason)
	}
	return reasons
}

// starts lists how each served stream began: snapshot, resume or live.
func (w testimony) starts(t *testing.T) []string {
	starts := []string{}
	for _, s := range w.of("server.connected") {
		starts = append(starts, s.control(t).Start)
	}
	return starts
}

// list is what a page that keeps the contract shows: it clears on a snapshot and appends everything else.
func (w testimony) list(t *testing.T) []sighting {
	var list []sighting
	for _, s := range w.Events {
		switch {
		case s.Type == "server.connected" && s.control(t).Start == "snapshot":
			list = nil
		case s.stored():
			list = append(list, s)
		}
	}
	return list
}

// holds returns an expression that is true once the page has n sightings of a type.
func holds(kind string, n int) string {
	return fmt.Sprintf("seen.events.filter(e => e.type === %q).length >= %d", kind, n)
}

// holdsSeq returns an expression that is true once the page has the event with that seq of the epoch.
func holdsSeq(epoch string, seq uint64) string {
	return fmt.Sprintf("seen.events.some(e => e.id.startsWith('%s-%d-'))", epoch, seq)
}

// sameAsLog compares a page's own list with the log: the same events, in order, each one once, with the same
// id, type and data.
func sameAsLog(t *testing.T, list []sighting, log []event) {
	t.Helper()
	for i := 0; i < len(list) || i < len(log); i++ {
		switch {
		case i >= len(list):
			t.Fatalf("gap: the page has %d events, the log %d; first one missing: seq %d", len(list), len(log), log[i].Seq)
		case i >= len(log):
			t.Fatalf("the page has %d events, the log %d; first one too many: %s %s", len(list), len(log), list[i].ID, list[i].Data)
		}
		if list[i].ID != log[i].Cursor {
			t.Fatalf("event %d of the page is %s, of the log %s", i, list[i].ID, log[i].Cursor)
		}
		sameEvent(t, list[i], log[i])
	}
}

// sameEvent compares a sighting in envelope format with the log's event.
func sameEvent(t *testing.T, s sighting, e event) {
	t.Helper()
	var envelope event
	if err := json.Unmarshal([]byte(s.Data), &envelope); err != nil {
		t.Fatalf("seq %d: data is no JSON envelope: %q", e.Seq, s.Data)
	}
	if s.Type != e.Type && s.Type != "message" {
		t.Errorf("seq %d: fired as %q, the log has %q", e.Seq, s.Type, e.Type)
	}
	got := []string{fmt.Sprint(envelope.Seq), envelope.Epoch, envelope.ID, envelope.Time, envelope.Type, envelope.Topic, compact(envelope.Data)}
	want := []string{fmt.Sprint(e.Seq), strings.SplitN(e.Cursor, "-", 2)[0], e.ID, e.Time, e.Type, e.Topic, compact(e.Data)}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("seq %d: the page has %q, the log %q", e.Seq, got[i], want[i])
		}
	}
}

// settle fails if a page opens another connection while a few reconnect delays pass: a page that has healed stays on
// one stream.
func settle(t *testing.T, pages ...*tab) {
	t.Helper()
	before := make([]testimony, len(pages))
	for i, page := range pages {
		before[i] = page.testimony()
	}
	pause(t, 4*quick)
	for i, page := range pages {
		after := page.testimony()
		if len(after.Opens) != len(before[i].Opens) || len(after.Errors) != len(before[i].Errors) {
			t.Errorf("%s: the stream does not settle: opens %d → %d, errors %d → %d, resyncs %v", page.b.kind,
				len(before[i].Opens), len(after.Opens), len(before[i].Errors), len(after.Errors), after.reasons(t, "resync_required"))
		}
	}
}

// same compares two lists of words.
func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// seconds turns a time of the recorder page into a duration.
func seconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
