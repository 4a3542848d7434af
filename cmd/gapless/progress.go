package main

import (
	"fmt"
	"sync"
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

// share tells a terminal how much of long work is done.
type share struct {
	con     *console
	what    string
	started time.Time
	mu      sync.Mutex
	shown   time.Time // zero: nothing to be seen
}

func newShare(con *console, what string) *share {
	return &share{con: con, what: what, started: time.Now()}
}

// set shows the share that is done, in [0, 1], a few times a second. It may be
// called from any goroutine.
func (s *share) set(done float64) {
	s.show(fmt.Sprintf("%.0f %%", 100*min(max(done, 0), 1)))
}

// tick shows how long it takes, where the share is not known, until the
// returned function is called.
func (s *share) tick() (stop func()) {
	if !s.con.errTerminal {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case <-end:
				return
			case <-every.C:
				s.show(time.Since(s.started).Round(time.Second).String())
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

func (s *share) show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.con.errTerminal || time.Since(s.shown) < 200*time.Millisecond {
		return
	}
	s.shown = time.Now()
	fmt.Fprintf(s.con.err, "\r\x1b[K%s: %s", s.what, text)
}

// end takes the line away.
func (s *share) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shown.IsZero() {
		fmt.Fprint(s.con.err, "\r\x1b[K")
		s.shown = time.Time{}
	}
}
