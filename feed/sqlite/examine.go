package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"

	sqlite3 "modernc.org/sqlite/lib"
)

// headerBytes is how much of SQLite's header is looked at.
const headerBytes = 100

// recognize looks at the file's header before SQLite does, and refuses what
// is no log of ours, or of a version that this code does not know. Nothing is
// changed. A new file is empty.
func (p *place) recognize() error {
	header := make([]byte, headerBytes)
	n, err := p.file.ReadAt(header, 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case n < headerBytes || string(header[:16]) != "SQLite format 3\x00":
		return errors.New("the file is no SQLite database, or is damaged: name another path, or restore a backup")
	}
	return judge(int64(binary.BigEndian.Uint32(header[68:])), int64(binary.BigEndian.Uint32(header[60:])))
}

// judge says whether a header's application and version are ours. Both are 0
// in a database that was not set up yet, or is somebody else's.
func judge(application, version int64) error {
	switch {
	case application == 0 && version == 0:
		return nil
	case application != applicationID:
		return errForeign
	case version > schemaVersion:
		return fmt.Errorf("the file was written by a newer gapless: its schema has version %d, and this one knows %d: upgrade", version, schemaVersion)
	case version < schemaVersion:
		return fmt.Errorf("the file has schema version %d, which no release has written: restore a backup", version)
	}
	return nil
}

var errForeign = errors.New("the file is the database of another program: name another path")

// examine checks, at the ends of the log, that its tables belong together.
func examine(ctx context.Context, q queryer, in instance) error {
	var first, last sql.Null[uint64]
	var fence sql.Null[string]
	err := q.QueryRowContext(ctx, `SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events),
		(SELECT fence FROM events ORDER BY seq DESC LIMIT 1)`).Scan(&first, &last, &fence)
	if err != nil {
		return err
	}
	sound := in.oldest > 0 && in.oldest <= in.head.Seq+1 && in.head.Fence.Known() == (in.head.Seq > 0)
	if in.events() > 0 {
		sound = sound && first.V == in.oldest && last.V == in.head.Seq && fence.V == in.head.Fence.String()
	} else {
		sound = sound && !first.Valid
	}
	if !sound {
		return fmt.Errorf("its tables contradict each other (events %d to %d are said to be there, events %d to %d are): the file is damaged: restore a backup, or look closer with `gapless check`",
			in.oldest, in.head.Seq, first.V, last.V)
	}
	return nil
}

var errMixture = errors.New("the file and its -wal file do not belong together: either an older copy was put in place beside the -wal of another run, or the disk is damaged; " +
	"move the -wal and -shm files away (do not delete them: they may hold the newest events), and put the copy, or a backup, in place again")

// examineLeft examines what a process left that did not close the file. It
// does so on a connection that cannot write, before there is any that can:
// the last of those to close copies the write-ahead log into the file and
// removes it, so that a mixture would be all that is left. The error of a
// mixture is, or wraps, [errMixture].
func (s *Store) examineLeft(ctx context.Context) error {
	s.cfg.Logger.Info().Str("file", s.place.path).Msg("the last process did not close the file: examining all of it, which takes about a second for a million events")
	var snap *snapshot
	err := patiently(ctx, func() (err error) {
		snap, err = openSnapshot(ctx, fileURI(s.place.path, url.Values{
			"mode": {"ro"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout), "temp_store(MEMORY)"},
		}))
		return err
	})
	if errors.Is(err, errNoLog) {
		return nil // it was not set up yet, or is refused later
	}
	if err == nil {
		defer snap.close()
		err = examine(ctx, snap.conn, snap.in)
	}
	if err == nil {
		err = examineWhole(ctx, snap.conn, snap.in)
	}
	if hasCode(err, sqlite3.SQLITE_CORRUPT) {
		err = fmt.Errorf("%w: %w", errMixture, err)
	}
	return err
}

// examineWhole counts the events, and adds their seqs up, by their table and
// by the index of topics, after a stop that left a write-ahead log. SQLite
// applies that log to whatever file has the name, so another copy of the
// database put in its place comes out as a mixture of both, of which table or
// index may lack events (https://sqlite.org/howtocorrupt.html). It reads both
// whole: about a second for a million events.
func examineWhole(ctx context.Context, q queryer, in instance) error {
	n := int64(in.events())
	for what, query := range map[string]string{
		"table": `SELECT count(*), coalesce(sum(seq - ?), 0) FROM events NOT INDEXED`,
		"index": `SELECT count(*), coalesce(sum(seq - ?), 0) FROM events INDEXED BY events_topic`,
	} {
		var events, sum int64
		if err := q.QueryRowContext(ctx, query, int64(in.oldest)).Scan(&events, &sum); err != nil {
			return err
		}
		if events != n || sum != n*(max(n, 1)-1)/2 {
			return fmt.Errorf("%w: its %s does not list the events %d to %d", errMixture, what, in.oldest, in.head.Seq)
		}
	}
	return nil
}
