//go:build linux

package systemtest_test

import (
	"context"
	"testing"
	"time"

	"gapless/feed/lawtest"
)

// A stream whose topic is silent stays up, and its bookmarks go along with the log while other topics are busy, so
// that it can resume although the place at which it began is long gone. The silence is far longer than a write may
// take: no deadline but that of a write counts. The full one lasts 5 minutes, at the heartbeat's default.
func TestSilentStreamStaysResumable(t *testing.T) {
	t.Parallel()
	g := serve(t, "--retain-events", "100", "--heartbeat", scaled("200ms", "15s"), "--write-timeout", "500ms", "--reconnect-delay", "500ms")
	h := &history{}
	ctx := bounded(t)
	busy := newPublisher(t, g, h, "busy", 64, "busy")
	publish, cease := context.WithCancel(ctx)
	others := herd{t: t}
	others.run(func() error {
		for pause(publish, 10*time.Millisecond) {
			if _, err := busy.publish(ctx, 2); err != nil {
				return err
			}
		}
		return nil
	})
	silent := newReader(g, h, "silent", "quiet", "end")
	s, err := silent.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	begin, bookmarks := time.Now(), map[string]bool{}
	for time.Since(begin) < scaled(3*time.Second, 5*time.Minute) {
		rec, err := s.next()
		if err != nil {
			t.Fatalf("the silent stream ended: %v", err)
		}
		if rec.Kind == lawtest.KindHeartbeat {
			bookmarks[rec.Cursor] = true
		}
	}
	if len(bookmarks) < 5 {
		t.Errorf("%d different bookmarks, want at least 5", len(bookmarks))
	}
	// The stream is still one: an event arrives on it.
	quiet := newPublisher(t, g, h, "quiet", 64, "quiet")
	quiet.must(t, 1, 1)
	until(t, s, lawtest.KindEvent)
	last := until(t, s, lawtest.KindHeartbeat)
	s.close()

	connected := h.of("silent", lawtest.KindConnected)[0]
	stale := newReader(g, h, "stale", "quiet", "end")
	stale.cursor = cursorOf(connected.Epoch, connected.HeadSeq)
	if err := stale.follow(ctx, func(rec lawtest.Record) bool { return rec.Kind == lawtest.KindResync && rec.Reason == "cursor_expired" }); err != nil {
		t.Fatalf("the place where the stream began is still there: %v", err)
	}
	if silent.cursor != last.Cursor {
		t.Fatalf("the client stands at %s, want the last bookmark %s", silent.cursor, last.Cursor)
	}
	if s, err = silent.open(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if rec, err := s.next(); err != nil || rec.Kind != lawtest.KindConnected || rec.Start != "resume" {
		t.Fatalf("the resume was answered by %s %s %s, %v", rec.Kind, rec.Start, rec.Reason, err)
	}
	cease()
	others.wait()
	quiet.must(t, 1, 1)
	until(t, s, lawtest.KindEvent)
	h.judge(t, lawtest.Options{})
}

// until reads to the first frame of a kind.
func until(t *testing.T, s *stream, kind lawtest.Kind) lawtest.Record {
	t.Helper()
	for {
		rec, err := s.next()
		if err != nil {
			t.Fatalf("%s: no %s: %v", s.r.name, kind, err)
		}
		if rec.Kind == kind {
			return rec
		}
	}
}
