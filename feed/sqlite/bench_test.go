package sqlite

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gapless/feed"
)

// payload makes an event of 512 bytes of data.
var payload = json.RawMessage(`"` + strings.Repeat("x", 510) + `"`)

// report adds the events a second.
func report(b *testing.B, events int) {
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkAppend64 is 64 publishers of single events with ids of their own.
func BenchmarkAppend64(b *testing.B) {
	for _, minted := range []bool{true, false} {
		b.Run("minted="+strconv.FormatBool(minted), func(b *testing.B) {
			s := open(b, Config{})
			const publishers = 64
			var wg sync.WaitGroup
			b.ResetTimer()
			for p := range publishers {
				wg.Go(func() {
					for i := p; i < b.N; i += publishers {
						d := feed.Draft{ID: "order-" + strconv.Itoa(i), Minted: minted, Type: "order.created", Topic: "orders." + strconv.Itoa(i%100), Data: payload}
						if _, err := s.Append(b.Context(), []feed.Draft{d}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			report(b, b.N)
		})
	}
}

func batch1000(from int, minted bool) []feed.Draft {
	drafts := make([]feed.Draft, feed.MaxBatchEvents)
	for i := range drafts {
		drafts[i] = feed.Draft{ID: "order-" + strconv.Itoa(from+i), Minted: minted, Type: "order.created", Topic: "orders." + strconv.Itoa(i%100), Data: payload}
	}
	return drafts
}

// BenchmarkAppendBatch1000 is one publisher of batches.
func BenchmarkAppendBatch1000(b *testing.B) {
	for _, minted := range []bool{true, false} {
		b.Run("minted="+strconv.FormatBool(minted), func(b *testing.B) {
			s := open(b, Config{})
			for n := 0; b.Loop(); n += 1000 {
				if _, err := s.Append(b.Context(), batch1000(n, minted)); err != nil {
					b.Fatal(err)
				}
			}
			report(b, b.N*1000)
		})
	}
}

// BenchmarkAppendTrimming is the same with and without a full log.
func BenchmarkAppendTrimming(b *testing.B) {
	for _, trimming := range []bool{false, true} {
		b.Run("trimming="+strconv.FormatBool(trimming), func(b *testing.B) {
			keep := uint64(1 << 40)
			if trimming {
				keep = 20_000
			}
			s := open(b, Config{Retention: feed.Retention{Events: keep}})
			for n := range 25 {
				if _, err := s.Append(b.Context(), batch1000(n*1000, true)); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := s.Append(b.Context(), batch1000(0, true)); err != nil {
					b.Fatal(err)
				}
			}
			report(b, b.N*1000)
		})
	}
}

// BenchmarkRead1024 reads pages that the tail does not hold.
func BenchmarkRead1024(b *testing.B) {
	s := open(b, Config{})
	const events = 100_000
	for n := 0; n < events; n += 1000 {
		if _, err := s.Append(b.Context(), batch1000(n, true)); err != nil {
			b.Fatal(err)
		}
	}
	at := uint64(0)
	for b.Loop() {
		at = (at + 37_037) % (events - tailEvents - 1024)
		page, err := s.Read(b.Context(), at, feed.Limit{Events: 1024})
		if err != nil || len(page.Events) != 1024 {
			b.Fatal(len(page.Events), err)
		}
	}
}
