package sqlite

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gapless/feed"
	"gapless/feed/feedtest"
)

func TestState(t *testing.T) {
	feedtest.RunState(t, func(t *testing.T, cfg feedtest.Config) feed.Store {
		store, err := openFor(t, filepath.Join(t.TempDir(), "gapless.db"), cfg)
		must(t, err)
		return store
	})
}

func openFor(t *testing.T, path string, cfg feedtest.Config) (*Store, error) {
	return Open(t.Context(), Config{Path: path, Retention: cfg.Retention, DedupeWindow: cfg.DedupeWindow, Now: cfg.Now})
}

func TestDurable(t *testing.T) {
	dir := t.TempDir()
	path := func(place string) string { return filepath.Join(dir, place) }
	open := func(t *testing.T, place string, cfg feedtest.Config) (feed.Durable, error) {
		store, err := openFor(t, path(place), cfg)
		if err != nil {
			return nil, err // not a nil *Store in an interface
		}
		return store, nil
	}
	feedtest.RunDurable(t, open, feedtest.Hands{
		Disturb: func(t *testing.T, place string) {
			must(t, os.Remove(path(place)+WitnessSuffix))
		},
		SetCursor: func(t *testing.T, place, kind, name string, at feed.Cursor) {
			db, err := sql.Open("sqlite", path(place))
			must(t, err)
			defer db.Close()
			for _, h := range holders() {
				if h.kind == kind {
					_, err := db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s SET epoch = ?, seq = ?, fence = ? WHERE %s = ?", h.table, h.key),
						string(at.Epoch), int64(at.Seq), at.Fence.String(), name)
					must(t, err)
				}
			}
		},
	}, feedtest.LacksSharing)
}
