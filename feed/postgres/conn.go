package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"gapless/feed"
)

// connectPatience bounds one attempt to connect, where the connection string
// does not. callPatience bounds every read and every change: a database that
// hangs must not hang its callers for ever.
const (
	connectPatience = 5 * time.Second
	callPatience    = 30 * time.Second
	// pingPatience bounds the look at a connection that was idle.
	pingPatience = 1500 * time.Millisecond
)

// Errors of this package's own that [Store.failure] words.
var (
	errInRecovery    = errors.New("the server is a standby, or still in recovery")
	errServerChanged = errors.New("the connection moved to another server")
	errPoolerFound   = errors.New("the connection goes through a pooler")
	errUnconfirmed   = errors.New("the server gave up waiting for its standby")
	errSchema        = errors.New("the schema gapless is missing, or older than this version needs: run `gapless migrate`, or start with --auto-migrate")
	errNotSetUp      = errors.New("the log was not set up: run `gapless migrate`, or start with --auto-migrate")
)

// openPool makes the pool. It connects to nothing yet.
func (s *Store) openPool(ctx context.Context) error {
	cfg, fixed, err := parseURL(s.cfg.URL)
	if err != nil {
		return err
	}
	s.modeFixed = fixed
	cfg.MaxConns = int32(s.cfg.MaxConns - 1) // one listens, outside of the pool
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		s.sendBy(c)
		return nil
	}
	cfg.AfterConnect = s.inspect
	cfg.ShouldPing = s.probe
	cfg.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { return !c.IsClosed(), nil }
	cfg.ConnConfig.OnNotice = countWarning
	cfg.ConnConfig.DialFunc = s.sockets.through(cfg.ConnConfig.DialFunc)
	s.pool, err = pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return &feed.Error{Code: feed.CodeInvalid, Op: "postgres", Msg: "the connection string asks for what this client does not know"}
	}
	return nil
}

// parseURL reads a connection string. Its error says nothing of the string,
// which can hold a password in any of its parts.
func parseURL(url string) (cfg *pgxpool.Config, modeFixed bool, err error) {
	cfg, err = pgxpool.ParseConfig(url)
	if err != nil {
		return nil, false, invalid("the connection string cannot be read; are special characters of the password percent-encoded?")
	}
	c := cfg.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectPatience
	}
	// Of this alone all that is sent and read is; a role or a database can have
	// another as its default.
	c.RuntimeParams["client_encoding"] = "UTF8"
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "gapless"
	}
	// The client takes this parameter out of those that it knows.
	plain, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, false, invalid("the connection string cannot be read")
	}
	_, modeFixed = plain.RuntimeParams["default_query_exec_mode"]
	return cfg, modeFixed, nil
}

// sendBy chooses how statements are sent: prepared once on each connection,
// or, behind a pooler that may hand the next transaction to another one,
// described once and sent whole every time.
func (s *Store) sendBy(c *pgx.ConnConfig) {
	if s.modeFixed {
		return
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if s.pooled.Load() {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// sessionSettings keep a prepared statement that was first planned for small
// tables from scanning them whole when they have grown, which the server finds
// out minutes later; and compiling from taking longer than running.
const sessionSettings = `select set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)`

// inspect looks at a new connection: whether it is one, or a pooler's, and
// which server it leads to.
func (s *Store) inspect(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	var encoding, spoken string
	err := conn.QueryRow(ctx, `select pg_backend_pid(), current_setting('server_encoding'), current_setting('client_encoding')`, pgx.QueryExecModeExec).Scan(&pid, &encoding, &spoken)
	if err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database has the encoding %s, and events need UTF8", encoding)
	}
	if spoken != "UTF8" {
		return fmt.Errorf("the connection has the encoding %s, and events need UTF8", spoken)
	}
	if pid != conn.PgConn().PID() {
		if !s.pooled.Swap(true) {
			s.log.Info().Msg("the database is behind a connection pooler: new events are polled for, and statements are not prepared; a direct connection is quicker")
		}
		if !s.modeFixed && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			return errPoolerFound // made for prepared statements: the next one is not
		}
		return nil
	}
	_, err = conn.Exec(ctx, sessionSettings, pgx.QueryExecModeExec)
	return err
}

// acquire takes a connection of the pool.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if errors.Is(err, errPoolerFound) {
		conn, err = s.pool.Acquire(ctx)
	}
	return conn, err
}

// probe looks whether a connection that was idle still leads anywhere. Where
// it does not, the others do not either: the pool is told to let go of them,
// so that a network that swallows everything costs one probe and not one for
// each. It returns false: the pool's own probe is not needed.
func (s *Store) probe(ctx context.Context, idle pgxpool.ShouldPingParams) bool {
	if idle.IdleDuration > time.Second {
		ctx, cancel := context.WithTimeout(ctx, pingPatience)
		defer cancel()
		if idle.Conn.Ping(ctx) != nil {
			s.pool.Reset()
		}
	}
	return false
}

// borrow takes a connection for others than the committer: one of a bounded
// number, and of a store whose schema is known to do. The function gives it
// back.
func (s *Store) borrow(ctx context.Context) (*pgx.Conn, func(), error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	conn, err := s.acquire(ctx)
	if err == nil {
		if err = s.prepare(ctx, conn.Conn()); err != nil {
			giveBack(conn)
		}
	}
	if err != nil {
		<-s.slots
		return nil, nil, err
	}
	return conn.Conn(), func() { giveBack(conn); <-s.slots }, nil
}

// giveBack returns a connection to the pool, out of the transaction that it
// may be in. The pool closes one that is not fit for another use.
func giveBack(conn *pgxpool.Conn) {
	if inTransaction(conn.Conn()) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, _ = conn.Exec(ctx, "rollback")
		cancel()
	}
	conn.Release()
}

// connect makes a connection outside of the pool, for what lasts. The function
// closes it.
func (s *Store) connect(ctx context.Context) (conn *pgx.Conn, closing func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.callPatience)
	defer cancel()
	for range 2 {
		cfg := s.pool.Config().ConnConfig.Copy()
		s.sendBy(cfg)
		if conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
			return nil, nil, err
		}
		closing = func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = conn.Close(ctx)
		}
		if err = s.inspect(ctx, conn); err == nil {
			err = s.prepare(ctx, conn)
		}
		if err == nil {
			return conn, closing, nil
		}
		closing()
		if !errors.Is(err, errPoolerFound) {
			break // else the next one is made for a pooler
		}
	}
	return nil, nil, err
}

// bound returns the context of a call, which also ends with the store, and
// after some time.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.callPatience)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}
