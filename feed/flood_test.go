package feed_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"gapless/feed"
	"gapless/feed/memory"
)

// TestTheLawUnderAFlood is the same law with every reader on a goroutine of
// its own, and a writer that never pauses.
func TestTheLawUnderAFlood(t *testing.T) {
	const readers, batches = 6, 600
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		log, err := memory.New(memory.Config{Retention: feed.Retention{Events: 400}})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, log, feed.Config{QueueFrames: 32, RingEvents: 64, SnapshotEvents: 50})
		defer r.stop()
		bounds := func() feed.Bounds {
			page, err := log.Read(t.Context(), 0, feed.Limit{})
			if err != nil {
				t.Error(err)
			}
			return page.Bounds
		}
		line := newTimeline(bounds().Epoch, func() uint64 { return bounds().Oldest })
		var written atomic.Bool
		var clients []*client
		var wg sync.WaitGroup
		for i := range readers {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			patterns := []string{lawPatterns[rnd.IntN(len(lawPatterns)-1)]}
			if i == 0 {
				patterns = nil
			}
			c := &client{log: line, filter: r.filter(patterns...), shape: feed.Shape{Format: feed.Format(i % 2), Unnamed: i%3 == 0}, snapshots: 50}
			clients = append(clients, c)
			wg.Go(func() {
				for !written.Load() || len(c.lacks()) > 0 {
					if err := readUntilCut(r, c, rnd, &written); err != nil {
						t.Errorf("reader %d: %v", i, err)
						return
					}
				}
			})
		}
		rnd := rand.New(rand.NewPCG(seed, readers))
		for range batches {
			drafts := make([]feed.Draft, 1+rnd.IntN(20))
			for i := range drafts {
				drafts[i] = feed.Draft{Topic: lawTopics[rnd.IntN(len(lawTopics)-1)], Type: "x", Data: json.RawMessage(fmt.Sprint(rnd.Uint32()))}
			}
			line.mu.Lock()
			head := line.head.seq
			_, err := r.feed.Publish(t.Context(), drafts)
			if err == nil {
				err = line.sync(t.Context(), log, drafts, head)
			}
			line.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		}
		written.Store(true)
		wg.Wait()
		for i, c := range clients {
			t.Logf("reader %d: %d events, told %d times", i, c.delivered, c.told)
		}
	})
}

// readUntilCut is one connection of a reader: it ends at a random byte, with
// the stream, or when all is read.
func readUntilCut(r *rig, c *client, rnd *rand.Rand, written *atomic.Bool) error {
	sub, err := r.feed.Subscribe(r.Context(), c.connect())
	if err != nil {
		return err
	}
	defer sub.Close()
	for left := rnd.IntN(200_000); left > 0; {
		frames, err := sub.Next(r.Context())
		if errors.Is(err, feed.ErrEnded) {
			return nil
		}
		if err != nil {
			return err
		}
		var p []byte
		for _, f := range frames {
			p = append(p, f.Bytes...)
		}
		p = p[:min(left, len(p))]
		left -= len(p)
		if err := c.receive(p); err != nil {
			return err
		}
		if written.Load() && len(c.lacks()) == 0 {
			return nil
		}
	}
	return nil
}
