//go:build linux

package systemtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"gapless/feed/lawtest"
)

// reader is a client that does what an EventSource does: it keeps the last event ID and the reconnection time over
// its connections. It records all that it sees. One goroutine uses it; state is for others too.
type reader struct {
	g             *gateway
	h             *history
	name          string
	topics        []string        // patterns; none: everything
	start         string          // where it begins without a cursor; empty: the default
	version       string          // of the protocol in its requests
	header        string          // further lines of the request's head, each with its CRLF
	receiveBuffer int             // of the socket, set before it connects; 0: the system's
	rate          int             // bytes a second that it reads; 0: as they come
	light         bool            // record no payloads: they are judged at others
	impatient     time.Duration   // comes back after this time even where it was asked to wait longer; 0: never
	pick          func() *gateway // which gateway the next connection goes to; nil: the same

	cursor string
	retry  time.Duration
	conns  int // connections that were made

	mu    sync.Mutex
	kinds map[lawtest.Kind]int
	last  lawtest.Record
}

func newReader(g *gateway, h *history, name string, topics ...string) *reader {
	return &reader{g: g, version: "HTTP/1.1", h: h, name: name, topics: topics, retry: 500 * time.Millisecond, kinds: map[lawtest.Kind]int{}}
}

// state returns how many frames of a kind came over all connections, and the last frame of any.
func (r *reader) state(kind lawtest.Kind) (int, lawtest.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kinds[kind], r.last
}

// stream is one connection of a reader.
type stream struct {
	r      *reader
	conn   *net.TCPConn
	stop   func() bool // ends the watch over the context
	resp   *http.Response
	frames *lawtest.FrameReader
	of     lawtest.Stream
	cut    bool
}

// open connects and reads the head of the answer. The connection ends with ctx at the latest.
func (r *reader) open(ctx context.Context) (*stream, error) {
	if r.pick != nil {
		r.g = r.pick()
	}
	s, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.head(); err != nil {
		s.end(lawtest.CutByPeer)
		return nil, err
	}
	return s, nil
}

// dial connects and sends the request.
func (r *reader) dial(ctx context.Context) (*stream, error) {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if r.receiveBuffer == 0 {
			return nil
		}
		var set error
		err := raw.Control(func(fd uintptr) {
			set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, r.receiveBuffer)
		})
		return errors.Join(err, set)
	}}
	conn, err := dialer.DialContext(ctx, "tcp", r.g.addr)
	if err != nil {
		return nil, err
	}
	r.conns++
	s := &stream{r: r, conn: conn.(*net.TCPConn)}
	s.stop = context.AfterFunc(ctx, func() { conn.Close() })
	s.of = lawtest.Stream{Client: r.name, Conn: r.conns, LastEventID: r.cursor}
	r.h.add(lawtest.Record{Kind: lawtest.KindSubscribe, Time: time.Now(), Client: r.name, Conn: r.conns, Cursor: r.cursor, Topics: r.topics, Start: r.start})
	q := url.Values{}
	for _, topic := range r.topics {
		q.Add("topic", topic)
	}
	if r.start != "" {
		q.Set("start", r.start)
	}
	request := "GET /events?" + q.Encode() + " " + r.version + "\r\nHost: " + r.g.addr + "\r\nAccept: text/event-stream\r\n" + r.header
	if r.cursor != "" {
		request += "Last-Event-ID: " + r.cursor + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		s.end(lawtest.CutByPeer)
		return nil, err
	}
	return s, nil
}

