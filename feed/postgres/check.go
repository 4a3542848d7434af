package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// checkStep is how many events one statement of a check reads.
const checkStep = 20_000

// Check implements [feed.Durable]: it reads every retained event in one
// snapshot, beside which the store goes on, on a connection of its own; one
// check runs at a time. Where PostgreSQL's amcheck
// extension is installed and may be used, the indexes are looked at as well.
func (s *Store) Check(ctx context.Context, progress func(done float64)) error {
	if progress == nil {
		progress = func(float64) {}
	}
	const op = "check"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	select {
	case s.checks <- struct{}{}:
		defer func() { <-s.checks }()
	case <-ctx.Done():
		return s.failure(ctx, op, ctx.Err())
	}
	conn, closing, err := s.connect(ctx)
	if err != nil {
		return s.failure(ctx, op, err)
	}
	defer closing()
	err = s.viewOn(ctx, conn, func(ctx context.Context, q querier, in instance) error {
		c := checker{q: q, in: &in}
		if err := c.instance(); err != nil {
			return err
		}
		if err := c.events(ctx, progress); err != nil {
			return err
		}
		if err := c.extent(ctx); err != nil {
			return err
		}
		if err := c.cursors(ctx); err != nil {
			return err
		}
		if err := c.indexes(ctx); err != nil {
			return err
		}
		progress(1)
		return nil
	})
	if err != nil {
		return s.failure(ctx, op, err)
	}
	return nil
}

// checker looks for what breaks the log's rules.
type checker struct {
	q  querier
	in *instance

	total    int64     // sum of sizes up to the last event that was read
	lastTime time.Time // of that event
	fence    string    // of that event
}

func damaged(format string, args ...any) error {
	return &feed.Error{Code: feed.CodeInternal, Op: "check", Msg: "the store is damaged: " + fmt.Sprintf(format, args...)}
}

// instance checks what the instance row says against itself.
func (c *checker) instance() error {
	in := c.in
	empty := in.Oldest == in.Head.Seq+1
	switch {
	case in.Head.Fence.Known() != (in.Head.Seq > 0):
		return damaged("the head, %d, has the fence %q", in.Head.Seq, in.Head.Fence)
	case in.TrimmedFence.Known() != (in.Oldest > 1):
		return damaged("the oldest event is %d, and the one before has the fence %q", in.Oldest, in.TrimmedFence)
	case empty && in.Oldest > 1 && in.TrimmedFence != in.Head.Fence:
		return damaged("nothing is retained, and event %d has two fences, %q and %q", in.Head.Seq, in.TrimmedFence, in.Head.Fence)
	case in.TrimmedTotal < 0 || in.Total < in.TrimmedTotal:
		return damaged("its sums of sizes are %d and %d", in.TrimmedTotal, in.Total)
	}
	c.total = in.TrimmedTotal
	return nil
}

// extent looks for events outside of the bounds.
func (c *checker) extent(ctx context.Context) error {
	var outside int64
	err := c.q.QueryRow(ctx, "select count(*) from gapless.events where seq < $1::bigint or seq > $2::bigint", int64(c.in.Oldest), int64(c.in.Head.Seq)).Scan(&outside)
	if err == nil && outside > 0 {
		err = damaged("events outside of its bounds, %[2]d to %[3]d: %[1]d", outside, c.in.Oldest, c.in.Head.Seq)
	}
	return err
}

