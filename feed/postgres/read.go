package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

const beginSnapshot = "begin isolation level repeatable read read only"

const eventColumns = `seq, time, fence, id, type, topic, source, data, ce`

// readEvents reads the events behind $1, from $4 up to $2, and of these the
// first and as many as have $3 bytes together. Sums of sizes rise with the
// seq, so that no event is read and thrown away.
const readEvents = `select ` + eventColumns + ` from gapless.events
	where seq > $1::bigint and seq <= $2::bigint and (seq = $4::bigint or total <= $3::bigint + coalesce(
		(select total from gapless.events where seq = $1::bigint), (select trimmed_total from gapless.instance where only_row)))
	order by seq`

// maxPage bounds the events of one page, whatever was asked for.
const maxPage = 1 << 20

// Read implements [feed.Log]: one snapshot, one round trip.
func (s *Store) Read(ctx context.Context, after uint64, limit feed.Limit) (feed.Page, error) {
	var page feed.Page
	const op = "read"
	err := s.look(ctx, op, func(ctx context.Context, conn *pgx.Conn) (in instance, err error) {
		page, in, err = readPage(ctx, conn, op, after, limit)
		return in, err
	})
	if err != nil {
		return feed.Page{}, err
	}
	return page, nil
}

// look runs a snapshot of the log, and checks the guard for it.
func (s *Store) look(ctx context.Context, op string, snapshot func(ctx context.Context, conn *pgx.Conn) (instance, error)) error {
	return s.persist(ctx, op, func(ctx context.Context) error { return s.lookOnce(ctx, op, snapshot) })
}

func (s *Store) lookOnce(ctx context.Context, op string, snapshot func(ctx context.Context, conn *pgx.Conn) (instance, error)) error {
	conn, release, err := s.borrow(ctx)
	if err != nil {
		return err
	}
	taken := s.known.mark()
	in, err := snapshot(ctx, conn)
	if err == nil {
		err = s.identify(ctx, conn, &in)
	}
	release()
	if err != nil {
		return err
	}
	in.taken = taken
	if !s.adopts(&in) {
		return s.saw(op, &in)
	}
	// Only a transaction that holds the row can take over the identity.
	err = s.adopt(ctx, op)
	switch {
	case err == nil:
		return errServerChanged // look again
	case s.cfg.Guard == feed.GuardOff:
		return s.saw(op, &in)
	}
	return err
}

func readPage(ctx context.Context, conn *pgx.Conn, op string, after uint64, limit feed.Limit) (page feed.Page, in instance, err error) {
	at := int64(min(after, maxSeq))
	events := int64(max(0, min(limit.Events, maxPage)))
	bytes := limit.Bytes
	if bytes <= 0 {
		bytes = 1 << 61
	}
	var b pgx.Batch
	b.Queue(beginSnapshot)
	b.Queue(anchoredInstance, at)
	if events > 0 {
		b.Queue(readEvents, at, at+min(events, maxSeq-at), min(bytes, 1<<61), at+min(1, maxSeq-at))
	}
	b.Queue("commit")
	results := conn.SendBatch(ctx, &b)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return page, in, err
	}
	in, held, err := loadAnchored(results.QueryRow())
	if err != nil {
		return page, in, err
	}
	page.Bounds, page.TrimmedFence = in.bounds(), in.TrimmedFence
	if page.Anchor, err = in.fenceAt(op, after, held); err == nil {
		_, err = in.fenceAt(op, in.Oldest-1, nil)
	}
	if err != nil {
		return page, in, err
	}
	if events == 0 {
		return page, in, nil
	}
	rows, err := results.Query()
	if err != nil {
		return page, in, err
	}
	defer rows.Close()
	if after >= in.Head.Seq || after+1 < in.Oldest {
		return page, in, nil
	}
	page.Events, err = scanEvents(rows, op, after, int(min(events, int64(in.Head.Seq-after))))
	return page, in, err
}

// scanEvents reads rows of eventColumns, which follow a seq without a hole and
// are not none.
func scanEvents(rows pgx.Rows, op string, after uint64, most int) ([]*feed.Event, error) {
	events := make([]*feed.Event, 0, min(most, 4096))
	var seq int64
	var at time.Time
	var fence string
	want := after + 1
	for rows.Next() {
		ev := &feed.Event{}
		if err := rows.Scan(&seq, &at, &fence, &ev.ID, &ev.Type, &ev.Topic, &ev.Source, (*[]byte)(&ev.Data), (*[]byte)(&ev.CE)); err != nil {
			return nil, err
		}
		var ok bool
		if ev.Seq, ev.Time = uint64(seq), at.UTC(); ev.Seq != want {
			return nil, unsound(op, "event %d is missing", want)
		}
		if ev.Fence, ok = feed.ParseFence(fence); !ok {
			return nil, unsound(op, "the fence of event %d cannot be read", want)
		}
		events = append(events, ev)
		want++
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, unsound(op, "event %d is missing", want)
	}
	return events, nil
}
