package main

import (
	"encoding/json"
	"fmt"
	"io"

	"gapless/feed"
	"gapless/feed/upstream"
)

// printer writes events to stdout, and what the server says of the stream to
// stderr.
type printer struct {
	out, notices io.Writer
	format       string
	colour       palette
	began        bool // server.connected has come once
}

// control is what the data of control frames may hold.
type control struct {
	Reason   string `json:"reason"`
	Epoch    string `json:"epoch"`
	Start    string `json:"start"`
	SinceSeq uint64 `json:"since_seq"`
	HeadSeq  uint64 `json:"head_seq"`
}

// print writes one event and reports whether it was one, and no control
// frame. The error is the writer's.
func (p *printer) print(ev upstream.Event) (bool, error) {
	switch ev.Type {
	case feed.TypeConnected, feed.TypeLive, feed.TypeHeartbeat, feed.TypeResync, feed.TypeDraining:
		return false, p.control(ev)
	}
	var err error
	switch p.format {
	case "pretty":
		err = p.pretty(ev)
	default:
		_, err = fmt.Fprintf(p.out, "%s\n", ev.Data)
	}
	return true, err
}

// control tells of the stream itself. What is missing from the output is told
// in every format; the rest to people only.
func (p *printer) control(ev upstream.Event) error {
	var c control
	if err := json.Unmarshal(ev.Data, &c); err != nil {
		return fmt.Errorf("the gateway sent a %s that cannot be read: %w", ev.Type, err)
	}
	if ev.Type == feed.TypeResync {
		return p.notice("resync: " + resyncMeaning(feed.Reason(c.Reason)))
	}
	if p.format != "pretty" {
		return nil
	}
	switch ev.Type {
	case feed.TypeConnected:
		text := fmt.Sprintf("connected at the head, seq %d", c.HeadSeq)
		switch {
		case c.Start == "resume" && p.began:
			text = fmt.Sprintf("resumed after seq %d: nothing was missed", c.SinceSeq)
		case c.Start == "resume":
			text = fmt.Sprintf("connected, from seq %d on; the head is %d", c.SinceSeq+1, c.HeadSeq)
		case c.Start == "snapshot":
			text = fmt.Sprintf("connected, first what the server has kept; the head is %d", c.HeadSeq)
		}
		p.began = true
		return p.notice(text)
	case feed.TypeLive:
		return p.notice("live: what follows comes as it is published")
	case feed.TypeDraining:
		return p.notice("the server ends the connection (" + printable(c.Reason) + "); coming back with the cursor")
	}
	return nil
}

func (p *printer) notice(text string) error {
	_, err := fmt.Fprintf(p.notices, "%s· %s%s\n", p.colour.dim, text, p.colour.off)
	return err
}

// farewell says how to go on from here, to people only.
func (p *printer) farewell(cursor string) error {
	if p.format != "pretty" || cursor == "" {
		return nil
	}
	return p.notice("to go on from here: --since " + printable(cursor))
}

// resyncMeaning says what a reason means to somebody who reads along.
func resyncMeaning(reason feed.Reason) string {
	const missed = "; events may be missing here"
	switch reason {
	case feed.ReasonCursorExpired:
		return "the server no longer keeps what follows the cursor (cursor_expired)" + missed
	case feed.ReasonLagged:
		return "this reader fell behind what the server keeps (lagged)" + missed
	case feed.ReasonEpochChanged:
		return "the server began a new timeline, as after a restart of a memory store (epoch_changed); what came before is over"
	case feed.ReasonCursorAhead:
		return "the cursor is ahead of the server's log (cursor_ahead); the log lost events since" + missed
	case feed.ReasonHistoryChanged:
		return "the log was rolled back, and the cursor's event is another one now (history_changed)" + missed
	case feed.ReasonLogReset:
		return "the log was rolled back under the stream (log_reset)" + missed
	case feed.ReasonEncodingFailed:
		return "the log holds an event that cannot be sent (encoding_failed); it is left out"
	case feed.ReasonCursorInvalid, feed.ReasonEpochMissing:
		return "the cursor is none of this server's (" + string(reason) + ")" + missed
	}
	return printable(string(reason)) + missed
}
