//go:build linux && e2e

package systemtest_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// junction is a TCP proxy whose target can be switched: the address that gateways know while what is behind it fails
// over.
type junction struct {
	ln net.Listener

	mu      sync.Mutex
	target  string        // host:port; empty: connections are refused
	stalled chan struct{} // what comes waits until it is closed; nil: nothing waits
	conns   map[net.Conn]struct{}
	wg      sync.WaitGroup
}

// newJunction begins to forward to the database server at a URL.
func newJunction(t *testing.T, to string) *junction {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := &junction{ln: ln, target: hostOf(t, to), conns: map[net.Conn]struct{}{}}
	j.wg.Go(j.accept)
	t.Cleanup(func() {
		ln.Close()
		j.to("")
		j.wg.Wait()
	})
	return j
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// url is a URL with the junction's address in place of the server's.
func (j *junction) url(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = j.ln.Addr().String()
	return u.String()
}

// to cuts every connection and forwards new ones to another target.
func (j *junction) to(target string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.target = target
	for conn := range j.conns {
		conn.Close()
	}
	clear(j.conns)
}

// cut cuts every connection, wherever in a transaction it is. New ones are good.
func (j *junction) cut() {
	j.mu.Lock()
	target := j.target
	j.mu.Unlock()
	j.to(target)
}

// stall holds back all that is sent in either direction, until the returned function is called.
func (j *junction) stall() (release func()) {
	held := make(chan struct{})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stalled = held
	return sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.stalled = nil
		close(held)
	})
}

// Write waits as long as the junction stalls. It only counts for one connection.
func (c *stalling) Write(p []byte) (int, error) {
	c.j.mu.Lock()
	held := c.j.stalled
	c.j.mu.Unlock()
	if held != nil {
		<-held
	}
	return c.Conn.Write(p)
}

// stalling is one side of a connection.
type stalling struct {
	net.Conn
	j *junction
}

func (j *junction) accept() {
	for {
		conn, err := j.ln.Accept()
		if err != nil {
			return
		}
		j.wg.Go(func() { j.forward(conn) })
	}
}

func (j *junction) forward(near net.Conn) {
	defer near.Close()
	j.mu.Lock()
	target := j.target
	j.mu.Unlock()
	if target == "" {
		return
	}
	far, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer far.Close()
	j.mu.Lock()
	if j.target != target {
		j.mu.Unlock()
		return
	}
	j.conns[near], j.conns[far] = struct{}{}, struct{}{}
	j.mu.Unlock()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(&stalling{pair[0], j}, onlyReader{pair[1]}) // either end may go at any time
			pair[0].Close()
			pair[1].Close()
		})
	}
	both.Wait()
	j.mu.Lock()
	delete(j.conns, near)
	delete(j.conns, far)
	j.mu.Unlock()
}

// onlyReader keeps io.Copy from passing the data by the stall.
type onlyReader struct{ io.Reader }
