package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

const selectConsumers = "select name, epoch, seq, fence, reset_from, created, updated from gapless.consumers"

func scanConsumer(row pgx.CollectableRow) (c feed.Consumer, err error) {
	var (
		epoch, fence, reset string
		seq                 int64
	)
	if err = row.Scan(&c.Name, &epoch, &seq, &fence, &reset, &c.Created, &c.Updated); err != nil {
		return c, err
	}
	c.Cursor = parseStored(epoch, seq, fence)
	c.Created, c.Updated = c.Created.UTC(), c.Updated.UTC()
	c.ResetFrom, err = parseReset(reset)
	return c, err
}

// Consumers implements [feed.State].
func (s *Store) Consumers(ctx context.Context) (list []feed.Consumer, err error) {
	err = s.view(ctx, "consumers", func(ctx context.Context, q querier, _ instance) error {
		rows, err := q.Query(ctx, selectConsumers+" order by name")
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanConsumer)
		return err
	})
	return list, err
}

// Consumer implements [feed.State].
func (s *Store) Consumer(ctx context.Context, name string) (c feed.Consumer, err error) {
	err = s.view(ctx, "consumer", func(ctx context.Context, q querier, _ instance) error {
		c, err = consumer(ctx, q, name)
		return err
	})
	return c, err
}

func consumer(ctx context.Context, q querier, name string) (feed.Consumer, error) {
	rows, err := q.Query(ctx, selectConsumers+" where name = $1", name)
	if err != nil {
		return feed.Consumer{}, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanConsumer)
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound("consumer", "consumer", name)
	}
	return c, err
}

// CreateConsumer implements [feed.State].
func (s *Store) CreateConsumer(ctx context.Context, c feed.Consumer) error {
	const op = "create consumer"
	return s.alter(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		var held *string
		if err := q.QueryRow(ctx, selectFence, int64(c.Cursor.Seq)).Scan(&held); err != nil {
			return err
		}
		at, err := placed(in, op, c.Cursor, held)
		if err != nil {
			return err
		}
		tag, err := q.Exec(ctx, `
			insert into gapless.consumers (name, epoch, seq, fence, created, updated)
			select $1, $2, $3, $4, now, now from clock_timestamp() now
			on conflict do nothing`,
			c.Name, string(at.Epoch), int64(at.Seq), at.Fence.String())
		if err == nil && tag.RowsAffected() == 0 {
			err = conflict(op, "there is a consumer %q already", c.Name)
		}
		return err
	})
}

// MoveConsumer implements [feed.State].
func (s *Store) MoveConsumer(ctx context.Context, name string, from, to feed.Cursor) error {
	return s.move(ctx, "move consumer", consumerCursors, name, from, to)
}

// DeleteConsumer implements [feed.State].
func (s *Store) DeleteConsumer(ctx context.Context, name string) error {
	const op = "delete consumer"
	return s.alter(ctx, op, func(ctx context.Context, q querier, _ *instance) error {
		tag, err := q.Exec(ctx, "delete from gapless.consumers where name = $1", name)
		if err == nil && tag.RowsAffected() == 0 {
			err = notFound(op, "consumer", name)
		}
		return err
	})
}
