package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	sse "github.com/r3labs/sse/v2"
	cenkalti "gopkg.in/cenkalti/backoff.v1"
)

// outcome is how one connection ended.
type outcome struct {
	err        error         // why; nil after a clean end of the stream
	final      bool          // err is what Run returns
	open       time.Duration // how long the stream was open; 0 if it never was
	retry      time.Duration // the last retry field, or unset
	retryAfter time.Duration // from a refusal's Retry-After
	settled    bool          // Config.Settled said so of an event
}

// connection is one request and its stream. The library runs on a goroutine of its own, so that a handler which
// panics, or ends its goroutine, still leaves nothing behind: run waits for that goroutine in any case.
type connection struct {
	client *Client
	opened chan struct{}   // one send when the answer is an event stream
	frames chan *sse.Event // one send per frame, taken before the next
	done   chan result     // the library's, once, after all else

	// Written on the library's goroutines, read after done.
	retry time.Duration
}

// result is what the library returned. Of a connection that we gave up it is
// waited for and dropped.
type result struct{ err error }

// connect makes one connection from the cursor, handles its events, and returns when it has ended.
func (c *Client) connect(ctx context.Context, handle Handler) (out outcome) {
	n := &connection{
		client: c,
		opened: make(chan struct{}),
		frames: make(chan *sse.Event),
		done:   make(chan result, 1),
		retry:  unset,
	}
	connCtx, cancel := context.WithCancelCause(ctx)
	idle := newWatch(c.cfg.IdleTimeout, func() { cancel(errIdle) })
	lib := n.library(connCtx, cancel, idle)
	go func() { n.done <- result{lib.SubscribeWithContext(connCtx, "", n.offer(connCtx))} }()

	var openedAt time.Time
	ended, settled := false, false
	defer func() {
		cancel(nil)
		if !ended {
			<-n.done
		}
		idle.stop()
		out.retry, out.settled = n.retry, settled
		if !openedAt.IsZero() {
			out.open = time.Since(openedAt)
		}
	}()
	for {
		select {
		case <-n.opened:
			openedAt = time.Now()
			c.enter(StateOpen)
		case m := <-n.frames:
			if ctx.Err() != nil {
				return outcome{err: ctx.Err(), final: true}
			}
			good, err := c.take(ctx, m, handle)
			if err != nil {
				return outcome{err: err, final: !errors.Is(err, errForm)}
			}
			settled = settled || good
		case r := <-n.done:
			ended = true
			return n.ending(connCtx, r.err)
		}
	}
}

// take handles one frame and then, only then, moves the cursor. It reports whether the frame settles the connection.
func (c *Client) take(ctx context.Context, m *sse.Event, handle Handler) (settled bool, err error) {
	ev, deliver, err := decode(m)
	if err != nil {
		return false, err
	}
	if deliver {
		// Asked first: the event belongs to the handler.
		settled = c.cfg.Settled != nil && c.cfg.Settled(ev)
		if err := handle(ctx, ev); err != nil {
			return false, err
		}
	}
	c.setLastEventID(ev.ID)
	return settled, nil
}

// library returns a client of the library that is good for one connection: it starts from our cursor, makes no
// second attempt, and reads what the filter lets through.
func (n *connection) library(ctx context.Context, cancel context.CancelCauseFunc, idle *watch) *sse.Client {
	c := n.client
	// A frame is one block, of at most MaxEventBytes, and an ID that an earlier block may have set.
	lib := sse.NewClient(c.cfg.URL, sse.ClientMaxBufferSize(2*c.cfg.MaxEventBytes+frameOverhead))
	lib.ReconnectStrategy = &cenkalti.StopBackOff{}
	for name, values := range c.cfg.Header {
		lib.Headers[name] = values[0]
	}
	id := c.LastEventID()
	if id != "" {
		lib.LastEventID.Store([]byte(id))
	}
	httpClient := *c.http
	httpClient.Transport = filterTransport{base: c.transport, wrap: func(body io.ReadCloser) io.ReadCloser {
		framer := newFramer(id, c.cfg.MaxEventBytes, func(retry time.Duration) { n.retry = retry })
		return newFilter(body, framer, idle, ctx.Err)
	}}
	lib.Connection = &httpClient
	lib.ResponseValidator = func(_ *sse.Client, resp *http.Response) error {
		if err := admit(resp, func() { cancel(nil) }); err != nil {
			return err
		}
		select {
		case n.opened <- struct{}{}:
			return nil
		case <-ctx.Done():
			resp.Body.Close()
			return ctx.Err()
		}
	}
	return lib
}

// offer returns the library's handler. Once ctx has ended it drops what comes: the cursor stays before it.
func (n *connection) offer(ctx context.Context) func(*sse.Event) {
	return func(m *sse.Event) {
		select {
		case n.frames <- m:
		case <-ctx.Done():
		}
	}
}

// ending tells what the library's result means. The library returns nil for a cancelled connection as for
// a clean end, so the cause is asked first.
func (n *connection) ending(ctx context.Context, err error) outcome {
	out := outcome{err: withoutURL(err)}
	var refusal *ResponseError
	if errors.As(out.err, &refusal) {
		out.retryAfter = refusal.retryAfter
	} else if cause := context.Cause(ctx); cause != nil {
		out.err = cause
	}
	out.final = final(out.err)
	return out
}
