package server_test

import (
	"net/http"
	"testing"
	"time"
)

// No middleware hides what a stream needs of its connection.
func TestStackKeepsTheConnection(t *testing.T) {
	failures := make(chan error, 8)
	g := start(t, func(o *options) {
		o.server.Example = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(failures)
			control := http.NewResponseController(w)
			failures <- control.SetWriteDeadline(time.Now().Add(time.Minute))
			failures <- control.SetReadDeadline(time.Now().Add(time.Minute))
			failures <- control.EnableFullDuplex()
			failures <- control.Flush()
			c, _, err := control.Hijack()
			failures <- err
			if err == nil {
				failures <- c.Close()
			}
		})
	})
	g.dial("GET /example HTTP/1.1\r\nHost: localhost\r\n\r\n")
	n := 0
	for err := range failures {
		if err != nil {
			t.Errorf("call %d: %v", n, err)
		}
		n++
	}
	if n != 6 {
		t.Errorf("%d calls", n)
	}
}

// A connection that is kept for another request does not keep the deadline of
// the last one.
func TestDeadlinesDoNotOutliveTheirRequest(t *testing.T) {
	g := start(t, func(o *options) { o.server.WriteTimeout = 50 * time.Millisecond })
	g.client = &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: patience}
	defer g.client.CloseIdleConnections()
	for range 3 {
		if a := g.do("GET", "/api/v1/status", ""); a.status != 200 {
			t.Errorf("%d", a.status)
		}
		if a := g.do("GET", "/api/v1/events?start=live&wait=120ms", ""); a.status != 200 {
			t.Errorf("%d", a.status)
		}
		if a := g.do("POST", "/api/v1/events", "{}", jsonType); a.status != 201 {
			t.Errorf("%d", a.status)
		}
	}
}
