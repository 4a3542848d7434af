//go:build linux

package systemtest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of this file measure and assert counts only: docs/bench has the
// figures and says how to take them again.

// TestMeasureNDJSON publishes lines of about 512 bytes into a SQLite store,
// with one live reader of a quiet topic.
func TestMeasureNDJSON(t *testing.T) {
	g := serve(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "events.db"))
	measureNDJSON(t, "http://"+g.addr+"/api/v1/events")
}

func measureNDJSON(t *testing.T, target string) {
	t.Helper()
	const publishers = 4
	lines := scaled(10_000, 100_000) // each
	var body bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&body, `{"type":"made","topic":"orders.%d","data":{"n":%d,"text":"%s"}}`+"\n", i%100, i, strings.Repeat("x", 430))
	}
	begin := time.Now()
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			resp, err := http.Post(target, "application/x-ndjson", bytes.NewReader(body.Bytes()))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	wg.Wait()
	total := publishers * lines
	t.Logf("%d events in %v: %.0f events/s", total, time.Since(begin).Round(time.Millisecond), float64(total)/time.Since(begin).Seconds())
	http.DefaultClient.CloseIdleConnections()
}
