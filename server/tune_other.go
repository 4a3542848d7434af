//go:build !linux

package server

import (
	"net"
	"time"
)

// tune leaves the connection as it is: what bounds a silent peer is then the
// write deadline alone.
func tune(*net.TCPConn, time.Duration) error { return nil }

// unacknowledged cannot be told: a write deadline is then final.
func unacknowledged(*net.TCPConn) (int64, bool) { return 0, false }
