package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"gapless/feed"
)

// How long a body may make no progress.
const (
	bodyIdle  = 30 * time.Second
	linesIdle = 10 * time.Minute // an NDJSON producer may have nothing to say
)

// readBody reads a whole body of at most so many bytes.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	body := newBodyReader(w, r.Body, bodyIdle)
	var buf bytes.Buffer
	// What is announced may never come: memory grows with what does.
	if n := r.ContentLength; n > 0 && n <= 16<<10 {
		buf.Grow(int(n) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return nil, bodyError(err)
	case n > most:
		return nil, &http.MaxBytesError{Limit: most}
	}
	body.release()
	return buf.Bytes(), nil
}

// bodyError says what an unfinished body means.
func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err // its own problem
	}
	return problemf(feed.CodeInvalid, "the body ended early")
}

// bodyReader reads a body with a deadline that each read renews.
type bodyReader struct {
	body    io.Reader
	control *http.ResponseController
	idle    time.Duration

	mu        sync.Mutex
	cancelled error // reads return this
}

func newBodyReader(w http.ResponseWriter, body io.Reader, idle time.Duration) *bodyReader {
	return &bodyReader{body: body, control: http.NewResponseController(w), idle: idle}
}

// Read reads on. Where deadlines are not supported there is none.
func (b *bodyReader) Read(p []byte) (int, error) {
	b.mu.Lock()
	if err := b.cancelled; err != nil {
		b.mu.Unlock()
		return 0, err
	}
	_ = b.control.SetReadDeadline(time.Now().Add(b.idle))
	b.mu.Unlock()
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.cancelled != nil {
			err = b.cancelled
		}
	}
	return n, err
}

// cancel makes a read that is under way, and all to come, return err.
func (b *bodyReader) cancel(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancelled = err
	_ = b.control.SetReadDeadline(time.Unix(1, 0))
}

// release takes the deadline away when the body has ended: net/http reads on to notice a client that
// goes away, and must not take our deadline for that.
func (b *bodyReader) release() { _ = b.control.SetReadDeadline(time.Time{}) }

// boundBodies bounds the wait for a body that nobody reads. Only POST has
// one; with any other request, net/http itself reads it, either before the
// answer's head or when the handler has returned, and takes all the time that
// the client takes.
func (s *Server) boundBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			leaveBody(w, r)
		}
		next.ServeHTTP(w, r)
	})
}

// leaveBody is called before an answer to a request whose body, if any, may
// not have been read to its end. The connection ends with the answer, which
// then does not wait for the body. What the client still sends is taken for a
// while, so that no reset destroys the answer.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 {
		return
	}
	w.Header().Set("Connection", "close")
	linger(r.Context(), bodyLinger)
	// Where deadlines are not supported there is no connection to be held.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyLinger))
}
