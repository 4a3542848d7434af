package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	driverlib "modernc.org/sqlite"

	"gapless/feed"
)

// Open opens the log in a file, and makes both where they are not there. It
// returns a store that is shut where the guard says so: see [feed.Durable].
// The context bounds the opening alone. Errors: [feed.CodeInvalid] for
// options, [feed.CodeUnavailable] where another process has the file, or
// where it cannot be read as a log; nothing of it was changed then.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// Both hold for the whole process, and are no worse for anybody else:
	// SQLite's own locks survive whoever opens and closes the file, and a commit
	// does not wait for time stamps. Nothing depends on them, so where they are
	// not to be had it goes without.
	_, _ = driverlib.OFDLocking(true)
	_, _ = driverlib.Fdatasync(true)

	s := &Store{
		cfg: cfg, writing: newTurn(), checkpoint: make(chan struct{}, 1), queue: queue{ready: make(chan struct{}, 1)},
		dedupe: dedupe{window: cfg.DedupeWindow.Microseconds()},
	}
	if s.place, err = openPlace(cfg.Path, cfg.MustExist); err != nil {
		return nil, unavailable("sqlite", err.Error(), nil)
	}
	if err := s.open(ctx); err != nil {
		s.end()
		_ = s.closeFiles() // of a store that holds nothing yet; err says why
		return nil, openError(s.place.path, err)
	}
	return s, nil
}

// openError names the file.
func openError(path string, err error) error {
	var known *feed.Error
	if errors.As(err, &known) {
		return err
	}
	switch words := remedy(path, err); {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable("sqlite", path+": given up", err)
	case words != "" && !errors.Is(err, errMixture):
		return unavailable("sqlite", words, err)
	}
	return unavailable("sqlite", path+": "+err.Error(), nil)
}

// open does what comes after the lock.
func (s *Store) open(ctx context.Context) error {
	if err := s.place.recognize(); err != nil {
		return err
	}
	if s.place.unclean() {
		if err := s.examineLeft(ctx); err != nil {
			return err
		}
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	in, err := loadInstance(ctx, s.writer.conn)
	if err != nil {
		return err
	}
	if err := examine(ctx, s.writer.conn, in); err != nil {
		return err
	}
	if err := s.dedupe.load(s.writer, 0); err != nil {
		return err
	}
	if err := s.loadTail(in); err != nil {
		return err
	}
	if err := s.place.watchWAL(); err != nil {
		return err
	}
	s.in = in
	checkpointer, err := newConnection(ctx, s.writerDB)
	if err != nil {
		return err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.background.Go(func() { s.commits(background) })
	s.background.Go(func() { s.checkpoints(background, checkpointer) })
	return s.askWitness(ctx, in)
}

// connect makes the pools: of what writes and checkpoints, and of what reads.
func (s *Store) connect(ctx context.Context) error {
	pool := func(most int, pragmas ...string) (*sql.DB, error) {
		connector, err := driverlib.NewConnector(dsn(s.place.path, pragmas...))
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(most)
		return db, nil
	}
	var err error
	if s.writerDB, err = pool(2, "cache_size(-8192)", fmt.Sprintf("journal_size_limit(%d)", walLimit)); err != nil {
		return err
	}
	if s.readerDB, err = pool(readConnections, "cache_size(-4096)", "query_only(1)"); err != nil {
		return err
	}
	s.writer, err = newConnection(ctx, s.writerDB)
	return err
}

// prepare sets a new file up, and fills the pool of readers.
func (s *Store) prepare(ctx context.Context) error {
	var application int64
	if err := patiently(ctx, func() (err error) { application, err = s.identify(ctx); return err }); err != nil {
		return err
	}
	var mode string
	if err := patiently(ctx, func() error {
		return s.writer.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	}); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system does not let SQLite keep a write-ahead log (the journal is %q): use a local disk", mode)
	}
	if application == 0 {
		if err := s.setUp(ctx); err != nil {
			return err
		}
	}
	s.readers = make(chan *connection, readConnections)
	for range readConnections {
		r, err := newConnection(ctx, s.readerDB)
		if err != nil {
			return err
		}
		s.readers <- r
	}
	return nil
}

// identify makes sure that the file is a log of ours, or may become one: it
// returns 0 where it was not set up yet. It changes nothing.
func (s *Store) identify(ctx context.Context) (application int64, err error) {
	var version, tables int64
	for _, q := range []struct {
		query string
		into  *int64
	}{{"PRAGMA application_id", &application}, {"PRAGMA user_version", &version}, {"SELECT count(*) FROM sqlite_schema", &tables}} {
		if err := s.writer.conn.QueryRowContext(ctx, q.query).Scan(q.into); err != nil {
			return 0, err
		}
	}
	switch err := judge(application, version); {
	case err != nil:
		return 0, err
	case application == 0 && tables > 0:
		return 0, errForeign
	case application == 0 && s.cfg.MustExist:
		return 0, errors.New("there is no log in it yet: the file is empty")
	}
	return application, nil
}

// setUp makes the tables in one transaction, and the file's name durable. The
// checkpoint brings the header to where recognize looks.
func (s *Store) setUp(ctx context.Context) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := setUp(ctx, tx, s.cfg.Now(), s.actor()); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if _, _, err := checkpoint(s.writer, "TRUNCATE"); err != nil {
		return err
	}
	return feed.SyncDir(filepath.Dir(s.place.path))
}

