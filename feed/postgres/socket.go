package postgres

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// sockets are a store's connections, as they are to the system. A database
// that hangs answers no farewell either: once they are closed, whoever waits
// for it goes on.
type sockets struct {
	mu    sync.Mutex
	open  map[*socket]bool
	ended context.Context // nothing is dialed any more
	end   context.CancelFunc
}

func (s *sockets) init() {
	s.open = make(map[*socket]bool)
	s.ended, s.end = context.WithCancel(context.Background())
}

// through makes what a function dials one of them.
func (s *sockets) through(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ended, cancel)()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &socket{Conn: conn, of: s}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended.Err() != nil {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		s.open[c] = true
		return c, nil
	}
}

// closeAll closes those that are open, and lets no other be.
func (s *sockets) closeAll() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Conn.Close()
	}
	clear(s.open)
}

type socket struct {
	net.Conn
	of *sockets
}

func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
