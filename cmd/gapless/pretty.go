package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"gapless/feed/upstream"
)

// palette holds terminal escapes; all empty where no colour is wanted.
type palette struct{ dim, bold, green, off string }

func colours(con *console) palette {
	if !con.outTerminal || os.Getenv("NO_COLOR") != "" {
		return palette{}
	}
	return palette{dim: "\x1b[2m", bold: "\x1b[1m", green: "\x1b[32m", off: "\x1b[0m"}
}

// pretty writes an event on one line: seq, local time, topic, type, payload.
func (p *printer) pretty(ev upstream.Event) error {
	var e struct {
		Seq   uint64          `json:"seq"`
		Time  time.Time       `json:"time"`
		Type  string          `json:"type"`
		Topic string          `json:"topic"`
		Data  json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(ev.Data, &e); err != nil {
		return fmt.Errorf("the gateway sent an event that cannot be read: %w", err)
	}
	payload := string(e.Data)
	var text string
	if json.Unmarshal(e.Data, &text) == nil {
		payload = text
	}
	_, err := fmt.Fprintf(p.out, "%s%8d %s%s %s%s%s %s%s%s %s\n",
		p.colour.dim, e.Seq, e.Time.Local().Format("15:04:05.000"), p.colour.off,
		p.colour.green, printable(e.Topic), p.colour.off,
		p.colour.bold, printable(e.Type), p.colour.off, printable(payload))
	return err
}
