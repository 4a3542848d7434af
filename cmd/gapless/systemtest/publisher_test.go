//go:build linux

package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// draft is an event to publish.
type draft struct {
	ID    string          `json:"id"`
	Topic string          `json:"topic"`
	Type  string          `json:"type"`
	Data  json.RawMessage `json:"data"`
}

// publisher publishes over HTTP on one kept connection and records each answer. One goroutine uses it.
type publisher struct {
	g      *gateway
	h      *history
	name   string // the first part of its ids
	topics []string
	size   int // bytes of an event's data
	n      int // events so far
	client http.Client
}

func newPublisher(t *testing.T, g *gateway, h *history, name string, size int, topics ...string) *publisher {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &publisher{g: g, h: h, name: name, topics: topics, size: size, client: http.Client{Transport: transport}}
}

// drafts makes the next n events, on the publisher's topics by turns.
func (p *publisher) drafts(n int) []draft {
	drafts := make([]draft, n)
	for i := range drafts {
		p.n++
		data := fmt.Sprintf(`{"n":%d,"pad":""}`, p.n)
		data = data[:len(data)-2] + strings.Repeat("x", max(0, p.size-len(data))) + `"}`
		drafts[i] = draft{ID: fmt.Sprintf("%s-%d", p.name, p.n), Topic: p.topics[p.n%len(p.topics)], Type: "tick", Data: json.RawMessage(data)}
	}
	return drafts
}

// publish makes n events and sends them as one batch. It returns how long the answer took; the error says that there
// was none, or another one than 201.
func (p *publisher) publish(ctx context.Context, n int) (time.Duration, error) {
	return p.send(ctx, p.drafts(n))
}

func (p *publisher) send(ctx context.Context, drafts []draft) (time.Duration, error) {
	body, err := json.Marshal(drafts)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	var answer struct {
		Epoch  string `json:"epoch"`
		Events []struct {
			Seq       uint64 `json:"seq"`
			Duplicate bool   `json:"duplicate"`
		} `json:"events"`
	}
	status, content, err := p.post(ctx, body)
	took := time.Since(begin)
	if err == nil && status == http.StatusCreated {
		err = json.Unmarshal(content, &answer)
	} else if err == nil {
		err = fmt.Errorf("publish: %d %s", status, content)
	}
	if err == nil && len(answer.Events) != len(drafts) {
		err = fmt.Errorf("publish: %d answers for %d events", len(answer.Events), len(drafts))
	}
	for i, d := range drafts {
		rec := lawtest.Record{Kind: lawtest.KindPublish, ID: d.ID, Topic: d.Topic, Type: d.Type, Data: string(d.Data), Status: status}
		switch {
		case err == nil:
			e := answer.Events[i]
			rec.Outcome, rec.Epoch, rec.Seq, rec.Duplicate = lawtest.OutcomeAcknowledged, answer.Epoch, e.Seq, e.Duplicate
		case status == http.StatusServiceUnavailable:
			rec.Outcome = lawtest.OutcomeRefused
		default:
			rec.Outcome = lawtest.OutcomeUnknown
		}
		p.h.add(rec)
	}
	return took, err
}

// must publishes n events in batches and fails the test where one is not acknowledged.
func (p *publisher) must(t *testing.T, n, batch int) []time.Duration {
	t.Helper()
	var took []time.Duration
	for n > 0 {
		d, err := p.publish(bounded(t), min(n, batch))
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, d)
		n -= batch
	}
	return took
}

// end publishes the event behind which no client has to read: see reader.toEnd.
func (p *publisher) end(t *testing.T) {
	t.Helper()
	p.n++
	d := draft{ID: fmt.Sprintf("%s-%d", p.name, p.n), Topic: "end", Type: "end", Data: json.RawMessage("null")}
	if _, err := p.send(bounded(t), []draft{d}); err != nil {
		t.Fatal(err)
	}
}

func (p *publisher) post(ctx context.Context, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.g.addr+"/api/v1/events", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, content, err
}
