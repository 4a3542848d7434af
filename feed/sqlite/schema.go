package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gapless/feed"
)

// applicationID marks a file as a log of this package: "GPLS", in the header
// of the database (https://sqlite.org/fileformat2.html#application_id).
const applicationID = 0x47504c53

// schemaVersion is the header's user_version that this code reads and writes.
const schemaVersion = 1

// schema is of version 1. Times are microseconds since 1970, in UTC.
var schema = []string{
	// offset: bytes of all events before this one, by the measure of
	// feed.Event.Size, so that what a range holds is one subtraction.
	`CREATE TABLE events (
		seq    INTEGER PRIMARY KEY,
		fence  TEXT    NOT NULL,
		time   INTEGER NOT NULL,
		offset INTEGER NOT NULL,
		id     TEXT    NOT NULL,
		type   TEXT    NOT NULL,
		topic  TEXT    NOT NULL,
		source TEXT    NOT NULL,
		data   TEXT,
		ce     TEXT
	)`,
	`CREATE INDEX events_topic ON events (topic)`,

	// One row for an event that came with an id, for the dedupe window. The key
	// is a hash of (topic, source, id), content one of (type, data, ce).
	`CREATE TABLE dedupe (
		seq     INTEGER PRIMARY KEY,
		key     BLOB    NOT NULL,
		content BLOB    NOT NULL,
		time    INTEGER NOT NULL
	)`,

	// One row: what the log is, as of the last transaction.
	`CREATE TABLE instance (
		one           INTEGER PRIMARY KEY CHECK (one = 1),
		epoch         TEXT    NOT NULL,
		oldest        INTEGER NOT NULL, -- head + 1 where the log is empty
		head          INTEGER NOT NULL,
		head_fence    TEXT    NOT NULL,
		trimmed_fence TEXT    NOT NULL, -- of the event at oldest - 1
		oldest_offset INTEGER NOT NULL,
		next_offset   INTEGER NOT NULL,
		last_time     INTEGER NOT NULL, -- of the newest event ever stored
		sealed        INTEGER NOT NULL,
		witnessed     INTEGER NOT NULL, -- a witness file was made
		changes       INTEGER NOT NULL, -- of the control state, so far; but for the audit
		version       INTEGER NOT NULL  -- rises with every change of this row
	)`,

	`CREATE TABLE consumers (
		name       TEXT PRIMARY KEY,
		epoch      TEXT    NOT NULL,
		seq        INTEGER NOT NULL,
		fence      TEXT    NOT NULL,
		reset_from TEXT    NOT NULL DEFAULT '', -- a cursor's text
		created    INTEGER NOT NULL,
		updated    INTEGER NOT NULL
	)`,
	`CREATE TABLE webhooks (
		id         TEXT PRIMARY KEY,
		url        TEXT    NOT NULL,
		topics     TEXT    NOT NULL, -- a JSON array
		secret     TEXT    NOT NULL,
		status     TEXT    NOT NULL,
		reason     TEXT    NOT NULL,
		epoch      TEXT    NOT NULL,
		seq        INTEGER NOT NULL,
		fence      TEXT    NOT NULL,
		reset_from TEXT    NOT NULL DEFAULT '',
		created    INTEGER NOT NULL,
		updated    INTEGER NOT NULL
	)`,
	`CREATE TABLE audit (
		seq    INTEGER PRIMARY KEY AUTOINCREMENT,
		time   INTEGER NOT NULL,
		actor  TEXT    NOT NULL,
		action TEXT    NOT NULL,
		detail TEXT    NOT NULL -- a JSON object
	)`,
}

// instance mirrors the row of its table. Two of them are equal where the log
// did not change in between.
type instance struct {
	epoch        feed.Epoch
	oldest       uint64
	head         feed.Position
	trimmedFence feed.Fence
	oldestOffset int64
	nextOffset   int64
	lastTime     int64 // µs
	sealed       bool
	witnessed    bool
	changes      uint64
	version      uint64
}

// bounds is what the instance says to readers.
func (in *instance) bounds() feed.Bounds {
	return feed.Bounds{Epoch: in.epoch, Oldest: in.oldest, Head: in.head}
}

// cursor is the head.
func (in *instance) cursor() feed.Cursor { return feed.Cursor{Epoch: in.epoch, Position: in.head} }

// events is how many the log retains.
func (in *instance) events() uint64 { return in.head.Seq + 1 - in.oldest }

const instanceColumns = 12

const selectInstance = `SELECT epoch, oldest, head, head_fence, trimmed_fence, oldest_offset, next_offset,
	last_time, sealed, witnessed, changes, version FROM instance WHERE one = 1`

