//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// names returns how many names the file has in its file system.
func names(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink) //nolint:unconvert // it is narrower on other systems
	}
	return 1
}

// lockBeside locks a file named after this one by flock(2). Not the file
// itself: on several systems such a lock keeps SQLite's own out.
func lockBeside(f *os.File) (*os.File, error) {
	lock, err := os.OpenFile(f.Name()+"-lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return lock, nil
	}
	lock.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errLocked
	}
	return nil, err
}
