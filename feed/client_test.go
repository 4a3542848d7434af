package feed_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"gapless/feed"
)

// hiddenType is a type that no subscriber gets.
const hiddenType = "hidden"

// client is a plain EventSource with a memory: what it asked for, what its
// own cursor is (from id lines alone), and where in the reference that is. It
// judges each message when it comes.
type client struct {
	log       *timeline
	filter    feed.Filter
	shape     feed.Shape
	start     feed.Start
	snapshots int // events of a default snapshot

	cursor    string // the last event id
	stream    eventStream
	pos       *node  // everything that matches up to here was delivered; nil: unknown
	tip       *node  // the head when the connection began
	from      *node  // a snapshot has begun: the head at that time
	oldest    uint64 // and the oldest event
	ending    bool   // the stream's last frame has come
	connected bool   // its first has
	delivered int
	told      int // resyncs
	branches  int // resyncs of the log's own making
}

// wants reports whether the client asked for an event, and it is not hidden.
func (c *client) wants(n *node) bool {
	return n.typ != hiddenType && c.filter.Match(n.topic, n.typ)
}

// connect begins a new connection: what was cut off is lost.
func (c *client) connect() feed.SubscribeOptions {
	c.stream = eventStream{begun: true, id: c.cursor, buffer: c.cursor}
	c.ending, c.connected = false, false
	c.log.mu.Lock()
	c.tip = c.log.head
	c.log.mu.Unlock()
	opts := feed.SubscribeOptions{From: feed.From{Start: c.start}, Filter: c.filter, Shape: c.shape}
	if c.cursor != "" {
		cursor, err := feed.ParseCursor(c.cursor)
		opts.Cursor, opts.Invalid = cursor, err != nil
	}
	return opts
}

// receive takes bytes of the stream. The error says how they break the law.
func (c *client) receive(p []byte) error {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	for _, m := range c.stream.write(p) {
		if err := c.judge(m); err != nil {
			return fmt.Errorf("after %d events, cursor %s, on %+v: %w", c.delivered, c.cursor, m, err)
		}
		c.cursor = m.id
	}
	return nil
}

// told is what the data of a control frame says.
type told struct {
	Epoch  feed.Epoch `json:"epoch"`
	Start  string     `json:"start"`
	Reason string     `json:"reason"`
	Oldest uint64     `json:"oldest_seq"`
	Head   uint64     `json:"head_seq"`
}

func (c *client) judge(m message) error {
	if c.ending {
		return fmt.Errorf("a message after the last one")
	}
	switch m.event {
	case feed.TypeConnected, feed.TypeLive, feed.TypeHeartbeat, feed.TypeResync, feed.TypeDraining:
		var says told
		if err := json.Unmarshal([]byte(m.data), &says); err != nil {
			return err
		}
		if first := !c.connected && m.event != feed.TypeResync && m.event != feed.TypeDraining; first != (m.event == feed.TypeConnected) {
			return fmt.Errorf("the first message is to be server.connected, and only the first")
		}
		c.connected = true
		return c.judgeControl(m, says)
	}
	at, err := c.at(m.id)
	if err != nil {
		return err
	}
	if !c.connected || !c.wants(at) {
		return fmt.Errorf("not asked for")
	}
	if err := c.faithful(m, at); err != nil {
		return err
	}
	c.delivered++
	return c.advance(at, true)
}

func (c *client) judgeControl(m message, says told) error {
	switch m.event {
	case feed.TypeDraining:
		c.ending = true
		if m.id != c.cursor {
			return fmt.Errorf("a planned close moves the cursor")
		}
		return nil
	case feed.TypeResync:
		return c.judgeResync(m, says)
	}
	if says.Epoch != c.log.epoch && c.log.resets == 0 {
		return fmt.Errorf("epoch %s, the log has %s", says.Epoch, c.log.epoch)
	}
	switch {
	case m.event != feed.TypeConnected:
		at, err := c.at(m.id)
		if err != nil {
			return err
		}
		if at.seq == 0 && c.pos == nil && m.event == feed.TypeHeartbeat {
			return nil // still no position
		}
		return c.advance(at, false)
	case says.Start == "resume":
		if m.id != c.cursor || c.pos == nil {
			return fmt.Errorf("resumed from another place than the client's")
		}
		return nil
	case says.Start == "live":
		at, err := c.at(m.id)
		c.pos, c.from = at, nil
		return err
	default:
		if c.tip.seq < says.Head { // it grew while the connection began
			c.tip = c.log.head
		}
		c.pos, c.from, c.oldest = nil, c.tip.back(says.Head), says.Oldest
		return nil
	}
}

