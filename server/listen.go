package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// For how long a connection that lingers waits for its client to close first.
const (
	streamLinger = 500 * time.Millisecond // the client has nothing to send
	bodyLinger   = 3 * time.Second        // the client may be in the middle of a body
)

// listener hands out TCP connections that are made for streams.
type listener struct {
	net.Listener
	silence      time.Duration // the kernel gives up a peer that acknowledges nothing for so long
	writeTimeout time.Duration
	log          zerolog.Logger
	hurried      atomic.Bool // connections that are closed do not linger
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	if err := tune(tcp, l.silence); err != nil {
		// The connection works without; it is only noticed later that its peer
		// has gone.
		l.log.Debug().Err(err).Msg("a connection could not be tuned")
	}
	return &conn{TCPConn: tcp, listener: l}, nil
}

// conn is a TCP connection with two habits.
//
// A write whose deadline passes goes on for as long as the peer acknowledges
// something within each write timeout. The kernel calls a socket writable
// again only when a third of its buffer is free, and the buffer grows to
// megabytes: a slow reader that reads all the time would miss any deadline.
//
// And it can linger when it is closed: its end is then a FIN, and never the
// reset that closing with unread bytes makes, by which some clients lose the
// last frame.
type conn struct {
	*net.TCPConn
	listener *listener
	lingers  atomic.Int64 // a time.Duration; 0: not at all

	// Writers take turns (net/http writes from one goroutine at a time).
	written      int64 // bytes that the kernel took
	acknowledged int64 // of those, what the peer had at the last look
}

// Write writes all of p, or fails.
func (c *conn) Write(p []byte) (n int, err error) {
	for {
		k, err := c.TCPConn.Write(p[n:])
		n += k
		c.written += int64(k)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.progresses() {
			return n, err
		}
		if err := c.SetWriteDeadline(time.Now().Add(c.listener.writeTimeout)); err != nil {
			return n, err
		}
	}
}

// ReadFrom copies through Write, which counts.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// progresses reports whether the peer took anything since the last look.
func (c *conn) progresses() bool {
	held, ok := unacknowledged(c.TCPConn)
	before := c.acknowledged
	c.acknowledged = c.written - held
	return ok && c.acknowledged > before
}

// Close closes the connection. One that lingers first ends its own side, and
// reads what the client still sends, for so long at the most.
func (c *conn) Close() error {
	if d := time.Duration(c.lingers.Load()); d > 0 && !c.listener.hurried.Load() && c.CloseWrite() == nil {
		// Whatever comes, even an error, is the end.
		_ = c.SetReadDeadline(time.Now().Add(d))
		_, _ = io.Copy(io.Discard, c.TCPConn)
	}
	return c.TCPConn.Close()
}

type connKey struct{}

// withConn makes a request's connection known to linger.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// linger makes the request's connection close slowly, where it can.
func linger(ctx context.Context, d time.Duration) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.lingers.Store(int64(d))
	}
}
