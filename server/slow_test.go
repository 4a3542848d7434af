package server_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

// slowly reads at most so many bytes a second.
type slowly struct {
	from      io.Reader
	perSecond int
	begin     time.Time
	taken     int
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.begin.IsZero() {
		s.begin = time.Now()
	}
	due := time.Duration(s.taken) * time.Second / time.Duration(s.perSecond)
	time.Sleep(time.Until(s.begin.Add(due)))
	n, err := s.from.Read(p[:min(len(p), max(s.perSecond/100, 1))])
	s.taken += n
	return n, err
}

// narrow opens a stream with a small receive buffer. Nothing is read yet.
func (g *gateway) narrow(query string, receiveBytes int) net.Conn {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(receiveBytes); err != nil {
		g.t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /events"+query+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		g.t.Fatal(err)
	}
	return c
}

func TestReaderThatNeverReadsIsCut(t *testing.T) {
	t.Parallel()
	g := start(t, func(o *options) {
		o.server.WriteTimeout = 200 * time.Millisecond
		o.log.Retention = feed.Retention{Events: 10000}
	})
	g.narrow("?topic=big", 4096)
	healthy := g.subscribe("?topic=big")
	healthy.want("server.connected")
	eventually(t, "both streams", func() bool { return g.feed.Status().Total == 2 })
	data := `{"topic":"big","data":"` + strings.Repeat("x", 60_000) + `"}`
	for range 120 {
		g.publish(data)
		healthy.events(1)
	}
	eventually(t, "the cut", func() bool { return g.feed.Status().Total == 1 })
	if m := string(g.do("GET", "/metrics", "").body); !strings.Contains(m, `gapless_stream_write_errors_total{kind="timeout"} 1`) {
		t.Errorf("the cut is not counted")
	}
}

// A tenth of the time and ten times the speed of 10 kB/s and 10 s.
func TestSlowReaderIsNotCut(t *testing.T) {
	t.Parallel()
	g := start(t, func(o *options) { o.server.WriteTimeout = time.Second })
	c := g.narrow("?topic=big", 16<<10)
	eventually(t, "the stream", func() bool { return g.feed.Status().Total == 1 })
	data := `{"topic":"big","data":"` + strings.Repeat("x", 3000) + `"}`
	const n = 100
	for range n {
		g.publish(data)
	}
	wantSlowEvents(t, c, 100_000, n)
}

// An event that takes many times the write timeout to send arrives, however
// long the kernel calls the socket full: its reader reads.
func TestLargeEventReachesASlowReader(t *testing.T) {
	t.Parallel()
	g := start(t, func(o *options) { o.server.WriteTimeout = 300 * time.Millisecond })
	g.publish(`{"topic":"big","data":"` + strings.Repeat("x", 8<<20) + `"}`)
	got := wantSlowEvents(t, g.narrow("?topic=big", 64<<10), 2<<20, 1)
	if len(got[0].Data) != 8<<20+2 {
		t.Errorf("%d bytes", len(got[0].Data))
	}
}

func wantSlowEvents(t *testing.T, c net.Conn, perSecond, n int) []envelope {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(&slowly{from: c, perSecond: perSecond}, 1024), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &stream{t: t, in: bufio.NewReader(resp.Body)}
	return s.events(n)
}
