package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"

	"gapless/feed"
)

// events is GET /events: it streams until the feed or the client ends it.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	opts, err := subscription(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if r.Method == http.MethodHead {
		streamHead(w, r)
		return
	}
	if n := s.streams.Add(1); s.cfg.MaxConnections > 0 && n > int64(s.cfg.MaxConnections) {
		s.streams.Add(-1)
		s.refuse(w, r, feed.DrainAtCapacity, problemf(feed.CodeNotReady, "no stream at present: %s", feed.DrainAtCapacity))
		return
	}
	defer s.streams.Add(-1)
	sub, err := s.feed.Subscribe(r.Context(), opts)
	if err != nil {
		s.notSubscribed(w, r, err)
		return
	}
	defer sub.Close()
	defer s.peers.remove(sub.ID())
	s.peers.add(sub.ID(), peer{remote: r.RemoteAddr, userAgent: r.UserAgent()})
	n := noteOf(r.Context())
	n.connection = sub.ID()
	streamHead(w, r)
	n.ended = s.drain(w, r, sub)
	n.delivered = sub.Info().Delivered
	s.metrics.streamEnded()
}

// drain is the one place that says who drains a queue: the goroutine of the
// connection. It takes what is pending, writes it, flushes it, and so on. It
// returns how the stream ended, in a word.
func (s *Server) drain(w http.ResponseWriter, r *http.Request, sub *feed.Subscriber) string {
	out := newStreamWriter(w, r, s.cfg.WriteTimeout)
	for {
		frames, err := sub.Next(r.Context())
		switch {
		case errors.Is(err, feed.ErrEnded):
			linger(r.Context(), streamLinger)
			return "served"
		case err != nil:
			return "client_gone"
		}
		if err := out.writeFrames(frames, &s.pieces); err != nil {
			kind := writeErrorKind(err)
			s.metrics.writeError(kind)
			return "write_" + kind
		}
	}
}

// writeErrorKind says what kind of failure ended a stream.
func writeErrorKind(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return "reset"
	default:
		return "other"
	}
}

// subscription reads what the client wants. The error is its query's.
func subscription(r *http.Request) (feed.SubscribeOptions, error) {
	q := parseQuery(r.URL.RawQuery)
	if q.values.Has("consumer") {
		q.fail("consumer: this version has no server-side consumers; resume with a cursor")
	}
	format, err := feed.ParseFormat(q.one("format"))
	if err != nil {
		q.fail("format: %q is neither envelope nor raw", clip(q.one("format")))
	}
	shape := feed.Shape{Format: format, Unnamed: !q.flag("named", true)}
	opts := feed.SubscribeOptions{
		From:   q.from(lastEventID(r.Header.Values("Last-Event-ID"))),
		Filter: q.filter(shape.Format == feed.FormatRaw || shape.Unnamed),
		Shape:  shape,
	}
	return opts, q.mistake()
}

// streamHead writes the head of an event stream. The bytes leave with the
// first frame's flush.
func streamHead(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	if r.ProtoMajor == 1 {
		// The end of the body is then the end of the connection. In HTTP/2 the
		// header would end the connection of other streams.
		h.Set("Connection", "close")
	}
	w.WriteHeader(http.StatusOK)
}

// notSubscribed answers where the feed gave no subscriber.
func (s *Server) notSubscribed(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil: // nobody is there to be answered
	case feed.CodeOf(err) == feed.CodeInvalid:
		s.fail(w, r, err)
	case s.draining():
		s.refuse(w, r, feed.DrainShutdown, problemf(feed.CodeNotReady, "no stream at present: %s", feed.DrainShutdown))
	case feed.CodeOf(err) == feed.CodeRestoreNotFinalized: // the feed has logged it
		s.refuse(w, r, feed.DrainNotReady, err)
	default:
		s.log.Warn().Err(err).Msg("a stream was refused")
		s.refuse(w, r, feed.DrainNotReady, problemf(feed.CodeNotReady, "no stream at present: %s", feed.DrainNotReady))
	}
}

// refuse answers a stream that is not to begin. A client that reads event
// streams gets 200 and one block with the time to come back, since an
// EventSource never returns from any other status; all others get the problem,
// a 503.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, reason feed.DrainReason, honest error) {
	s.metrics.streamRefused(string(reason))
	if !readsStreams(r) {
		s.fail(w, r, honest)
		return
	}
	streamHead(w, r)
	// A client that is gone already misses nothing.
	_ = newStreamWriter(w, r, s.cfg.WriteTimeout).writeFrames([]*feed.Frame{s.feed.Refusal(reason)}, &s.pieces)
	linger(r.Context(), streamLinger)
}

// readsStreams reports whether the client takes itself for an EventSource.
func readsStreams(r *http.Request) bool {
	if lastEventID(r.Header.Values("Last-Event-ID")) != "" {
		return true
	}
	for _, accept := range r.Header.Values("Accept") {
		if strings.Contains(strings.ToLower(accept), "text/event-stream") {
			return true
		}
	}
	return false
}
