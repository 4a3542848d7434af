package feed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
	"gapless/feed/memory"
)

// rig is a running feed over a log, inside a synctest bubble.
type rig struct {
	*testing.T
	log  feed.Log
	feed *feed.Feed
	stop func()
}

// inBubble runs a test with a running feed over a faulty log that keeps the
// given number of events.
func inBubble(t *testing.T, keep int, cfg feed.Config, test func(r *rig, log *feedtest.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := feedtest.NewLog(keep)
		r := start(t, log, cfg)
		defer r.stop()
		test(r, log)
	})
}

// inMemory is inBubble over the memory store.
func inMemory(t *testing.T, retention feed.Retention, cfg feed.Config, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log, err := memory.New(memory.Config{Retention: retention})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, log, cfg)
		defer r.stop()
		test(r)
	})
}

func start(t *testing.T, log feed.Log, cfg feed.Config) *rig {
	t.Helper()
	cfg.Log = log
	f, err := feed.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	if err := f.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return &rig{T: t, log: log, feed: f, stop: func() { cancel(); <-done }}
}

// publish appends events n = from … to, one a batch, on topic t.<n%3>.
func (r *rig) publish(from, to int) {
	r.Helper()
	for n := from; n <= to; n++ {
		r.publishTo(fmt.Sprintf("t.%d", n%3), fmt.Sprint(n))
	}
}

func (r *rig) publishTo(topic, data string) feed.Appended {
	r.Helper()
	receipt, err := r.feed.Publish(r.Context(), []feed.Draft{{Topic: topic, Type: "n", Data: json.RawMessage(data)}})
	if err != nil {
		r.Fatal(err)
	}
	return receipt.Events[0]
}

// batch appends n events as one batch.
func (r *rig) batch(n int) {
	r.Helper()
	drafts := make([]feed.Draft, n)
	for i := range drafts {
		drafts[i] = feed.Draft{Topic: "t.0", Type: "n", Data: json.RawMessage("1")}
	}
	if _, err := r.feed.Publish(r.Context(), drafts); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) filter(patterns ...string) feed.Filter {
	r.Helper()
	f, err := feed.NewFilter(patterns, nil, false)
	if err != nil {
		r.Fatal(err)
	}
	return f
}

// at is a resume from a cursor's text, as it would come from a client.
func (r *rig) at(cursor string) feed.SubscribeOptions {
	r.Helper()
	c, err := feed.ParseCursor(cursor)
	if err != nil {
		r.Fatal(err)
	}
	return feed.SubscribeOptions{From: feed.From{Cursor: c}}
}

func fromStart(mode feed.StartMode) feed.SubscribeOptions {
	return feed.SubscribeOptions{From: feed.From{Start: feed.Start{Mode: mode}}}
}

// block is one parsed frame.
type block struct {
	name, id, retry string
	data            string
}

func (b block) field(name string) any {
	var m map[string]any
	if json.Unmarshal([]byte(b.data), &m) != nil {
		return nil
	}
	return m[name]
}

func (b block) reason() string {
	reason, _ := b.field("reason").(string)
	return reason
}

// seq is the seq of the cursor in the id line.
func (b block) seq() uint64 {
	c, err := feed.ParseCursor(b.id)
	if err != nil {
		return 0
	}
	return c.Seq
}

func parse(frame []byte) block {
	var b block
	var data []string
	for line := range bytes.Lines(frame) {
		name, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ": ")
		switch name {
		case "event":
			b.name = value
		case "id":
			b.id = value
		case "retry":
			b.retry = value
		case "data":
			data = append(data, value)
		}
	}
	b.data = strings.Join(data, "\n")
	return b
}

// reader is a client of one stream, which it reads when told to.
type reader struct {
	*rig
	sub    *feed.Subscriber
	blocks []block
	last   string // the cursor of the last block with an id
}

func (r *rig) subscribe(opts feed.SubscribeOptions) *reader {
	r.Helper()
	sub, err := r.feed.Subscribe(r.Context(), opts)
	if err != nil {
		r.Fatal(err)
	}
	return &reader{rig: r, sub: sub}
}

func (rd *reader) close() { rd.sub.Close() }

// step takes what Next returns; it fails the test where that is an error
// other than the end of the stream, and reports false there.
func (rd *reader) step() bool {
	rd.Helper()
	frames, err := rd.sub.Next(rd.Context())
	if errors.Is(err, feed.ErrEnded) {
		return false
	}
	if err != nil {
		rd.Fatal(err)
	}
	for _, f := range frames {
		b := parse(f.Bytes)
		rd.blocks = append(rd.blocks, b)
		if b.id != "" {
			rd.last = b.id
		}
	}
	return true
}

// drain reads for as long as there is something to read at once.
func (rd *reader) drain() {
	rd.Helper()
	for {
		ctx, cancel := context.WithTimeout(rd.Context(), time.Millisecond)
		frames, err := rd.sub.Next(ctx)
		cancel()
		if err != nil {
			return
		}
		for _, f := range frames {
			b := parse(f.Bytes)
			rd.blocks = append(rd.blocks, b)
			if b.id != "" {
				rd.last = b.id
			}
		}
	}
}

// seqs lists the events that were read, without control frames.
func (rd *reader) seqs() []uint64 {
	var seqs []uint64
	for _, b := range rd.blocks {
		if b.name == "n" {
			seqs = append(seqs, b.seq())
		}
	}
	return seqs
}

func (rd *reader) names() []string {
	var names []string
	for _, b := range rd.blocks {
		names = append(names, b.name)
	}
	return names
}

// endsWith checks that the last block is a resync for a reason, and the only
// one, and that the stream then ends.
func (rd *reader) endsWith(reason feed.Reason) {
	rd.Helper()
	for rd.step() {
	}
	last := rd.blocks[len(rd.blocks)-1]
	if last.name != feed.TypeResync || last.reason() != string(reason) {
		rd.Fatalf("last block is %q, reason %q; want resync_required, %q\n%v", last.name, last.reason(), reason, rd.names())
	}
	if n := len(slices.DeleteFunc(rd.names(), func(s string) bool { return s != feed.TypeResync })); n != 1 {
		rd.Fatalf("%d resyncs, want 1", n)
	}
}

func upTo(from, to uint64) []uint64 {
	var seqs []uint64
	for n := from; n <= to; n++ {
		seqs = append(seqs, n)
	}
	return seqs
}

func (rd *reader) wantSeqs(want []uint64) {
	rd.Helper()
	if got := rd.seqs(); !slices.Equal(got, want) {
		rd.Fatalf("events %s, want %s; last block %+v", ranges(got), ranges(want), rd.blocks[len(rd.blocks)-1])
	}
}

// ranges writes seqs as 1-5 7 9-12.
func ranges(seqs []uint64) string {
	var b strings.Builder
	for i := 0; i < len(seqs); {
		j := i
		for j+1 < len(seqs) && seqs[j+1] == seqs[j]+1 {
			j++
		}
		fmt.Fprintf(&b, "%d-%d ", seqs[i], seqs[j])
		i = j + 1
	}
	return b.String()
}
