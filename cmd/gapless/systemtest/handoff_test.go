//go:build linux

package systemtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// Clients are cut at random places and resume at once, while a publisher never pauses: before, at and behind the
// seam of replay and live, between frames and inside one. The full test resumes 1,000 times.
func TestResumesUnderAPublisherThatNeverPauses(t *testing.T) {
	t.Parallel()
	const readers = 4
	resumes := scaled(200, 1_000) / readers
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := serve(t, "--retain-events", "1000000", "--retain-bytes", "0", "--queue-frames", "64", "--snapshot-events", "1000000")
	h := &history{}
	ctx := bounded(t)
	p := newPublisher(t, g, h, "p", 64, "seam.a", "seam.b", "seam.c")
	p.must(t, 100, 100)

	publish, cease := context.WithCancel(ctx)
	publishing := herd{t: t}
	publishing.run(func() error {
		for publish.Err() == nil {
			if _, err := p.publish(ctx, 1); err != nil {
				return err
			}
		}
		return nil
	})
	clients := herd{t: t}
	all := make([]*reader, readers)
	for i := range readers {
		patterns := []string{"seam.>", "end"}
		if i%2 == 1 {
			patterns = []string{"seam.b", "end"}
		}
		r := newReader(g, h, fmt.Sprintf("r-%d", i), patterns...)
		all[i] = r
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		clients.run(func() error {
			for range resumes {
				if err := readAndCut(ctx, r, rnd); err != nil {
					return err
				}
			}
			return nil
		})
	}
	clients.wait()
	cease()
	publishing.wait()
	p.end(t)
	for _, r := range all {
		clients.run(func() error { return r.toEnd(ctx) })
	}
	clients.wait()
	if n := g.metrics().sum(t, "gapless_resumes_total"); n < float64(readers*(resumes-1)) {
		t.Errorf("%.0f resumes, want at least %d", n, readers*(resumes-1))
	}
	h.judge(t, lawtest.Options{MustReach: true, SnapshotEvents: 1_000_000})
}

// readAndCut makes one connection, reads on it for a random while and cuts it.
func readAndCut(ctx context.Context, r *reader, rnd *rand.Rand) error {
	s, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer s.abort()
	left, live := rnd.IntN(40), false // frames to read, or to read behind server.live
	if rnd.IntN(2) == 0 {
		left, live = rnd.IntN(6), true
	}
	for left > 0 || live {
		rec, err := s.next()
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		switch {
		case rec.Kind == lawtest.KindLive:
			live = false
		case !live:
			left--
		}
	}
	if rnd.IntN(3) == 0 { // part of the next frame, which a cut client must not take for whole
		if err := s.discard(rnd.IntN(200)); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}
