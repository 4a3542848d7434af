package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/user"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"gapless/feed"
)

// target is a store that an operator looks after: behind a running gateway, or
// opened by this process.
type target interface {
	status(ctx context.Context) (feed.RestoreStatus, error)
	finalize(ctx context.Context, opts feed.FinalizeOptions) (feed.Finalized, error)
	relocate(ctx context.Context, m feed.Manifest, actor string) (feed.Relocated, error)
	backup(ctx context.Context, dir string, opts feed.BackupOptions) (feed.Manifest, error)
	close() error
}

// targetFlags name a gateway or a store.
type targetFlags struct {
	clientFlags
	storeFlags
	fromStore bool // see choose
}

// choose decides between the gateway and the store. What stands on the command
// line wins over the environment, and there the store's name does: it is what
// serve goes by.
func (f *targetFlags) choose(ctx *kong.Context) error {
	var url, store bool
	for _, path := range ctx.Path {
		if path.Flag == nil {
			continue
		}
		switch path.Flag.Name {
		case "url":
			url = true
		case "store", "store-file":
			store = true
		}
	}
	if url && store {
		return usageErrorf("--url and --store: want one of them: a running gateway, or a store that no gateway has open")
	}
	f.fromStore = store || !url && f.given()
	return nil
}

// open reaches the gateway or opens the store.
func (f *targetFlags) open(ctx context.Context, con *console) (target, error) {
	if !f.fromStore {
		cl, err := f.newClient()
		if err != nil {
			return nil, err
		}
		return &gatewayTarget{cl.patient()}, nil
	}
	name, err := f.name()
	if err != nil {
		return nil, err
	}
	return openTarget(ctx, con, name)
}

// storeVariable stands for a store's URL in a command line that must not show
// its password, so that the command can be pasted.
const storeVariable = `"$GAPLESS_STORE"`

// arguments are how a command line names the same target, without a secret.
func (f *targetFlags) arguments() string {
	switch {
	case f.fromStore && f.StoreFile != "":
		return " --store-file " + shellWord(f.StoreFile)
	case f.fromStore:
		if name, err := f.name(); err == nil {
			if name.hasSecret() {
				return " --store " + storeVariable
			}
			return " --store " + shellWord(name.String())
		}
		return " --store STORE"
	case f.URL != "":
		return " --url " + shellWord(f.URL)
	}
	return ""
}

// storeTarget is a store that this process has opened.
type storeTarget struct {
	name    storeName
	durable feed.Durable
}

// openTarget opens a store for a look, not for service: it trims nothing,
// moves nothing out of an outbox, and waits for a database to answer.
func openTarget(ctx context.Context, con *console, name storeName) (*storeTarget, error) {
	log, err := openStore(ctx, name, storeOptions{
		retention:  feed.Retention{Events: math.MaxInt64},
		guard:      feed.GuardStrict,
		node:       hostname(),
		logger:     zerolog.Nop(), // what it would say, the command says
		mustExist:  true,
		outboxPoll: -1,
	})
	if err != nil {
		return nil, err
	}
	durable, ok := log.(feed.Durable)
	if !ok {
		return nil, errors.Join(usageErrorf("--store %s: ends with its process: there is nothing to look at", name), log.Close())
	}
	t := &storeTarget{name: name, durable: durable}
	look := func(ctx context.Context) error {
		_, err := durable.RestoreStatus(ctx)
		return err
	}
	if err := await(ctx, con, name, look); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// named says which store an error is about.
func (t *storeTarget) named(err error) error { return t.name.named(err) }

func (t *storeTarget) status(ctx context.Context) (feed.RestoreStatus, error) {
	s, err := t.durable.RestoreStatus(ctx)
	return s, t.named(err)
}

func (t *storeTarget) finalize(ctx context.Context, opts feed.FinalizeOptions) (feed.Finalized, error) {
	done, err := t.durable.Finalize(ctx, opts)
	return done, t.named(err)
}

func (t *storeTarget) relocate(ctx context.Context, m feed.Manifest, actor string) (feed.Relocated, error) {
	done, err := t.durable.Relocate(ctx, m, actor)
	return done, t.named(err)
}

func (t *storeTarget) backup(ctx context.Context, dir string, opts feed.BackupOptions) (feed.Manifest, error) {
	m, err := t.durable.Backup(ctx, dir, opts)
	return m, t.named(err)
}

func (t *storeTarget) close() error { return t.durable.Close() }

// gatewayTarget is the store of a running gateway.
type gatewayTarget struct{ client *client }

func (t *gatewayTarget) status(ctx context.Context) (feed.RestoreStatus, error) {
	var s feed.RestoreStatus
	return s, t.ask(ctx, http.MethodGet, "/api/v1/admin/restore", nil, &s)
}

func (t *gatewayTarget) finalize(ctx context.Context, opts feed.FinalizeOptions) (feed.Finalized, error) {
	var answer struct{ Finalized feed.Finalized }
	body := map[string]any{"actor": opts.Actor, "dry_run": opts.DryRun}
	if opts.Epoch != "" {
		body["epoch"] = opts.Epoch
	}
	err := t.ask(ctx, http.MethodPost, "/api/v1/admin/restore/finalize",
		body, &answer)
	return answer.Finalized, err
}

func (t *gatewayTarget) relocate(ctx context.Context, m feed.Manifest, actor string) (feed.Relocated, error) {
	var answer struct{ Relocated feed.Relocated }
	err := t.ask(ctx, http.MethodPost, "/api/v1/admin/restore/finalize",
		map[string]any{"actor": actor, "relocation": m}, &answer)
	return answer.Relocated, err
}

func (t *gatewayTarget) backup(ctx context.Context, dir string, opts feed.BackupOptions) (feed.Manifest, error) {
	var m feed.Manifest
	return m, t.ask(ctx, http.MethodPost, "/api/v1/admin/backup",
		map[string]any{"actor": opts.Actor, "directory": dir, "final": opts.Final}, &m)
}

// ask sends an operator's request. Where no gateway runs, there is another way.
func (t *gatewayTarget) ask(ctx context.Context, method, path string, body, into any) error {
	err := t.client.admin(ctx, method, path, body, into)
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = &exitError{exitUnavailable, fmt.Errorf("%w; where no gateway runs, --store opens the store itself", err)}
	}
	return err
}

func (t *gatewayTarget) close() error {
	t.client.close()
	return nil
}

// actor is who runs this program, for the audit trail.
func actor() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if name == "" {
		name = fmt.Sprintf("uid %d", os.Getuid())
	}
	return name + "@" + hostname()
}
