package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"gapless/feed"
)

// Read implements [feed.Log]. What the tail holds comes from memory; other
// events from one snapshot of the file, on one of a few connections, for
// which it may wait.
func (s *Store) Read(ctx context.Context, after uint64, limit feed.Limit) (feed.Page, error) {
	if err := s.enter(); err != nil {
		return feed.Page{}, err
	}
	defer s.leave()
	s.mu.RLock()
	page, ok, err := s.pageLocked(after, limit)
	s.mu.RUnlock()
	if ok || err != nil {
		return page, err
	}
	if err := ctx.Err(); err != nil {
		return feed.Page{}, unavailable("read", "given up", err)
	}
	page, version, err := s.readFile(ctx, after, limit)
	if err != nil {
		return feed.Page{}, s.storeError("read", err)
	}
	return page, s.settle(ctx, "read", version)
}

// pageLocked answers a read from memory; it reports false where it cannot.
func (s *Store) pageLocked(after uint64, limit feed.Limit) (page feed.Page, ok bool, err error) {
	if err := s.guardErrorLocked("read"); err != nil {
		return page, false, err
	}
	page = feed.Page{Bounds: s.in.bounds(), TrimmedFence: s.in.trimmedFence}
	if after > page.Head.Seq || after+1 < page.Oldest {
		return page, true, nil
	}
	switch ev := s.tail.get(after); {
	case after+1 == page.Oldest:
		page.Anchor = page.TrimmedFence
	case after == page.Head.Seq:
		page.Anchor = page.Head.Fence
	case ev != nil:
		page.Anchor = ev.Fence
	default:
		return page, false, nil
	}
	if limit.Events <= 0 || after == page.Head.Seq {
		return page, true, nil
	}
	if s.tail.get(after+1) == nil {
		return page, false, nil
	}
	page.Events = s.tail.page(after, limit)
	return page, true, nil
}

const selectEvents = `SELECT seq, fence, time, id, type, topic, source, CAST(data AS BLOB), CAST(ce AS BLOB)
	FROM events WHERE seq > ? ORDER BY seq LIMIT ?`

// errEnough ends a walk over rows before their end.
var errEnough = errors.New("enough")

// readFile answers a read from one snapshot of the file, with the version of
// the instance that it is of.
func (s *Store) readFile(ctx context.Context, after uint64, limit feed.Limit) (page feed.Page, version uint64, err error) {
	r, err := s.reader(ctx, "read")
	if err != nil {
		return feed.Page{}, 0, err
	}
	defer s.release(r)
	err = r.raw(func(raw rawConnection) error {
		return raw.snapshot(ctx, func(in instance) (err error) {
			version = in.version
			page, err = raw.page(ctx, in, after, limit)
			return err
		})
	})
	return page, version, err
}

// snapshot runs fn in one read transaction.
func (c rawConnection) snapshot(ctx context.Context, fn func(in instance) error) error {
	if err := c.exec("BEGIN"); err != nil {
		return err
	}
	var in instance
	err := patiently(ctx, func() (err error) { in, err = c.instance(); return err })
	if err == nil {
		err = fn(in)
	}
	return errors.Join(err, c.exec("ROLLBACK"))
}

// page reads one page inside a snapshot.
func (c rawConnection) page(ctx context.Context, in instance, after uint64, limit feed.Limit) (feed.Page, error) {
	page := feed.Page{Bounds: in.bounds(), TrimmedFence: in.trimmedFence}
	if after > page.Head.Seq || after+1 < page.Oldest {
		return page, nil
	}
	fence, err := in.fenceAt(after, c.fence)
	if err != nil {
		return page, err
	}
	page.Anchor = fence
	n := min(in.head.Seq-after, uint64(max(limit.Events, 0)))
	if n == 0 {
		return page, nil
	}
	page.Events = make([]*feed.Event, 0, n)
	size := int64(0)
	v := make([]driver.Value, 9)
	row := columns{values: v}
	err = c.each(selectEvents, v, func() error {
		ev := row.event()
		switch want := after + 1 + uint64(len(page.Events)); {
		case row.err != nil:
			return row.err
		case ev.Seq != want:
			return missing(want)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if size += ev.Size(); limit.Bytes > 0 && size > limit.Bytes && len(page.Events) > 0 {
			return errEnough
		}
		page.Events = append(page.Events, ev)
		return nil
	}, int64(after), int64(n))
	if err == nil && uint64(len(page.Events)) < n {
		err = missing(after + 1 + uint64(len(page.Events)))
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return page, err
}

func missing(seq uint64) error { return fmt.Errorf("event %d is missing: the file is damaged", seq) }

// fence reads the fence of an event that is there.
func (c rawConnection) fence(seq uint64) (feed.Fence, error) {
	v := make([]driver.Value, 1)
	row := columns{values: v}
	found, err := c.one(selectFence, v, int64(seq))
	if err == nil && !found {
		err = missing(seq)
	}
	if err != nil {
		return feed.Fence{}, err
	}
	f := row.fence(0)
	return f, row.err
}

// event makes an event of a row of selectEvents.
func (c *columns) event() *feed.Event {
	return &feed.Event{
		Seq: uint64(c.number(0)), Fence: c.fence(1), Time: microTime(c.number(2)), ID: c.text(3), Type: c.text(4),
		Topic: c.text(5), Source: c.text(6), Data: c.bytes(7), CE: c.bytes(8),
	}
}

// loadTail fills the tail from the file.
func (s *Store) loadTail(in instance) error {
	after := max(in.oldest-1, in.head.Seq-min(in.head.Seq, tailEvents))
	return s.writer.raw(func(raw rawConnection) error {
		// The newest first, to know from where on they fit.
		v := make([]driver.Value, 2)
		row := columns{values: v}
		err := raw.each(`SELECT seq, offset FROM events WHERE seq > ? ORDER BY seq DESC`, v, func() error {
			if in.nextOffset-row.number(1) > tailBytes {
				after = uint64(row.number(0))
				return errEnough
			}
			return row.err
		}, int64(after))
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		page, err := raw.page(context.Background(), in, after, feed.Limit{Events: tailEvents})
		if err == nil {
			s.tail.push(page.Events, in.oldest)
		}
		return err
	})
}
