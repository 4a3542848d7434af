package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"gapless/feed"
)

// pieceBytes is the most that is written under one deadline.
const pieceBytes = 16 << 10

// pieces is a pool of buffers in which small frames are joined.
type pieces struct{ pool sync.Pool }

func (p *pieces) get() *[]byte {
	if buf, ok := p.pool.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, 0, pieceBytes)
	return &buf
}

func (p *pieces) put(buf *[]byte) {
	*buf = (*buf)[:0]
	p.pool.Put(buf)
}

// writer writes to one client, a piece at a time. One goroutine uses it.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	resets  bool // a deadline resets the stream whether or not something is written: HTTP/2
}

func newWriter(w http.ResponseWriter, timeout time.Duration) writer {
	return writer{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// newStreamWriter is newWriter for an answer that pauses.
func newStreamWriter(w http.ResponseWriter, r *http.Request, timeout time.Duration) writer {
	out := newWriter(w, timeout)
	out.resets = r.ProtoMajor >= 2
	return out
}

// write writes b in pieces, each with a deadline of its own.
func (w writer) write(b []byte) error {
	for len(b) > 0 {
		piece := b[:min(len(b), pieceBytes)]
		b = b[len(piece):]
		if err := w.control.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			return err
		}
		if _, err := w.w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// writeFrames writes a batch of frames, small ones joined, and flushes once.
func (w writer) writeFrames(frames []*feed.Frame, pool *pieces) error {
	buf := pool.get()
	defer pool.put(buf)
	joined := *buf
	for _, frame := range frames {
		if len(joined)+len(frame.Bytes) > pieceBytes {
			if err := w.write(joined); err != nil {
				return err
			}
			joined = joined[:0]
		}
		if len(frame.Bytes) > pieceBytes {
			if err := w.write(frame.Bytes); err != nil {
				return err
			}
			continue
		}
		joined = append(joined, frame.Bytes...)
	}
	if len(joined) == 0 { // the last piece has used up some of its time
		if err := w.control.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			return err
		}
	}
	if err := w.write(joined); err != nil {
		return err
	}
	if err := w.control.Flush(); err != nil {
		return err
	}
	return w.rest()
}

// rest takes the deadline away while nothing is being written. In HTTP/1 one
// that passes then does no harm; in HTTP/2 it is a timer that resets the
// stream.
func (w writer) rest() error {
	if !w.resets {
		return nil
	}
	return w.control.SetWriteDeadline(time.Time{})
}

// respond answers with a whole body. A client that has gone is nobody's
// concern: the request log has the bytes that were written.
func (s *Server) respond(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if err := newWriter(w, s.cfg.WriteTimeout).write(body); errors.Is(err, http.ErrNotSupported) {
		_, _ = w.Write(body) // no connection, no deadline
	}
}

// respondJSON answers with a value of ours, which always encodes.
func (s *Server) respondJSON(w http.ResponseWriter, status int, value any) {
	s.respond(w, status, "application/json", encodeJSON(value))
}

// encodeJSON encodes a value of ours; an answer is no HTML, so that `>`
// stays as it is.
func encodeJSON(value any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// boundWrites gives every answer a deadline. A connection keeps its deadline
// from one request to the next, so that each must begin with a new one; those
// that take longer renew it as they write.
func (s *Server) boundWrites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 { // in HTTP/2 it would end a long poll: see writer.rest
			// Where deadlines are not supported there is nothing to bound.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// whole gives a handler that writes its answer in one go, and by itself, a
// deadline for it in HTTP/2 too, where boundWrites sets none.
func (s *Server) whole(handler http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Where deadlines are not supported there is nothing to bound.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
		handler.ServeHTTP(w, r)
	}
}
