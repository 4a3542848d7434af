package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
)

// Defaults of [Config].
const (
	DefaultEvents       = 1_000_000
	DefaultBytes        = 1 << 30
	DefaultDedupeWindow = 10 * time.Minute
)

// Config holds a store's options.
type Config struct {
	// Path of the database file; made where there is none.
	Path string
	// MustExist refuses to make a new file.
	MustExist bool
	// Retention; where it bounds nothing, 1,000,000 events and 1 GiB.
	Retention feed.Retention
	// DedupeWindow is for how long a publisher's id is remembered; 10 minutes.
	DedupeWindow time.Duration
	// Guard; strict. Verify means strict here: a file has no second place to
	// verify it with.
	Guard feed.GuardMode
	// Node names this process in audit entries.
	Node string
	// Logger; the zero Logger writes nothing.
	Logger zerolog.Logger
	// Now is the store's clock; time.Now. Times are its wall time.
	Now func() time.Time

	checkpointPages int64 // see the constant; a test makes it small
}

// withDefaults checks the options and fills what is left open.
func (c Config) withDefaults() (Config, error) {
	if c.Retention == (feed.Retention{}) {
		c.Retention = feed.Retention{Events: DefaultEvents, Bytes: DefaultBytes}
	}
	c.DedupeWindow = cmp.Or(c.DedupeWindow, DefaultDedupeWindow)
	c.checkpointPages = cmp.Or(c.checkpointPages, checkpointPages)
	if c.Now == nil {
		c.Now = time.Now
	}
	mode, err := feed.ParseGuardMode(string(c.Guard))
	if err != nil {
		return c, err
	}
	c.Guard = mode
	switch {
	case c.Path == "":
		return c, &feed.Error{Code: feed.CodeInvalid, Op: "sqlite", Msg: "no path was given"}
	case c.DedupeWindow < 0 || c.Retention.Age < 0 || c.Retention.Bytes < 0:
		return c, &feed.Error{Code: feed.CodeInvalid, Op: "sqlite", Msg: "a retention bound or the dedupe window is negative"}
	}
	return c, nil
}

// Store is the log in a file, and the control state beside it. All methods
// are safe for concurrent use.
type Store struct {
	cfg   Config
	place place // the file, and this process's lock on it

	writerDB *sql.DB
	readerDB *sql.DB
	readers  chan *connection // a pool: who takes one puts it back

	// writing is held for the length of one transaction; take it before mu.
	writing turn
	writer  *connection // under writing
	stale   bool        // under writing: a commit failed, so read the file again
	dedupe  dedupe      // under writing
	witness witness     // under writing
	// oldestTime is that of the oldest event, µs; 0: to be looked up. Under
	// writing.
	oldestTime int64

	checkpointed int           // pages written when the last checkpoint was asked for; under writing
	checkpoint   chan struct{} // of room for one: a checkpoint is due

	queue queue // of appends

	// mu guards what follows, all of which is memory: nobody waits for a disk
	// while holding it.
	mu       sync.RWMutex
	in       instance      // as committed
	tail     tail          // the newest events, up to the head
	changed  chan struct{} // closed at the next change; nil: nobody waits
	tripped  string        // why the guard keeps the store shut; empty: it does not
	strange  bool          // the log was not the one of its witness at Open, whatever the guard made of that, and nobody said yet what happened
	closed   bool
	inflight sync.WaitGroup // calls; added to under mu only while not closed

	stop       context.CancelFunc // ends the background goroutines
	background sync.WaitGroup
	closing    sync.Once
	closeErr   error
}

// enter begins a call, which leave ends. It fails once the store is closed.
func (s *Store) enter() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return feed.ErrClosed
	}
	s.inflight.Add(1)
	return nil
}

func (s *Store) leave() { s.inflight.Done() }

// committed returns the instance as of the last commit.
func (s *Store) committed() instance {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.in
}

// Info implements [feed.Log]. It does not block.
func (s *Store) Info() feed.Info {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return feed.Info{
		Store: "sqlite", Retention: s.cfg.Retention,
		Events: s.in.events(), Bytes: s.in.nextOffset - s.in.oldestOffset,
	}
}

// Close implements [feed.Log]. It waits for the calls under way, which end
// soon, copies the write-ahead log into the database, syncs the witness, and
// gives the lock up last.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.notifyLocked()
		s.mu.Unlock()
		s.inflight.Wait()
		s.end()
		s.closeErr = s.closeFiles()
	})
	return s.closeErr
}

// end stops the background goroutines. No call is under way.
func (s *Store) end() {
	if s.stop != nil {
		s.stop()
	}
	s.background.Wait()
}

// closeFiles closes what Open got to open. The last connection that SQLite
// closes makes a checkpoint and removes the write-ahead log.
func (s *Store) closeFiles() error {
	var errs []error
	for len(s.readers) > 0 {
		errs = append(errs, (<-s.readers).close())
	}
	if s.readerDB != nil {
		errs = append(errs, s.readerDB.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.writerDB != nil {
		errs = append(errs, s.writerDB.Close())
	}
	errs = append(errs, s.witness.close(), s.place.release())
	if err := errors.Join(errs...); err != nil {
		return unavailable("close", s.place.path, err)
	}
	return nil
}
