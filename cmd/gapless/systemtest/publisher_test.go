//go:build linux

package systemtest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// draft is an event to publish. Its strings need no escape; Data is JSON.
type draft struct{ ID, Topic, Type, Data string }

// encode makes a batch of drafts.
func encode(drafts []draft) []byte {
	body := []byte{'['}
	for i, d := range drafts {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"id":"%s","topic":"%s","type":"%s","data":%s}`, d.ID, d.Topic, d.Type, d.Data)
	}
	return append(body, ']')
}

// publisher publishes over HTTP on one kept connection and records each answer. One goroutine uses it.
type publisher struct {
	g      *gateway
	h      *history
	name   string // the first part of its ids
	topics []string
	size   int  // bytes of an event's data
	noisy  bool // its data cannot be compressed
	n      int  // events so far
	light  bool // record no payloads, where all readers are light
	client http.Client
	// outbox: what is not acknowledged is sent again. A refusal then says nothing, as the store may have it already.
	outbox bool
	tries  *atomic.Int64 // counts what was sent again; may be nil
}

// refused is an answer other than an acknowledgement.
type refused struct {
	status int
	code   string // of the problem
	body   string
}

func (r *refused) Error() string { return fmt.Sprintf("publish: %d %s", r.status, r.body) }

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
		pad := strings.Repeat("x", max(0, p.size-len(data)))
		if p.noisy {
			pad = noise(len(pad))
		}
		data = data[:len(data)-2] + pad + `"}`
		drafts[i] = draft{ID: fmt.Sprintf("%s-%d", p.name, p.n), Topic: p.topics[p.n%len(p.topics)], Type: "tick", Data: data}
	}
	return drafts
}

// noise is n letters and digits of no pattern.
func noise(n int) string {
	bytes := make([]byte, n*3/4+3)
	_, _ = rand.Read(bytes) // never fails
	return base64.RawURLEncoding.EncodeToString(bytes)[:n]
}

// publish makes n events and sends them as one batch. It returns how long the answer took; the error says that there
// was none, or another one than 201.
func (p *publisher) publish(ctx context.Context, n int) (time.Duration, error) {
	return p.send(ctx, p.drafts(n))
}

func (p *publisher) send(ctx context.Context, drafts []draft) (time.Duration, error) {
	body := encode(drafts)
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
	if err == nil && (status == http.StatusCreated || status == http.StatusOK) {
		err = json.Unmarshal(content, &answer)
	} else if err == nil {
		err = newRefused(status, content)
	}
	if err == nil && len(answer.Events) != len(drafts) {
		err = fmt.Errorf("publish: %d answers for %d events", len(answer.Events), len(drafts))
	}
	for i, d := range drafts {
		rec := lawtest.Record{Kind: lawtest.KindPublish, ID: d.ID, Topic: d.Topic, Type: d.Type, Status: status}
		if !p.light {
			rec.Data = d.Data
		}
		switch {
		case err == nil:
			e := answer.Events[i]
			rec.Outcome, rec.Epoch, rec.Seq, rec.Duplicate = lawtest.OutcomeAcknowledged, answer.Epoch, e.Seq, e.Duplicate
		case status == http.StatusServiceUnavailable && !p.outbox:
			rec.Outcome = lawtest.OutcomeRefused
		default:
			rec.Outcome = lawtest.OutcomeUnknown
		}
		p.h.add(rec)
	}
	return took, err
}

func newRefused(status int, content []byte) *refused {
	var problem struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(content, &problem) // a body that is none has no code
	return &refused{status, problem.Code, string(content)}
}

// persist makes n events and sends them as one batch until it is acknowledged, as a publisher with an outbox does:
// again after no answer and after 503. Any other answer is an error, and so is ctx's end. pick, where it is not nil,
// says before each try which gateway to send to.
func (p *publisher) persist(ctx context.Context, n int, pick func() *gateway) error {
	return p.resend(ctx, p.drafts(n), pick)
}

func (p *publisher) resend(ctx context.Context, drafts []draft, pick func() *gateway) error {
	p.outbox = true
	for {
		if pick != nil {
			p.g = pick()
		}
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		_, err := p.send(try, drafts)
		cancel()
		var no *refused
		if err == nil || errors.As(err, &no) && no.status != http.StatusServiceUnavailable {
			return err
		}
		if p.tries != nil {
			p.tries.Add(1)
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s: %w; at last: %w", p.name, ctx.Err(), err)
		}
	}
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
	d := draft{ID: fmt.Sprintf("%s-%d", p.name, p.n), Topic: "end", Type: "end", Data: "null"}
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
