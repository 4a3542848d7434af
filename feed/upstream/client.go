package upstream

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Handler takes one event. Run calls it for one event at a time, in the stream's order, from its own goroutine.
// While it works, no more than a few events are read ahead, so a slow handler slows the server's connection
// down and loses nothing. ctx is Run's.
type Handler = func(ctx context.Context, ev Event) error

// Client reads one event stream and resumes it by itself. Make it with New. LastEventID may be called at any time,
// from any goroutine.
type Client struct {
	cfg       Config
	http      *http.Client
	transport http.RoundTripper
	own       *http.Transport // transport, if the Client made it itself

	running atomic.Bool

	mu          sync.Mutex
	lastEventID string
}

// New checks cfg, completes it with the defaults, and returns a Client that does nothing yet. Its error is
// ErrConfig with what is wrong.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, http: cfg.HTTPClient, lastEventID: cfg.LastEventID}
	if c.http == nil {
		c.http = &http.Client{Transport: cfg.Transport}
		if cfg.Transport == nil {
			c.own = newTransport()
			c.http.Transport = c.own
		}
	}
	c.transport = c.http.Transport
	if c.transport == nil {
		c.transport = http.DefaultTransport
	}
	return c, nil
}

// Run connects, hands every event to handle, and reconnects from the cursor whenever the connection fails or
// ends, until one of these comes:
//
//   - ctx ends: Run returns ctx.Err(), at once unless handle is at work;
//   - handle returns an error: Run returns it as it is, and the cursor stays before that event;
//   - the server answers what waiting does not heal, or sends an event above MaxEventBytes: Run returns one of this
//     package's named errors.
//
// A later Run goes on from the cursor. Run returns ErrRunning while another one is active.
func (c *Client) Run(ctx context.Context, handle Handler) error {
	if handle == nil {
		return fmt.Errorf("%w: no handler", ErrConfig)
	}
	if !c.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer c.running.Store(false)
	if c.own != nil {
		defer c.own.CloseIdleConnections()
	}
	defer c.enter(StateEnded)

	pause := &backoff{
		base:     c.cfg.ReconnectDelay,
		limit:    c.cfg.MaxDelay,
		maxFloor: c.cfg.MaxFloor,
		stable:   c.cfg.StableAfter,
		jitter:   c.cfg.Jitter,
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.enter(StateConnecting)
		out := c.connect(ctx, handle)
		switch {
		case out.final:
			return out.err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		delay := pause.next(out)
		c.enter(StateWaiting)
		c.cfg.Logger.Info().AnErr("cause", out.err).Dur("open_ms", out.open).Dur("delay_ms", delay).
			Msg("upstream connection ended, reconnecting after the delay")
		if c.cfg.OnWait != nil {
			c.cfg.OnWait(out.err, delay)
		}
		if err := sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// LastEventID returns the cursor: the ID from which the next connection resumes. It covers exactly the events that
// were handled without an error. Empty: no position.
func (c *Client) LastEventID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastEventID
}

func (c *Client) setLastEventID(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastEventID = id
}

func (c *Client) enter(s State) {
	c.cfg.Logger.Debug().Stringer("state", s).Msg("upstream client changed its state")
	if c.cfg.OnState != nil {
		c.cfg.OnState(s)
	}
}

// sleep waits for d, or returns ctx.Err() as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
