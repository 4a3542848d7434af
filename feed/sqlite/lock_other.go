//go:build !unix

package sqlite

import (
	"errors"
	"os"
)

// names returns how many names the file has: not known here.
func names(os.FileInfo) uint64 { return 1 }

// lockFile would lock the file against other openers.
func lockFile(*os.File) (*os.File, error) {
	return nil, errors.New("the SQLite store is not supported on this system: nothing keeps two servers from one file")
}
