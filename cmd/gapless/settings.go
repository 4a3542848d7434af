package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rs/zerolog"

	"gapless/feed"
)

// serveFlags are what serve can be told. Each is a flag, an environment
// variable GAPLESS_<NAME> and a key of the config file, in this precedence.
type serveFlags struct {
	Config string `help:"YAML file with flag names as keys." placeholder:"FILE"`

	file  *fileResolver // what --config names; nil: none
	store storeName     // of --store or --store-file; see complete

	Listen       string        `group:"Server" default:"127.0.0.1:8080" help:"Address to listen on, host:port. Port 0 takes a free one."`
	Node         string        `group:"Server" default:"${hostname}" help:"Name of this process in its status."`
	DrainDelay   time.Duration `group:"Server" default:"0s" help:"For how long a stop keeps serving, while it says that it is not ready: until load balancers have seen it."`
	DrainTimeout time.Duration `group:"Server" default:"10s" help:"How long a stop waits for streams to end."`
	LogLevel     string        `group:"Server" default:"info" enum:"debug,info,warn,error" help:"Least severe log level: debug, info, warn or error."`
	LogFormat    string        `group:"Server" default:"auto" enum:"auto,json,console" help:"Log format: json, console, or auto: console on a terminal."`
	Demo         bool          `group:"Server" help:"Publish a made-up shop: orders, payments, stock."`

	PublishKey     []string `group:"Access" placeholder:"KEY" help:"Key that guards publishing, connections and administration, sent as bearer token. Repeatable."`
	PublishKeyFile string   `group:"Access" placeholder:"FILE" help:"File with such keys, one a line."`
	Open           bool     `group:"Access" help:"Consent to let anybody publish: no key, on any address. Administration stays with this machine."`
	CORSOrigins    []string `group:"Access" name:"cors-origins" placeholder:"ORIGIN" help:"Origins whose pages may read, such as https://app.example or http://localhost:*. None: none. Default: pages of this machine on a loopback address, else none."`
	HideTypes      []string `group:"Access" placeholder:"TYPE" help:"Types that no reader gets."`

	Store          string        `group:"Log" default:"memory:" help:"Where events are kept: memory: (they end with the process), sqlite:PATH, or postgres://…"`
	StoreFile      string        `group:"Log" placeholder:"FILE" help:"File that holds what --store would say, for a URL with a password."`
	RetainEvents   *uint64       `group:"Log" placeholder:"N" help:"Events that are kept; 0: no such bound. Default: 1024 in memory, else 1000000."`
	RetainBytes    optionalSize  `group:"Log" placeholder:"SIZE" help:"Bytes that are kept; 0: no such bound. Default: 256MiB in memory, else 1GiB."`
	RetainAge      time.Duration `group:"Log" default:"0s" help:"For how long events are kept; 0: no such bound."`
	DedupeWindow   time.Duration `group:"Log" default:"10m" help:"For how long an event's id is remembered, so that a repeat is not stored again."`
	SnapshotEvents int           `group:"Log" default:"1024" help:"Most events of the snapshot that a new reader gets."`
	ScanLimit      int           `group:"Log" default:"100000" help:"Most events that one search for a reader's topics looks at."`

	RestoreGuard     feed.GuardMode `group:"Log" default:"strict" enum:"strict,verify,off" help:"What to do where a durable store runs on something else than it remembers, as after a restore: strict: serve nothing until an operator has said what happened. verify: take it over where the last event is still there. off: do not look."`
	AutoMigrate      bool           `group:"Log" help:"PostgreSQL: bring the schema up to date at the start. Without it: gapless migrate."`
	PostgresMaxConns int            `group:"Log" default:"8" help:"PostgreSQL: connections at most."`
	OutboxPoll       time.Duration  `group:"Log" default:"100ms" help:"PostgreSQL: how often the outbox is looked at; 0: never."`

	QueueFrames     int           `group:"Streams" default:"4096" help:"Frames that one stream's queue holds."`
	QueueBytes      size          `group:"Streams" default:"16MiB" help:"Bytes that one stream's queue holds."`
	QueueBytesTotal size          `group:"Streams" default:"512MiB" help:"Bytes that all queues hold."`
	Heartbeat       time.Duration `group:"Streams" default:"15s" help:"Silence after which a stream gets a heartbeat."`
	WriteTimeout    time.Duration `group:"Streams" default:"10s" help:"How long a reader may take for 16 KiB before it is cut."`
	ReconnectDelay  time.Duration `group:"Streams" default:"2s" help:"When clients are asked to come back, give or take a quarter."`
}

