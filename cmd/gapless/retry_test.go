package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func unreachable() error { return &exitError{exitUnavailable, errors.New("refused")} }

func TestRetryGoesOnUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notice strings.Builder
		attempts := 0
		err := (&retrier{limit: time.Minute, notice: &notice}).do(t.Context(), func(context.Context) error {
			attempts++
			switch attempts {
			case 1:
				return unreachable()
			case 2:
				return &apiError{status: http.StatusTooManyRequests}
			case 3:
				return &apiError{status: http.StatusServiceUnavailable}
			}
			return nil
		})
		if err != nil || attempts != 4 {
			t.Errorf("%d attempts, %v", attempts, err)
		}
		if strings.Count(notice.String(), "\n") != 1 || !strings.Contains(notice.String(), "retrying for up to 1m0s") {
			t.Errorf("notice: %q", notice.String())
		}
	})
}

func TestRetryEndsAtItsLimitWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		want := unreachable()
		attempts := 0
		err := (&retrier{limit: time.Minute, notice: io.Discard}).do(t.Context(), func(context.Context) error {
			attempts++
			return want
		})
		if err != want || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if attempts < 12 {
			t.Errorf("only %d attempts in a minute", attempts)
		}
	})
}

func TestRetryWaitsAsLongAsItIsAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		err := (&retrier{limit: time.Minute, notice: io.Discard}).do(t.Context(), func(context.Context) error {
			if at = append(at, time.Now()); len(at) == 1 {
				return &apiError{status: http.StatusTooManyRequests, retryAfter: 7 * time.Second}
			}
			return nil
		})
		if err != nil || len(at) != 2 {
			t.Fatalf("%d attempts, %v", len(at), err)
		}
		if pause := at[1].Sub(at[0]); pause < 7*time.Second || pause > 8*time.Second {
			t.Errorf("came back after %v, asked for 7s", pause)
		}
	})
}

func TestRetryLeavesAloneWhatIsRefusedOrEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		refused := &apiError{status: http.StatusBadRequest}
		retry := &retrier{limit: time.Minute, notice: io.Discard}
		if err := retry.do(t.Context(), func(context.Context) error { attempts++; return refused }); err != refused || attempts != 1 {
			t.Errorf("a refusal: %d attempts, %v", attempts, err)
		}
		attempts = 0
		once := &retrier{notice: io.Discard}
		if err := once.do(t.Context(), func(context.Context) error { attempts++; return unreachable() }); attempts != 1 || err == nil {
			t.Errorf("without a limit: %d attempts, %v", attempts, err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		var notice strings.Builder
		talkative := &retrier{limit: time.Minute, notice: &notice}
		err := talkative.do(cancelled, func(ctx context.Context) error { cancel(); return unreachable() })
		if !errors.Is(err, errInterrupted) || notice.Len() > 0 {
			t.Errorf("an interrupt during an attempt: %v, %q", err, notice.String())
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			time.Sleep(10 * time.Second)
			stop()
		}()
		begin := time.Now()
		err = retry.do(ctx, func(context.Context) error { return unreachable() })
		if !errors.Is(err, errInterrupted) || time.Since(begin) != 10*time.Second {
			t.Errorf("an interrupt: %v after %v", err, time.Since(begin))
		}
	})
}
