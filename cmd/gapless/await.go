package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"gapless/feed"
)

// How long a database may take to answer at first, and how long nothing is
// said of it.
const (
	storePatience = 15 * time.Second
	storeSilence  = time.Second
)

// await calls try until the store answers it, for storePatience at the most,
// which also bounds the context that try gets. What waiting does not mend ends
// it at once. The error has exitUnavailable where the store did not answer.
func await(ctx context.Context, con *console, name storeName, try func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	tell := &once{out: con.err}
	defer tell.close()
	silent := time.AfterFunc(storeSilence, func() {
		tell.say(fmt.Sprintf("gapless: store %s: it does not answer yet; waiting for up to %v\n", name, storePatience))
	})
	defer silent.Stop()
	var last error // that says more than that the time is over
	for {
		err := try(bounded)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errInterrupted
		case name.kind != storePostgres || !answerless(err):
			return name.named(err)
		case unknownHost(err):
			return &exitError{exitUnavailable, name.named(err)}
		case last == nil || bounded.Err() == nil:
			last = err
		}
		reason := strings.Join(strings.Fields(name.named(err).Error()), " ") // in one line
		tell.say(fmt.Sprintf("gapless: %s; waiting for up to %v\n", reason, storePatience))
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-bounded.Done():
			return &exitError{exitUnavailable, name.named(last)}
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// once writes the first of several texts, from any goroutine, and nothing
// after close.
type once struct {
	mu   sync.Mutex
	done bool
	out  io.Writer
}

func (o *once) say(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.done {
		o.done = true
		fmt.Fprint(o.out, text)
	}
}

func (o *once) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
}

// answerless reports whether a store did not answer, so that the same may work
// soon. A database that refuses has answered: a role, a password, a database,
// a privilege or a schema has to be mended first.
func answerless(err error) bool {
	if feed.CodeOf(err) != feed.CodeUnavailable {
		return false
	}
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) {
		// PostgreSQL, appendix A: it starts or stops, has no connection left, or
		// a connection of its own broke. Where a step waits for a table for too
		// long (55P03), it has done so for long enough.
		return strings.HasPrefix(server.Code, "57P") || strings.HasPrefix(server.Code, "53") || strings.HasPrefix(server.Code, "08")
	}
	// The store words a schema that is missing or too old in its own way.
	return !strings.Contains(err.Error(), "gapless migrate")
}

// unknownHost reports whether no name server knows a database's host.
func unknownHost(err error) bool {
	var lookup *net.DNSError
	return errors.As(err, &lookup) && lookup.IsNotFound
}