// BeforeResolve reads the config file, if there is one. It refuses a key or a
// store that was given on the command line and is empty: an unset shell
// variable must not open the gateway, nor leave its events in memory.
func (f *serveFlags) BeforeResolve(ctx *kong.Context) error {
	flags := ctx.Selected().Flags
	for _, flag := range flags {
		if path, _ := ctx.FlagValue(flag).(string); flag.Name == "config" && path != "" {
			resolver, err := loadConfigFile(path, flags)
			if err != nil {
				return err
			}
			f.file = resolver
			ctx.AddResolver(resolver)
		}
	}
	for _, path := range ctx.Path {
		if path.Flag == nil || !isNeverEmpty(path.Flag.Name) {
			continue
		}
		// Splitting at commas leaves nothing of an empty key.
		if value := reflect.ValueOf(ctx.FlagValue(path.Flag)); value.Len() == 0 {
			return fmt.Errorf("--%s is empty, as an unset shell variable leaves it: give it a value, or leave the flag out", path.Flag.Name)
		}
	}
	return nil
}

// complete checks every value, fills what depends on others, and reads the
// key file. The error names each flag that is wrong, its value, and what is
// allowed.
func (f *serveFlags) complete() error {
	var errs []error
	want := func(ok bool, flag string, value any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s %v: want %s", f.named(flag), value, allowed))
		}
	}
	const positive = "a duration above 0, such as 15s"
	if err := f.readStore(); err != nil {
		errs = append(errs, err)
	}
	f.fillRetention()
	want(*f.RetainEvents > 0 || f.RetainBytes.size > 0 || f.store.kind != storeMemory && f.RetainAge > 0, "retain-events", "0 with --retain-bytes 0",
		"one of them above 0, or the store has no bound")
	want(f.PostgresMaxConns >= 2, "postgres-max-conns", f.PostgresMaxConns, "2 or more")
	want(f.OutboxPoll <= 0 || f.OutboxPoll >= 10*time.Millisecond, "outbox-poll", f.OutboxPoll, "10ms or more, or 0 for never")
	want(f.DrainDelay >= 0, "drain-delay", f.DrainDelay, "0 or a duration such as 5s")
	want(f.RetainAge >= 0, "retain-age", f.RetainAge, "0 (no bound) or a duration such as 24h")
	want(f.DedupeWindow > 0, "dedupe-window", f.DedupeWindow, positive)
	want(f.SnapshotEvents > 0, "snapshot-events", f.SnapshotEvents, "1 or more")
	want(f.ScanLimit > 0, "scan-limit", f.ScanLimit, "1 or more")
	want(f.QueueFrames > 0, "queue-frames", f.QueueFrames, "1 or more")
	want(f.QueueBytes > 0, "queue-bytes", f.QueueBytes, "a size above 0, such as 16MiB")
	want(f.QueueBytesTotal > 0, "queue-bytes-total", f.QueueBytesTotal, "a size above 0, such as 512MiB")
	want(f.Heartbeat >= time.Millisecond, "heartbeat", f.Heartbeat, "1ms or more")
	want(f.WriteTimeout >= 10*time.Millisecond, "write-timeout", f.WriteTimeout, "10ms or more")
	want(f.ReconnectDelay >= 500*time.Millisecond && f.ReconnectDelay <= time.Minute, "reconnect-delay", f.ReconnectDelay,
		"500ms to 1m: browsers clamp, spin or never return outside of it")
	want(f.DrainTimeout >= 0, "drain-timeout", f.DrainTimeout, "0 or a duration such as 10s")

	host, port, err := net.SplitHostPort(f.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	want(err == nil, "listen", strconv.Quote(f.Listen), "host:port with a port of 0 to 65535, such as 127.0.0.1:8080")

	for _, typ := range f.HideTypes {
		if !validType(typ) {
			errs = append(errs, noTypeError(f.named("hide-types"), typ))
		}
	}
	for _, key := range f.PublishKey {
		if !validKey(key) {
			errs = append(errs, fmt.Errorf("%s: a key (not shown) is empty or has characters that a bearer token cannot carry: want letters, digits and -._~+/=", f.named("publish-key")))
		}
	}
	fileKeys, err := readKeys("--publish-key-file", f.PublishKeyFile)
	if err != nil {
		errs = append(errs, err)
	}
	loopback := isLoopback(host)
	if len(errs) == 0 && !loopback && !f.Open && len(f.PublishKey)+len(fileKeys) == 0 {
		errs = append(errs, fmt.Errorf("--listen %s can be reached from other machines, and nothing guards publishing: "+
			"set a key with --publish-key, GAPLESS_PUBLISH_KEY or --publish-key-file, or consent to none with --open", f.Listen))
	}
	switch {
	case f.CORSOrigins == nil && loopback:
		f.CORSOrigins = []string{"http://localhost:*", "http://127.0.0.1:*"}
	case len(f.CORSOrigins) == 0:
		f.CORSOrigins = []string{"none"}
	}
	if len(errs) > 0 {
		return &exitError{exitUsage, errors.Join(errs...)}
	}
	return nil
}

