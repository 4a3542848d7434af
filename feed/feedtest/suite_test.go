package feedtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"gapless/feed"
	"gapless/feed/feedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTheFaultyLogWithoutFaultsConforms: what it is told to do wrong is all
// that it does wrong.
func TestTheFaultyLogWithoutFaultsConforms(t *testing.T) {
	feedtest.Run(t, func(t *testing.T, cfg feedtest.Config) feed.Log {
		return feedtest.NewLog(int(cfg.Retention.Events))
	}, feedtest.LacksClock, feedtest.LacksExpiry, feedtest.LacksByteBound, feedtest.LacksAgeBound)
}

// TestTheFaultyLogIsShutAndSealed: as a store is whose restore was not
// finalized, and one that was backed up for the last time.
func TestTheFaultyLogIsShutAndSealed(t *testing.T) {
	log := feedtest.NewLog(0)
	draft := []feed.Draft{{ID: "a", Type: "made", Topic: "t", Data: json.RawMessage("1")}}
	receipt, err := log.Append(t.Context(), draft)
	if err != nil {
		t.Fatal(err)
	}
	page, err := log.Read(t.Context(), 1, feed.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	head := feed.Cursor{Epoch: receipt.Epoch, Position: page.Head}
	calls := map[string]func() error{
		"append": func() error { _, err := log.Append(t.Context(), draft); return err },
		"read":   func() error { _, err := log.Read(t.Context(), 0, feed.Limit{}); return err },
		"search": func() error { _, err := log.Search(t.Context(), feed.Search{N: 1}); return err },
		"wait":   func() error { return log.Wait(t.Context(), feed.Cursor{}) },
		"trim":   func() error { return log.Trim(t.Context()) },
	}
	want := func(code func(name string) feed.Code) {
		t.Helper()
		for name, call := range calls {
			if err := call(); err == nil != (code(name) == "") || err != nil && feed.CodeOf(err) != code(name) {
				t.Errorf("%s: %v, want an error of code %q", name, err, code(name))
			}
		}
	}
	served := func(string) feed.Code { return "" }
	want(served)

	log.Seal(true)
	want(func(name string) feed.Code {
		if name == "append" {
			return feed.CodeSealed
		}
		return ""
	})
	log.Seal(false)
	want(served)

	answer := make(chan error)
	go func() { answer <- log.Wait(t.Context(), head) }()
	log.Shut(true)
	if err := <-answer; feed.CodeOf(err) != feed.CodeRestoreNotFinalized {
		t.Errorf("a wait that was on: %v", err)
	}
	want(func(string) feed.Code { return feed.CodeRestoreNotFinalized })
	log.Shut(false)
	want(served)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := log.Wait(ctx, head); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait at the head: %v", err)
	}
}
