//go:build linux && e2e

package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"gapless/feed"
)

// TestEveryModeOfSendingStatements works, where the connection string asks for
// one.
func TestEveryModeOfSendingStatements(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s := openStore(t, Config{URL: database(t) + "&default_query_exec_mode=" + mode, Retention: feed.Retention{Events: 5, Bytes: 1 << 20, Age: time.Hour}})
			for n := range 8 {
				d := draft(fmt.Sprint(n), 10)
				d.Source, d.CE = `it's "odd" \ {NULL,}`, []byte(`{"a":"\u0000"}`)
				if n%2 == 0 {
					d.CE = nil
				}
				receipt, err := s.Append(patient(t), []feed.Draft{d, d})
				if err != nil || receipt.Events[0].Seq != uint64(n)+1 || !receipt.Events[1].Duplicate {
					t.Fatalf("%+v, %v", receipt, err)
				}
			}
			if err := s.Trim(patient(t)); err != nil {
				t.Fatal(err)
			}
			all := retained(t, s)
			if len(all) != 5 || all[0].Source != `it's "odd" \ {NULL,}` || string(all[0].CE) != `{"a":"\u0000"}` || all[1].CE != nil {
				t.Errorf("%d events, the first %+v", len(all), all[0])
			}
			filter, err := feed.NewFilter([]string{"t", "x.>"}, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			if found, err := s.Search(patient(t), feed.Search{Filter: filter, N: 2}); err != nil || found.After.Seq != 6 {
				t.Errorf("%+v, %v", found, err)
			}
			listening(t, s)
		})
	}
}

// TestConnectionsAreBounded: whatever is asked for at once, a store holds no
// more connections than it may, and appends are not kept waiting by reads.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 4
	url := database(t)
	s := openStore(t, Config{URL: url, MaxConns: most})
	appendOne(t, s, draft("first", 10))
	listening(t, s)
	ctx, cancel := context.WithCancel(patient(t))
	var wg sync.WaitGroup
	// More views that last than there are places for.
	held := make(chan struct{})
	for range most {
		wg.Go(func() {
			if err := s.view(patient(t), "hold", func(context.Context, querier, instance) error { <-held; return nil }); err != nil {
				t.Errorf("view: %v", err)
			}
		})
	}
	for s.pool.Stat().AcquiredConns() < int32(cap(s.slots)) {
		if !pause(ctx, time.Millisecond) {
			t.Fatal("the views do not begin")
		}
	}
	conn := dial(t, url)
	for n := range 30 {
		appendOne(t, s, draft(fmt.Sprint(n), 10))
		var connections int
		if err := conn.QueryRow(patient(t), `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'gapless'`).Scan(&connections); err != nil || connections > most {
			t.Fatalf("%d connections, %v", connections, err)
		}
	}
	close(held)
	for range 40 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Search(ctx, feed.Search{N: 10}); err != nil && ctx.Err() == nil {
					t.Errorf("search: %v", err)
				}
			}
		})
	}
	for n := range 30 {
		appendOne(t, s, draft(fmt.Sprint("beside-", n), 10))
	}
	cancel()
	wg.Wait()
}

// TestNumbersEnd: the last seq is given, and no other after it.
func TestNumbersEnd(t *testing.T) {
	url := database(t)
	s := openStore(t, Config{URL: url})
	if _, err := dial(t, url).Exec(patient(t), `update gapless.instance set head = $1::bigint, oldest = $1::bigint + 1, head_fence = '7K3M9Q2P', trimmed_fence = '7K3M9Q2P'`, int64(maxSeq-2)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(patient(t), []feed.Draft{draft("a", 1), draft("b", 1), draft("c", 1)}); feed.CodeOf(err) != feed.CodeUnavailable {
		t.Errorf("three events where there is room for two: %v", err)
	}
	receipt, err := s.Append(patient(t), []feed.Draft{draft("a", 1), draft("b", 1)})
	if err != nil || receipt.Events[1].Seq != maxSeq {
		t.Fatalf("%+v, %v", receipt, err)
	}
	if _, err := s.Append(patient(t), []feed.Draft{draft("c", 1)}); feed.CodeOf(err) != feed.CodeUnavailable || !strings.Contains(err.Error(), "numbers") {
		t.Errorf("%v", err)
	}
	if a := appendOne(t, s, draft("b", 1)); !a.Duplicate {
		t.Errorf("%+v", a)
	}
	for _, after := range []uint64{maxSeq - 2, maxSeq - 1, maxSeq, maxSeq + 1, math.MaxUint64} {
		page, err := s.Read(patient(t), after, feed.Limit{Events: 10})
		want := 0
		if after < maxSeq {
			want = int(maxSeq - after)
		}
		if err != nil || len(page.Events) != want || page.Anchor.Known() != (after <= maxSeq) {
			t.Errorf("after %d: %d events, anchor %q, %v", after, len(page.Events), page.Anchor, err)
		}
	}
	if found, err := s.Search(patient(t), feed.Search{N: 1}); err != nil || found.After.Seq != maxSeq-1 {
		t.Errorf("%+v, %v", found, err)
	}
	// Trimmed empty, the log still has a place behind its head.
	if _, err := dial(t, url).Exec(patient(t), `update gapless.events set time = time - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	if err := openStore(t, Config{URL: url, Retention: feed.Retention{Age: time.Minute}}).Trim(patient(t)); err != nil {
		t.Error(err)
	}
	if page, err := s.Read(patient(t), maxSeq, feed.Limit{Events: 1}); err != nil || page.Oldest != maxSeq+1 || len(page.Events) != 0 || page.Anchor != page.Head.Fence {
		t.Errorf("%+v, %v", page, err)
	}
}