// readStore finds out which store is meant.
func (f *serveFlags) readStore() error {
	text, flag := f.Store, "store"
	if f.StoreFile != "" {
		if f.Store != "" && f.Store != "memory:" {
			return fmt.Errorf("%s and %s: want one of them", f.named("store"), f.named("store-file"))
		}
		var err error
		if text, err = readStoreFile(f.StoreFile); err != nil {
			return err
		}
		flag = "store-file"
	}
	name, err := parseStore(text)
	if err != nil {
		return fmt.Errorf("%s %w", f.named(flag), err)
	}
	f.store = name
	return nil
}

// fillRetention gives the store's own defaults to what is not set.
func (f *serveFlags) fillRetention() {
	def := f.store.defaultRetention()
	if f.RetainEvents == nil {
		f.RetainEvents = &def.Events
	}
	if !f.RetainBytes.set {
		f.RetainBytes = optionalSize{size(def.Bytes), true}
	}
}

// storeOptions are what the store is opened with.
func (f *serveFlags) storeOptions(logger zerolog.Logger) storeOptions {
	return storeOptions{
		retention:    feed.Retention{Events: *f.RetainEvents, Bytes: int64(f.RetainBytes.size), Age: f.RetainAge},
		dedupeWindow: f.DedupeWindow,
		guard:        f.RestoreGuard,
		node:         f.Node,
		logger:       logger,
		maxConns:     f.PostgresMaxConns,
		autoMigrate:  f.AutoMigrate,
		outboxPoll:   cmp.Or(f.OutboxPoll, -1), // to the store, 0 is its default
	}
}

// named is how an error calls a flag: as the flag, or by file and line where
// its value comes from the config file.
func (f *serveFlags) named(flag string) string {
	if f.file != nil && f.file.used[flag] > 0 {
		return fmt.Sprintf("config file %s, line %d: %s", f.file.path, f.file.used[flag], flag)
	}
	return "--" + flag
}

// validType reports whether events can have such a type.
func validType(typ string) bool {
	_, err := feed.NewFilter(nil, []string{typ}, false)
	return err == nil
}

// noTypeError says what a type has to be. where names the value's origin.
func noTypeError(where, typ string) error {
	return usageErrorf("%s: %q is no type (letters, digits and ._:/-, at most %d; patterns are not supported)", where, typ, feed.MaxTypeBytes)
}

// origins is the list without the word that stands for an empty one.
func (f *serveFlags) origins() []string {
	if len(f.CORSOrigins) == 1 && f.CORSOrigins[0] == "none" {
		return nil
	}
	return f.CORSOrigins
}

// keys are those of the flag and those of the file.
func (f *serveFlags) keys() ([]string, error) {
	fromFile, err := readKeys("--publish-key-file", f.PublishKeyFile)
	return append(fromFile, f.PublishKey...), err
}

// readKeys reads one key a line; empty lines and lines that begin with # are
// none. The error names the flag that named the file.
func readKeys(flag, path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	var keys []string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if !validKey(line) {
			return nil, fmt.Errorf("%s %s: line %d: a key has letters, digits and -._~+/= only", flag, path, number)
		}
		keys = append(keys, line)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s %s: no key in it: want one a line", flag, path)
	}
	return keys, nil
}

// validKey reports whether a key can be sent as a bearer token (RFC 6750,
// section 2.1).
func validKey(key string) bool {
	const allowed = "-._~+/=ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return key != "" && strings.Trim(key, allowed) == ""
}

// isLoopback reports whether only this machine reaches the host. A name other
// than localhost may mean anything, and counts as no.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
