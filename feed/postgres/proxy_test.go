//go:build linux && e2e

package postgres

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between a store and its server, and harms what passes.
type proxy struct {
	ln     net.Listener
	server string
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	// cut is what to do at the next chunk that commits; each cut happens once.
	cut   cut
	cuts  int
	delay time.Duration // of every chunk, in both directions
	hang  bool          // nothing passes any more
	born  int           // connections so far
	mute  int           // of these, the first so many let nothing pass any more
	shut  bool          // connections are refused
}

// cut says where a connection is lost.
type cut int

const (
	cutNever  cut = iota
	cutBefore     // the server never gets the commit
	cutAfter      // the server commits, and its answer is lost
	cutSilent     // the same, and the connection stays open and mute
)

// newProxy returns a proxy, and the address of the database through it.
func newProxy(t testing.TB, address string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, server: u.Host, conns: make(map[net.Conn]bool)}
	u.Host = ln.Addr().String()
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = ln.Close()
		p.breakAll()
		p.wg.Wait()
	})
	return p, u.String()
}

func (p *proxy) serve() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		shut, address := p.shut, p.server
		p.mu.Unlock()
		server, err := net.Dial("tcp", address)
		if err != nil || shut {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.born++
		number := p.born
		p.mu.Unlock()
		var lost atomic.Int32 // the cut that this connection is under
		p.wg.Go(func() { p.pass(client, server, number, true, &lost) })
		p.wg.Go(func() { p.pass(server, client, number, false, &lost) })
	}
}

// pass copies one direction, until either side ends or the connection is cut.
func (p *proxy) pass(from, to net.Conn, number int, request bool, lost *atomic.Int32) {
	defer from.Close()
	defer to.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		if err != nil {
			p.mu.Lock()
			delete(p.conns, from)
			p.mu.Unlock()
			return
		}
		p.mu.Lock()
		delay, hang := p.delay, p.hang || number <= p.mute
		if request && p.cut != cutNever && commits(chunk[:n]) {
			lost.Store(int32(p.cut))
			p.cut = cutNever
			p.cuts++
		}
		p.mu.Unlock()
		if delay > 0 {
			time.Sleep(delay)
		}
		now := cut(lost.Load())
		switch {
		case request && now == cutBefore:
			return
		case !request && now == cutAfter && bytes.Contains(chunk[:n], []byte("COMMIT\x00")):
			return
		case hang, !request && now != cutNever:
			continue
		}
		if _, err := to.Write(chunk[:n]); err != nil {
			return
		}
	}
}

// commits reports whether a request executes a commit of events, and does not
// only describe one.
func commits(request []byte) bool {
	execute := []byte{'E', 0, 0, 0, 9, 0, 0, 0, 0, 0}
	return bytes.Contains(request, []byte("insert into gapless.events")) && bytes.Contains(request, []byte("commit\x00")) && bytes.Contains(request, execute)
}

// set changes what the proxy does from the next chunk on.
func (p *proxy) set(change func(*proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// breakAll cuts every connection.
func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// happened reports whether the cut that was asked for came.
func (p *proxy) happened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}
