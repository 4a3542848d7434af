package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// Bounds of the pause between two attempts; full jitter draws from 0 up to a
// window that doubles from the first to the last.
const (
	retryWindow    = 200 * time.Millisecond
	retryWindowMax = 5 * time.Second
)

// retrier repeats what failed for a reason that may pass: the network, or an
// answer that asks to come back.
type retrier struct {
	limit  time.Duration // 0: one attempt only
	notice io.Writer     // hears of the first failure of each request
}

// do calls attempt until it succeeds, fails for good, or the limit is
// reached; the error is then the last one.
func (r *retrier) do(ctx context.Context, attempt func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	for window := retryWindow; ; window = min(2*window, retryWindowMax) {
		err := attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errInterrupted
		case r.limit == 0 || !passing(err):
			return err
		}
		if window == retryWindow {
			fmt.Fprintf(r.notice, "gapless: %v; retrying for up to %v\n", err, r.limit)
		}
		pause := rand.N(window)
		if answer := (*apiError)(nil); errors.As(err, &answer) {
			pause += answer.retryAfter
		}
		select {
		case <-bounded.Done():
			if ctx.Err() != nil {
				return errInterrupted
			}
			return err
		case <-time.After(pause):
		}
	}
}

// passing reports whether the same request may succeed later.
func passing(err error) bool {
	if answer := (*apiError)(nil); errors.As(err, &answer) {
		return slices.Contains([]int{
			http.StatusRequestTimeout, http.StatusTooManyRequests,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		}, answer.status)
	}
	failed := (*exitError)(nil)
	return errors.As(err, &failed) && failed.code == exitUnavailable
}
