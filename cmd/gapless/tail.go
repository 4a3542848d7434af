package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"gapless/feed"
	"gapless/feed/upstream"
)

type tailCommand struct {
	clientFlags
	Topic  []string `placeholder:"PATTERN" help:"Topics to read: * stands for one token, > for the rest. Repeatable. Default: all."`
	Type   []string `placeholder:"TYPE" help:"Types to read. Repeatable. Default: all."`
	Since  string   `placeholder:"CURSOR" help:"Read what follows this cursor."`
	Start  string   `placeholder:"WHERE" help:"Where to begin without a cursor: live, snapshot, all or last:N. Default: live; with --since: snapshot, should the cursor be of no use."`
	Format string   `default:"auto" enum:"auto,pretty,json,raw" help:"pretty: for people; json: one envelope a line; raw: the payloads alone; auto: pretty on a terminal, else json."`
	Count  int      `short:"n" placeholder:"N" help:"End after N events. 0: never."`
}

// Help implements [kong.HelpProvider].
func (*tailCommand) Help() string {
	return `Comes back by itself when the connection ends, from the event after the last one it printed: each event is printed once, and whatever could not be had is told on stderr. Ctrl-C ends it with 0.

Examples:
  gapless tail
  gapless tail --topic 'orders.>' --topic payments.eu --start last:20
  gapless tail --start all -n 100 --format json | jq .data
  gapless tail --since 01KB7Q3V9W8ZJ4M2T6R5N0XYCD-42-7K3M9Q2P`
}

// errEnough ends a tail that has printed what it was asked for.
var errEnough = errors.New("enough")

// silence is after how long without a byte the connection counts as dead.
// Servers send heartbeats more often.
const silence = 2 * time.Minute

// Run prints events until ctx ends.
func (c *tailCommand) Run(ctx context.Context, con *console) error {
	query, err := c.query()
	if err != nil {
		return err
	}
	cl, err := c.newClient()
	if err != nil {
		return err
	}
	cl.close() // the stream has a connection of its own
	format := c.Format
	if format == "auto" {
		format = "json"
		if con.outTerminal {
			format = "pretty"
		}
	}
	if format == "raw" {
		query.Set("format", "raw")
	}
	header := http.Header{"User-Agent": {"gapless/" + version}}
	if cl.token != "" {
		header.Set("Authorization", "Bearer "+cl.token)
	}
	p := &printer{out: con.out, notices: con.err, format: format, start: c.start(), colour: colours(con)}
	stream, err := upstream.New(upstream.Config{
		URL:         cl.at("/events?" + query.Encode()),
		Header:      header,
		LastEventID: c.Since,
		IdleTimeout: silence,
		// The gateway has answered, or has sent this client away with a time to
		// come back at.
		Settled: func(ev upstream.Event) bool {
			return ev.Type == feed.TypeConnected || ev.Type == feed.TypeResync || ev.Type == feed.TypeDraining
		},
		OnWait: p.waiting,
	})
	if err != nil {
		return err
	}
	left := c.Count
	err = stream.Run(ctx, func(_ context.Context, ev upstream.Event) error {
		printed, err := p.print(ev)
		if printed && c.Count > 0 {
			if left--; left == 0 && err == nil {
				return errEnough
			}
		}
		return err
	})
	var refused *upstream.ResponseError
	switch {
	case errors.Is(err, errEnough):
		return nil
	case ctx.Err() != nil:
		return p.farewell(stream.LastEventID())
	case errors.As(err, &refused):
		return c.refusal(cl, refused)
	}
	return err
}

// query is what /events is asked.
func (c *tailCommand) query() (url.Values, error) {
	if c.Since != "" {
		if cursor, err := feed.ParseCursor(c.Since); err != nil || cursor.Epoch == "" {
			return nil, usageErrorf("--since %q: want EPOCH-SEQ or EPOCH-SEQ-FENCE, as an event's id carries it", c.Since)
		}
	}
	for _, typ := range c.Type {
		if !validType(typ) {
			return nil, noTypeError("--type", typ)
		}
	}
	if _, err := feed.NewFilter(c.Topic, c.Type, false); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if c.Count < 0 {
		return nil, usageErrorf("--count %d: want 0 or more", c.Count)
	}
	start := c.start()
	if _, err := feed.ParseStart(start); err != nil {
		return nil, usageErrorf("--start %q: want live, snapshot, all or last:N", start)
	}
	return url.Values{"topic": c.Topic, "type": c.Type, "start": {start}}, nil
}

// start is where to begin without a cursor, and after a resync.
func (c *tailCommand) start() string {
	switch {
	case c.Start != "":
		return c.Start
	case c.Since != "":
		return "snapshot"
	}
	return "live"
}

// refusal says what an answer means that waiting does not heal.
func (c *tailCommand) refusal(cl *client, refused *upstream.ResponseError) error {
	detail := refused.Detail
	if detail == "" {
		detail = http.StatusText(refused.Status)
	}
	hint := ""
	switch refused.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = "; set the key with --token, GAPLESS_TOKEN or --token-file"
	case http.StatusNotFound:
		hint = "; is this the address of a gapless gateway?"
	case http.StatusOK:
		detail = "an answer of type " + refused.ContentType + ", not an event stream"
		hint = "; is this the address of a gapless gateway?"
	}
	return fmt.Errorf("%s answered %d: %s%s", cl.base, refused.Status, printable(detail), hint)
}
