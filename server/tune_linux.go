package server

import (
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tune sets when the kernel gives up a peer that acknowledges nothing
// (TCP_USER_TIMEOUT).
func tune(c *net.TCPConn, silence time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	ms := int(min(silence.Milliseconds(), math.MaxInt32))
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
	})
	if err != nil {
		return err
	}
	return set
}

// unacknowledged returns how many bytes the kernel holds that the peer has
// not acknowledged (SIOCOUTQ), and whether that could be told.
func unacknowledged(c *net.TCPConn) (int64, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	n := 0
	var asked error
	err = raw.Control(func(fd uintptr) { n, asked = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return int64(n), err == nil && asked == nil
}
