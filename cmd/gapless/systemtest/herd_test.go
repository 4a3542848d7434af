//go:build linux

package systemtest_test

import (
	"sync"
	"testing"
	"time"
)

// herd runs clients and collects their errors.
type herd struct {
	t    *testing.T
	wg   sync.WaitGroup
	once sync.Once
}

// run starts a client. Where the test ends before the client does, as by a failure, its end waits a while for it.
func (h *herd) run(client func() error) {
	h.once.Do(func() {
		h.t.Cleanup(func() {
			ended := make(chan struct{})
			go func() { h.wg.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
			}
		})
	})
	h.wg.Go(func() {
		if err := client(); err != nil && h.t.Context().Err() == nil {
			h.t.Error(err)
		}
	})
}

func (h *herd) wait() {
	h.t.Helper()
	h.wg.Wait()
}
