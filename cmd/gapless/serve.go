package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"gapless"
	"gapless/feed"
	"gapless/feed/memory"
	"gapless/server"
	"gapless/web"
)

type serveCommand struct {
	serveFlags
}

// Help implements [kong.HelpProvider].
func (*serveCommand) Help() string {
	return `Every flag is also an environment variable, GAPLESS_ and its name in capitals, and a key of the --config file. A flag wins over the variable, the variable over the file, the file over the default.

When it is ready, one line goes to stdout: listening on http://127.0.0.1:8080 . Logs go to stderr. SIGTERM or SIGINT: streams are told to come back, then the process ends with 0; a second signal ends it at once with 1.

Examples:
  gapless serve --demo
  gapless serve --listen 127.0.0.1:0 --retain-events 100000
  gapless serve --listen 0.0.0.0:8080 --publish-key-file /run/secrets/publish-keys
  GAPLESS_HEARTBEAT=5s gapless serve --config gapless.yaml`
}

// gateway is a feed, its log and its HTTP side, made and not started.
type gateway struct {
	log    *memory.Log
	feed   *feed.Feed
	server *server.Server
	logger zerolog.Logger
}

// newGateway makes the parts from completed flags. It starts nothing and
// binds nothing, so that config checks what serve would.
func newGateway(f *serveFlags, con *console, onReady func()) (*gateway, error) {
	logger, err := newLogger(con, f.LogLevel, f.LogFormat)
	if err != nil {
		return nil, err
	}
	log, err := memory.New(memory.Config{
		Retention:    feed.Retention{Events: f.RetainEvents, Bytes: int64(f.RetainBytes), Age: f.RetainAge},
		DedupeWindow: f.DedupeWindow,
	})
	if err != nil {
		return nil, err
	}
	fd, err := feed.New(feed.Config{
		Log:             log,
		Logger:          logger,
		SnapshotEvents:  f.SnapshotEvents,
		ScanLimit:       f.ScanLimit,
		QueueFrames:     f.QueueFrames,
		QueueBytes:      int64(f.QueueBytes),
		QueueBytesTotal: int64(f.QueueBytesTotal),
		Heartbeat:       f.Heartbeat,
		ReconnectDelay:  f.ReconnectDelay,
		HideTypes:       f.HideTypes,
	})
	if err != nil {
		return nil, err
	}
	keys, err := f.keys()
	if err != nil {
		return nil, err
	}
	srv, err := server.New(server.Config{
		Feed:         fd,
		Logger:       logger,
		Version:      version,
		Node:         f.Node,
		PublishKeys:  keys,
		Open:         f.Open,
		CORSOrigins:  f.origins(),
		WriteTimeout: f.WriteTimeout,
		Dashboard:    web.Dashboard(),
		Example:      web.Example(),
		Client:       web.Client(),
		OpenAPI:      gapless.OpenAPI,
		OnReady:      onReady,
	})
	if err != nil {
		return nil, err
	}
	return &gateway{log: log, feed: fd, server: srv, logger: logger}, nil
}

// Run serves until ctx ends, then drains.
func (c *serveCommand) Run(ctx context.Context, con *console) error {
	if err := c.complete(); err != nil {
		return err
	}
	var running sync.WaitGroup
	demoCtx, stopDemo := context.WithCancel(ctx)
	defer stopDemo()
	var (
		gw *gateway
		ln net.Listener
	)
	gw, err := newGateway(&c.serveFlags, con, func() {
		fmt.Fprintf(con.out, "listening on http://%s\n", ln.Addr())
		if c.Demo {
			running.Go(func() { newDemo(gw.feed.Publish, gw.logger).run(demoCtx) })
		}
	})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if ln, err = new(net.ListenConfig).Listen(ctx, "tcp", c.Listen); err != nil {
		if host, _, splitErr := net.SplitHostPort(c.Listen); splitErr == nil && errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; --listen %s picks another", err, net.JoinHostPort(host, "PORT"))
		}
		return errors.Join(err, gw.log.Close())
	}
	// The feed outlives ctx: it serves the streams while they drain.
	feedCtx, stopFeed := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFeed()
	running.Go(func() { gw.feed.Run(feedCtx) })
	err = gw.server.Serve(ctx, ln, c.DrainTimeout)
	stopDemo()
	stopFeed()
	running.Wait()
	return errors.Join(err, gw.log.Close())
}
