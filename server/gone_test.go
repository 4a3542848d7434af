package server_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// held counts what a leak would hold.
func held(t *testing.T) (goroutines, files int, heap uint64) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil && !os.IsNotExist(err) { // not every system has it
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), len(entries), m.HeapAlloc
}

// Clients that come and go in every rude way leave nothing behind.
func TestAbruptDisconnects(t *testing.T) {
	g := start(t)
	g.publishN(1, 50)
	n := 10_000
	if raceEnabled {
		n = 2000
	}
	rude := func(i int) error {
		c, err := net.Dial("tcp", g.addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetLinger(0); err != nil { // Close is then a reset
			return err
		}
		request := "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
		if i%5 == 0 {
			request = request[:rand.IntN(len(request))]
		}
		if _, err := io.WriteString(c, request); err != nil {
			return err
		}
		if i%5 > 1 {
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			if _, err := c.Read(make([]byte, 1+rand.IntN(4000))); err != nil {
				return err
			}
		}
		return nil
	}
	if err := rude(2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first one's end", func() bool { return g.feed.Status().Total == 0 })
	goroutines, files, heap := held(t)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < n; i += 8 {
				if err := rude(i); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantBack(t, g, goroutines, files, heap)
}

func TestHeadRequestsHoldNothing(t *testing.T) {
	g := start(t)
	g.do("HEAD", "/events", "")
	goroutines, files, heap := held(t)
	for range 500 {
		if a := g.do("HEAD", "/events", ""); a.status != 200 {
			t.Fatalf("%d", a.status)
		}
	}
	wantBack(t, g, goroutines, files, heap)
}

func wantBack(t *testing.T, g *gateway, goroutines, files int, heap uint64) {
	t.Helper()
	var now string
	eventually(t, "the return to the base", func() bool {
		gs, fs, h := held(t)
		now = fmt.Sprintf("%d goroutines (%d before), %d files (%d), heap %d (%d)", gs, goroutines, fs, files, h, heap)
		return gs <= goroutines+2 && fs <= files+2 && h <= heap+8<<20 && g.feed.Status().Total == 0
	})
	t.Log(now)
}
