package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gapless/feed"
	"gapless/feed/sqlite"
)

type backupVerifyCommand struct {
	Dir string `arg:"" help:"The directory of a backup."`
}

// Help implements [kong.HelpProvider].
func (*backupVerifyCommand) Help() string {
	return `Compares every file with the manifest's checksums. A copy of SQLite is opened too, without changing it, and read as gapless check would. Of PostgreSQL, the dump itself is for PostgreSQL's own tools (pg_verifybackup, pg_restore --list).

Exit code 0: the backup is whole; 1: it is not.

Example:
  gapless backup verify /var/backups/gapless/monday`
}

// Run verifies.
func (c *backupVerifyCommand) Run(ctx context.Context, con *console) error {
	progress := newShare(con, "verifying")
	manifest, err := verifyBackup(ctx, c.Dir, progress.set)
	progress.end()
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return fmt.Errorf("%s: %w", printable(c.Dir), err)
	}
	final := ""
	if manifest.Final {
		final = ", final"
	}
	_, err = fmt.Fprintf(con.out, "the backup is whole: %s store, epoch %s, seq %d to %d, of %s%s\n",
		printable(manifest.Store), manifest.Epoch, manifest.OldestSeq, manifest.HeadSeq, manifest.Time.Format("2006-01-02 15:04:05 MST"), final)
	return err
}

// verifyBackup looks as deep as the store's kind allows.
func verifyBackup(ctx context.Context, dir string, progress func(float64)) (feed.Manifest, error) {
	manifest, err := readManifest(dir)
	if err == nil && manifest.Store == string(storeSQLite) {
		return sqlite.VerifyBackup(ctx, dir, progress)
	}
	if err != nil {
		return manifest, err
	}
	return feed.VerifyFiles(ctx, dir)
}

// readManifest reads the manifest of a directory, or a manifest's file. A
// backup writes it last.
func readManifest(path string) (feed.Manifest, error) {
	manifest, err := feed.ReadManifest(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return manifest, err
	}
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		err = fmt.Errorf("there is no %s in it: this is no backup, or one that was not finished", feed.ManifestName)
	}
	return manifest, err
}
