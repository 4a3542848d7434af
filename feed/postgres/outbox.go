package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"gapless/feed"
)

// Bounds of one round of the mover, which holds the instance row for as long.
const (
	outboxRows  = feed.MaxBatchEvents
	outboxBytes = 8 << 20
	// outboxGiant is the size of data that is not even looked at: so much white
	// space is no event.
	outboxGiant = 4 * feed.MaxDataBytes
	// outboxRest is how long the mover waits after a failure, and the most that
	// it waits because looking is slow.
	outboxRest = time.Second
)

// outboxCounts are what the mover did since the process began.
type outboxCounts struct{ moved, parked atomic.Uint64 }

// OutboxStats returns how many rows of the outbox this process made events
// of, and how many it parked. It does not block.
func (s *Store) OutboxStats() feed.OutboxStats {
	return feed.OutboxStats{Moved: s.outbox.moved.Load(), Parked: s.outbox.parked.Load()}
}

// moveOutbox makes events of what applications have committed to the outbox,
// until the store is closed. Any number of gateways do so at once: a round
// holds the instance row, so that there is one at a time.
func (s *Store) moveOutbox() {
	if s.cfg.OutboxPoll < 0 {
		return
	}
	wait, failed := s.cfg.OutboxPoll, ""
	for pause(s.ctx, wait) {
		began := time.Now()
		more, err := s.outboxFilled(s.ctx)
		// Dead rows that an open transaction keeps from being vacuumed make the
		// look slow: it is worth a part of a connection's time, not all of it.
		wait = max(s.cfg.OutboxPoll, min(4*time.Since(began), outboxRest))
		for more && err == nil {
			more, err = s.moveRound(s.ctx)
		}
		text := ""
		if err != nil && s.ctx.Err() == nil {
			wait = max(wait, outboxRest)
			text = err.Error()
		}
		switch code := feed.CodeOf(err); {
		case text == failed:
		case text == "":
			s.log.Info().Msg("the outbox is moved again")
		case code == feed.CodeRestoreNotFinalized || code == feed.CodeSealed:
			s.log.Info().Err(err).Msg("the outbox waits")
		default:
			s.log.Warn().Err(err).Msg("the outbox is not moved")
		}
		failed = text
	}
}

// outboxFilled reports whether a round is worth the instance row's lock.
func (s *Store) outboxFilled(ctx context.Context) (filled bool, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	conn, release, err := s.borrow(ctx)
	if err != nil {
		return false, s.failure(ctx, "outbox", err)
	}
	defer release()
	if err = conn.QueryRow(ctx, "select exists (select from gapless.outbox)").Scan(&filled); err != nil {
		err = s.failure(ctx, "outbox", err)
	}
	return filled, err
}

// outboxRow is one row, and what becomes of it.
type outboxRow struct {
	number int64
	bytes  int64
	draft  feed.Draft
	reject *feed.Error // why it can never be an event
}

// moveRound moves the first rows of the outbox in one transaction: they are
// gone from it if and only if they are events. It reports whether more may be
// waiting.
//
// The rows are taken in the order of their numbers among all that are visible
// once the instance row is held. A transaction's rows become visible together,
// so none of them is ever passed by a later one of the same transaction. Of
// what was taken before, nothing is remembered: a number that becomes visible
// late is not missed.
func (s *Store) moveRound(ctx context.Context) (more bool, err error) {
	const op = "outbox"
	var rows []*outboxRow
	err = s.update(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		if !in.SealedAt.IsZero() {
			return sealed(op)
		}
		s.claim(in)
		var bytes int64
		if rows, bytes, err = takeRows(ctx, q); err != nil {
			return err
		}
		more = len(rows) == outboxRows || bytes >= outboxBytes
		if err := s.appendRows(ctx, q, in, rows); err != nil {
			return err
		}
		if err := removeRows(ctx, q, rows); err != nil {
			return err
		}
		if s.dueToSweep(in) {
			_, err = in.swept(q.QueryRow(ctx, sweepUsed, s.sweepArgs(in, trimLeast)...))
		}
		return err
	})
	if err != nil {
		return false, err
	}
	for _, row := range rows {
		if row.reject == nil {
			s.outbox.moved.Add(1)
			continue
		}
		s.outbox.parked.Add(1)
		s.log.Warn().Int64("number", row.number).Str("topic", row.draft.Topic).Str("type", row.draft.Type).Str("id", row.draft.ID).
			Str("code", string(row.reject.Code)).Str("reason", row.reject.Error()).Msg("a row of the outbox can never become an event; it is parked")
	}
	return more, nil
}

