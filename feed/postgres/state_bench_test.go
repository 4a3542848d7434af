//go:build linux && e2e

package postgres

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"gapless/feed"
)

// BenchmarkMoveConsumer moves the cursors of 16 consumers at once, while 16
// publishers append one event a call: what the moves cost the appends is in
// the ratio.
func BenchmarkMoveConsumer(b *testing.B) {
	const consumers, publishers = 16, 16
	s := openStore(b, Config{URL: durable(b), MaxConns: 12})
	appendMany := func() uint64 {
		receipt, err := s.Append(b.Context(), []feed.Draft{draft(feed.NewFence().String(), 512)})
		if err != nil {
			b.Error(err)
			return 0
		}
		return receipt.Events[0].Seq
	}
	appendMany()
	page, err := s.Read(b.Context(), 0, feed.Limit{})
	if err != nil {
		b.Fatal(err)
	}
	start := feed.Cursor{Epoch: page.Epoch, Position: page.Head}
	for i := range consumers {
		if err := s.CreateConsumer(b.Context(), feed.Consumer{Name: fmt.Sprint(i), Cursor: start}); err != nil {
			b.Fatal(err)
		}
	}
	var stop atomic.Bool
	var appended, left atomic.Int64
	left.Store(int64(b.N))
	var publishing, moving sync.WaitGroup
	b.ResetTimer()
	for range publishers {
		publishing.Go(func() {
			for !stop.Load() && appendMany() > 0 {
				appended.Add(1)
			}
		})
	}
	for i := range consumers {
		moving.Go(func() {
			for at := start; left.Add(-1) >= 0; {
				to := at
				to.Seq, to.Fence = max(at.Seq, uint64(appended.Load())), feed.Fence{}
				if err := s.MoveConsumer(b.Context(), fmt.Sprint(i), at, to); err != nil {
					b.Error(err)
					return
				}
				at = to
			}
		})
	}
	moving.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "moves/s")
	b.ReportMetric(float64(appended.Load())/b.Elapsed().Seconds(), "appends/s")
	stop.Store(true)
	publishing.Wait()
}
