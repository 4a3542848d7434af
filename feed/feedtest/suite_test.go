package feedtest_test

import (
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
