package sqlite

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"gapless/feed"
)

// VerifyBackup checks the backup in a directory, without changing a byte of
// it: its files against the manifest, the database for damage, its log for
// the rules of one, and its bounds against the manifest. It reports progress
// in [0, 1] where progress is not nil. The error has [feed.CodeInvalid] where
// the backup is not good, and is ctx's where that ended.
func VerifyBackup(ctx context.Context, dir string, progress func(done float64)) (feed.Manifest, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return feed.Manifest{}, err
	}
	m, err := feed.VerifyFiles(ctx, dir)
	if err != nil {
		return m, err
	}
	bad := func(msg string, err error) error {
		return &feed.Error{Code: feed.CodeInvalid, Op: "verify", Msg: msg, Err: err}
	}
	if m.Store != storeName {
		return m, bad(fmt.Sprintf("the backup is of a %q store, not of %q", m.Store, storeName), nil)
	}
	if len(m.Files) != 1 || m.Files[0].Name != BackupFile {
		return m, bad("the manifest has to name one file, "+BackupFile, nil)
	}
	const hashed = 0.2
	share(progress, 0, 1)(hashed)
	in, err := checkCopy(ctx, filepath.Join(dir, BackupFile), share(progress, hashed, 1-hashed))
	switch {
	case ctx.Err() != nil:
		return m, ctx.Err()
	case err != nil:
		return m, bad(BackupFile+" is not good", err)
	}
	if diff := differences(m, in); diff != "" {
		return m, bad("the log is not the one that the manifest describes: "+diff, nil)
	}
	if m.OldestSeq != in.oldest {
		return m, bad(fmt.Sprintf("the oldest event is %d in the manifest and %d in the log", m.OldestSeq, in.oldest), nil)
	}
	if m.Final && !in.sealed {
		return m, bad("the manifest is of a final backup, but the log was not sealed", nil)
	}
	return m, nil
}

// checkCopy opens a database that nobody writes, without locks or side files,
// looks for damage, and returns what its instance row says.
func checkCopy(ctx context.Context, path string, progress func(float64)) (instance, error) {
	snap, err := openSnapshot(ctx, fileURI(path, url.Values{"mode": {"ro"}, "immutable": {"1"}}))
	if err != nil {
		return instance{}, err
	}
	defer snap.close()
	return snap.in, inspect(ctx, snap.conn, snap.in, progress)
}
