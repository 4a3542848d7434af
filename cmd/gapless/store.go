package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
	"gapless/feed/memory"
	"gapless/feed/postgres"
	"gapless/feed/sqlite"
)

// storeKind is the scheme of a store's name.
type storeKind string

const (
	storeMemory   storeKind = "memory"
	storeSQLite   storeKind = "sqlite"
	storePostgres storeKind = "postgres"
)

// storeName says where events are kept, as --store does.
type storeName struct {
	kind storeKind
	text string // the file's path, or the database's URL, which may hold a password
}

// parseStore reads memory:, sqlite:PATH, or a URL of PostgreSQL. The error
// says what is allowed. It shows the text only of what has no password: in
// anything else one may stand anywhere (postgres:u:PASSWORD@h/d, host=h
// password=PASSWORD), even where a scheme would.
func parseStore(text string) (storeName, error) { return parseStoreOf(text, "memory:, ") }

// parseStoreOf is parseStore; ephemeral is what its errors propose besides
// what outlives a process.
func parseStoreOf(text, ephemeral string) (storeName, error) {
	scheme, rest, colon := strings.Cut(text, ":")
	switch scheme {
	case "memory":
		if rest == "" {
			return storeName{kind: storeMemory}, nil
		}
		return storeName{}, fmt.Errorf("%q: want memory: alone", text)
	case "sqlite":
		return parseSQLite(text, rest)
	case "postgres", "postgresql":
		if strings.HasPrefix(rest, "//") && len(rest) > 2 {
			return storeName{kind: storePostgres, text: text}, nil
		}
		return storeName{}, fmt.Errorf("%s: want %s://USER@HOST/DATABASE, a URL", scheme, scheme)
	case "nats", "relay":
		if colon {
			return storeName{}, fmt.Errorf("%s: is not in this version; it has %ssqlite:PATH and the URL of PostgreSQL", scheme, ephemeral)
		}
	}
	if !strings.HasPrefix(rest, "//") || !validScheme(scheme) {
		scheme = "(not shown)"
	}
	return storeName{}, fmt.Errorf("%s: want %ssqlite:PATH such as sqlite:events.db, or postgres://USER@HOST/DATABASE", scheme, ephemeral)
}

// validScheme reports whether a text has the form of a URL's scheme (RFC 3986,
// section 3.1).
func validScheme(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return strings.Trim(text, letters+"0123456789+-.") == "" && text != "" && strings.Contains(letters, text[:1])
}

func parseSQLite(text, path string) (storeName, error) {
	if strings.HasPrefix(path, "///") { // as a URL
		path = path[2:]
	}
	switch {
	case path == "":
		return storeName{}, fmt.Errorf("%q: want sqlite: and the path of a file, such as sqlite:events.db", text)
	case strings.HasPrefix(path, "//"):
		return storeName{}, fmt.Errorf("%q: want sqlite:PATH, without // before a relative path", text)
	case path == ":memory:":
		return storeName{}, fmt.Errorf("%q: for events that end with the process, want memory: alone", text)
	case strings.HasPrefix(path, "file:"), strings.ContainsAny(path, "?#\x00"):
		return storeName{}, fmt.Errorf("%q: want the plain path of a file, without file:, ? and #", text)
	}
	return storeName{kind: storeSQLite, text: path}, nil
}

const masked = "********"

// maskStore hides what may be a password in a store's name. It prefers hiding
// too much: a password may hold characters that should have been escaped.
func maskStore(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		at = strings.LastIndexByte(rest, '@')
	}
	if at >= 0 {
		if colon := strings.IndexByte(rest[:at], ':'); colon >= 0 {
			rest = rest[:colon+1] + masked + rest[at:]
		}
	}
	parameters := strings.Split(rest, "&")
	for i, parameter := range parameters {
		before, value, ok := strings.Cut(parameter, "=")
		name := before[strings.LastIndexByte(before, '?')+1:]
		// A name may be escaped, as a value may.
		plain, err := url.QueryUnescape(name + "=" + value)
		if ok && (err != nil || strings.Contains(strings.ToLower(plain), "password=")) {
			parameters[i] = before + "=" + masked
		}
	}
	rest = strings.Join(parameters, "&")
	return scheme + "://" + rest
}

