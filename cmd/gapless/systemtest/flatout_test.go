//go:build linux

package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// Publishers that never pause, by lines and by single events, into a SQLite file, with readers that are live meanwhile:
// everything comes once and in order.
func TestFlatOutOnSQLite(t *testing.T) {
	t.Parallel()
	store, _ := sqliteStore(t)
	flatOut(t, serve(t, "--store", store, "--reconnect-delay", "500ms"))
}

// flatOut publishes lines, then single events, at once from many publishers, and judges what two readers got.
func flatOut(t *testing.T, g *gateway) {
	t.Helper()
	const senders, singles = 4, 32
	lines, each := scaled(3_000, 50_000), scaled(50, 1_000) // of a sender; of a single publisher
	ctx := bounded(t)
	h := &history{}
	clients := herd{t: t}
	whole, part := newReader(g, h, "whole", "flat.*", "end"), newReader(g, h, "part", "flat.3", "end")
	for _, r := range []*reader{whole, part} {
		clients.run(func() error { return r.toEnd(ctx) })
	}
	eventually(t, "the readers are live", func() bool { return deliveredToAll([]*reader{whole, part}, lawtest.KindLive, 1) })
	topics := []string{"flat.0", "flat.1", "flat.2", "flat.3"}

	publishing := herd{t: t}
	begin := time.Now()
	for i := range senders {
		p := newPublisher(t, g, h, fmt.Sprintf("line%d", i), 400, topics...)
		publishing.run(func() error { return p.lines(ctx, lines) })
	}
	publishing.wait()
	t.Logf("lines: %.0f events/s", float64(senders*lines)/time.Since(begin).Seconds())

	begin = time.Now()
	for i := range singles {
		p := newPublisher(t, g, h, fmt.Sprintf("single%d", i), 400, topics...)
		publishing.run(func() error {
			for range each {
				if _, err := p.publish(ctx, 1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	publishing.wait()
	t.Logf("single events: %.0f events/s", float64(singles*each)/time.Since(begin).Seconds())

	newPublisher(t, g, h, "last", 0, "end").end(t)
	clients.wait()
	if told := h.of("", lawtest.KindResync); len(told) > 0 {
		t.Errorf("readers were told to resync: %+v", told)
	}
	h.judge(t, lawtest.Options{MustReach: true, Log: g.log()})
}

// A gateway is killed in the middle of a stream of lines, and the publisher sends all of them again, until it gets to
// the end: each line is stored once, in order, and reaches a reader once.
func TestLinesKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	store, _ := sqliteStore(t)
	linesKilled(t, serve(t, "--store", store, "--reconnect-delay", "500ms"))
}

func linesKilled(t *testing.T, g *gateway) {
	t.Helper()
	lines := scaled(4_000, 100_000)
	ctx := bounded(t)
	h := &history{}
	r := newReader(g, h, "reader", "flat.0", "end")
	clients := herd{t: t}
	clients.run(func() error { return r.toEnd(ctx) })
	eventually(t, "the reader is live", func() bool { return deliveredToAll([]*reader{r}, lawtest.KindLive, 1) })
	p := newPublisher(t, g, h, "line", 400, "flat.0")
	drafts := p.drafts(lines)
	for kill := range 3 {
		// It stops in mid-line, so that there is a middle.
		part, whole := make(chan struct{}), text(drafts)
		cut := len(whole) * (kill + 1) / 4
		body := io.MultiReader(bytes.NewReader(whole[:cut]), gap(part), bytes.NewReader(whole[cut:]))
		sent := make(chan error, 1)
		go func() { _, err := p.sendLines(ctx, body); sent <- err }()
		eventually(t, "lines are stored", func() bool { return g.status().HeadSeq > uint64(lines*kill/4+lines/8) })
		g.kill()
		close(part)
		if err := <-sent; err == nil {
			t.Error("a killed gateway answered")
		}
		g.start()
	}
	said, err := p.sendLines(ctx, bytes.NewReader(text(drafts)))
	if err != nil || said.Accepted != lines || said.Duplicates < lines/2 {
		t.Fatalf("%d lines, most of them stored before, were answered %+v, %v", lines, said, err)
	}
	p.acknowledge(drafts, said.Epoch)
	p.end(t)
	clients.wait()
	if told := h.of("", lawtest.KindResync); len(told) > 0 {
		t.Errorf("the reader was told to resync: %+v", told)
	}
	log := g.log()
	h.judge(t, lawtest.Options{MustReach: true, Log: log})
	h.kept(t, log)
	i := 0
	for _, rec := range log {
		if rec.Topic != "flat.0" {
			continue
		}
		if rec.ID != drafts[i].ID {
			t.Fatalf("%s stands where %s was sent", rec.ID, drafts[i].ID)
		}
		i++
	}
}

// lines makes n events and sends them in one request, as lines.
func (p *publisher) lines(ctx context.Context, n int) error {
	drafts := p.drafts(n)
	said, err := p.sendLines(ctx, bytes.NewReader(text(drafts)))
	if err != nil {
		return err
	}
	if said.Accepted != n {
		return fmt.Errorf("%d lines were answered %+v", n, said)
	}
	p.acknowledge(drafts, said.Epoch)
	return nil
}

// text is drafts as lines.
func text(drafts []draft) []byte {
	var lines bytes.Buffer
	for _, d := range drafts {
		fmt.Fprintf(&lines, `{"id":"%s","topic":"%s","type":"%s","data":%s}`+"\n", d.ID, d.Topic, d.Type, d.Data)
	}
	return lines.Bytes()
}

// gap is a reader that gives nothing and ends when the channel is closed.
type gap <-chan struct{}

func (g gap) Read([]byte) (int, error) { <-g; return 0, io.EOF }

// linesAnswer counts lines; it names no seq of each.
type linesAnswer struct {
	Epoch      string `json:"epoch"`
	Accepted   int    `json:"accepted"`   // that the store has
	Duplicates int    `json:"duplicates"` // of those, the ones that it had before
}

func (p *publisher) sendLines(ctx context.Context, body io.Reader) (said linesAnswer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.g.addr+"/api/v1/events", body)
	if err != nil {
		return said, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := p.client.Do(req)
	if err != nil {
		return said, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		return said, fmt.Errorf("lines were answered %s", resp.Status)
	}
	return said, json.NewDecoder(resp.Body).Decode(&said)
}

// acknowledge records lines that were answered.
func (p *publisher) acknowledge(drafts []draft, epoch string) {
	for _, d := range drafts {
		p.h.add(lawtest.Record{Kind: lawtest.KindPublish, ID: d.ID, Topic: d.Topic, Type: d.Type, Data: d.Data,
			Status: http.StatusCreated, Outcome: lawtest.OutcomeAcknowledged, Epoch: epoch})
	}
}
