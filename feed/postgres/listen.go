package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"gapless/feed"
)

// How often a log is looked at.
const (
	// safetyPoll stands in for a notification that was lost, and finds out that
	// the listening connection is dead.
	safetyPoll = 2 * time.Second
	// pooledPoll is all there is behind a pooler, while somebody waits.
	pooledPoll = 75 * time.Millisecond
	// longestRetry is between attempts to listen again.
	longestRetry = 5 * time.Second
)

// channel carries the notifications: the cursor at the head.
const channel = "gapless"

// follow keeps this process's knowledge of the log fresh until the store is
// closed: it is the one goroutine that listens or polls.
func (s *Store) follow() {
	failing := false
	for wait := 50 * time.Millisecond; s.ctx.Err() == nil; wait = min(max(2*wait, 50*time.Millisecond), longestRetry) {
		began := time.Now()
		err := s.listen()
		if errors.Is(err, errPoolerFound) {
			err = s.poll()
		}
		if s.ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRefused) {
			wait = 0
			continue
		}
		if time.Since(began) > longestRetry {
			wait, failing = 50*time.Millisecond, false
		}
		if !failing {
			s.log.Warn().Err(s.word(s.ctx, "listen", err)).Msg("new events are not listened for; the database is tried again")
			failing = true
		}
		pause(s.ctx, wait)
	}
}

// listen follows notifications on a connection of its own, until that fails.
func (s *Store) listen() error {
	if s.pooled.Load() {
		return errPoolerFound
	}
	conn, closing, err := s.connect(s.ctx)
	if err != nil {
		return err
	}
	defer closing()
	if s.pooled.Load() {
		return errPoolerFound
	}
	if err := s.hear(s.ctx, conn); err != nil {
		return err
	}
	// What came between the last connection and this one was not heard.
	s.known.doubt()
	for {
		err := s.glance(conn)
		refused := feed.CodeOf(err) == feed.CodeRestoreNotFinalized
		if err != nil && !refused {
			return err
		}
		if err := s.heed(conn); err != nil {
			return err
		}
		if refused {
			return errRefused
		}
	}
}

// errRefused ends a connection to what the guard refuses: by now its address
// may lead to the right server again.
var errRefused = errors.New("the guard refuses what it is connected to")

// hear begins to listen, and makes sure that it hears itself.
func (s *Store) hear(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.callPatience)
	defer cancel()
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return err
	}
	probe := "hello " + rand.Text()
	if _, err := conn.Exec(ctx, notifyHead, probe); err != nil {
		return err
	}
	bounded, stop := context.WithTimeout(ctx, safetyPoll)
	defer stop()
	for {
		n, err := conn.WaitForNotification(bounded)
		if err != nil && ctx.Err() == nil && bounded.Err() != nil {
			s.pooled.Store(true)
			s.log.Info().Msg("notifications do not come through: the database seems to be behind a connection pooler, so new events are polled for; a direct connection is quicker")
			return errPoolerFound
		}
		if err != nil {
			return err
		}
		if n.Payload == probe {
			return nil
		}
	}
}

// heed takes up notifications for as long as the safety poll allows.
func (s *Store) heed(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(s.ctx, safetyPoll)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil:
			if at, err := feed.ParseCursor(n.Payload); err == nil && at.Epoch != "" {
				s.known.hint(at)
			}
		case s.ctx.Err() == nil && ctx.Err() != nil && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

// glance looks at the head on the listening connection.
func (s *Store) glance(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.callPatience)
	defer cancel()
	taken := s.known.mark()
	in, err := loadInstance(conn.QueryRow(ctx, readInstance))
	if err != nil {
		return err
	}
	in.taken = taken
	if err := s.identify(ctx, conn, &in); err != nil {
		return err
	}
	if s.adopts(&in) {
		return s.adopt(ctx, "listen")
	}
	return s.saw("listen", &in)
}

// guarded passes over the refusal of a guard, which the next look repeats.
func (s *Store) guarded(err error) error {
	if feed.CodeOf(err) == feed.CodeRestoreNotFinalized {
		return nil
	}
	return err
}

// poll looks at the head again and again while somebody waits, until that
// fails.
func (s *Store) poll() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
		err := s.look(s.ctx, "poll", func(ctx context.Context, conn *pgx.Conn) (instance, error) {
			return loadInstance(conn.QueryRow(ctx, readInstance))
		})
		if err := s.guarded(err); err != nil {
			return err
		}
		if s.known.idle() {
			select {
			case <-s.known.wanted:
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		}
		timer.Reset(pooledPoll)
	}
}
