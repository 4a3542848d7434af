package main

import (
	"fmt"
	"time"
)

// progress tells a terminal how far a stream is.
type progress struct {
	con          *console
	started      time.Time
	shown        time.Time // zero: nothing to be seen
	lines, bytes int
}

func newProgress(con *console) *progress { return &progress{con: con, started: time.Now()} }

// add takes up one request, and rewrites the line a few times a second.
func (p *progress) add(lines, bytes int) {
	p.lines += lines
	p.bytes += bytes
	if p.con.errTerminal && time.Since(p.shown) >= 200*time.Millisecond {
		p.write()
	}
}

// end leaves the line with the last numbers.
func (p *progress) end() {
	if !p.shown.IsZero() {
		p.write()
		fmt.Fprintln(p.con.err)
		p.shown = time.Time{}
	}
}

func (p *progress) write() {
	p.shown = time.Now()
	fmt.Fprintf(p.con.err, "\r\x1b[K%d events, %.1f MiB, %.0f events/s",
		p.lines, float64(p.bytes)/(1<<20), float64(p.lines)/p.shown.Sub(p.started).Seconds())
}