// actor names this process in audit entries.
func (s *Store) actor() string {
	if s.cfg.Node == "" {
		return "gapless"
	}
	return s.cfg.Node
}

// askWitness compares the log with its witness. Where they differ it shuts
// the store or, with the guard off, takes the log as it is.
func (s *Store) askWitness(ctx context.Context, in instance) error {
	expected, cause, err := s.testimony(in, fenceIn(ctx, s.writer.conn))
	if err != nil {
		return err
	}
	if cause != "" {
		off := s.cfg.Guard == feed.GuardOff
		s.mu.Lock()
		s.strange = true
		if !off {
			s.tripped = cause
		}
		s.mu.Unlock()
		if off {
			return s.adopt(ctx, expected, cause)
		}
		return nil
	}
	// The log says that there is a witness after there is one: a process that is
	// killed in between leaves nothing that looks like a copy.
	if err := s.renewWitness(); err != nil {
		return err
	}
	if !in.witnessed {
		if err := s.transact(ctx, "sqlite", rules{sealed: true, audit: true}, func(_ *sql.Tx, in *instance) error {
			in.witnessed = true
			return nil
		}); err != nil {
			return err
		}
	}
	return s.settleFile(ctx, !in.witnessed)
}

// settleFile brings what was committed into the database file itself, so that
// a copy of that file alone says that it has a witness. Where it said so
// before, nothing depends on it, and a full disk keeps no store from opening.
func (s *Store) settleFile(ctx context.Context, first bool) error {
	if err := s.writing.take(ctx); err != nil {
		return err
	}
	defer s.writing.give()
	pages, copied, err := checkpoint(s.writer, "PASSIVE")
	if err == nil && copied < pages {
		err = errors.New("another program reads it")
	}
	switch {
	case err != nil && first:
		return fmt.Errorf("what was committed cannot be copied into the file: %w", err)
	case err != nil:
		s.cfg.Logger.Warn().Err(err).Str("file", s.place.path).Msg("checkpoint failed: the write-ahead log grows until one succeeds")
	}
	return nil
}

// adopt takes a log over that is not the one of the witness, and records it.
func (s *Store) adopt(ctx context.Context, expected, cause string) error {
	first := !s.committed().witnessed
	err := s.transact(ctx, "sqlite", rules{sealed: true, audit: true}, func(tx *sql.Tx, in *instance) error {
		s.cfg.Logger.Warn().Str("file", s.place.path).Str("expected", expected).Str("found", in.identity()).
			Msg("the guard is off, and takes this log over: " + cause)
		in.witnessed = true
		return addAudit(ctx, tx, s.cfg.Now(), s.actor(), feed.ActionAdopt, feed.Adopted{
			OldIdentity: expected, NewIdentity: in.identity(), Node: s.cfg.Node,
			HeadSeq: in.head.Seq, HeadFence: in.head.Fence,
		})
	})
	if err != nil {
		return err
	}
	if err := s.renewWitness(); err != nil {
		return err
	}
	return s.settleFile(ctx, first)
}
