package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

const selectWebhooks = `select id, url, topics, secret, status, reason, epoch, seq, fence, reset_from, created, updated from gapless.webhooks`

func scanWebhook(row pgx.CollectableRow) (w feed.Webhook, err error) {
	var (
		status, epoch, fence, reset string
		seq                         int64
	)
	err = row.Scan(&w.ID, &w.URL, &w.Topics, &w.Secret, &status, &w.Reason, &epoch, &seq, &fence, &reset, &w.Created, &w.Updated)
	if err != nil {
		return w, err
	}
	w.Status = feed.WebhookStatus(status)
	w.Cursor = parseStored(epoch, seq, fence)
	w.Created, w.Updated = w.Created.UTC(), w.Updated.UTC()
	w.ResetFrom, err = parseReset(reset)
	return w, err
}

// Webhooks implements [feed.State].
func (s *Store) Webhooks(ctx context.Context) (list []feed.Webhook, err error) {
	err = s.view(ctx, "webhooks", func(ctx context.Context, q querier, _ instance) error {
		rows, err := q.Query(ctx, selectWebhooks+" order by id")
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanWebhook)
		return err
	})
	return list, err
}

// Webhook implements [feed.State].
func (s *Store) Webhook(ctx context.Context, id string) (w feed.Webhook, err error) {
	err = s.view(ctx, "webhook", func(ctx context.Context, q querier, _ instance) error {
		w, err = webhook(ctx, q, id)
		return err
	})
	return w, err
}

func webhook(ctx context.Context, q querier, id string) (feed.Webhook, error) {
	rows, err := q.Query(ctx, selectWebhooks+" where id = $1", id)
	if err != nil {
		return feed.Webhook{}, err
	}
	w, err := pgx.CollectExactlyOneRow(rows, scanWebhook)
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound("webhook", "webhook", id)
	}
	return w, err
}

// CreateWebhook implements [feed.State].
func (s *Store) CreateWebhook(ctx context.Context, w feed.Webhook) error {
	const op = "create webhook"
	return s.alter(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		var held *string
		if err := q.QueryRow(ctx, selectFence, int64(w.Cursor.Seq)).Scan(&held); err != nil {
			return err
		}
		at, err := placed(in, op, w.Cursor, held)
		if err != nil {
			return err
		}
		tag, err := q.Exec(ctx, `
			insert into gapless.webhooks (id, url, topics, secret, status, reason, epoch, seq, fence, created, updated)
			select $1, $2, $3, $4, $5, $6, $7, $8, $9, now, now from clock_timestamp() now
			on conflict do nothing`,
			w.ID, w.URL, topicList(w.Topics), w.Secret, string(w.Status), w.Reason,
			string(at.Epoch), int64(at.Seq), at.Fence.String())
		if err == nil && tag.RowsAffected() == 0 {
			err = conflict(op, "there is a webhook %q already", w.ID)
		}
		return err
	})
}

// topicList keeps a webhook without patterns from being stored as null.
func topicList(topics []string) []string {
	if topics == nil {
		return []string{}
	}
	return topics
}

// UpdateWebhook implements [feed.State].
func (s *Store) UpdateWebhook(ctx context.Context, w feed.Webhook) error {
	const op = "update webhook"
	return s.alter(ctx, op, func(ctx context.Context, q querier, _ *instance) error {
		tag, err := q.Exec(ctx, `
			update gapless.webhooks set url = $2, topics = $3, secret = $4, status = $5, reason = $6, updated = clock_timestamp()
			where id = $1`, w.ID, w.URL, topicList(w.Topics), w.Secret, string(w.Status), w.Reason)
		if err == nil && tag.RowsAffected() == 0 {
			err = notFound(op, "webhook", w.ID)
		}
		return err
	})
}

// MoveWebhook implements [feed.State].
func (s *Store) MoveWebhook(ctx context.Context, id string, from, to feed.Cursor) error {
	return s.move(ctx, "move webhook", webhookCursors, id, from, to)
}

// DeleteWebhook implements [feed.State].
func (s *Store) DeleteWebhook(ctx context.Context, id string) error {
	const op = "delete webhook"
	return s.alter(ctx, op, func(ctx context.Context, q querier, _ *instance) error {
		tag, err := q.Exec(ctx, "delete from gapless.webhooks where id = $1", id)
		if err == nil && tag.RowsAffected() == 0 {
			err = notFound(op, "webhook", id)
		}
		return err
	})
}