func (c *client) judgeResync(m message, says told) error {
	c.ending = true
	c.told++
	expired := c.pos != nil && c.pos.seq+1 < c.log.oldest() || c.pos == nil && c.from != nil
	switch feed.Reason(says.Reason) {
	case feed.ReasonCursorExpired, feed.ReasonLagged:
		if !expired {
			return fmt.Errorf("a needless resync: the log holds all from %d on", c.log.oldest())
		}
	case feed.ReasonEpochChanged, feed.ReasonHistoryChanged, feed.ReasonLogReset, feed.ReasonCursorAhead:
		if c.branches++; c.branches > 2*c.log.resets {
			return fmt.Errorf("a needless resync: the log was reset %d times", c.log.resets)
		}
	default:
		return fmt.Errorf("no reason of a client's that resumes from its own cursors")
	}
	c.pos, c.from = nil, nil
	at, err := c.at(m.id)
	if c.start.Mode == feed.StartLive && at != c.log.root {
		c.pos = at
	} else if err == nil && at != c.log.root {
		return fmt.Errorf("the cursor after a resync has a position")
	}
	return err
}

// at returns the event that a cursor means.
func (c *client) at(cursor string) (*node, error) {
	parsed, err := feed.ParseCursor(cursor)
	if err != nil || parsed.Epoch == "" {
		return nil, fmt.Errorf("the id is no cursor: %v", err)
	}
	n := c.log.nodes[fmt.Sprintf("%d-%s", parsed.Seq, parsed.Fence)]
	if n == nil {
		return nil, fmt.Errorf("the log never held the event of %s", cursor)
	}
	return n, nil
}

// advance is the law: between two positions of a client lies nothing that it
// asked for and did not get, and the second follows from the first.
func (c *client) advance(to *node, isEvent bool) error {
	if c.pos == nil {
		if err := c.rest(to, isEvent); err != nil {
			return err
		}
	}
	if to.seq < c.pos.seq || isEvent && to.seq == c.pos.seq {
		return fmt.Errorf("back to %d, the client has %d", to.seq, c.pos.seq)
	}
	n := to
	if isEvent {
		n = to.prev
	}
	for ; n.seq > c.pos.seq; n = n.prev {
		if c.wants(n) {
			return fmt.Errorf("event %d was left out: the client has %d and is at %d", n.seq, c.pos.seq, to.seq)
		}
	}
	if n != c.pos {
		return fmt.Errorf("event %d is of another branch than the client's %d, and it was not told", to.seq, c.pos.seq)
	}
	c.pos = to
	return nil
}

// rest finds where a snapshot rests on, once its first event or bookmark has
// come: it holds the last n that match of what was retained when it began,
// but for those that the log has trimmed or lost since.
func (c *client) rest(first *node, isEvent bool) error {
	if c.from == nil {
		return fmt.Errorf("an event, and the client has no position")
	}
	common := first.common(c.from)
	if common != c.from && common != first && c.log.resets == 0 {
		return fmt.Errorf("event %d is of another branch than the snapshot's %d", first.seq, c.from.seq)
	}
	now := c.log.oldest()
	most := min(c.begin(c.oldest).seq, common.seq)
	least := min(c.begin(max(c.oldest, now)).seq, common.seq)
	if isEvent && first.seq <= most {
		return fmt.Errorf("the snapshot holds more than was asked for: from %d on, want from behind %d", first.seq, most)
	}
	at := first
	if isEvent {
		at = first.prev
	}
	if least = max(least, now-1); least < at.seq {
		at = at.back(least)
	}
	c.pos = at
	return nil
}

// begin returns the node behind which the snapshot begins if the log holds
// what follows from oldest on.
func (c *client) begin(oldest uint64) *node {
	limit := math.MaxInt
	switch c.start.Mode {
	case feed.StartSnapshot:
		limit = c.snapshots
	case feed.StartLast:
		limit = c.start.N
	}
	begin, n := c.from, c.from
	for ; limit > 0 && n.seq >= oldest && n.seq > 0; n = n.prev {
		if c.wants(n) {
			begin = n.prev
			limit--
		}
	}
	return begin
}

// faithful compares the payload with what was published.
func (c *client) faithful(m message, at *node) error {
	want, typ := at.data, at.typ
	if c.shape.Unnamed {
		typ = "message"
	}
	if c.shape.Format == feed.FormatEnvelope {
		var e struct {
			Seq         uint64
			Type, Topic string
			Data        json.RawMessage
		}
		if err := json.Unmarshal([]byte(m.data), &e); err != nil {
			return err
		}
		if e.Seq != at.seq || e.Type != at.typ || e.Topic != at.topic {
			return fmt.Errorf("the envelope is of another event")
		}
		m.data = string(e.Data)
	}
	if m.data != want || m.event != typ {
		return fmt.Errorf("published as %s %s", at.typ, want)
	}
	return nil
}

// lacks lists what the client has yet to get.
func (c *client) lacks() []uint64 {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	after := c.pos
	switch {
	case after != nil:
	case c.from != nil:
		after = c.begin(max(c.oldest, c.log.oldest()))
	default:
		return []uint64{0}
	}
	var lacking []uint64
	for n := c.log.head; n.seq > after.seq; n = n.prev {
		if c.wants(n) {
			lacking = append(lacking, n.seq)
		}
	}
	slices.Reverse(lacking)
	return lacking
}
