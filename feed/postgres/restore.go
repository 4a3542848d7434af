package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// RestoreStatus implements [feed.Durable].
func (s *Store) RestoreStatus(ctx context.Context) (status feed.RestoreStatus, err error) {
	const op = "restore status"
	err = s.view(ctx, op, func(ctx context.Context, q querier, in instance) error {
		skips, err := skips(ctx, q, &in)
		if err != nil {
			return err
		}
		status = feed.RestoreStatus{
			Store: storeName, Guard: s.cfg.Guard,
			Finalized: true,
			Expected:  in.Identity.String(), Found: in.Found.String(),
			Sealed: !in.SealedAt.IsZero(), Epoch: in.Epoch,
			OldestSeq: in.Oldest, HeadSeq: in.Head.Seq, HeadFence: in.Head.Fence,
			Skips: skips,
		}
		if latest, outrun := s.guard.outrun(&in); outrun {
			status.Expected = latest.String()
		}
		if refusal := s.assess(op, &in); refusal != nil {
			status.Finalized, status.Cause = false, refusal.Error()
		}
		return nil
	})
	return status, err
}

// skips lists what every server-side cursor would miss if it were set to the
// head: consumers first, each kind in the order of its names.
func skips(ctx context.Context, q querier, in *instance) ([]feed.Skip, error) {
	rows, err := q.Query(ctx, `
		select c.kind, c.name, c.epoch, c.seq, c.fence, coalesce(e.fence, '')
		from (
			select 1 as rank, 'consumer' as kind, name, epoch, seq, fence from gapless.consumers
			union all
			select 2, 'webhook', id, epoch, seq, fence from gapless.webhooks
		) c
		left join gapless.events e on e.seq = c.seq
		order by c.rank, c.name`)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (feed.Skip, error) {
		var (
			skip               feed.Skip
			epoch, fence, held string
			seq                int64
		)
		if err := row.Scan(&skip.Kind, &skip.Name, &epoch, &seq, &fence, &held); err != nil {
			return skip, err
		}
		fill(&skip, parseStored(epoch, seq, fence), held, in)
		return skip, nil
	})
	if list == nil {
		list = []feed.Skip{}
	}
	return list, err
}

// fill says what a cursor misses; held is the fence of the event at its seq,
// empty where the log has none there.
func fill(skip *feed.Skip, at feed.Cursor, held string, in *instance) {
	head := feed.Cursor{Epoch: in.Epoch, Position: in.Head}
	skip.From, skip.To = at.String(), head.String()
	fence, err := in.fenceAt("skips", at.Seq, &held)
	first := at.Seq + 1
	switch {
	case at.Epoch != in.Epoch:
		// Its seq says nothing about this log.
		skip.Lost, first = true, in.Oldest
	case at.Seq > in.Head.Seq, err != nil, !at.Fence.Agrees(fence):
		skip.Lost = true
	}
	if first = max(first, in.Oldest); first <= in.Head.Seq {
		skip.FirstSeq, skip.LastSeq = first, in.Head.Seq
	}
}

// Finalize implements [feed.Durable].
func (s *Store) Finalize(ctx context.Context, opts feed.FinalizeOptions) (done feed.Finalized, err error) {
	const op = "finalize"
	err = s.view(ctx, op, func(ctx context.Context, q querier, in instance) error {
		if opts.Epoch != "" && in.Epoch != opts.Epoch {
			return outdated(op, &in)
		}
		done, err = finalized(ctx, q, &in)
		return err
	})
	if err != nil {
		return feed.Finalized{}, err
	}
	if opts.DryRun {
		done.DryRun = true
		return done, nil
	}
	seen := done.OldEpoch
	err = s.decide(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		if in.Epoch != seen {
			return outdated(op, in)
		}
		if done, err = finalized(ctx, q, in); err != nil {
			return err
		}
		if done.NewEpoch, err = in.Epoch.Next(done.Time, rand.Reader); err != nil {
			return err
		}
		in.Epoch, in.Identity, in.SealedAt = done.NewEpoch, in.Found, time.Time{}
		head := feed.Cursor{Epoch: in.Epoch, Position: in.Head}
		for i := range done.Skips {
			done.Skips[i].To = head.String()
		}
		for _, table := range []string{"consumers", "webhooks"} {
			// A reset that nobody has acknowledged yet began where the first one did.
			_, err := q.Exec(ctx, fmt.Sprintf(`
				update gapless.%s set
					reset_from = case when reset_from <> '' then reset_from
						else epoch || '-' || seq || case when fence <> '' and seq > 0 then '-' || fence else '' end end,
					epoch = $1, seq = $2, fence = $3, updated = clock_timestamp()`, table),
				string(head.Epoch), int64(head.Seq), head.Fence.String())
			if err != nil {
				return err
			}
		}
		return recordAudit(ctx, q, opts.Actor, feed.ActionFinalize, done)
	})
	if err != nil {
		return feed.Finalized{}, err
	}
	return done, nil
}

