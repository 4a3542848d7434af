package server

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
)

// recorder is the ResponseWriter that every handler gets: it counts. Flush,
// Hijack and deadlines reach the connection through Unwrap
// (http.ResponseController).
type recorder struct {
	http.ResponseWriter
	status int // 0: no head was written yet
	bytes  int64
	note   note
}

// note is what a handler adds to its request's log line. The handler's
// goroutine owns it.
type note struct {
	connection string // a stream's connection id
	delivered  uint64 // events written to it
	ended      string // why a stream ended
}

// Unwrap gives the writer beneath, as http.ResponseController asks for it.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status; informational ones (1xx) pass by.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts what went out.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

type noteKey struct{}

// noteOf returns the note of a request that went through record.
func noteOf(ctx context.Context) *note {
	n, _ := ctx.Value(noteKey{}).(*note)
	return n
}

// record counts and logs every request when it has ended: at info level the
// streams and what went wrong, at debug level the rest. The path is logged
// without its query, where a cursor or a token may stand.
func (s *Server) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		rec := &recorder{ResponseWriter: w}
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, &rec.note))
		defer func() {
			took := time.Since(begin)
			status := rec.status
			if status == 0 {
				status = http.StatusOK // what net/http sends for an empty answer
			}
			s.metrics.request(chi.RouteContext(r.Context()).RoutePattern(), r.Method, status, took)
			ev := s.log.WithLevel(levelOf(status, rec.note.connection != ""))
			ev.Str("method", clip(r.Method)).Str("path", clip(r.URL.Path)).Int("status", status).
				Int64("bytes", rec.bytes).Dur("duration_ms", took).Str("remote", r.RemoteAddr)
			if rec.note.connection != "" {
				ev.Str("connection_id", rec.note.connection).Uint64("delivered", rec.note.delivered).Str("ended", rec.note.ended)
			}
			ev.Msg("request")
		}()
		next.ServeHTTP(rec, r)
	})
}

func levelOf(status int, stream bool) zerolog.Level {
	switch {
	case status >= 500:
		return zerolog.WarnLevel
	case status >= 400, stream:
		return zerolog.InfoLevel
	default:
		return zerolog.DebugLevel
	}
}

// recoverPanics turns a defect into a 500 and a log line with its stack. An
// answer that has begun is aborted, so that it cannot pass for a whole one.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			s.log.Error().Interface("panic", cause).Bytes("stack", debug.Stack()).
				Str("path", clip(r.URL.Path)).Msg("a handler panicked")
			if rec, ok := w.(*recorder); ok && rec.status != 0 {
				panic(http.ErrAbortHandler)
			}
			s.fail(w, r, errors.New("panic"))
		}()
		next.ServeHTTP(w, r)
	})
}
