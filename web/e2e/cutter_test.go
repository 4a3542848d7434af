//go:build e2e

package e2e_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// cutter is a TCP proxy that ends connections in the middle of a stream, as networks do.
type cutter struct {
	url      string
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex // guards what follows
	plans    []cutPlan  // one for each connection to come, then no more cuts
	accepted int
	open     map[net.Conn]bool
}

// cutPlan ends a connection after so many bytes towards the client.
type cutPlan struct {
	after int
	reset bool // RST instead of FIN: what was under way is lost
}

func startCutter(t *testing.T, target string, plans ...cutPlan) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{url: "http://" + listener.Addr().String(), target: target, listener: listener, plans: plans, open: map[net.Conn]bool{}}
	c.wg.Go(c.serve)
	t.Cleanup(func() {
		listener.Close()
		c.cutAll()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) serve() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.accepted++
		plan := cutPlan{after: -1}
		if len(c.plans) > 0 {
			plan, c.plans = c.plans[0], c.plans[1:]
		}
		c.open[client] = true
		c.mu.Unlock()
		c.wg.Go(func() { c.forward(client, plan) })
	}
}

func (c *cutter) forward(client net.Conn, plan cutPlan) {
	defer func() {
		client.Close()
		c.mu.Lock()
		delete(c.open, client)
		c.mu.Unlock()
	}()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	var up sync.WaitGroup
	up.Go(func() {
		io.Copy(server, client)
		server.Close()
	})
	if plan.after < 0 {
		io.Copy(client, server)
	} else {
		io.CopyN(client, server, int64(plan.after))
		if plan.reset {
			client.(*net.TCPConn).SetLinger(0)
		}
	}
	client.Close()
	up.Wait()
}

// cutAll resets every connection that is open now.
func (c *cutter) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for client := range c.open {
		client.(*net.TCPConn).SetLinger(0)
		client.Close()
	}
}

// left is the number of cuts still to come.
func (c *cutter) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.plans)
}
