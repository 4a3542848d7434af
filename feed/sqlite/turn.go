package sqlite

import (
	"context"
	"errors"

	driverlib "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// turn is a mutex of which the wait can be given up.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn; the error is ctx's, and the turn then somebody
// else's.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// give ends the turn.
func (t turn) give() { <-t }

const (
	// busyTimeout is for how many milliseconds SQLite itself waits where another
	// program has the database locked: it knows no contexts, so it waits in
	// short steps.
	busyTimeout = 100
	// busyTries is how many such steps a call waits at most: 10 seconds.
	busyTries = 100
)

// patiently runs what takes a lock of the file again while another program
// has it, until the context ends or that takes too long.
func patiently(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		switch {
		case !hasCode(err, sqlite3.SQLITE_BUSY) || n == busyTries:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// hasCode reports whether SQLite failed with one of these primary codes.
func hasCode(err error, codes ...int) bool {
	var e *driverlib.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, code := range codes {
		if e.Code()&0xff == code {
			return true
		}
	}
	return false
}
