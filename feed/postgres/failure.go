package postgres

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"gapless/feed"
)

// maxAttempts is how often a call's transaction is tried.
const maxAttempts = 4

// again reports whether a failed attempt left nothing behind and is worth
// another one, and waits a little before it.
func (s *Store) again(ctx context.Context, err error, attempt int) bool {
	return ctx.Err() == nil && passing(err) && s.renew(err) && pause(ctx, time.Duration(attempt*attempt)*10*time.Millisecond)
}

// renew lets go of the idle connections where one broke, or did not answer in
// the time that this store gives it: the others most likely did too. It
// returns true.
func (s *Store) renew(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) && (disconnected(err) || errors.Is(err, context.DeadlineExceeded)) || server != nil && strings.HasPrefix(server.Code, "57P") {
		s.pool.Reset()
	}
	return true
}

// seldom does something at most once a second.
type seldom struct {
	mu   sync.Mutex
	last time.Time
}

func (s *seldom) now(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.last) >= time.Second {
		s.last = now
		do()
	}
}

// pause reports whether the time passed before the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// passing reports whether an error is over by itself, at once or soon, and
// its transaction left nothing behind.
func passing(err error) bool {
	var dial *pgconn.ConnectError
	var fe *feed.Error
	switch {
	case errors.As(err, &fe), errors.As(err, &dial), errors.Is(err, errInRecovery):
		return false
	case errors.Is(err, errServerChanged):
		return true
	}
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "40001", "40P01": // serialization failure, deadlock
			return true
		case "57P01", "57P02", "57P03", "08000", "08003", "08006", "25P03": // a server that ends, or a connection that did
			return !unknown(err)
		}
		return false
	}
	// The connection broke. Other errors are of the code or of the data.
	return !unknown(err) && disconnected(err)
}

// disconnected reports whether an error is of the connection.
func disconnected(err error) bool {
	var net interface{ Timeout() bool }
	return pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.As(err, &net) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// failure words an error for a caller whose context is given.
func (s *Store) failure(ctx context.Context, op string, err error) error {
	if s.ctx.Err() != nil {
		return feed.ErrClosed
	}
	if ctx.Err() == nil {
		s.renew(err)
	}
	return s.word(ctx, op, err)
}

func (s *Store) word(ctx context.Context, op string, err error) error {
	var fe *feed.Error
	var server *pgconn.PgError
	var dial *pgconn.ConnectError
	switch {
	case errors.As(err, &fe):
		return fe
	case ctx.Err() != nil:
		return &feed.Error{Code: feed.CodeUnavailable, Op: op, Msg: "given up", Err: ctx.Err()}
	case errors.Is(err, errSchema), errors.Is(err, errNotSetUp):
		s.ready.Store(false)
		return unavailable(op, err.Error(), nil)
	case errors.Is(err, errInRecovery), errors.Is(err, errServerChanged), errors.Is(err, errPoolerFound):
		return unavailable(op, err.Error(), nil)
	case unknown(err):
		return unavailable(op, "the commit was not confirmed, so that its outcome is unknown", err)
	case errors.As(err, &server) && badData(server):
		return &feed.Error{Code: feed.CodeInvalid, Op: op, Msg: "the database does not take the data", Err: err}
	case errors.As(err, &server) && (strings.HasPrefix(server.Code, "28") || server.Code == "3D000"):
		return unavailable(op, "the database does not let this role in, or does not exist", err)
	case errors.As(err, &dial):
		return unavailable(op, "cannot connect to the database", err)
	case errors.As(err, &server) && lacksSchema(server):
		s.ready.Store(false) // look at the schema again before the next call
		return unavailable(op, errSchema.Error(), err)
	case errors.As(err, &server) && server.Code == "42501":
		return unavailable(op, "the database role lacks a privilege", err)
	case errors.As(err, &server) && server.Code == "55P03":
		return unavailable(op, "the log is locked by another transaction", err)
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(op, "the database does not answer in time", err)
	}
	return unavailable(op, "the database failed", err)
}

// badData reports whether the data is what the server refuses.
func badData(err *pgconn.PgError) bool { return strings.HasPrefix(err.Code, "22") }

// lacksSchema reports whether a statement named what is not there: a schema,
// a table, a column or a function.
func lacksSchema(err *pgconn.PgError) bool {
	switch err.Code {
	case "3F000", "42P01", "42703", "42883":
		return true
	}
	return false
}

func unavailable(op, msg string, err error) *feed.Error {
	return &feed.Error{Code: feed.CodeUnavailable, Op: op, Msg: msg, Err: err}
}
