package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gapless/feed"
)

// snapshot is a read transaction on a connection of its own, so that a long
// look at the whole database takes none from the readers of the log.
type snapshot struct {
	db   *sql.DB
	conn *sql.Conn
	in   instance
}

// snapshot begins one of the store's own file.
func (s *Store) snapshot(ctx context.Context) (*snapshot, error) {
	snap, err := openSnapshot(ctx, dsn(s.place.path, "query_only(1)"))
	if err != nil {
		return nil, err
	}
	if err := s.place.check(); err != nil { // the path may lead to another file by now
		snap.close()
		return nil, err
	}
	return snap, nil
}

var errNoLog = errors.New("it is a database, but not of this program")

// openSnapshot begins one of a database that has to be a log of this version.
func openSnapshot(ctx context.Context, uri string) (_ *snapshot, err error) {
	db, err := sql.Open("sqlite", uri)
	if err != nil {
		return nil, err
	}
	snap := &snapshot{db: db}
	defer func() {
		if err != nil {
			snap.close()
		}
	}()
	if snap.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	if _, err = snap.conn.ExecContext(ctx, "BEGIN"); err != nil {
		return nil, err
	}
	var application, version int
	err = errors.Join(
		snap.conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application),
		snap.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version),
	)
	switch {
	case err != nil:
		return nil, err
	case application != applicationID:
		return nil, errNoLog
	case version != schemaVersion:
		return nil, fmt.Errorf("its version is %d, this program reads %d", version, schemaVersion)
	}
	err = patiently(ctx, func() error { snap.in, err = loadInstance(ctx, snap.conn); return err })
	return snap, err
}

// close ends the transaction with its connection.
func (s *snapshot) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	_ = s.db.Close()
}

// long begins a call that may take minutes. Its context ends with ctx, or once
// the store is being closed, which waits for leave.
func (s *Store) long(ctx context.Context) (_ context.Context, leave func(), err error) {
	if err := s.enter(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		never := func() (bool, error) { return false, nil }
		if err := s.await(ctx, never, ctx.Err); errors.Is(err, feed.ErrClosed) {
			cancel(err)
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-watched
		s.leave()
	}, nil
}

// ended gives the error of a long call its code: that of its context, where
// that is why it ended.
func (s *Store) ended(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, feed.ErrClosed):
		return feed.ErrClosed
	case cause != nil:
		return unavailable(op, "given up", cause)
	}
	return s.storeError(op, err)
}
