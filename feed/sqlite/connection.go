package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"

	sqlite3 "modernc.org/sqlite/lib"

	"gapless/feed"
)

// readConnections bounds how many reads are at the disk at once.
const readConnections = 4

// walLimit is the size in bytes to which SQLite cuts the write-ahead log back
// when it begins it anew.
const walLimit = 64 << 20

// dsn names the store's file for the driver, with what every connection needs.
func dsn(path string, pragmas ...string) string {
	return fileURI(path, url.Values{
		"_txlock":    {"immediate"},
		"_dqs":       {"0"},
		"_defensive": {"1"},
		"_pragma": append([]string{
			fmt.Sprintf("busy_timeout(%d)", busyTimeout),
			"synchronous(FULL)",
			"wal_autocheckpoint(0)", // see checkpoint.go
			"temp_store(MEMORY)",
		}, pragmas...),
		"mode": {"rw"},
	})
}

// fileURI names a database file, by its absolute path, for the driver.
func fileURI(path string, query url.Values) string {
	name := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: query.Encode()}
	return name.String()
}

// connection is one connection to the file. Beside database/sql's way there
// is one past it, for the paths on which every microsecond counts.
type connection struct {
	conn       *sql.Conn
	statements map[string]driver.Stmt // prepared, by their text
	args       []driver.NamedValue
}

func newConnection(ctx context.Context, db *sql.DB) (*connection, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &connection{conn: conn, statements: make(map[string]driver.Stmt)}, nil
}

// raw runs fn with the driver's own connection.
func (c *connection) raw(fn func(raw rawConnection) error) error {
	return c.conn.Raw(func(dc any) error {
		return fn(rawConnection{c, dc.(driver.Conn)})
	})
}

// close closes the statements and gives the connection back to its pool.
func (c *connection) close() error {
	err := c.conn.Raw(func(any) error {
		var errs []error
		for _, statement := range c.statements {
			errs = append(errs, statement.Close())
		}
		return errors.Join(errs...)
	})
	clear(c.statements)
	return errors.Join(err, c.conn.Close())
}

// rawConnection is a connection inside of [connection.raw].
type rawConnection struct {
	*connection
	driver driver.Conn
}

func (c rawConnection) prepare(query string) (driver.Stmt, error) {
	if statement := c.statements[query]; statement != nil {
		return statement, nil
	}
	statement, err := c.driver.Prepare(query)
	if err == nil {
		c.statements[query] = statement
	}
	return statement, err
}

// bind lays the arguments out for the driver. The result is good until the
// next call.
func (c rawConnection) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, arg := range args {
		if b, ok := arg.(bool); ok {
			arg = int64(0)
			if b {
				arg = int64(1)
			}
		}
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: arg})
	}
	return c.args
}

// exec runs a statement that returns no rows.
func (c rawConnection) exec(query string, args ...any) error {
	statement, err := c.prepare(query)
	if err != nil {
		return err
	}
	_, err = statement.(driver.StmtExecContext).ExecContext(context.Background(), c.bind(args))
	return err
}

// transaction runs fn between BEGIN IMMEDIATE, for which it waits no longer
// than ctx, and COMMIT. Where it fails, nothing was changed, but for a
// [commitError].
func (c rawConnection) transaction(ctx context.Context, fn func() error) (err error) {
	if err := patiently(ctx, func() error { return c.exec("BEGIN IMMEDIATE") }); err != nil {
		return err
	}
	if err = fn(); err == nil {
		err = atCommit(c.exec("COMMIT"))
	}
	if err != nil {
		// SQLite may have rolled back by itself; then this fails, rightly.
		_ = c.exec("ROLLBACK")
	}
	return err
}

// each runs a query and calls fn with the columns of each row in dest, which are
// valid inside the call alone; strings and blobs in them are fn's to keep.
func (c rawConnection) each(query string, dest []driver.Value, fn func() error, args ...any) (err error) {
	statement, err := c.prepare(query)
	if err != nil {
		return err
	}
	rows, err := statement.(driver.StmtQueryContext).QueryContext(context.Background(), c.bind(args))
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}()
	for {
		if err := rows.Next(dest); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := fn(); err != nil {
			return err
		}
	}
}

// one runs a query for one row; it reports false where there is none.
func (c rawConnection) one(query string, dest []driver.Value, args ...any) (found bool, err error) {
	err = c.each(query, dest, func() error { found = true; return nil }, args...)
	return found, err
}

