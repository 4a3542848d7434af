package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gapless/feed"
)

// target is the directory of a backup that is being made.
type target struct {
	dir   string // absolute
	made  bool   // it is new
	files []string
}

// newTarget makes a directory, or makes sure that there is nothing in it.
func newTarget(dir string) (*target, error) {
	const op = "backup"
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, unavailable(op, "the directory cannot be named", err)
	}
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, unavailable(op, "the directory cannot be made", err)
		}
		return &target{dir: path, made: true}, nil
	case err != nil:
		return nil, &feed.Error{Code: feed.CodeInvalid, Op: op, Msg: "name a directory", Err: err}
	case len(entries) > 0:
		return nil, conflict(op, fmt.Sprintf("%s is not empty, it has %s: name a new directory", path, entries[0].Name()))
	}
	return &target{dir: path}, nil
}

// create makes a new file of mode 0600, since it will hold what was
// published, and secrets; it fails where there is one. It returns its path.
func (t *target) create(name string) (path string, err error) {
	path = filepath.Join(t.dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	t.files = append(t.files, path)
	return path, f.Close()
}

// write writes the manifest, unless somebody else has put one there.
func (t *target) write(m feed.Manifest) error {
	if _, err := t.create(feed.ManifestName); err != nil {
		return err
	}
	return m.Write(t.dir)
}

// discard removes what was made of a backup that failed, and nothing else.
func (t *target) discard() {
	for _, path := range t.files {
		_ = os.Remove(path)
	}
	if t.made {
		_ = os.Remove(t.dir) // where it is empty
	}
}
