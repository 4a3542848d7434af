package postgres

import (
	"context"
	"encoding/json"
	"math"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// Audit implements [feed.State].
func (s *Store) Audit(ctx context.Context, before uint64, limit int) (list []feed.AuditEntry, err error) {
	if before == 0 || before > math.MaxInt64 {
		before = math.MaxInt64
	}
	err = s.view(ctx, "audit", func(ctx context.Context, q querier, _ instance) error {
		rows, err := q.Query(ctx, `
			select seq, time, actor, action, detail::text from gapless.audit
			where seq < $1 order by seq desc limit $2`, int64(before), max(limit, 0))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e feed.AuditEntry, err error) {
			var (
				seq    int64
				detail string
			)
			err = row.Scan(&seq, &e.Time, &e.Actor, &e.Action, &detail)
			e.Seq, e.Time, e.Detail = uint64(seq), e.Time.UTC(), json.RawMessage(detail)
			return e, err
		})
		return err
	})
	return list, err
}

// RecordAudit implements [feed.State].
func (s *Store) RecordAudit(ctx context.Context, entry feed.AuditEntry) error {
	if err := entry.Normalize(); err != nil {
		return err
	}
	return s.update(ctx, "record audit", func(ctx context.Context, q querier, _ *instance) error {
		return recordAudit(ctx, q, entry.Actor, entry.Action, entry.Detail)
	})
}

// recordAudit adds an entry inside a transaction that holds the instance row,
// so that entries are numbered in the order of their commits.
func recordAudit(ctx context.Context, q querier, actor, action string, detail any) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return err
	}
	_, err = q.Exec(ctx, `insert into gapless.audit (time, actor, action, detail) values (clock_timestamp(), $1::text, $2::text, $3::text::json)`,
		actor, action, string(text))
	return err
}
