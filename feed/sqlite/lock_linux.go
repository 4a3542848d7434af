package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks the file against other openers, in this process too, by an
// open file description lock (fcntl(2)): it belongs to the descriptor, and so
// outlives what else of this process opens and closes the file. It holds for
// the inode, so that links and bind mounts lead to the same lock. Where the
// file system has no such locks, a lock file beside it stands in, which then
// is returned.
func lockFile(f *os.File) (*os.File, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: lockOffset, Len: 1})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return lockBeside(f)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return nil, errLocked
	}
	return nil, err
}
