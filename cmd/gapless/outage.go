package main

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"gapless/feed/upstream"
)

// waiting tells, in every format, that the stream is away and when it comes
// back: what is in a pipe may come late for it.
func (p *printer) waiting(cause error, delay time.Duration) {
	text := "connection ended"
	if cause != nil {
		text = "connection lost (" + printable(outage(cause)) + ")"
	}
	// A stderr that takes nothing is no reason to end the output.
	_ = p.notice(fmt.Sprintf("%s; coming back in %.1f s", text, delay.Seconds()))
}

// outage says in few words why a connection failed.
func outage(cause error) string {
	if refused := (*upstream.ResponseError)(nil); errors.As(cause, &refused) {
		if refused.Detail != "" {
			return fmt.Sprintf("answered %d: %s", refused.Status, refused.Detail)
		}
		return fmt.Sprintf("answered %d", refused.Status)
	}
	if errno := syscall.Errno(0); errors.As(cause, &errno) {
		return errno.Error()
	}
	if errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) {
		return "it was cut off"
	}
	return cause.Error()
}