// events reads every event: contiguous, with a fence, in time, of the size
// and the running sum that it says. Their data is read, too, so that a page
// that cannot be is found.
func (c *checker) events(ctx context.Context, progress func(done float64)) error {
	in := c.in
	for after := in.Oldest - 1; after < in.Head.Seq; {
		upTo := min(after+checkStep, in.Head.Seq)
		rows, err := c.q.Query(ctx, `
			select seq, total, size, time, fence,
			       octet_length(id) + octet_length(type) + octet_length(topic) + octet_length(source)
			         + octet_length(data) + coalesce(octet_length(ce), 0),
			       fence ~ '^[0-9A-HJKMNP-TV-Z]{8}$'
			from gapless.events where seq > $1 and seq <= $2 order by seq`, int64(after), int64(upTo))
		if err != nil {
			return err
		}
		for rows.Next() {
			if err := c.event(rows, after+1); err != nil {
				rows.Close()
				return err
			}
			after++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if after != upTo {
			return damaged("event %d is missing", after+1)
		}
		progress(0.9 * float64(after-in.Oldest+1) / float64(in.Head.Seq-in.Oldest+1))
	}
	switch {
	case c.total != in.Total:
		return damaged("the sizes sum up to %d, it says %d", c.total, in.Total)
	case in.Oldest <= in.Head.Seq && c.fence != in.Head.Fence.String():
		return damaged("the head's fence is %q, that of the event is %q", in.Head.Fence, c.fence)
	case c.lastTime.After(in.LastTime):
		return damaged("the head's time is %v, that of the event is %v", in.LastTime, c.lastTime)
	}
	return nil
}

// flatSize is what [feed.Event.Size] counts beside the variable parts.
var flatSize = (&feed.Event{}).Size()

func (c *checker) event(rows pgx.Rows, want uint64) error {
	var (
		seq, total, size, parts int64
		at                      time.Time
		fence                   string
		fenced                  bool
	)
	if err := rows.Scan(&seq, &total, &size, &at, &fence, &parts, &fenced); err != nil {
		return err
	}
	switch {
	case uint64(seq) != want:
		return damaged("event %d is missing", want)
	case !fenced:
		return damaged("event %d has the fence %q", seq, fence)
	case size != parts+flatSize:
		return damaged("event %d says that its size is %d, it is %d", seq, size, parts+flatSize)
	case total != c.total+size:
		return damaged("the running sum of sizes is %d at event %d, want %d", total, seq, c.total+size)
	case at.Before(c.lastTime):
		return damaged("event %d is of %v, the one before of %v", seq, at, c.lastTime)
	}
	c.total, c.lastTime, c.fence = total, at, fence
	return nil
}

// cursors checks that those of consumers and webhooks can be read. Where they
// stand is not damage: a restore moves the log away from beneath them.
func (c *checker) cursors(ctx context.Context) error {
	rows, err := c.q.Query(ctx, `
		select 'consumer', name, epoch, seq, fence, reset_from from gapless.consumers
		union all select 'webhook', id, epoch, seq, fence, reset_from from gapless.webhooks`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name, epoch, fence, reset string
		var seq int64
		if err := rows.Scan(&kind, &name, &epoch, &seq, &fence, &reset); err != nil {
			return err
		}
		if _, err := feed.ParseCursor(parseStored(epoch, seq, fence).String()); err != nil || seq < 0 {
			return damaged("the cursor of %s %q is %s-%d-%s", kind, name, epoch, seq, fence)
		}
		if _, err := parseReset(reset); err != nil {
			return damaged("the reset of %s %q is from %q", kind, name, reset)
		}
	}
	return rows.Err()
}

// indexes has amcheck look at every index of the schema, where it may.
func (c *checker) indexes(ctx context.Context) error {
	rows, err := c.q.Query(ctx, `
		select i.oid::regclass::text, format('%I.bt_index_check', n.nspname)
		from pg_extension x
		join pg_namespace n on n.oid = x.extnamespace
		join pg_proc p on p.pronamespace = n.oid and p.proname = 'bt_index_check' and p.pronargs = 1
		join pg_class i on i.relkind = 'i' and i.relnamespace = 'gapless'::regnamespace
		join pg_am a on a.oid = i.relam and a.amname = 'btree'
		where x.extname = 'amcheck' and has_function_privilege(p.oid, 'execute') and has_schema_privilege(n.oid, 'usage')
		order by 1`)
	if err != nil {
		return err
	}
	type index struct{ name, check string }
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i index, err error) {
		err = row.Scan(&i.name, &i.check)
		return i, err
	})
	if err != nil {
		return err
	}
	for _, i := range list {
		if _, err := c.q.Exec(ctx, "select "+i.check+"($1::text::regclass)", i.name); err != nil {
			return damaged("its index %s: %v", i.name, err)
		}
	}
	return nil
}
