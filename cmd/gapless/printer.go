package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"gapless/feed"
	"gapless/feed/upstream"
)

// printer writes events to stdout, and what the server says of the stream to
// stderr.
type printer struct {
	out, notices io.Writer
	format       string
	start        string // the stream's --start
	colour       palette

	// followed is the cursor up to which the output has everything that was
	// asked for since this process began, or since the last resync: of an
	// event or a bookmark. Empty: there is none.
	followed string
	resynced bool // since the last server.connected
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
		err := p.control(ev)
		switch {
		case ev.Type == feed.TypeResync:
			p.followed, p.resynced = "", true // its id is no place that was read up to
		case ev.Type != feed.TypeDraining: // which has no id
			p.followed, p.resynced = ev.ID, false
		}
		return false, err
	}
	var err error
	switch p.format {
	case "pretty":
		err = p.pretty(ev)
	default:
		_, err = fmt.Fprintf(p.out, "%s\n", ev.Data)
	}
	p.followed = ev.ID
	return true, err
}

// control tells of the stream itself. What is missing from the output, and why
// a connection ends, is told in every format; the rest to people only.
func (p *printer) control(ev upstream.Event) error {
	var c control
	if err := json.Unmarshal(ev.Data, &c); err != nil {
		return fmt.Errorf("the gateway sent a %s that cannot be read: %w", ev.Type, err)
	}
	if ev.Type == feed.TypeResync {
		reason := feed.Reason(c.Reason)
		return p.notice("resync (" + printable(c.Reason) + "): " + resyncMeaning(reason) + p.afterResync(reason, c.HeadSeq))
	}
	if ev.Type == feed.TypeDraining {
		return p.notice("the server ends the connection (" + printable(c.Reason) + ")")
	}
	if p.format != "pretty" {
		return nil
	}
	switch ev.Type {
	case feed.TypeConnected:
		text := fmt.Sprintf("connected at the head, seq %d", c.HeadSeq)
		switch {
		case c.Start == "resume" && p.follows(c):
			text = fmt.Sprintf("resumed after seq %d: nothing was missed", c.SinceSeq)
		case c.Start == "resume" && p.resynced:
			text = fmt.Sprintf("goes on live after seq %d", c.SinceSeq)
		case c.Start == "resume":
			text = fmt.Sprintf("connected, from seq %d on; the head is %d", c.SinceSeq+1, c.HeadSeq)
		case c.Start == "snapshot":
			text = fmt.Sprintf("connected, first what the server has kept; the head is %d", c.HeadSeq)
		}
		return p.notice(text)
	case feed.TypeLive:
		return p.notice("live: what follows comes as it is published")
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

// follows reports whether a connection resumes from where the output ends.
func (p *printer) follows(c control) bool {
	at, err := feed.ParseCursor(p.followed)
	return err == nil && p.followed != "" && string(at.Epoch) == c.Epoch && at.Seq == c.SinceSeq
}

// resyncMeaning says what a reason means to somebody who reads along.
func resyncMeaning(reason feed.Reason) string {
	switch reason {
	case feed.ReasonCursorExpired:
		return "the server no longer keeps what follows the cursor"
	case feed.ReasonLagged:
		return "this reader fell behind what the server keeps"
	case feed.ReasonEpochChanged:
		return "the server began a new timeline, as after a restart of a memory store"
	case feed.ReasonCursorAhead:
		return "the cursor is ahead of the server's log, which lost events since"
	case feed.ReasonHistoryChanged:
		return "the log was rolled back, and the cursor's event is another one now"
	case feed.ReasonLogReset:
		return "the log was rolled back under the stream"
	case feed.ReasonEncodingFailed:
		return "the log holds an event that cannot be sent"
	case feed.ReasonCursorInvalid, feed.ReasonEpochMissing:
		return "the cursor is none of this server's"
	}
	return "events may be missing here"
}

// afterResync says what the output lacks, or repeats, from here on.
func (p *printer) afterResync(reason feed.Reason, head uint64) string {
	switch {
	case p.start == "live" && reason == feed.ReasonEpochChanged:
		return fmt.Sprintf("; it holds events up to seq %d, which are not printed (--start snapshot prints them)", head)
	case p.start == "live":
		return fmt.Sprintf("; of its events up to seq %d, those that were not printed yet are left out (--start snapshot prints what it keeps)", head)
	case p.start == "all":
		return "; what comes next is everything that the server keeps"
	case strings.HasPrefix(p.start, "last:"):
		return "; what comes next is a snapshot: the " + strings.Replace(p.start, ":", " ", 1) + " events that the server keeps"
	}
	return "; what comes next is a snapshot of what the server keeps"
}
