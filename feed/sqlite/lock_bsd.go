//go:build unix && !linux

package sqlite

import "os"

// lockFile locks the file against other openers that name it by this path.
func lockFile(f *os.File) (*os.File, error) { return lockBeside(f) }
