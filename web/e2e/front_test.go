//go:build e2e

package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	slowMark = "slow" // marks what front delivers slowly
	foreign  = -1     // for a status: the stream of another server at this address
)

// front is a proxy before a gateway, on an origin that serves the page as well. It does to streams what the real ones do.
type front struct {
	url     string
	gateway *gateway
	client  *http.Client

	mu       sync.Mutex    // guards what follows
	statuses []int         // of the answers to come; 200, or none: the gateway's own
	asked    []string      // path and query of each stream that reached the gateway
	muted    int           // streams up to this one get no more bytes
	slowness time.Duration // of events with slowMark
}

func startFront(t *testing.T, g *gateway) *front {
	t.Helper()
	f := &front{gateway: g, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	server := httptest.NewServer(f)
	f.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/page" {
		serveClientPage(w, r)
		return
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, f.gateway.url+r.URL.RequestURI(), nil)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	request.Header = r.Header.Clone()
	response, err := f.client.Do(request)
	if err != nil { // the gateway is away
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "retry: 500\nevent: server.draining\ndata: {\"reason\":\"upstream_unavailable\"}\n\n")
		return
	}
	defer response.Body.Close()
	number, status := 0, response.StatusCode
	if r.URL.Path == "/events" {
		number, status = f.asks(r)
	}
	switch status {
	case http.StatusOK:
	case foreign:
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "retry: 500\ndata: {\"type\":\"foreign\"}\nid: not a cursor!\n\n")
		return
	default:
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	f.copy(w, r, response.Body, number)
}

// asks notes a stream and returns its number, from 1, and the status of its answer.
func (f *front) asks(r *http.Request) (number, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.URL.RequestURI())
	status = http.StatusOK
	if len(f.statuses) > 0 {
		status, f.statuses = f.statuses[0], f.statuses[1:]
	}
	return len(f.asked), status
}

// copy hands on what comes: at once, late, or not at all.
func (f *front) copy(w http.ResponseWriter, r *http.Request, from io.Reader, number int) {
	flush := http.NewResponseController(w).Flush
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		f.mu.Lock()
		muted, slowness := number > 0 && number <= f.muted, f.slowness
		f.mu.Unlock()
		rest := chunk[:n]
		if slowness > 0 && bytes.Contains(rest, []byte(slowMark+slowMark)) {
			w.Write(rest[:n/2])
			flush()
			rest = rest[n/2:]
			select {
			case <-time.After(slowness):
			case <-r.Context().Done():
			}
		}
		if !muted {
			w.Write(rest)
			flush()
		}
		if err != nil {
			return
		}
	}
}

// answer gives the statuses of the next streams that reach the gateway.
func (f *front) answer(statuses ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses = statuses
}

// mute lets the streams that are open now fall silent.
func (f *front) mute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.muted = len(f.asked)
}

// delay slows events with slowMark down.
func (f *front) delay(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slowness = d
}

// questions lists path and query of each stream that reached the gateway.
func (f *front) questions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}
