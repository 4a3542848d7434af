//go:build linux && e2e

package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/postgres/pgtest"
)

// durable makes a database on a server of its own that keeps what it
// acknowledges: fsync is on.
func durable(b *testing.B) string {
	b.Helper()
	c := pgtest.New(b, "shared_buffers=512MB", "max_wal_size=4GB")
	url := c.Database(b)
	if _, _, err := Migrate(b.Context(), url); err != nil {
		b.Fatal(err)
	}
	return url
}

// append64 appends b.N events of 512 bytes from 64 publishers, one a call.
func append64(b *testing.B, s *Store, minted bool) {
	b.Helper()
	const publishers = 64
	d := feed.Draft{Type: "order.created", Source: "", Data: []byte(`"` + strings.Repeat("x", 510) + `"`), Minted: minted}
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range publishers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				d := d
				d.ID = fmt.Sprintf("01KB7Q3V9W8ZJ4M2T6R%07d", n)
				d.Topic = fmt.Sprint("orders.eu.", n%100)
				if _, err := s.Append(b.Context(), []feed.Draft{d}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkAppend64(b *testing.B) {
	for _, minted := range []bool{true, false} {
		name := "ids of publishers"
		if minted {
			name = "minted ids"
		}
		b.Run(name, func(b *testing.B) {
			append64(b, openStore(b, Config{URL: durable(b)}), minted)
		})
	}
}

// BenchmarkAppendTrimming is BenchmarkAppend64 with a retention that was
// reached before: each event stored is one trimmed.
func BenchmarkAppendTrimming(b *testing.B) {
	for _, keep := range []uint64{10_000, 1_000_000_000} {
		b.Run(fmt.Sprint("retention=", keep), func(b *testing.B) {
			s := openStore(b, Config{URL: durable(b), Retention: feed.Retention{Events: keep}})
			preload(b, s, 20_000, 512)
			append64(b, s, true)
		})
	}
}

func BenchmarkAppend8KiB(b *testing.B) {
	s := openStore(b, Config{URL: durable(b)})
	// Of words, so that compressing it takes as long as of real text.
	var text strings.Builder
	for i := 0; text.Len() < 8<<10; i++ {
		fmt.Fprintf(&text, `{\"n\":%d,\"name\":\"item %x\"},`, i*7919, i*104729)
	}
	data := []byte(`"` + text.String() + `"`)
	drafts := make([]feed.Draft, 16)
	for i := range drafts {
		drafts[i] = feed.Draft{ID: "x", Minted: true, Type: "t", Topic: "t", Data: data}
	}
	b.SetBytes(int64(len(drafts) * len(data)))
	for b.Loop() {
		if _, err := s.Append(b.Context(), drafts); err != nil {
			b.Fatal(err)
		}
	}
}

// preload stores n events of a size.
func preload(b testing.TB, s *Store, n, size int) {
	b.Helper()
	data := []byte(`"` + strings.Repeat("x", size-2) + `"`)
	for n > 0 {
		drafts := make([]feed.Draft, min(n, 1000))
		for i := range drafts {
			drafts[i] = feed.Draft{ID: "x", Minted: true, Type: "made", Topic: fmt.Sprint("t.", i%10), Data: data}
		}
		if _, err := s.Append(b.Context(), drafts); err != nil {
			b.Fatal(err)
		}
		n -= len(drafts)
	}
}

func BenchmarkRead1024(b *testing.B) {
	s := openStore(b, Config{URL: durable(b)})
	preload(b, s, 100_000, 512)
	var times []time.Duration
	after := uint64(0)
	for b.Loop() {
		began := time.Now()
		page, err := s.Read(b.Context(), after, feed.Limit{Events: 1024, Bytes: 4 << 20})
		if err != nil || len(page.Events) != 1024 {
			b.Fatal(len(page.Events), err)
		}
		times = append(times, time.Since(began))
		after = (after + 1024) % 90_000
	}
	percentiles(b, times)
}

// BenchmarkNotify takes the time from the acknowledgement of an append at one
// store to the event at another.
func BenchmarkNotify(b *testing.B) {
	url := durable(b)
	here, there := openStore(b, Config{URL: url}), openStore(b, Config{URL: url})
	preload(b, here, 1, 512)
	var times []time.Duration
	at := headOf(b, there)
	for b.Loop() {
		type sight struct {
			at  time.Time
			err error
		}
		seen := make(chan sight)
		go func() {
			for {
				if err := there.Wait(b.Context(), at); err != nil {
					seen <- sight{err: err}
					return
				}
				page, err := there.Read(b.Context(), at.Seq, feed.Limit{Events: 10})
				if err != nil || len(page.Events) > 0 {
					seen <- sight{time.Now(), err}
					return
				}
			}
		}()
		receipt, err := here.Append(b.Context(), []feed.Draft{{ID: "x", Minted: true, Type: "t", Topic: "t", Data: []byte("1")}})
		if err != nil {
			b.Fatal(err)
		}
		committed := time.Now()
		s := <-seen
		if s.err != nil {
			b.Fatal(s.err)
		}
		times = append(times, max(0, s.at.Sub(committed)))
		at.Seq = receipt.Events[0].Seq
	}
	percentiles(b, times)
}

// headOf is the cursor at a log's head.
func headOf(b testing.TB, s *Store) feed.Cursor {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	page, err := s.Read(ctx, 0, feed.Limit{})
	if err != nil {
		b.Fatal(err)
	}
	return feed.Cursor{Epoch: page.Epoch, Position: page.Head}
}

func percentiles(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(times[len(times)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}

// BenchmarkSearchQuietTopic looks for the one event of a topic among a
// million.
func BenchmarkSearchQuietTopic(b *testing.B) {
	s := openStore(b, Config{URL: durable(b), Retention: feed.Retention{Events: 2_000_000}})
	if _, err := s.Append(b.Context(), []feed.Draft{{ID: "x", Minted: true, Type: "t", Topic: "quiet.one", Data: []byte("1")}}); err != nil {
		b.Fatal(err)
	}
	preload(b, s, 1_000_000, 64)
	for _, pattern := range []string{"quiet.one", "quiet.*", "*.one", ">"} {
		b.Run(pattern, func(b *testing.B) {
			filter, err := feed.NewFilter([]string{pattern}, nil, false)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				found, err := s.Search(b.Context(), feed.Search{Filter: filter, N: 1024, ScanLimit: 100_000})
				if err != nil || found.After.Seq != 0 && pattern != ">" {
					b.Fatal(found, err)
				}
			}
		})
	}
}
