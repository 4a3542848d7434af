package server

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
)

// Bounds of every connection. There is no time limit for a whole answer:
// streams have none.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// announceRetry is the pause after a failed announcement.
const announceRetry = time.Second

// Serve answers requests on ln, in plain text, until ctx ends; then, after
// Config.DrainDelay, it drains: new requests are refused, every stream gets what its queue holds and
// `server.draining`, requests under way end. What has not ended within
// drainTimeout is closed. It blocks, and is called once; the caller runs the
// feed, and keeps it running until Serve has returned.
//
// Once the feed serves, it publishes server.status and calls Config.OnReady.
// The error is the listener's; after ctx has ended there is none.
func (s *Server) Serve(ctx context.Context, ln net.Listener, drainTimeout time.Duration) error {
	hs := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          stdlog.New(httpLog{s.log}, "", 0),
		ConnContext:       withConn,
	}
	// HTTP/2 without TLS is for clients and proxies that know beforehand.
	hs.Protocols = new(http.Protocols)
	hs.Protocols.SetHTTP1(true)
	hs.Protocols.SetUnencryptedHTTP2(true)
	// A peer that acknowledges nothing for two heartbeats is gone; one that
	// pauses for less than a write may take is not.
	silence := max(2*s.feed.Config().Heartbeat, s.cfg.WriteTimeout)
	tuned := &listener{Listener: ln, silence: silence, writeTimeout: s.cfg.WriteTimeout, log: s.log}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	failed := make(chan error, 1)
	// Before it is ready: a store that is down or shut may take its time.
	s.log.Info().Str("address", ln.Addr().String()).Msg("bound")
	wg.Go(func() { failed <- hs.Serve(tuned) })
	wg.Go(func() { s.announce(ctx, ln.Addr().String()) })

	select {
	case err := <-failed:
		cancel()
		return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	s.leaving.Store(true)
	if s.cfg.DrainDelay > 0 {
		s.log.Info().Dur("delay_ms", s.cfg.DrainDelay).Msg("stopping; serving on until load balancers have seen it")
		select {
		case err := <-failed:
			return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
		case <-time.After(s.cfg.DrainDelay):
		}
	}
	s.shutDown(context.WithoutCancel(ctx), hs, tuned, drainTimeout)
	return nil
}

// announce tells that the feed serves, when it does, in the log, to the
// subscribers, and to the caller. From then on it does so again to the
// subscribers where the store had failed appends: only one more append finds
// out that it takes them again.
func (s *Server) announce(ctx context.Context, address string) {
	if !s.announceOnce(ctx) {
		return
	}
	s.log.Info().Str("address", address).Str("node", s.cfg.Node).Str("store", s.cfg.Store).Msg("ready")
	if s.cfg.OnReady != nil {
		s.cfg.OnReady()
	}
	tick := time.NewTicker(announceRetry)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.feed.Appending() != nil && !s.announceOnce(ctx) {
			return
		}
	}
}

// announceOnce publishes the ready event, and tries until it is stored. A
// sealed store takes no event of ours either, and is served all the same.
// It reports false where ctx ended before.
func (s *Server) announceOnce(ctx context.Context) bool {
	data := encodeJSON(struct {
		Status string `json:"status"`
		Node   string `json:"node"`
	}{statusReady, s.cfg.Node})
	ready := feed.Draft{Type: feed.TypeStatus, Topic: feed.SystemTopic + ".status", Data: data}
	for {
		if s.feed.WaitReady(ctx) != nil {
			return false
		}
		_, err := s.feed.Announce(ctx, ready)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case feed.CodeOf(err) == feed.CodeSealed:
			s.log.Warn().Err(err).Msg("the store is sealed: readers are served, and nothing can be published")
			return true
		}
		select { // the feed has logged it
		case <-time.After(announceRetry):
		case <-ctx.Done():
			return false
		}
	}
}

// shutDown drains the feed and ends the HTTP server, by force after timeout.
func (s *Server) shutDown(ctx context.Context, hs *http.Server, ln *listener, timeout time.Duration) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s.log.Info().Int64("streams", s.streams.Load()).Msg("draining")
	hs.SetKeepAlivesEnabled(false)
	s.stop()
	err := errors.Join(s.feed.Drain(ctx), hs.Shutdown(ctx))
	if err != nil {
		s.log.Warn().Err(err).Int64("streams", s.streams.Load()).Msg("the drain timeout has passed; closing what is left")
		ln.hurried.Store(true) // http.Server closes one after the other
		err = hs.Close()
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("closing the listener failed")
	}
	s.log.Info().Dur("took_ms", time.Since(begin)).Msg("stopped")
}

// httpLog passes on what net/http says about connections.
type httpLog struct{ log zerolog.Logger }

// Write logs one line.
func (l httpLog) Write(line []byte) (int, error) {
	l.log.Debug().Bytes("detail", line).Msg("http")
	return len(line), nil
}
