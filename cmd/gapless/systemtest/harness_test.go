//go:build linux

// Package systemtest_test builds the gapless program and drives it from outside, over loopback: slow readers,
// crashes, exhausted descriptors, peers that vanish. What clients saw is judged by package lawtest.
//
// With GAPLESS_LONG=1 the tests run at the sizes and times that their comments call the full ones.
package systemtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds every single wait. It is only ever reached by a failure.
const patience = 2 * time.Minute

// binary is the program under test; TestMain builds it before any test runs, and nothing changes it after.
var binary string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemtest:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	work, err := os.MkdirTemp("", "gapless-system-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	binary = filepath.Join(work, "gapless")
	build := exec.Command("go", "build", "-o", binary, "gapless/cmd/gapless")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building gapless: %w\n%s", err, out)
	}
	code := m.Run()
	if code == 0 {
		err = goleak.Find()
	}
	return code, err
}

// long reports whether the checks at full size were asked for.
func long() bool { return os.Getenv("GAPLESS_LONG") == "1" }

// scaled is the first value, or with GAPLESS_LONG=1 the second.
func scaled[T any](short, full T) T {
	if long() {
		return full
	}
	return short
}

// eventually polls until ok is true, and fails the test where that takes longer than patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		if !pause(ctx, 20*time.Millisecond) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// pause lets real time pass, where that is what a client does. It reports whether ctx is still good.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// bounded is the test's context with an end, for clients that might otherwise wait for ever.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), scaled(patience, 10*time.Minute))
	t.Cleanup(cancel)
	return ctx
}
