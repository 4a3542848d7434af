package main

import (
	"fmt"
	"time"
)

// progress tells a terminal how far a stream is.
type progress struct {
	con     *console
	started time.Time
	shown   time.Time
	bytes   int
}

func newProgress(con *console) *progress { return &progress{con: con, started: time.Now()} }

// show rewrites the line, a few times a second at the most.
func (p *progress) show(lines, bytes int) {
	p.bytes += bytes
	now := time.Now()
	if !p.con.errTerminal || now.Sub(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = now
	fmt.Fprintf(p.con.err, "\r\x1b[K%d events, %.1f MiB, %.0f events/s",
		lines, float64(p.bytes)/(1<<20), float64(lines)/now.Sub(p.started).Seconds())
}

// end leaves the line.
func (p *progress) end() {
	if !p.shown.IsZero() {
		fmt.Fprintln(p.con.err)
		p.shown = time.Time{}
	}
}