// instance reads the instance's row.
func (c rawConnection) instance() (instance, error) {
	v := make([]driver.Value, instanceColumns)
	found, err := c.one(selectInstance, v)
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	if err != nil {
		return instance{}, noInstance(err)
	}
	return (&columns{values: v}).instance()
}

// readTx begins a read transaction for database/sql, in which the instance
// is read.
func (c *connection) readTx(ctx context.Context) (tx *sql.Tx, in instance, err error) {
	err = patiently(ctx, func() error {
		// A transaction that ends with its context ends beside whoever uses the
		// connection next, so this one does not.
		if tx, err = c.conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true}); err != nil {
			return err
		}
		if in, err = loadInstance(context.WithoutCancel(ctx), tx); err != nil {
			_ = tx.Rollback() // it changed nothing
		}
		return err
	})
	return tx, in, err
}

// columns reads values of a row, and keeps the first error.
type columns struct {
	values []driver.Value
	err    error
}

func (c *columns) number(i int) int64 {
	n, ok := c.values[i].(int64)
	if !ok {
		c.fail(i, "no number")
	}
	return n
}

func (c *columns) text(i int) string {
	s, ok := c.values[i].(string)
	if !ok {
		c.fail(i, "no text")
	}
	return s
}

// bytes reads a blob; null is nil.
func (c *columns) bytes(i int) []byte {
	b, ok := c.values[i].([]byte)
	if !ok && c.values[i] != nil {
		c.fail(i, "no blob")
	}
	return b
}

func (c *columns) fence(i int) feed.Fence {
	f, err := parseFence(c.text(i))
	if err != nil {
		c.fail(i, "no fence")
	}
	return f
}

func (c *columns) fail(i int, what string) {
	if c.err == nil {
		c.err = fmt.Errorf("column %d holds %s: the file is damaged", i, what)
	}
}

// reader takes a connection from the pool of readers; release puts it back.
func (s *Store) reader(ctx context.Context, op string) (*connection, error) {
	select {
	case r := <-s.readers:
		return r, nil
	default:
	}
	select {
	case r := <-s.readers:
		return r, nil
	case <-ctx.Done():
		return nil, unavailable(op, "given up", ctx.Err())
	}
}

func (s *Store) release(r *connection) { s.readers <- r }

// commitError is what became of a COMMIT: unlike every other statement, it may
// have failed and be done.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

func atCommit(err error) error {
	if err != nil {
		return commitError{err}
	}
	return nil
}

// unavailable is an error after which the same call may succeed.
func unavailable(op, msg string, err error) error {
	return &feed.Error{Code: feed.CodeUnavailable, Op: op, Msg: msg, Err: err}
}

// storeError gives what SQLite says of the store's file a code, and words for
// an operator. A [feed.Error] stays what it is.
func (s *Store) storeError(op string, err error) error { return fileError(op, s.place.path, err) }

// fileError is storeError for any file.
func fileError(op, path string, err error) error {
	var known *feed.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable(op, "given up", err)
	}
	return unavailable(op, remedy(path, err), err)
}

// remedy says in plain words what SQLite's error means, and what helps; empty
// where its own words have to do.
func remedy(path string, err error) string {
	switch {
	case hasCode(err, sqlite3.SQLITE_FULL):
		return fmt.Sprintf("the disk of %s is full; nothing was stored, and it works again once there is space", path)
	case hasCode(err, sqlite3.SQLITE_IOERR) && errors.As(err, new(commitError)):
		return fmt.Sprintf("the disk of %s failed, or is full, while this was being stored, so that it may have been: publish the same ids again, or look, to learn it", path)
	case hasCode(err, sqlite3.SQLITE_IOERR):
		return fmt.Sprintf("the disk of %s failed, or is full; nothing was stored", path)
	case hasCode(err, sqlite3.SQLITE_CORRUPT):
		return fmt.Sprintf("the database file %s is damaged: restore a backup, or look closer with `gapless check`", path)
	case hasCode(err, sqlite3.SQLITE_NOTADB):
		return fmt.Sprintf("the file %s is no SQLite database, or is damaged: name another path, or restore a backup", path)
	case hasCode(err, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
		return fmt.Sprintf("the database %s cannot be written: its file and its directory must be writable for this user", path)
	case hasCode(err, sqlite3.SQLITE_CANTOPEN):
		return fmt.Sprintf("the database %s or a file beside it (-wal, -shm) cannot be opened: its directory must be there and writable for this user", path)
	case hasCode(err, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
		return fmt.Sprintf("another program keeps the database %s locked", path)
	}
	return ""
}
