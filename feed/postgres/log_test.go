//go:build linux && e2e

package postgres

import (
	"testing"

	"gapless/feed"
	"gapless/feed/feedtest"
)

func TestConformance(t *testing.T) {
	feedtest.Run(t, func(t *testing.T, cfg feedtest.Config) feed.Log {
		return openStore(t, Config{URL: database(t), Retention: cfg.Retention, DedupeWindow: cfg.DedupeWindow})
	}, feedtest.LacksClock)
}
