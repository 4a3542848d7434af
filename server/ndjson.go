package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"gapless/feed"
)

// Bounds of what one NDJSON request holds in memory.
const (
	lineBufferBytes = 256 << 10
	maxLineBytes    = feed.MaxDataBytes + 64<<10 // a largest payload and its envelope
	chunkEvents     = 500
	chunkBytes      = 4 << 20
)

// linesAccepted is what became of an NDJSON body so far.
type linesAccepted struct {
	Accepted   int    `json:"accepted"`   // lines that the store has
	Duplicates int    `json:"duplicates"` // of those, the ones that it had before
	FirstSeq   uint64 `json:"first_seq"`  // 0: none accepted
	LastSeq    uint64 `json:"last_seq"`
}

// publishedLines is the answer to an NDJSON publish.
type publishedLines struct {
	Epoch feed.Epoch `json:"epoch"`
	linesAccepted
}

// publishLines publishes an NDJSON body as it arrives, in chunks. A chunk is
// appended when it is full, and whenever the producer pauses.
func (s *Server) publishLines(w http.ResponseWriter, r *http.Request, d defaults, begin time.Time) {
	body := newBodyReader(w, r.Body, linesIdle)
	chunk := chunk{server: s, request: r, defaults: d, epoch: s.feed.Status().Epoch}
	if err := s.readLines(body, &chunk); err != nil {
		p := *problemOf(err)
		p.Epoch = chunk.epoch
		p.lineMembers = &lineMembers{Line: chunk.failedAt, linesAccepted: chunk.total}
		s.reject(w, r, &p)
		return
	}
	body.release()
	s.metrics.published(labelLines, chunk.total.Accepted, time.Since(begin))
	status := http.StatusCreated
	if chunk.total.Accepted == chunk.total.Duplicates {
		status = http.StatusOK
	}
	s.respondJSON(w, status, publishedLines{Epoch: chunk.epoch, linesAccepted: chunk.total})
}

// readLines publishes a body's lines until it ends or the server does: a body
// that is silent must not hold up the server's end.
func (s *Server) readLines(body *bodyReader, chunk *chunk) error {
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-s.stopped:
			body.cancel(problemf(feed.CodeNotReady, "%s", feed.DrainShutdown))
		case <-ended:
		}
	}()
	defer func() {
		close(ended)
		<-watched
	}()
	return chunk.readAll(&lineReader{in: bufio.NewReaderSize(body, lineBufferBytes)})
}

// chunk collects the events of lines until they are appended together.
type chunk struct {
	server   *Server
	request  *http.Request
	defaults defaults
	drafts   []feed.Draft
	lines    []int // their numbers, from 1
	bytes    int
	epoch    feed.Epoch
	total    linesAccepted
	failedAt int // the line that the error is about
}

// readAll takes every line. Lines before the one that fails are appended.
// What was collected points into the reader's memory: a line is only added to
// it where it is there already, and does not move what came before.
func (c *chunk) readAll(in *lineReader) error {
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return c.append()
		}
		if err == nil {
			err = c.take(line, in.number)
		}
		if err != nil {
			if earlier := c.append(); earlier != nil {
				return earlier
			}
			c.failedAt = in.number
			return err
		}
		if len(c.drafts) >= chunkEvents || c.bytes >= chunkBytes || !in.more() {
			if err := c.append(); err != nil {
				return err
			}
		}
	}
}

// take decodes one line; a blank one is nothing.
func (c *chunk) take(line []byte, number int) error {
	if number == 1 {
		line = bytes.TrimPrefix(line, bom)
	}
	if line = bytes.Trim(line, " \t\r\n"); len(line) == 0 {
		return nil
	}
	if err := checkJSON(line); err != nil {
		return err
	}
	draft, err := decodeObject(line)
	if err != nil {
		return err
	}
	c.defaults.fill(&draft, number)
	c.drafts = append(c.drafts, draft)
	c.lines = append(c.lines, number)
	c.bytes += len(line)
	return nil
}

// append publishes what was collected. Where a batch is refused for what one
// of its lines says, its lines are published one by one up to that line.
func (c *chunk) append() error {
	drafts, lines := c.drafts, c.lines
	defer func() {
		clear(c.drafts)
		c.drafts, c.lines, c.bytes = c.drafts[:0], c.lines[:0], 0
	}()
	if len(drafts) == 0 {
		return nil
	}
	err := c.publish(drafts)
	if err == nil {
		return nil
	}
	c.failedAt = lines[0]
	if len(drafts) == 1 {
		return err
	}
	switch feed.CodeOf(err) {
	case feed.CodeInvalid, feed.CodeTooLarge, feed.CodeIDConflict:
	default:
		return err
	}
	for i := range drafts {
		if err := c.publish(drafts[i : i+1]); err != nil {
			c.failedAt = lines[i]
			return err
		}
	}
	return nil
}

func (c *chunk) publish(drafts []feed.Draft) error {
	receipt, err := c.server.feed.Publish(c.request.Context(), drafts)
	if err != nil {
		return err
	}
	c.epoch = receipt.Epoch
	for _, ev := range receipt.Events {
		c.total.Accepted++
		if ev.Duplicate {
			c.total.Duplicates++
		}
		if c.total.FirstSeq == 0 || ev.Seq < c.total.FirstSeq {
			c.total.FirstSeq = ev.Seq
		}
		c.total.LastSeq = max(c.total.LastSeq, ev.Seq)
	}
	return nil
}

// lineReader splits a body into lines of bounded length.
type lineReader struct {
	in     *bufio.Reader
	long   []byte // a line that exceeds the buffer
	number int    // of the line that next returned, from 1
}

// next returns the next line, valid until the next call. A last line without
// its line end counts only where the body ended cleanly. The error is io.EOF
// at a clean end.
func (l *lineReader) next() ([]byte, error) {
	l.number++
	l.long = l.long[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		switch {
		case err == nil && len(l.long) == 0:
			return part, nil
		case len(l.long)+len(part) > maxLineBytes:
			return nil, problemf(feed.CodeTooLarge, "the line exceeds %d bytes", maxLineBytes)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
		case err == nil:
			l.long = append(l.long, part...)
			return l.long, nil
		case errors.Is(err, io.EOF) && len(l.long)+len(part) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return append(l.long, part...), nil
		default:
			return nil, lineError(err)
		}
	}
}

// lineError passes on the problem that ended the body, or makes one.
func lineError(err error) error {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	return bodyError(err)
}

// more reports whether another whole line is there without waiting for it.
func (l *lineReader) more() bool {
	buffered, err := l.in.Peek(l.in.Buffered())
	return err == nil && bytes.IndexByte(buffered, '\n') >= 0
}
