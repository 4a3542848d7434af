//go:build linux && e2e

package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
	"gapless/feed/feedtest"
)

func TestControlState(t *testing.T) {
	feedtest.RunState(t, func(t *testing.T, cfg feedtest.Config) feed.Store {
		return openStore(t, Config{URL: database(t), Retention: cfg.Retention, DedupeWindow: cfg.DedupeWindow})
	}, feedtest.LacksClock)
}

func TestDurable(t *testing.T) {
	urls := make(map[string]string)
	hands := feedtest.Hands{
		Disturb: func(t *testing.T, place string) {
			conn, err := pgx.Connect(t.Context(), urls[place])
			if err != nil {
				t.Fatal(err)
			}
			// A relocation is one transaction with the identity: where it is the
			// last thing that was done, the guard is content, whoever heard of it.
			last := scan[bool](t, conn, `select action = 'restore.relocate' and (detail->>'head_seq')::bigint = (select head from gapless.instance)
				from gapless.audit order by seq desc limit 1`)
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !last {
				urls[place] = copied(t, urls[place])
			}
		},
		SetCursor: func(t *testing.T, place, kind, name string, at feed.Cursor) {
			table, key := "consumers", "name"
			if kind == "webhook" {
				table, key = "webhooks", "id"
			}
			exec(t, dial(t, urls[place]), "update gapless."+pgx.Identifier{table}.Sanitize()+" set epoch = $2, seq = $3, fence = $4 where "+key+" = $1",
				name, string(at.Epoch), int64(at.Seq), at.Fence.String())
		},
	}
	feedtest.RunDurable(t, func(t *testing.T, place string, cfg feedtest.Config) (feed.Durable, error) {
		if urls[place] == "" {
			urls[place] = database(t)
		}
		return openStore(t, Config{URL: urls[place], Retention: cfg.Retention, DedupeWindow: cfg.DedupeWindow}), nil
	}, hands, feedtest.LacksClock)
}