// String is the name as it may be shown.
func (n storeName) String() string {
	switch n.kind {
	case storeSQLite:
		return "sqlite:" + n.text
	case storePostgres:
		return maskStore(n.text)
	default:
		return "memory:"
	}
}

// named says which store an error is about; nil stays nil.
func (n storeName) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store %s: %w", n, err)
}

// hasSecret reports whether String hides something.
func (n storeName) hasSecret() bool { return n.kind == storePostgres && maskStore(n.text) != n.text }

// defaultRetention is what a store keeps unless it is told otherwise.
func (n storeName) defaultRetention() feed.Retention {
	if n.kind == storeMemory || n.kind == "" {
		return feed.Retention{Events: 1024, Bytes: 256 << 20}
	}
	return feed.Retention{Events: 1_000_000, Bytes: 1 << 30}
}

// readStoreFile reads a store's name from a file, where its password is not
// seen in a list of processes.
func readStoreFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--store-file: %w", err)
	}
	name := strings.TrimSpace(string(text))
	if name == "" || strings.ContainsAny(name, "\r\n") {
		return "", fmt.Errorf("--store-file %s: want one line: memory:, sqlite:PATH or postgres://…", path)
	}
	return name, nil
}

// storeOptions are what stores are opened with.
type storeOptions struct {
	retention    feed.Retention
	dedupeWindow time.Duration
	guard        feed.GuardMode
	node         string
	logger       zerolog.Logger
	mustExist    bool // do not make a new one
	maxConns     int
	autoMigrate  bool
	outboxPoll   time.Duration
}

// openStore opens the store. What it returns is a [feed.Durable] unless it is
// in memory. Whoever opened it closes it.
func openStore(ctx context.Context, name storeName, o storeOptions) (feed.Log, error) {
	var (
		log feed.Log
		err error
	)
	switch name.kind {
	case storeSQLite:
		var st *sqlite.Store
		st, err = sqlite.Open(ctx, sqlite.Config{
			Path: name.text, MustExist: o.mustExist, Retention: o.retention, DedupeWindow: o.dedupeWindow,
			Guard: o.guard, Node: o.node, Logger: o.logger,
		})
		log = st
	case storePostgres:
		var st *postgres.Store
		st, err = postgres.Open(ctx, postgres.Config{
			URL: name.text, Retention: o.retention, DedupeWindow: o.dedupeWindow, Guard: o.guard, Node: o.node,
			Logger: o.logger, MaxConns: o.maxConns, AutoMigrate: o.autoMigrate, OutboxPoll: o.outboxPoll,
		})
		log = st
	default:
		log, err = memory.New(memory.Config{Retention: o.retention, DedupeWindow: o.dedupeWindow})
	}
	if err != nil {
		return nil, name.named(err)
	}
	return log, nil
}

// storeFlags name a store for the commands that open one themselves.
type storeFlags struct {
	Store     string `placeholder:"STORE" help:"The store: sqlite:PATH or postgres://…"`
	StoreFile string `placeholder:"FILE" help:"File that holds what --store would say: its password is then in no list of processes."`
}

// given reports whether a store is named at all.
func (f *storeFlags) given() bool { return cmp.Or(f.Store, f.StoreFile) != "" }

// name reads what the flags say: a store that outlives its process.
func (f *storeFlags) name() (storeName, error) {
	text := f.Store
	switch {
	case f.Store != "" && f.StoreFile != "":
		return storeName{}, usageErrorf("--store and --store-file: want one of them")
	case f.StoreFile != "":
		var err error
		if text, err = readStoreFile(f.StoreFile); err != nil {
			return storeName{}, &exitError{exitUsage, err}
		}
	case f.Store == "":
		return storeName{}, usageErrorf("--store is missing: want sqlite:PATH or postgres://…")
	}
	name, err := parseStoreOf(text, "")
	if err != nil {
		return storeName{}, usageErrorf("--store %w", err)
	}
	if name.kind == storeMemory {
		return storeName{}, usageErrorf("--store memory: ends with its process: there is nothing to look at; want sqlite:PATH or postgres://…")
	}
	return name, nil
}
