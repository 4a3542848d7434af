package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"

	driverlib "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"gapless/feed"
)

// BackupFile is the database's name in a backup's directory.
const BackupFile = "gapless.db"

// backupPages is how much is copied between two looks at the context.
const backupPages = 256

// Shares of a backup's progress.
const (
	copyShare  = 0.6
	checkShare = 0.3 // the checksum has the rest
)

// Backup implements [feed.Durable]. The copy is one snapshot of the log,
// taken beside running appends: they do not wait for it, though the
// write-ahead log grows until it is done. It is compared with the rules of
// the log before its manifest is written.
//
// The directory has to be empty or new. Where the backup fails, what it wrote
// is removed; a seal stays, and the error says so. A store whose guard is
// tripped can be copied, though not finally.
func (s *Store) Backup(ctx context.Context, dir string, opts feed.BackupOptions) (feed.Manifest, error) {
	const op = "backup"
	ctx, leave, err := s.long(ctx)
	if err != nil {
		return feed.Manifest{}, err
	}
	defer leave()
	target, err := newTarget(dir)
	if err != nil {
		return feed.Manifest{}, err
	}
	m, err := s.sealAndCopy(ctx, op, target, opts)
	if err != nil {
		target.discard()
		return feed.Manifest{}, err
	}
	err = s.transact(context.WithoutCancel(ctx), op, rules{anyway: true, sealed: true, audit: true}, func(tx *sql.Tx, _ *instance) error {
		return addAudit(context.Background(), tx, s.cfg.Now(), opts.Actor, feed.ActionBackup, m)
	})
	if err != nil { // a full disk must not cost the copy that was made because of it
		s.cfg.Logger.Warn().Err(err).Str("dir", target.dir).Msg("the backup is complete, but its audit entry could not be stored")
	}
	if opts.Progress != nil {
		opts.Progress(1)
	}
	return m, nil
}

func (s *Store) sealAndCopy(ctx context.Context, op string, target *target, opts feed.BackupOptions) (feed.Manifest, error) {
	if opts.Final {
		if err := s.seal(ctx, op, opts.Actor); err != nil {
			return feed.Manifest{}, err
		}
	}
	m, err := s.copyInto(ctx, target, opts)
	if err = s.ended(ctx, op, err); err != nil && opts.Final && feed.CodeOf(err) != feed.CodeConflict {
		err = &feed.Error{
			Code: feed.CodeOf(err), Op: op, Err: err,
			Msg: "the store stays sealed: make the final backup again, or open it for appends with `gapless restore finalize`",
		}
	}
	return m, err
}

// seal ends appends in one transaction. It fails where the guard is tripped:
// a copy of such a log is no proof that nothing was lost.
func (s *Store) seal(ctx context.Context, op, actor string) error {
	// It counts its change itself: sealing again, as a second final backup beside
	// the first does, is none.
	return s.transact(ctx, op, rules{anyway: true, sealed: true, audit: true}, func(tx *sql.Tx, in *instance) error {
		if cause := s.guardCause(); cause != "" {
			return &feed.Error{Code: feed.CodeRestoreNotFinalized, Op: op, Msg: "no final backup can be made before the restore is settled: " + cause}
		}
		if in.sealed {
			return nil
		}
		in.sealed = true
		in.changes++
		return addAudit(context.Background(), tx, s.cfg.Now(), actor, feed.ActionSeal, struct {
			Epoch     feed.Epoch `json:"epoch"`
			HeadSeq   uint64     `json:"head_seq"`
			HeadFence feed.Fence `json:"head_fence"`
		}{in.epoch, in.head.Seq, in.head.Fence})
	})
}

// copyInto makes the copy, checks it, and writes its manifest.
func (s *Store) copyInto(ctx context.Context, target *target, opts feed.BackupOptions) (feed.Manifest, error) {
	path := filepath.Join(target.dir, BackupFile)
	if err := s.copyTo(ctx, target, share(opts.Progress, 0, copyShare)); err != nil {
		return feed.Manifest{}, err
	}
	if err := syncFile(path); err != nil {
		return feed.Manifest{}, err
	}
	in, err := checkCopy(ctx, path, share(opts.Progress, copyShare, checkShare))
	if err != nil {
		return feed.Manifest{}, fileError("backup", path, err)
	}
	file, err := feed.HashFile(ctx, target.dir, BackupFile)
	if err != nil {
		return feed.Manifest{}, err
	}
	m := feed.Manifest{
		Format: feed.ManifestFormat, Store: storeName, Epoch: in.epoch,
		OldestSeq: in.oldest, HeadSeq: in.head.Seq, HeadFence: in.head.Fence,
		Identity: in.identity(), Final: opts.Final, Time: microTime(s.micros()),
		Files: []feed.ManifestFile{file},
	}
	if opts.Final {
		err = s.writeFinal(ctx, target, m, in)
	} else {
		err = target.write(m)
	}
	if err != nil {
		return feed.Manifest{}, err
	}
	return m, feed.SyncDir(filepath.Dir(target.dir)) // the directory may be new
}

// writeFinal writes the manifest of a final backup, while nothing else can
// change the store, if the store is still what was copied. What somebody
// finalizes later is of another epoch than the copy.
func (s *Store) writeFinal(ctx context.Context, target *target, m feed.Manifest, copied instance) error {
	if err := s.writing.take(ctx); err != nil {
		return err
	}
	defer s.writing.give()
	if err := s.ready("backup", true); err != nil {
		return err
	}
	now := s.committed()
	if !copied.sealed || !now.sealed || now.changes != copied.changes || now.cursor() != copied.cursor() {
		return conflict("backup", "the seal was taken away before the backup was complete: make the final backup again")
	}
	return target.write(m)
}

// copyTo copies the database, as it is in one snapshot, into a new file. The
// snapshot matters: without a read transaction around the steps each commit
// of the writer starts the copy again, for ever under steady appends.
func (s *Store) copyTo(ctx context.Context, target *target, progress func(float64)) error {
	snap, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	defer snap.close()
	path, err := target.create(BackupFile)
	if err != nil {
		return err
	}
	err = snap.conn.Raw(func(c any) error {
		copier, err := c.(interface {
			NewBackup(uri string) (*driverlib.Backup, error)
		}).NewBackup(fileURI(path, url.Values{"_pragma": {"journal_mode(OFF)", "synchronous(OFF)"}}))
		if err != nil {
			return err
		}
		err = step(ctx, copier, progress)
		return errors.Join(err, copier.Finish())
	})
	if hasCode(err, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) { // of the two files, the one that is written
		return fileError("backup", path, err)
	}
	return err
}

func step(ctx context.Context, copier *driverlib.Backup, progress func(float64)) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		more, err := copier.Step(backupPages)
		if err != nil || !more {
			return err
		}
		progress(1 - float64(copier.Remaining())/float64(max(copier.PageCount(), 1)))
	}
}

// syncFile makes a file's content durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// share is progress inside a part of the whole; never nil.
func share(progress func(float64), from, width float64) func(float64) {
	return func(done float64) {
		if progress != nil {
			progress(from + width*done)
		}
	}
}