const updateInstance = `UPDATE instance SET epoch = ?, oldest = ?, head = ?, head_fence = ?, trimmed_fence = ?,
	oldest_offset = ?, next_offset = ?, last_time = ?, sealed = ?, witnessed = ?, changes = ?, version = ? WHERE one = 1`

// values are the row's columns, in the order of both statements.
func (in *instance) values() []any {
	return []any{
		string(in.epoch), int64(in.oldest), int64(in.head.Seq), in.head.Fence.String(), in.trimmedFence.String(),
		in.oldestOffset, in.nextOffset, in.lastTime, in.sealed, in.witnessed, int64(in.changes), int64(in.version),
	}
}

// queryer is a transaction, a connection, or a pool of them.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// loadInstance reads the row.
func loadInstance(ctx context.Context, q queryer) (instance, error) {
	v := make([]driver.Value, instanceColumns)
	into := make([]any, len(v))
	for i := range v {
		into[i] = &v[i]
	}
	if err := q.QueryRowContext(ctx, selectInstance).Scan(into...); err != nil {
		return instance{}, noInstance(err)
	}
	return (&columns{values: v}).instance()
}

// noInstance says what it means that there is no row.
func noInstance(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("the table instance is empty: the file is damaged")
	}
	return err
}

// instance makes one of the columns of selectInstance.
func (c *columns) instance() (instance, error) {
	in := instance{
		epoch: feed.Epoch(c.text(0)), oldest: uint64(c.number(1)),
		head:         feed.Position{Seq: uint64(c.number(2)), Fence: c.fence(3)},
		trimmedFence: c.fence(4), oldestOffset: c.number(5), nextOffset: c.number(6), lastTime: c.number(7),
		sealed: c.number(8) != 0, witnessed: c.number(9) != 0, changes: uint64(c.number(10)), version: uint64(c.number(11)),
	}
	return in, c.err
}

// fenceAt returns the fence at a seq in oldest − 1 … head. Those at both ends
// are the instance's own; held reads that of an event in between.
func (in *instance) fenceAt(seq uint64, held func(seq uint64) (feed.Fence, error)) (feed.Fence, error) {
	switch seq {
	case in.oldest - 1:
		return in.trimmedFence, nil
	case in.head.Seq:
		return in.head.Fence, nil
	}
	return held(seq)
}

const selectFence = `SELECT fence FROM events WHERE seq = ?`

// fenceIn reads the fence of an event that is there.
func fenceIn(ctx context.Context, q queryer) func(seq uint64) (feed.Fence, error) {
	return func(seq uint64) (feed.Fence, error) {
		var text string
		if err := q.QueryRowContext(ctx, selectFence, int64(seq)).Scan(&text); errors.Is(err, sql.ErrNoRows) {
			return feed.Fence{}, missing(seq)
		} else if err != nil {
			return feed.Fence{}, err
		}
		return parseFence(text)
	}
}

// parseFence reads a fence's column; empty is unknown.
func parseFence(text string) (feed.Fence, error) {
	if f, ok := feed.ParseFence(text); ok || text == "" {
		return f, nil
	}
	return feed.Fence{}, fmt.Errorf("%q is no fence: the file is damaged", text)
}

// setUp makes the tables of a new log, with an epoch of its own, inside tx.
func setUp(ctx context.Context, tx *sql.Tx, now time.Time, actor string) error {
	epoch, err := feed.NewEpoch(now, rand.Reader)
	if err != nil {
		return err
	}
	for _, statement := range schema {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for _, pragma := range []string{
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", schemaVersion),
	} {
		if _, err := tx.ExecContext(ctx, pragma); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO instance VALUES (1, ?, 1, 0, '', '', 0, 0, 0, 0, 0, 0, 1)`, string(epoch))
	if err != nil {
		return err
	}
	return addAudit(ctx, tx, now, actor, feed.ActionSetUp, map[string]string{"epoch": string(epoch)})
}

// addAudit records one entry inside tx. The detail becomes a JSON object.
func addAudit(ctx context.Context, tx *sql.Tx, now time.Time, actor, action string, detail any) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO audit (time, actor, action, detail) VALUES (?, ?, ?, ?)`,
		now.UnixMicro(), actor, action, string(text))
	return err
}

// microTime is the time in a column.
func microTime(us int64) time.Time { return time.UnixMicro(us).UTC() }

// identity is what the guard compares: where the log was last.
func (in *instance) identity() string { return in.cursor().String() }
