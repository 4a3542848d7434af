package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Check implements [feed.Durable]. It reads the whole database, from one
// snapshot, beside running appends. The error has [feed.CodeUnavailable] and
// names the first findings.
func (s *Store) Check(ctx context.Context, progress func(done float64)) error {
	const op = "check"
	ctx, leave, err := s.long(ctx)
	if err != nil {
		return err
	}
	defer leave()
	snap, err := s.snapshot(ctx)
	if err == nil {
		defer snap.close()
		err = inspect(ctx, snap.conn, snap.in, share(progress, 0, 1))
	}
	return s.ended(ctx, op, err)
}

// mostFindings is how many findings an error names.
const mostFindings = 5

// findings collects what is wrong.
type findings struct {
	first []string
	n     int
}

func (f *findings) add(format string, args ...any) {
	if f.n++; len(f.first) < mostFindings {
		f.first = append(f.first, fmt.Sprintf(format, args...))
	}
}

// err is nil where nothing was found.
func (f *findings) err() error {
	switch {
	case f.n == 0:
		return nil
	case f.n > len(f.first):
		return damaged(fmt.Sprintf("%s; and %d more", strings.Join(f.first, "; "), f.n-len(f.first)))
	}
	return damaged(strings.Join(f.first, "; "))
}

// source is where rows are read from: a connection, or a transaction.
type source interface {
	queryer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// inspect looks for damage in the snapshot of a transaction: of the file's
// structure first, since nothing else means much where that is broken.
func inspect(ctx context.Context, src source, in instance, progress func(float64)) error {
	const structure = 0.4
	var found findings
	if err := inspectFile(ctx, src, &found); err != nil {
		return err
	}
	if found.n > 0 {
		return found.err()
	}
	progress(structure)
	if err := inspectLog(ctx, src, in, &found, share(progress, structure, 1-structure)); err != nil {
		return err
	}
	if err := inspectState(ctx, src, in, &found); err != nil {
		return err
	}
	if found.n == 0 {
		progress(1)
	}
	return found.err()
}

// inspectFile lets SQLite look at its pages and indexes.
func inspectFile(ctx context.Context, src source, found *findings) error {
	rows, err := src.QueryContext(ctx, "PRAGMA integrity_check")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		if line != "ok" {
			found.add("%s", line)
		}
	}
	return rows.Err()
}
