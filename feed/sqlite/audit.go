package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"gapless/feed"
)

// Audit implements [feed.State].
func (s *Store) Audit(ctx context.Context, before uint64, limit int) ([]feed.AuditEntry, error) {
	var list []feed.AuditEntry
	err := s.view(ctx, "audit", func(tx *sql.Tx, _ instance) error {
		rows, err := tx.Query("SELECT seq, time, actor, action, detail FROM audit WHERE ?1 = 0 OR seq < ?1 ORDER BY seq DESC LIMIT ?2",
			int64(min(before, 1<<63-1)), max(limit, 0))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var (
				entry     feed.AuditEntry
				seq, time int64
				detail    string
			)
			if err := rows.Scan(&seq, &time, &entry.Actor, &entry.Action, &detail); err != nil {
				return err
			}
			entry.Seq, entry.Time, entry.Detail = uint64(seq), microTime(time), json.RawMessage(detail)
			list = append(list, entry)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// RecordAudit implements [feed.State].
func (s *Store) RecordAudit(ctx context.Context, entry feed.AuditEntry) error {
	const op = "record audit"
	if err := entry.Normalize(); err != nil {
		return err
	}
	return s.transact(ctx, op, rules{sealed: true, audit: true}, func(tx *sql.Tx, _ *instance) error {
		return addAudit(context.Background(), tx, s.cfg.Now(), entry.Actor, entry.Action, entry.Detail)
	})
}
