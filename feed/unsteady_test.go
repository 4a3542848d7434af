package feed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"gapless/feed"
)

// unsteady is a log whose reads can be made slow, late or failing; the test
// itself reads the log behind it.
type unsteady struct {
	feed.Log
	mood atomic.Pointer[mood]
}

// mood is what an unsteady log does to its readers.
type mood struct {
	slow, late time.Duration // before and after the log is read
	fail       bool
}

var errUnsteady = errors.New("the log fails")

func steady(log feed.Log) *unsteady {
	l := &unsteady{Log: log}
	l.mood.Store(&mood{})
	return l
}

// turn changes the log's mood.
func (l *unsteady) turn(change func(*mood)) {
	m := *l.mood.Load()
	change(&m)
	l.mood.Store(&m)
}

func (l *unsteady) heal() { l.mood.Store(&mood{}) }

func (l *unsteady) Read(ctx context.Context, after uint64, limit feed.Limit) (feed.Page, error) {
	m := l.mood.Load()
	if err := l.pause(ctx, m.slow); err != nil || m.fail {
		return feed.Page{}, errors.Join(err, errUnsteady)
	}
	page, err := l.Log.Read(ctx, after, limit)
	return page, errors.Join(err, l.pause(ctx, m.late))
}

func (l *unsteady) Search(ctx context.Context, search feed.Search) (feed.Found, error) {
	m := l.mood.Load()
	if err := l.pause(ctx, m.slow); err != nil || m.fail {
		return feed.Found{}, errors.Join(err, errUnsteady)
	}
	found, err := l.Log.Search(ctx, search)
	return found, errors.Join(err, l.pause(ctx, m.late))
}

func (l *unsteady) pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
