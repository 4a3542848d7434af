package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errLocked is the verdict of lockFile where somebody else holds the lock.
var errLocked = errors.New("locked")

// lockOffset is the byte that is locked: far behind SQLite's own lock bytes
// (at 1 GiB) and behind what any file system lets a file grow to.
const lockOffset = 1 << 62

// place is the database file, held by this process and no other.
type place struct {
	path string // absolute, without symbolic links
	// file is ours, for its lock: nothing is read or written through it but the
	// header at Open. It is closed after SQLite's own descriptors: on a file
	// system without OFD locks, closing any descriptor of a file drops every
	// lock that this process has on it.
	file *os.File
	lock *os.File    // a lock file, where the file system needs one; else nil
	info os.FileInfo // of file
	wal  os.FileInfo // of the write-ahead log; nil: not looked at yet
}

// openPlace opens the file, makes it unless it must exist, and locks it.
func openPlace(path string, mustExist bool) (place, error) {
	path, err := resolve(path)
	if err != nil {
		return place{}, err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return place{}, fmt.Errorf("%s is a %s: name a file, which may be new", path, kind(info))
	}
	flags := os.O_RDWR
	if !mustExist {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(path, flags, 0o600)
	switch {
	case errors.Is(err, os.ErrNotExist) && mustExist:
		return place{}, fmt.Errorf("there is no %s", path)
	case errors.Is(err, os.ErrNotExist):
		return place{}, fmt.Errorf("%s cannot be made: there is no directory %s", path, filepath.Dir(path))
	case errors.Is(err, os.ErrPermission):
		return place{}, fmt.Errorf("%s cannot be opened: the file and its directory must be writable for this user: %w", path, err)
	case err != nil:
		return place{}, err
	}
	p := place{path: path, file: file}
	if p.lock, err = lockFile(file); err != nil {
		file.Close()
		if errors.Is(err, errLocked) {
			err = fmt.Errorf("%s is in use: another gapless has it open; stop that one first, or ask it by --url", path)
		}
		return place{}, err
	}
	if p.info, err = file.Stat(); err == nil {
		err = p.check() // it may have been replaced before the lock was ours
	}
	if err == nil && names(p.info) > 1 {
		// What one name's write-ahead log holds is not there by the other.
		err = fmt.Errorf("%s has another name, a hard link: the log's newest events are in a file that is called after one of them; remove the other name", path)
	}
	if err != nil {
		_ = p.release() // nothing was done with it; err says why
		return place{}, err
	}
	return p, nil
}

// resolve returns the path by which SQLite knows the file too: the files
// beside it are named after it.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s cannot be made: there is no directory %s", path, filepath.Dir(path))
	}
	return filepath.Join(dir, filepath.Base(path)), err
}

func kind(info os.FileInfo) string {
	if info.IsDir() {
		return "directory"
	}
	return "special file"
}

// check looks whether the path still leads to the file that is open. What is
// written to a deleted or replaced file is lost when the process ends, so
// nothing may be acknowledged any more.
func (p *place) check() error {
	for _, f := range []struct {
		path string
		ours os.FileInfo
	}{{p.path, p.info}, {p.path + "-wal", p.wal}} {
		if f.ours == nil {
			continue
		}
		now, err := os.Stat(f.path)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s was deleted while it was in use: nothing more is taken; stop the server, put the file back, and start it again", f.path)
		} else if err != nil {
			return err
		}
		if !os.SameFile(now, f.ours) {
			return fmt.Errorf("%s was replaced while it was in use: nothing more is taken; restart the server to open what is there now", f.path)
		}
	}
	return nil
}

// unclean reports whether the last process that had the file open left a
// write-ahead log. SQLite must not have opened the file yet.
func (p *place) unclean() bool {
	info, err := os.Stat(p.path + "-wal")
	return err == nil && info.Size() > 0
}

// watchWAL begins to check the write-ahead log too.
func (p *place) watchWAL() error {
	info, err := os.Stat(p.path + "-wal")
	if err == nil {
		p.wal = info
	}
	return err
}

// release gives the lock up, and the file with it.
func (p *place) release() error {
	err := p.file.Close()
	if p.lock != nil {
		err = errors.Join(err, p.lock.Close())
	}
	return err
}
