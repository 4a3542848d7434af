package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// Bounds of one transaction's trimming.
const (
	// trimLeast is the most events that one append trims beyond as many as it
	// stores. It keeps a retention that was cut down from stalling an append.
	trimLeast = 4096
	// trimSlack is the most events above a count that may wait to be trimmed
	// together.
	trimSlack = 1024
)

// trimInstance deletes events from the oldest end until every bound holds: the
// count (seqs below $3), the bytes (the sum from an event on is above the
// bound: $4), the age ($5). Each condition holds for a beginning of the log,
// so what goes is one. The last event goes by age alone.
const trimInstance = `with gone as (
		delete from gapless.events where seq >= $1::bigint and seq < $2::bigint
			and (seq < $3::bigint or total - size < $4::bigint and seq < $6::bigint or time < $5::timestamptz)
		returning seq, fence, total
	)
	update gapless.instance i set oldest = g.seq + 1, trimmed_fence = g.fence, trimmed_total = g.total
	from (select seq, fence, total from gone order by seq desc limit 1) g where i.only_row
	returning i.oldest, i.trimmed_fence, i.trimmed_total`

// dueToTrim reports whether an append should trim: large bounds let some
// events wait, so that they are trimmed together.
func (s *Store) dueToTrim(in *instance) bool {
	r := s.cfg.Retention
	events := in.Head.Seq + 1 - in.Oldest
	switch {
	case r.Events > 0 && events > r.Events+min(r.Events/20*boolInt(r.Events >= 1000), trimSlack):
		return true
	case r.Bytes > 0 && in.Total-in.TrimmedTotal > r.Bytes+int64(boolInt(events >= 1000))*min(r.Bytes/20, 1<<20) && events > 1:
		return true
	}
	return r.Age > 0 && events > 0
}

func boolInt(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// trimArgs are the arguments of trimInstance, for at most `most` events.
func (s *Store) trimArgs(in *instance, most uint64) []any {
	r := s.cfg.Retention
	keep, bytes, since := uint64(0), int64(-1), time.Unix(0, 0)
	if held := in.Head.Seq + 1 - in.Oldest; r.Events > 0 && held > r.Events {
		keep = in.Head.Seq + 1 - r.Events
	}
	if r.Bytes > 0 {
		bytes = in.Total - r.Bytes
	}
	if r.Age > 0 {
		since = in.Now.Add(-r.Age)
	}
	end := in.Oldest + min(most, maxSeq+1-in.Oldest)
	return []any{int64(in.Oldest), int64(end), int64(keep), bytes, since, int64(in.Head.Seq)}
}

// trimmed takes up the answer of trimInstance, and says how many events went.
func (in *instance) trimmed(row pgx.Row) (events uint64, err error) {
	var oldest int64
	var fence string
	if err := row.Scan(&oldest, &fence, &in.TrimmedTotal); errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	events = uint64(oldest) - in.Oldest
	in.Oldest = uint64(oldest)
	in.TrimmedFence, _ = storedFence(fence)
	return events, nil
}

// trimTx trims inside a transaction that holds the instance row, and writes
// the row's columns that this changes.
func (s *Store) trimTx(ctx context.Context, q querier, in *instance, most uint64) (events uint64, err error) {
	return in.trimmed(q.QueryRow(ctx, trimInstance, s.trimArgs(in, most)...))
}

// Trim implements [feed.Log]. It also forgets ids that are older than the
// dedupe window. It blocks for one transaction for every few thousand events
// that go.
func (s *Store) Trim(ctx context.Context) error {
	for {
		more := false
		err := s.update(ctx, "trim", func(ctx context.Context, q querier, in *instance) error {
			s.claim(in)
			events, err := s.trimTx(ctx, q, in, trimLeast)
			if err != nil {
				return err
			}
			ids := int64(0)
			if s.forgotten(in).After(in.Expired) {
				if ids, err = in.swept(q.QueryRow(ctx, sweepUsed, s.sweepArgs(in, trimLeast)...)); err != nil {
					return err
				}
			}
			more = events == trimLeast || ids == trimLeast
			return nil
		})
		if err != nil || !more {
			return err
		}
	}
}

var _ feed.Log = (*Store)(nil)
