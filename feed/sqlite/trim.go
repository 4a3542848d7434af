package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sort"
	"time"
)

const (
	// trimSome is how many events an append trims at least, where there are as
	// many to trim; it trims twice as many as it stores.
	trimSome = 512
	// trimMost is how many events one transaction of Trim trims.
	trimMost = 4096
)

// Large bounds have slack, so that rows are deleted many at a time: deleting
// a range costs half of deleting its rows one by one.
const (
	slackFromEvents, slackEvents = 1000, 1024 // at most a twentieth of the bound
	slackFromBytes, slackBytes   = 1 << 20, 1 << 20
)

// Trim implements [feed.Log]. It works in steps, so that appends go on beside
// it, and ends when every bound holds.
func (s *Store) Trim(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	for {
		if err := ctx.Err(); err != nil {
			return unavailable("trim", "given up; what was trimmed so far is", err)
		}
		if more, err := s.trimStep(ctx); err != nil || !more {
			return err
		}
	}
}

// trimStep is one transaction of Trim; it reports whether another is needed.
func (s *Store) trimStep(ctx context.Context) (more bool, err error) {
	if err := s.writing.take(ctx); err != nil {
		return false, unavailable("trim", "given up; what was trimmed so far is", err)
	}
	defer s.writing.give()
	if err := s.ready("trim", true); err != nil {
		return false, err
	}
	now := micros(s.cfg.Now())
	s.dedupe.expire(now)
	in, oldestTime, swept := s.committed(), s.oldestTime, uint64(0)
	old := in.oldest
	if !s.due(&in, oldestTime, now, false) && s.dedupe.swept >= s.dedupe.expired {
		return false, nil
	}
	err = s.writer.raw(func(raw rawConnection) error {
		defer s.countPages(raw)
		return raw.transaction(ctx, func() (err error) {
			if more, err = s.trim(raw, &in, &oldestTime, now, trimMost, false); err != nil {
				return err
			}
			if swept, err = s.dedupe.sweep(raw, trimMost); err != nil || in.oldest == old {
				return err
			}
			in.version++
			return raw.exec(updateInstance, in.values()...)
		})
	})
	if err != nil {
		s.stale = true
		_ = s.refresh("trim") // tried again before the next transaction
		return false, s.storeError("trim", err)
	}
	s.oldestTime, s.dedupe.swept = oldestTime, swept
	if in.oldest != old {
		s.publish(in, nil)
	}
	return more || swept < s.dedupe.expired, nil
}

// trim deletes from the oldest end, inside a transaction, at most `most`
// events, until the retention holds or, with slack, nearly does. It reports
// whether more has to go.
func (s *Store) trim(raw rawConnection, in *instance, oldestTime *int64, now int64, most uint64, slack bool) (more bool, err error) {
	if in.events() == 0 {
		*oldestTime = 0
		return false, nil
	}
	r := s.cfg.Retention
	v := make([]driver.Value, 3)
	row := columns{values: v}
	lookUp := func(seq uint64) error {
		found, err := raw.one(`SELECT offset, time, fence FROM events WHERE seq = ?`, v, int64(seq))
		if err == nil && !found {
			err = fmt.Errorf("event %d is missing: the file is damaged", seq)
		}
		return err
	}
	if r.Age > 0 && *oldestTime == 0 {
		if err := lookUp(in.oldest); err != nil {
			return false, err
		}
		*oldestTime = row.number(1)
	}
	if !s.due(in, *oldestTime, now, slack) {
		return false, nil
	}

	// Whether an event has to go holds for all before it too.
	steps := int(min(in.events(), most))
	kept := sort.Search(steps, func(i int) bool {
		seq := in.oldest + uint64(i)
		if r.Events > 0 && in.head.Seq-seq >= r.Events {
			return false
		}
		if r.Bytes <= 0 && r.Age <= 0 || err != nil {
			return true
		}
		if err = lookUp(seq); err != nil {
			return true
		}
		tooMuch := r.Bytes > 0 && seq < in.head.Seq && in.nextOffset-row.number(0) > r.Bytes
		return !tooMuch && !tooOld(row.number(1), now, r.Age)
	})
	if err == nil {
		err = row.err
	}
	if err != nil || kept == 0 {
		return false, err
	}
	last := in.oldest + uint64(kept) - 1
	if err := lookUp(last); err != nil {
		return false, err
	}
	in.trimmedFence = row.fence(2)
	in.oldest = last + 1
	if last == in.head.Seq {
		in.oldestOffset, *oldestTime = in.nextOffset, 0
	} else {
		if err := lookUp(in.oldest); err != nil {
			return false, err
		}
		in.oldestOffset, *oldestTime = row.number(0), row.number(1)
	}
	if row.err != nil {
		return false, row.err
	}
	return kept == steps && in.events() > 0, raw.exec(`DELETE FROM events WHERE seq <= ?`, int64(last))
}

// due reports whether the retention asks for a deletion, as far as it is
// known without a look at the file.
func (s *Store) due(in *instance, oldestTime, now int64, slack bool) bool {
	if in.events() == 0 {
		return false
	}
	r := s.cfg.Retention
	bytes := in.nextOffset - in.oldestOffset
	overEvents := r.Events > 0 && in.events() > r.Events
	overBytes := r.Bytes > 0 && bytes > r.Bytes && in.events() > 1
	if slack {
		overEvents = overEvents && !withinSlack(in.events(), r.Events, slackFromEvents, slackEvents)
		overBytes = overBytes && !withinSlack(uint64(bytes), uint64(r.Bytes), slackFromBytes, slackBytes)
	}
	return overEvents || overBytes || r.Age > 0 && (oldestTime == 0 || tooOld(oldestTime, now, r.Age))
}

// tooOld reports whether an event of a time, in µs, exceeds an age; none does
// where the age is 0.
func tooOld(at, now int64, age time.Duration) bool {
	return age > 0 && time.Duration(now-at)*time.Microsecond > age
}

// withinSlack reports whether a bound is exceeded by less than is worth a
// deletion: nothing for small ones, else a twentieth, and at most most.
func withinSlack(have, bound, from, most uint64) bool {
	return bound >= from && have-bound < min(bound/20, most)
}
