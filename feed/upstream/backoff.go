package upstream

import (
	"net/http"
	"strconv"
	"time"
)

// backoff decides how long to wait between connections. One goroutine uses it.
//
// A wait is the server's floor plus full jitter: an even choice from a window that starts at base and doubles
// up to limit. The jitter comes on top of the floor, so that clients which were all told the same floor
// do not all come back at the same moment.
//
// After a settled connection the window of the one wait is half the floor, for then the server has spread its clients
// itself. A floor below an eighth of base is too small to pace anything: the window is base then.
type backoff struct {
	base, limit, maxFloor, stable time.Duration
	jitter                        func(time.Duration) time.Duration

	window time.Duration // of the next wait; 0 before the first
	retry  time.Duration // the server's retry field; outlives connections
}

// next returns the wait after a connection that ended as out says.
func (b *backoff) next(out outcome) time.Duration {
	if b.window == 0 || out.open >= b.stable || out.settled {
		b.window = b.base
	}
	if out.retry != unset {
		b.retry = out.retry
	}
	floor := min(max(b.retry, out.retryAfter), b.maxFloor)
	if out.settled && floor > 0 && floor >= b.base/8 {
		half := floor / 2
		return floor + min(max(b.jitter(half), 0), half)
	}
	wait := floor + min(max(b.jitter(b.window), 0), b.window)
	b.window = min(2*b.window, b.limit)
	return wait
}

// unset marks a retry field that was not sent: 0 is a value.
const unset time.Duration = -1

// maxWait is where the times that servers ask for are cut, so that no sum of them overflows.
const maxWait = 365 * 24 * time.Hour

// parseRetry reads a retry field's value: ASCII digits, milliseconds. ok is false for anything else, which the
// standard ignores.
func parseRetry(value []byte) (retry time.Duration, ok bool) {
	if len(value) == 0 {
		return 0, false
	}
	const most = uint64(maxWait / time.Millisecond)
	var ms uint64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		ms = min(ms*10+uint64(c-'0'), most)
	}
	return time.Duration(ms) * time.Millisecond, true
}

// parseRetryAfter reads a Retry-After header: seconds or a date (RFC 9110, section 10.2.3). 0 if there is
// none, or none that can be read.
func parseRetryAfter(value string, now time.Time) time.Duration {
	if secs, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(secs, uint64(maxWait/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxWait)
	}
	return 0
}
