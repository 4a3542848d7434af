package sqlite

import (
	"context"
	"database/sql/driver"

	driverlib "modernc.org/sqlite"
)

const (
	// checkpointPages is after how many written pages the write-ahead log is
	// copied into the database, beside the commits.
	checkpointPages = 4096
	// restartFactor: from so many times as many pages on, the commits have to
	// wait for the rest of that, so that the write-ahead log begins anew and
	// stays bounded.
	restartFactor = 3
)

// checkpoints copies the write-ahead log into the database on a connection of
// its own, so that no commit carries that.
func (s *Store) checkpoints(ctx context.Context, c *connection) {
	defer func() {
		if err := c.close(); err != nil {
			s.cfg.Logger.Warn().Err(err).Str("file", s.place.path).Msg("the connection for checkpoints did not close")
		}
	}()
	for {
		select {
		case <-s.checkpoint:
		case <-ctx.Done():
			return
		}
		err := s.checkpointBeside(ctx, c)
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn().Err(err).Str("file", s.place.path).Msg("checkpoint failed: the write-ahead log grows until one succeeds")
		}
	}
}

// checkpointBeside copies what it can while commits go on and, once the
// write-ahead log is long, the rest while they wait, so that it begins anew.
// It does not wait for long where a reader is in the way (see busyTimeout):
// the commits would wait with it.
func (s *Store) checkpointBeside(ctx context.Context, c *connection) error {
	pages, copied, err := checkpoint(c, "PASSIVE")
	if err != nil || pages < restartFactor*s.cfg.checkpointPages {
		return err
	}
	if pages-copied > s.cfg.checkpointPages {
		return nil // somebody reads what is older, as a backup does for long
	}
	if err := s.writing.take(ctx); err != nil {
		return err
	}
	defer s.writing.give()
	_, _, err = checkpoint(c, "RESTART")
	return err
}

// checkpoint runs one (https://sqlite.org/pragma.html#pragma_wal_checkpoint)
// and returns how many pages the write-ahead log had, and how many of them
// are in the database. That others were in its way is no error.
func checkpoint(c *connection, mode string) (pages, copied int64, err error) {
	err = c.raw(func(raw rawConnection) error {
		v := make([]driver.Value, 3) // busy, pages, copied
		row := columns{values: v}
		if _, err := raw.one("PRAGMA wal_checkpoint("+mode+")", v); err != nil {
			return err
		}
		pages, copied = row.number(1), row.number(2)
		return row.err
	})
	return pages, copied, err
}

// countPages asks for a checkpoint once a transaction of the writer has made
// it due. The caller holds s.writing.
func (s *Store) countPages(raw rawConnection) {
	pages, _, err := raw.driver.(driverlib.DBStatus).Status(driverlib.DBStatusCacheWrite, false)
	if err != nil || pages >= s.checkpointed && int64(pages-s.checkpointed) < s.cfg.checkpointPages {
		return
	}
	s.checkpointed = pages
	s.askCheckpoint()
}

// askCheckpoint wakes the loop that makes them.
func (s *Store) askCheckpoint() {
	select {
	case s.checkpoint <- struct{}{}:
	default:
	}
}