// selectOutbox locks and returns the first rows, bounded in number and, but
// for the first, in bytes. Where somebody holds one of them, the round waits
// for another time instead of passing it over, and publishers wait for nobody.
const selectOutbox = `
	select r.number, r.bytes, r.topic, r.type, coalesce(r.id, ''), r.source,
		case when r.bytes <= $2::bigint then r.data::text end, case when r.bytes <= $2::bigint then r.ce::text end
	from (
		select number, sum(case when bytes <= $2::bigint then bytes else 0 end) over (order by number) - bytes as before
		from (select number, bytes from gapless.outbox order by number limit $1::bigint) as first
	) as summed
	join gapless.outbox r using (number)
	where before < $3::bigint
	order by r.number
	for update of r nowait`

func takeRows(ctx context.Context, q querier) (list []*outboxRow, bytes int64, err error) {
	found, err := q.Query(ctx, selectOutbox, int64(outboxRows), int64(outboxGiant), int64(outboxBytes))
	if err != nil {
		return nil, 0, err
	}
	list, err = pgx.CollectRows(found, func(r pgx.CollectableRow) (*outboxRow, error) {
		var row outboxRow
		var data, ce *string
		d := &row.draft
		if err := r.Scan(&row.number, &row.bytes, &d.Topic, &d.Type, &d.ID, &d.Source, &data, &ce); err != nil {
			return nil, err
		}
		if row.bytes > outboxGiant {
			row.reject = &feed.Error{Code: feed.CodeTooLarge, Op: "outbox", Msg: fmt.Sprintf("data: %d bytes, at most %d are taken", row.bytes, feed.MaxDataBytes)}
			return &row, nil
		}
		bytes += row.bytes
		if data != nil {
			d.Data = json.RawMessage(*data)
		}
		if ce != nil {
			d.CE = json.RawMessage(*ce)
		}
		row.check()
		return &row, nil
	})
	return list, bytes, err
}

// check normalizes the draft as a publisher's, or says what is wrong with it.
func (r *outboxRow) check() {
	d := &r.draft
	err := d.Normalize()
	if err == nil {
		err = d.Reserved()
	}
	if err == nil && len(d.CE) > 0 && d.CE[0] != '{' {
		err = &feed.Error{Code: feed.CodeInvalid, Op: "outbox", Msg: "ce: want an object of CloudEvents attributes"}
	}
	if err != nil {
		r.reject = asError(err)
	}
	if d.ID == "" {
		d.ID, d.Minted = ulid.Make().String(), true
	}
}

func asError(err error) *feed.Error {
	return &feed.Error{Code: feed.CodeOf(err), Err: err}
}

// appendRows appends the rows that can be events, in their order, each as a
// batch of its own: one whose id was used for other content is rejected alone.
func (s *Store) appendRows(ctx context.Context, q querier, in *instance, rows []*outboxRow) error {
	drafts := make([]feed.Draft, len(rows))
	for i, row := range rows {
		drafts[i] = row.draft
	}
	prints := fingerprints(drafts)
	n := numbering{fresh: make(map[key]stored)}
	if keys := keysOf(drafts, prints, nil); len(keys) > 0 {
		found, err := q.Query(ctx, selectUsed, keys)
		if err != nil {
			return err
		}
		if n.used, err = used(found, s.forgotten(in)); err != nil {
			return err
		}
	}
	for i, row := range rows {
		if row.reject != nil {
			continue
		}
		_, err := n.admit(in, drafts[i:i+1], prints[i:i+1])
		if feed.CodeOf(err) == feed.CodeIDConflict {
			row.reject = asError(err)
		} else if err != nil {
			return err
		}
	}
	if len(n.rows.seqs) == 0 {
		return nil
	}
	var b pgx.Batch
	n.queue(&b, in)
	return q.SendBatch(ctx, &b).Close()
}

// removeRows takes the rows out of the outbox, and parks the rejected ones.
func removeRows(ctx context.Context, q querier, rows []*outboxRow) error {
	var moved, parked []int64
	var codes, reasons []string
	for _, row := range rows {
		if row.reject == nil {
			moved = append(moved, row.number)
			continue
		}
		parked = append(parked, row.number)
		codes = append(codes, string(row.reject.Code))
		reasons = append(reasons, row.reject.Error())
	}
	if len(moved) > 0 {
		if _, err := q.Exec(ctx, "delete from gapless.outbox where number = any($1::bigint[])", moved); err != nil {
			return err
		}
	}
	if len(parked) > 0 {
		_, err := q.Exec(ctx, `
			with gone as (delete from gapless.outbox where number = any($1::bigint[]) returning *)
			insert into gapless.outbox_parked (number, topic, type, data, id, source, ce, created, code, reason)
			select g.number, g.topic, g.type, g.data, g.id, g.source, g.ce, g.created, p.code, p.reason
			from gone g join unnest($1::bigint[], $2::text[], $3::text[]) as p (number, code, reason) using (number)`,
			parked, codes, reasons)
		return err
	}
	return nil
}
