package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"gapless/feed"
)

const consumerColumns = "name, epoch, seq, fence, reset_from, created, updated"

// Consumers implements [feed.State].
func (s *Store) Consumers(ctx context.Context) ([]feed.Consumer, error) {
	var list []feed.Consumer
	err := s.view(ctx, "consumers", func(tx *sql.Tx, _ instance) error {
		rows, err := tx.Query("SELECT " + consumerColumns + " FROM consumers ORDER BY name")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			c, err := scanConsumer(rows)
			if err != nil {
				return err
			}
			list = append(list, c)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Consumer implements [feed.State].
func (s *Store) Consumer(ctx context.Context, name string) (feed.Consumer, error) {
	const op = "consumer"
	var c feed.Consumer
	err := s.view(ctx, op, func(tx *sql.Tx, _ instance) (err error) {
		c, err = scanConsumer(tx.QueryRow("SELECT "+consumerColumns+" FROM consumers WHERE name = ?", name))
		if errors.Is(err, sql.ErrNoRows) {
			err = consumerHolder().notFound(op, name)
		}
		return err
	})
	return c, err
}

// CreateConsumer implements [feed.State].
func (s *Store) CreateConsumer(ctx context.Context, c feed.Consumer) error {
	const op = "create consumer"
	return s.update(ctx, op, func(tx *sql.Tx, in *instance) error {
		at, err := consumerHolder().create(tx, op, *in, c.Name, c.Cursor)
		if err != nil {
			return err
		}
		now := s.micros()
		_, err = tx.Exec("INSERT INTO consumers ("+consumerColumns+") VALUES (?, ?, ?, ?, '', ?, ?)",
			c.Name, string(at.Epoch), int64(at.Seq), at.Fence.String(), now, now)
		return err
	})
}

// MoveConsumer implements [feed.State].
func (s *Store) MoveConsumer(ctx context.Context, name string, from, to feed.Cursor) error {
	return s.move(ctx, "move consumer", consumerHolder(), name, from, to)
}

// DeleteConsumer implements [feed.State].
func (s *Store) DeleteConsumer(ctx context.Context, name string) error {
	return s.remove(ctx, "delete consumer", consumerHolder(), name)
}

// scanner is a row, or the current one of several.
type scanner interface{ Scan(dest ...any) error }

func scanConsumer(row scanner) (feed.Consumer, error) {
	var (
		c                feed.Consumer
		at               rowCursor
		created, updated int64
	)
	err := row.Scan(&c.Name, &at.epoch, &at.seq, &at.fence, &at.resetFrom, &created, &updated)
	if err == nil {
		c.Cursor, c.ResetFrom, err = at.parse()
	}
	c.Created, c.Updated = microTime(created), microTime(updated)
	return c, err
}