func outdated(op string, in *instance) error {
	return conflict(op, "the store is in epoch %s by now: somebody finalized it already", in.Epoch)
}

// finalized says what a finalized restore would do.
func finalized(ctx context.Context, q querier, in *instance) (feed.Finalized, error) {
	list, err := skips(ctx, q, in)
	return feed.Finalized{
		Time: in.Now, OldEpoch: in.Epoch,
		OldestSeq: in.Oldest, HeadSeq: in.Head.Seq, HeadFence: in.Head.Fence,
		Identity: in.Found.String(), Skips: list,
	}, err
}

// Relocate implements [feed.Durable].
func (s *Store) Relocate(ctx context.Context, m feed.Manifest, actor string) (done feed.Relocated, err error) {
	const op = "relocate"
	err = s.decide(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		switch {
		case !m.Final:
			return conflict(op, "the manifest is not of a final backup, so that events may have been acknowledged after it: make one with gapless backup --final, or finalize the restore")
		case m.Store != storeName:
			return conflict(op, "the manifest is of a %s store, this one is %s", m.Store, storeName)
		case m.Epoch != in.Epoch:
			return conflict(op, "the manifest is of epoch %s, the store holds %s", m.Epoch, in.Epoch)
		case m.HeadSeq != in.Head.Seq:
			return conflict(op, "the head of the manifest is %d, the store's is %d", m.HeadSeq, in.Head.Seq)
		case m.HeadFence != in.Head.Fence:
			return conflict(op, "event %d of the store is another than the manifest's", m.HeadSeq)
		}
		before, repeat, err := relocatedBefore(ctx, q, in, m)
		if err != nil {
			return err
		}
		if repeat {
			done = before
			return nil
		}
		switch {
		case in.Identity == in.Found, m.Identity == in.Found.String():
			return conflict(op, "this is where the store was sealed, and not a copy of it; to go on here after all: gapless restore finalize")
		case m.Identity != in.Identity.String():
			return conflict(op, "the manifest is of a store on %s, this one was last written on %s", m.Identity, in.Identity)
		case in.SealedAt.IsZero():
			return conflict(op, "the store is not sealed: the copy was made before the final backup, and may lack what came between; make another one, or finalize the restore")
		}
		done = feed.Relocated{
			Time: in.Now, Epoch: in.Epoch, HeadSeq: in.Head.Seq, HeadFence: in.Head.Fence,
			OldIdentity: in.Identity.String(), NewIdentity: in.Found.String(),
		}
		in.Identity, in.SealedAt = in.Found, time.Time{}
		s.guard.moved(in) // where the commit fails, the row refuses all the same
		return recordAudit(ctx, q, actor, feed.ActionRelocate, done)
	})
	if err != nil {
		return feed.Relocated{}, err
	}
	return done, nil
}

// relocatedBefore reports whether the last thing that was done to a store is
// the relocation that is asked for: it is asked for again where the answer to
// its commit was lost.
func relocatedBefore(ctx context.Context, q querier, in *instance, m feed.Manifest) (done feed.Relocated, yes bool, err error) {
	var action, detail string
	err = q.QueryRow(ctx, "select action, detail::text from gapless.audit order by seq desc limit 1").Scan(&action, &detail)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return done, false, nil
	case err != nil:
		return done, false, err
	case action != feed.ActionRelocate:
		return done, false, nil
	}
	if err := json.Unmarshal([]byte(detail), &done); err != nil {
		return done, false, nil // nothing that this function asks for
	}
	return done, in.Identity == in.Found && done.Epoch == m.Epoch && done.HeadSeq == m.HeadSeq && done.HeadFence == m.HeadFence &&
		done.OldIdentity == m.Identity && done.NewIdentity == in.Found.String(), nil
}
