package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"gapless/feed"
)

// Defaults and bounds of [Config].
const (
	DefaultEvents       = 1_000_000
	DefaultBytes        = 1 << 30
	DefaultDedupeWindow = 10 * time.Minute
	DefaultMaxConns     = 8
	DefaultOutboxPoll   = 100 * time.Millisecond

	// MinConns is how many connections a store needs: one listens, one appends,
	// one reads.
	MinConns = 3
)

// Config holds a store's options.
type Config struct {
	// URL is a libpq connection string or URL. A default_query_exec_mode in it
	// wins over what the store would choose.
	URL string
	// Retention; where it bounds nothing, 1,000,000 events and 1 GiB. Gateways
	// of one database may differ: each trims by its own, so the least counts.
	Retention feed.Retention
	// DedupeWindow is for how long a publisher's id is remembered; 10 minutes.
	// Where gateways of one database differ, the longest holds.
	DedupeWindow time.Duration
	// Guard; strict.
	Guard feed.GuardMode
	// Node names this process in audit entries.
	Node string
	// Logger; the zero Logger writes nothing.
	Logger zerolog.Logger
	// MaxConns bounds the connections to the database, the listening one among
	// them; 8, at least 3. A check takes one beside them.
	MaxConns int
	// AutoMigrate brings the schema up to date at the start.
	AutoMigrate bool
	// OutboxPoll is how often the outbox is looked at; 100 ms. Negative: never.
	OutboxPoll time.Duration

	// For tests.
	tryPatience  time.Duration // bounds one try of an append's transaction
	callPatience time.Duration // bounds a call
}

func (c Config) normalized() (Config, error) {
	if c.Retention == (feed.Retention{}) {
		c.Retention = feed.Retention{Events: DefaultEvents, Bytes: DefaultBytes}
	}
	c.DedupeWindow = cmp.Or(c.DedupeWindow, DefaultDedupeWindow)
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.OutboxPoll = cmp.Or(c.OutboxPoll, DefaultOutboxPoll)
	c.tryPatience = cmp.Or(c.tryPatience, tryPatience)
	c.callPatience = cmp.Or(c.callPatience, callPatience)
	guard, err := feed.ParseGuardMode(string(c.Guard))
	if err != nil {
		return c, err
	}
	c.Guard = guard
	switch {
	case c.DedupeWindow < 0 || c.Retention.Age < 0 || c.Retention.Bytes < 0:
		return c, invalid("a retention bound or the dedupe window is negative")
	case c.MaxConns < MinConns || c.MaxConns > 10_000:
		return c, invalid(fmt.Sprintf("%d connections: want %d to 10,000, since one listens, one appends and the others read", c.MaxConns, MinConns))
	}
	return c, nil
}

func invalid(msg string) *feed.Error {
	return &feed.Error{Code: feed.CodeInvalid, Op: "postgres", Msg: msg}
}

// Store is the log in a database, and the control state beside it. All
// methods are safe for concurrent use, by any number of processes.
type Store struct {
	cfg Config
	log zerolog.Logger

	pool    *pgxpool.Pool
	sockets sockets
	resets  seldom // of the pool, while the server is in recovery or refused
	// modeFixed: the connection string says how statements are sent.
	modeFixed bool
	// pooled: a pooler hands each transaction to any of its connections.
	// It is never unset.
	pooled atomic.Bool
	// slots bounds the connections that others than the committer hold, so that
	// it always finds one.
	slots  chan struct{}
	checks chan struct{} // holds a token: whoever has it checks the store

	ready   atomic.Bool   // the schema was found to be good enough
	served  atomic.Bool   // it was so once
	readier chan struct{} // holds a token: whoever has it looks at the schema

	guard   guard
	known   knowledge
	appends appendQueue
	outbox  outboxCounts

	// ctx ends with Close, commits with the last append that was taken; both
	// are contexts of the store's own work, not of a call.
	ctx     context.Context
	cancel  context.CancelFunc
	commits context.Context
	abandon context.CancelFunc
	closing sync.Once
	running sync.WaitGroup
}

// Open checks the configuration and begins to connect. It does not wait for
// the database: what needs it fails with [feed.CodeUnavailable] until it
// answers. The context bounds Open alone. The error has [feed.CodeInvalid].
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.normalized()
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, log: cfg.Logger,
		slots:   make(chan struct{}, cfg.MaxConns-2),
		readier: make(chan struct{}, 1), checks: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.commits, s.abandon = context.WithCancel(context.Background())
	s.sockets.init()
	if err := s.openPool(ctx); err != nil {
		s.cancel()
		s.abandon()
		s.sockets.closeAll()
		return nil, err
	}
	s.guard.init()
	s.known.init()
	s.appends.init()
	s.running.Go(s.commitAll)
	s.running.Go(s.follow)
	s.running.Go(s.moveOutbox)
	return s, nil
}

// Close implements [feed.Log]. It waits for the append that is under way, for
// some seconds at most.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.cancel()
		s.known.close()
		s.appends.close()
		giveUp := time.AfterFunc(closePatience, s.abandon)
		tear := time.AfterFunc(closePatience+tearPatience, s.sockets.closeAll)
		s.running.Wait()
		s.pool.Close()
		giveUp.Stop()
		tear.Stop()
		s.abandon()
		s.sockets.closeAll()
	})
	return nil
}

// closePatience is for how long Close waits for an append, and tearPatience
// for how long it waits after that for connections to end as they should.
const (
	closePatience = 2 * time.Second
	tearPatience  = 500 * time.Millisecond
)

// Info implements [feed.Log]: of the log as it was last seen by this process.
func (s *Store) Info() feed.Info {
	events, bytes := s.known.retained()
	return feed.Info{Store: storeName, Retention: s.cfg.Retention, Events: events, Bytes: bytes}
}
