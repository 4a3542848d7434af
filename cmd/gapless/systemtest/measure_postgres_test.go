//go:build linux && e2e

package systemtest_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gapless/feed/postgres/pgtest"
)

// TestMeasureDelivery: one event at a time through one gateway, read at
// another one on the same database.
func TestMeasureDelivery(t *testing.T) {
	url := pgtest.New(t).Database(t)
	a := serve(t, "--store", url, "--auto-migrate")
	b := serve(t, "--store", url)
	measureDelivery(t, "http://"+a.addr+"/api/v1/events", "http://"+b.addr+"/events")
}

// measureDelivery publishes events one at a time through one gateway and takes
// the time until a stream of another one has them.
func measureDelivery(t *testing.T, publish, subscribe string) {
	t.Helper()
	n := scaled(200, 2000)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, subscribe+"?start=live&topic=timed&format=raw", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	arrived := make(chan time.Time, n)
	live := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		lines := bufio.NewScanner(resp.Body)
		want := 0
		for lines.Scan() {
			switch line := lines.Text(); {
			case line == "event: server.live":
				close(live)
			case line == "data: "+strconv.Itoa(want):
				arrived <- time.Now()
				want++
			}
		}
	})
	<-live
	var delivered, answered []time.Duration
	for i := range n {
		begin := time.Now()
		resp, err := http.Post(publish+"?topic=timed&type=tick", "application/json", strings.NewReader(fmt.Sprintf(`{"data":%d}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		answered = append(answered, time.Since(begin))
		select {
		case at := <-arrived:
			delivered = append(delivered, at.Sub(begin))
		case <-ctx.Done():
			t.Fatalf("event %d did not arrive", i)
		}
	}
	cancel()
	reader.Wait()
	http.DefaultClient.CloseIdleConnections()
	slices.Sort(delivered)
	slices.Sort(answered)
	t.Logf("%d events: publish → 201 p50 %v, p99 %v; publish → delivered by the other gateway p50 %v, p99 %v",
		n, answered[n/2], answered[n*99/100], delivered[n/2], delivered[n*99/100])
}

// TestMeasureNDJSONPostgres is TestMeasureNDJSON on PostgreSQL.
func TestMeasureNDJSONPostgres(t *testing.T) {
	g := serve(t, "--store", pgtest.New(t).Database(t), "--auto-migrate")
	measureNDJSON(t, "http://"+g.addr+"/api/v1/events")
}
