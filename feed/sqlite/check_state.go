package sqlite

import (
	"context"
	"fmt"
)

// rule is a query for what should not be there: the rows that it returns, of
// one text column, are findings.
type rule struct {
	query string
	args  []any
}

// inspectState compares the dedupe window and the control state with the log.
func inspectState(ctx context.Context, src source, in instance, found *findings) error {
	rules := []rule{
		{query: `SELECT 'an id is remembered for event ' || seq || ', above the head' FROM dedupe WHERE seq > ? OR seq < 1`,
			args: []any{int64(in.head.Seq)}},
		{query: `SELECT 'audit entry ' || seq || ' is no JSON object' FROM audit 
			WHERE CASE WHEN json_valid(detail) THEN json_type(detail) <> 'object' ELSE 1 END`},
		{query: `SELECT 'the topics of webhook ' || id || ' are no JSON array' FROM webhooks
			WHERE CASE WHEN json_valid(topics) THEN json_type(topics) <> 'array' ELSE 1 END`},
	}
	for _, h := range holders() {
		rules = append(rules, rule{
			query: fmt.Sprintf(`SELECT '%[1]s ' || %[2]s || ' is at ' || epoch || '-' || seq || '-' || fence || ', which is no place of the log'
				FROM %[3]s h WHERE epoch <> ?1 OR seq > ?2 OR seq < 0
				OR EXISTS (SELECT 1 FROM events e WHERE e.seq = h.seq AND h.fence <> e.fence)`, h.kind, h.key, h.table),
			args: []any{string(in.epoch), int64(in.head.Seq)},
		})
	}
	for _, r := range rules {
		if err := r.inspect(ctx, src, found); err != nil {
			return err
		}
	}
	return nil
}

func (r rule) inspect(ctx context.Context, src source, found *findings) error {
	rows, err := src.QueryContext(ctx, r.query, r.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		found.add("%s", text)
	}
	return rows.Err()
}
