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
  gapless serve --store sqlite:events.db
  gapless serve --store-file /run/secrets/database-url --auto-migrate
  gapless serve --listen 127.0.0.1:0 --retain-events 100000
  gapless serve --listen 0.0.0.0:8080 --publish-key-file /run/secrets/publish-keys
  GAPLESS_HEARTBEAT=5s gapless serve --config gapless.yaml`
}

// gateway is a feed, its log and its HTTP side, made and not started.
type gateway struct {
	log    feed.Log
	feed   *feed.Feed
	server *server.Server
	logger zerolog.Logger
}

// check makes the parts on a store that nobody sees, binds and opens nothing:
// it finds what serve would refuse.
func (f *serveFlags) check(con *console) error {
	logger, err := newLogger(con, f.LogLevel, f.LogFormat)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	log, err := openStore(context.Background(), storeName{kind: storeMemory}, storeOptions{
		retention: storeName{}.defaultRetention(), dedupeWindow: f.DedupeWindow,
	})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if _, err := newGateway(f, log, logger, nil); err != nil {
		return &exitError{exitUsage, errors.Join(err, log.Close())}
	}
	return log.Close()
}

// newGateway makes the parts from completed flags and an open log. It starts
// nothing.
func newGateway(f *serveFlags, log feed.Log, logger zerolog.Logger, onReady func()) (*gateway, error) {
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
	// What a store is not stays nil.
	state, _ := log.(feed.State)
	durable, _ := log.(feed.Durable)
	srv, err := server.New(server.Config{
		Feed:         fd,
		State:        state,
		Durable:      durable,
		DrainDelay:   f.DrainDelay,
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
	if err := c.check(con); err != nil {
		return err
	}
	logger, err := newLogger(con, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	// Before the store: where the port is taken, no new database is left behind.
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		if host, _, splitErr := net.SplitHostPort(c.Listen); splitErr == nil && errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; --listen %s picks another", err, net.JoinHostPort(host, "PORT"))
		}
		return err
	}
	log, err := openStore(ctx, c.serveFlags.store, c.storeOptions(logger))
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	return errors.Join(c.serve(ctx, con, ln, log, logger), log.Close())
}

// serve runs the parts on a bound listener, which it closes, and an open log.
func (c *serveCommand) serve(ctx context.Context, con *console, ln net.Listener, log feed.Log, logger zerolog.Logger) error {
	var running sync.WaitGroup
	demoCtx, stopDemo := context.WithCancel(ctx)
	defer stopDemo()
	var gw *gateway
	gw, err := newGateway(&c.serveFlags, log, logger, func() {
		fmt.Fprintf(con.out, "listening on http://%s\n", ln.Addr())
		if c.Demo {
			running.Go(func() { newDemo(gw.feed.Publish, logger).run(demoCtx) })
		}
	})
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	// The feed outlives ctx: it serves the streams while they drain.
	feedCtx, stopFeed := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFeed()
	running.Go(func() { gw.feed.Run(feedCtx) })
	err = gw.server.Serve(ctx, ln, c.DrainTimeout)
	stopDemo()
	stopFeed()
	running.Wait()
	return err
}