// head reads the head of the answer.
func (s *stream) head() error {
	var in io.Reader = s.conn
	if s.r.rate > 0 {
		in = &throttle{in: s.conn, rate: s.r.rate}
	}
	resp, err := http.ReadResponse(bufio.NewReader(in), nil)
	if err != nil {
		return fmt.Errorf("head of the stream: %w", err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		return fmt.Errorf("head of the stream: %s %s", resp.Status, resp.Header)
	}
	s.resp = resp
	s.frames = lawtest.NewFrameReader(resp.Body, s.r.cursor)
	return nil
}

// next blocks until the next frame, records it and returns it. After an error the connection is closed.
func (s *stream) next() (lawtest.Record, error) {
	frame, err := s.frames.Next()
	if err == nil {
		var rec lawtest.Record
		if rec, err = s.of.Record(frame); err == nil {
			s.take(rec)
			return rec, nil
		}
		err = fmt.Errorf("%s: %w", s.r.name, err)
	}
	s.end(lawtest.CutByPeer)
	return lawtest.Record{}, err
}

func (s *stream) take(rec lawtest.Record) {
	r := s.r
	if r.light {
		rec.Data = ""
	}
	r.h.add(rec)
	r.cursor = rec.Cursor
	if rec.RetryMillis > 0 {
		r.retry = time.Duration(rec.RetryMillis) * time.Millisecond
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[rec.Kind]++
	r.last = rec
}

// drain reads what a connection still gives, until its end, as fast as it comes.
func (s *stream) drain() error {
	err := s.conn.SetReadBuffer(1 << 20)
	if err == nil && s.resp == nil {
		err = s.head()
	}
	for err == nil {
		_, err = s.next()
	}
	s.end(lawtest.CutByPeer)
	if !gone(err) {
		return err
	}
	return nil
}

// close ends the connection; abort does so with a reset.
func (s *stream) close() { s.end(lawtest.CutBySelf) }

func (s *stream) abort() {
	_ = s.conn.SetLinger(0) // fails only where the connection has gone
	s.close()
}

func (s *stream) end(by lawtest.CutBy) {
	if s.cut {
		return
	}
	s.cut = true
	s.stop()
	s.conn.Close()
	s.r.h.add(lawtest.Record{Kind: lawtest.KindCut, Time: time.Now(), Client: s.r.name, Conn: s.of.Conn, By: by})
}

// follow stays connected, and comes back after the time that the server asked for, until done says that a frame is
// the last one wanted. The error is ctx's, or that of a frame that is wrong.
func (r *reader) follow(ctx context.Context, done func(lawtest.Record) bool) error {
	for {
		s, err := r.open(ctx)
		for err == nil {
			var rec lawtest.Record
			if rec, err = s.next(); err == nil && done(rec) {
				s.close()
				return nil
			}
		}
		if !gone(err) {
			return err
		}
		wait := r.retry
		if r.impatient > 0 {
			wait = min(wait, r.impatient)
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("%s, after %d connections: %w", r.name, r.conns, ctx.Err())
		}
	}
}

// roam follows as follow does, and also cuts its connection at random places.
func (r *reader) roam(ctx context.Context, rnd *rand.Rand, done func(lawtest.Record) bool) error {
	for {
		left := 20 + rnd.IntN(400)
		finished := false
		err := r.follow(ctx, func(rec lawtest.Record) bool {
			finished = done(rec)
			left--
			return finished || left <= 0
		})
		if err != nil || finished {
			return err
		}
	}
}

// gone reports whether an error is that of a connection that ended or could not be made.
func gone(err error) bool {
	var network *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// toEnd follows until the event that publisher.end made.
func (r *reader) toEnd(ctx context.Context) error {
	return r.follow(ctx, func(rec lawtest.Record) bool { return rec.Type == "end" })
}

// throttle reads no faster than rate bytes a second, in small pieces.
type throttle struct {
	in   io.Reader
	rate int
	owed time.Duration // to be waited for
}

func (t *throttle) Read(p []byte) (int, error) {
	if t.owed >= 20*time.Millisecond {
		pause(context.Background(), t.owed)
		t.owed = 0
	}
	n, err := t.in.Read(p[:min(len(p), max(1, t.rate/20))])
	t.owed += time.Duration(n) * time.Second / time.Duration(t.rate)
	return n, err
}

// discard reads bytes of the stream that belong to no frame that is taken; the connection is of no more use then.
func (s *stream) discard(n int) error {
	_, err := io.CopyN(io.Discard, s.resp.Body, int64(n))
	return err
}
