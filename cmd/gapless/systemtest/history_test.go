//go:build linux

package systemtest_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"testing"

	"gapless/feed/lawtest"
)

// history is what all clients and publishers of a test saw. It is safe for concurrent use.
type history struct {
	mu      sync.Mutex
	records []lawtest.Record
}

func (h *history) add(rec lawtest.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, rec)
}

// all is a copy, in the order of the sightings.
func (h *history) all() []lawtest.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.records)
}

// judge fails the test where the law was broken.
func (h *history) judge(t *testing.T, opts lawtest.Options) {
	t.Helper()
	records := h.all()
	violations := lawtest.Check(records, opts)
	for i, v := range violations {
		if i == 5 {
			t.Errorf("and %d more violations", len(violations)-i)
			break
		}
		t.Errorf("%v\n%s", v, v.Excerpt(records))
	}
	t.Logf("the judge saw %d records", len(records))
}

// of selects the records of one client and one kind; an empty name is any.
func (h *history) of(client string, kind lawtest.Kind) []lawtest.Record {
	var found []lawtest.Record
	for _, rec := range h.all() {
		if rec.Kind == kind && (client == "" || rec.Client == client) {
			found = append(found, rec)
		}
	}
	return found
}

// cursorOf is a cursor without a fence, as a client may send it that has only seen the numbers.
func cursorOf(epoch string, seq uint64) string { return epoch + "-" + strconv.FormatUint(seq, 10) }

func decode(t *testing.T, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
}
