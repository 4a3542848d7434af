package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"gapless/feed"
)

// instance is the one row that says what the log is, and beside it what the
// same statement saw of the server.
type instance struct {
	Epoch        feed.Epoch
	Head         feed.Position
	Oldest       uint64 // head + 1: no event is retained
	TrimmedFence feed.Fence
	Total        int64         // sum of the sizes of events 1 to head
	TrimmedTotal int64         // sum of the sizes of events 1 to oldest − 1
	LastTime     time.Time     // of the event at head
	Expired      time.Time     // dedupe holds nothing older
	Window       time.Duration // for which ids are remembered: the longest of all gateways
	Claimed      time.Time     // when one of those that ask for it last said so
	Asked        time.Duration // the longest of those that others asked for since
	Identity     identity      // that the store remembers
	SealedAt     time.Time     // zero: not sealed

	// What follows is not of the row, and is not written.

	Now     time.Time // the database's clock
	Found   identity  // what the store runs on; known once it was verified
	on      incarnation
	taken   mark     // when the snapshot that shows all this began
	adopted identity // that this transaction takes over another one from
}

// bounds says what of the row a reader sees.
func (in *instance) bounds() feed.Bounds {
	return feed.Bounds{Epoch: in.Epoch, Oldest: in.Oldest, Head: in.Head}
}

// instanceColumns are what [instance.targets] takes, in their order. A server
// in recovery has no timeline of its own yet. The timeline is that of the
// record written next, which is right from the moment of a promotion; the one
// in the control file lags behind until a checkpoint.
const instanceColumns = `i.epoch, i.head, i.head_fence, i.oldest, i.trimmed_fence, i.total, i.trimmed_total,
	i.last_time, i.expired, i.dedupe_window, i.dedupe_claimed, i.dedupe_asked, i.system_identifier, i.timeline, i.database, i.sealed_at, clock_timestamp(), ` + incarnationColumns

// incarnationColumns are what [incarnation.targets] takes.
const incarnationColumns = `pg_is_in_recovery(), pg_postmaster_start_time(), case when pg_is_in_recovery() then 0::bigint
	else ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint end,
	(select d.oid::bigint from pg_catalog.pg_database d where d.datname = current_database())`

// scanned holds an instance's columns as they come.
type scanned struct {
	epoch, headFence, trimmedFence, system string
	head, oldest, timeline, database       int64
	window, asked                          int64
	sealed                                 *time.Time
	in                                     instance
}

// targets are where the columns go.
func (r *scanned) targets() []any {
	return append([]any{&r.epoch, &r.head, &r.headFence, &r.oldest, &r.trimmedFence, &r.in.Total, &r.in.TrimmedTotal,
		&r.in.LastTime, &r.in.Expired, &r.window, &r.in.Claimed, &r.asked, &r.system, &r.timeline, &r.database, &r.sealed, &r.in.Now}, r.in.on.targets()...)
}

// instance puts them together.
func (r *scanned) instance() (instance, error) {
	in := r.in
	in.Epoch = feed.Epoch(r.epoch)
	in.Head.Seq, in.Oldest = uint64(r.head), uint64(r.oldest)
	var ok, trimmedOK bool
	in.Head.Fence, ok = storedFence(r.headFence)
	in.TrimmedFence, trimmedOK = storedFence(r.trimmedFence)
	id, err := parseIdentity(r.system, r.timeline, r.database)
	if !ok || !trimmedOK || err != nil || r.head < 0 || r.oldest < 1 || r.oldest-1 > r.head {
		return in, errors.New("the row gapless.instance holds what no gateway writes")
	}
	in.Identity = id
	in.LastTime, in.Expired, in.Now = in.LastTime.UTC(), in.Expired.UTC(), in.Now.UTC()
	in.Window, in.Claimed = time.Duration(r.window)*time.Microsecond, in.Claimed.UTC()
	in.Asked = time.Duration(r.asked) * time.Microsecond
	if r.sealed != nil {
		in.SealedAt = r.sealed.UTC()
	}
	in.on.start = in.on.start.UTC()
	return in, nil
}

// storedFence reads a fence; empty is unknown.
func storedFence(s string) (feed.Fence, bool) {
	if s == "" {
		return feed.Fence{}, true
	}
	return feed.ParseFence(s)
}

// fenceAt is the fence of the event at a seq; held is what the events say of
// it, nil where they lack it. It is unknown at 0 and outside of the log. Inside
// the log every event has one: an answer without it would agree with every
// cursor, so that is an error.
func (in *instance) fenceAt(op string, seq uint64, held *string) (fence feed.Fence, err error) {
	switch {
	case seq == 0 || seq > in.Head.Seq || seq+1 < in.Oldest:
		return fence, nil
	case seq+1 == in.Oldest:
		fence = in.TrimmedFence
	case held != nil:
		fence, _ = feed.ParseFence(*held)
	}
	if !fence.Known() {
		return fence, unsound(op, "the fence of event %d cannot be read", seq)
	}
	return fence, nil
}

// unsound is the error for a log that lacks what it should hold.
func unsound(op, format string, args ...any) error {
	return unavailable(op, "the store is damaged: "+fmt.Sprintf(format, args...), nil)
}

// querier is a transaction, or a connection inside one.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

const (
	lockInstance = `select ` + instanceColumns + ` from gapless.instance i where i.only_row for update`
	readInstance = `select ` + instanceColumns + ` from gapless.instance i where i.only_row`
	// anchoredInstance reads beside it the fence of the event at $1.
	anchoredInstance = `select ` + instanceColumns + `, a.fence from gapless.instance i left join gapless.events a on a.seq = $1::bigint where i.only_row`
)

// loadInstance reads the row by one of the first two.
func loadInstance(row pgx.Row) (instance, error) {
	var r scanned
	if err := row.Scan(r.targets()...); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return instance{}, errNotSetUp
		}
		return instance{}, err
	}
	return r.instance()
}

// loadAnchored reads the row by anchoredInstance, and what the events say of
// the fence at its seq, nil where they lack it.
func loadAnchored(row pgx.Row) (in instance, held *string, err error) {
	var r scanned
	if err := row.Scan(append(r.targets(), &held)...); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			err = errNotSetUp
		}
		return in, nil, err
	}
	in, err = r.instance()
	return in, held, err
}

// updateInstance writes the row.
const updateInstance = `update gapless.instance set epoch = $1::text, head = $2::bigint, head_fence = $3::text, total = $4::bigint,
	last_time = $5::timestamptz, expired = $6::timestamptz, system_identifier = $7::text, timeline = $8::bigint, sealed_at = $9::timestamptz,
	oldest = $10::bigint, trimmed_fence = $11::text, trimmed_total = $12::bigint, database = $13::bigint,
	dedupe_window = $14::bigint, dedupe_claimed = $15::timestamptz, dedupe_asked = $16::bigint
	where only_row`

// values are the arguments of updateInstance.
func (in *instance) values() []any {
	var sealed *time.Time
	if !in.SealedAt.IsZero() {
		sealed = &in.SealedAt
	}
	return []any{string(in.Epoch), int64(in.Head.Seq), in.Head.Fence.String(), in.Total, in.LastTime, in.Expired,
		in.Identity.system(), int64(in.Identity.Timeline), sealed, int64(in.Oldest), in.TrimmedFence.String(), in.TrimmedTotal,
		int64(in.Identity.Database), in.Window.Microseconds(), in.Claimed, in.Asked.Microseconds()}
}
