package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"gapless/feed"
)

const webhookColumns = "id, url, topics, secret, status, reason, epoch, seq, fence, reset_from, created, updated"

// Webhooks implements [feed.State].
func (s *Store) Webhooks(ctx context.Context) ([]feed.Webhook, error) {
	var list []feed.Webhook
	err := s.view(ctx, "webhooks", func(tx *sql.Tx, _ instance) error {
		rows, err := tx.Query("SELECT " + webhookColumns + " FROM webhooks ORDER BY id")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			w, err := scanWebhook(rows)
			if err != nil {
				return err
			}
			list = append(list, w)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Webhook implements [feed.State].
func (s *Store) Webhook(ctx context.Context, id string) (feed.Webhook, error) {
	const op = "webhook"
	var w feed.Webhook
	err := s.view(ctx, op, func(tx *sql.Tx, _ instance) (err error) {
		w, err = scanWebhook(tx.QueryRow("SELECT "+webhookColumns+" FROM webhooks WHERE id = ?", id))
		if errors.Is(err, sql.ErrNoRows) {
			err = webhookHolder().notFound(op, id)
		}
		return err
	})
	return w, err
}

// CreateWebhook implements [feed.State].
func (s *Store) CreateWebhook(ctx context.Context, w feed.Webhook) error {
	const op = "create webhook"
	topics, err := encodeTopics(w.Topics)
	if err != nil {
		return err
	}
	return s.update(ctx, op, func(tx *sql.Tx, in *instance) error {
		at, err := webhookHolder().create(tx, op, *in, w.ID, w.Cursor)
		if err != nil {
			return err
		}
		now := s.micros()
		_, err = tx.Exec("INSERT INTO webhooks ("+webhookColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?)",
			w.ID, w.URL, topics, w.Secret, string(w.Status), w.Reason, string(at.Epoch), int64(at.Seq), at.Fence.String(), now, now)
		return err
	})
}

// UpdateWebhook implements [feed.State].
func (s *Store) UpdateWebhook(ctx context.Context, w feed.Webhook) error {
	const op = "update webhook"
	topics, err := encodeTopics(w.Topics)
	if err != nil {
		return err
	}
	return s.update(ctx, op, func(tx *sql.Tx, _ *instance) error {
		return changedOne(webhookHolder(), op, w.ID)(tx.Exec("UPDATE webhooks SET url = ?, topics = ?, secret = ?, status = ?, reason = ?, updated = ? WHERE id = ?",
			w.URL, topics, w.Secret, string(w.Status), w.Reason, s.micros(), w.ID))
	})
}

// MoveWebhook implements [feed.State].
func (s *Store) MoveWebhook(ctx context.Context, id string, from, to feed.Cursor) error {
	return s.move(ctx, "move webhook", webhookHolder(), id, from, to)
}

// DeleteWebhook implements [feed.State].
func (s *Store) DeleteWebhook(ctx context.Context, id string) error {
	return s.remove(ctx, "delete webhook", webhookHolder(), id)
}

// encodeTopics renders patterns as a JSON array; none is an empty one.
func encodeTopics(topics []string) (string, error) {
	if topics == nil {
		topics = []string{}
	}
	text, err := json.Marshal(topics)
	return string(text), err
}

func scanWebhook(row scanner) (feed.Webhook, error) {
	var (
		w                feed.Webhook
		at               rowCursor
		topics, status   string
		created, updated int64
	)
	err := row.Scan(&w.ID, &w.URL, &topics, &w.Secret, &status, &w.Reason,
		&at.epoch, &at.seq, &at.fence, &at.resetFrom, &created, &updated)
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal([]byte(topics), &w.Topics); err != nil {
		return w, damaged(fmt.Sprintf("the topics of webhook %q cannot be read: %v", w.ID, err))
	}
	if len(w.Topics) == 0 {
		w.Topics = nil
	}
	w.Status = feed.WebhookStatus(status)
	w.Created, w.Updated = microTime(created), microTime(updated)
	w.Cursor, w.ResetFrom, err = at.parse()
	return w, err
}
