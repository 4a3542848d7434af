package feed_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// TestDrainLosesNothingAccepted: who keeps reading gets everything that was
// acknowledged, then server.draining without an id, and the end.
func TestDrainLosesNothingAccepted(t *testing.T) {
	inBubble(t, 0, feed.Config{ReconnectDelay: 2 * time.Second}, func(r *rig, log *feedtest.Log) {
		var readers []*reader
		for range 50 {
			rd := r.subscribe(fromStart(feed.StartAll))
			rd.drain()
			readers = append(readers, rd)
		}
		r.batch(100)
		drained := make(chan error)
		go func() { drained <- r.feed.Drain(r.Context()) }()
		synctest.Wait()
		if _, err := r.feed.Publish(r.Context(), []feed.Draft{{}}); feed.CodeOf(err) != feed.CodeNotReady {
			t.Errorf("publish while draining: %v", err)
		}
		if _, err := r.feed.Subscribe(r.Context(), feed.SubscribeOptions{}); feed.CodeOf(err) != feed.CodeNotReady {
			t.Errorf("subscribe while draining: %v", err)
		}
		retries := make(map[string]bool)
		for _, rd := range readers {
			for rd.step() {
			}
			rd.wantSeqs(upTo(1, 100))
			last := rd.blocks[len(rd.blocks)-1]
			if last.name != feed.TypeDraining || last.reason() != "shutdown" || last.id != "" || last.field("epoch") == nil {
				t.Fatalf("last block %+v", last)
			}
			ms, err := strconv.Atoi(last.retry)
			if err != nil || ms < 500 || ms > 60_000 {
				t.Errorf("retry %q", last.retry)
			}
			retries[last.retry] = true
			rd.close()
		}
		if len(retries) < 25 {
			t.Errorf("50 readers got only %d different retries", len(retries))
		}
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
	})
}

// TestDrainGivesUpOnWhoDoesNotLeave.
func TestDrainGivesUpOnWhoDoesNotLeave(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(feed.SubscribeOptions{})
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		if err := r.feed.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
		rd.close()
	})
}

// TestCutKeepsTheCursor: the stream ends with server.draining, and the
// client comes back to where it was.
func TestCutKeepsTheCursor(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(fromStart(feed.StartAll))
		r.publish(1, 5)
		rd.drain()
		if r.feed.Cut("01ARZ3NDEKTSV4RRFFQ69G5FAV") {
			t.Error("cut a connection that is not there")
		}
		if !r.feed.Cut(rd.sub.ID()) {
			t.Fatal("no such connection")
		}
		r.publish(6, 7)
		for rd.step() {
		}
		if last := rd.blocks[len(rd.blocks)-1]; last.reason() != "cut" || len(last.retry) != 3 {
			t.Errorf("last block %+v", last)
		}
		rd.close()
		rd.close()
		again := r.subscribe(r.at(rd.last))
		again.drain()
		again.wantSeqs(upTo(6, 7))
		again.close()
	})
}

// TestBeforeTheFirstLookNothingIsServed, and a refusal is one block.
func TestBeforeTheFirstLookNothingIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := feedtest.NewLog(0)
		log.DelayReads(time.Minute)
		f, err := feed.New(feed.Config{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.Run(ctx); close(done) }()
		synctest.Wait()
		if _, err := f.Subscribe(ctx, feed.SubscribeOptions{}); feed.CodeOf(err) != feed.CodeNotReady {
			t.Errorf("subscribe: %v", err)
		}
		if _, err := f.Read(ctx, feed.ReadOptions{}); feed.CodeOf(err) != feed.CodeNotReady {
			t.Errorf("read: %v", err)
		}
		b := parse(f.Refusal(feed.DrainNotReady).Bytes)
		if b.name != feed.TypeDraining || b.reason() != "not_ready" || b.retry == "" || b.id != "" {
			t.Errorf("refusal %+v", b)
		}
		bounded, stop := context.WithTimeout(ctx, time.Second)
		if err := f.WaitReady(bounded); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: %v", err)
		}
		stop()
		if err := f.WaitReady(ctx); err != nil {
			t.Errorf("wait: %v", err)
		}
		cancel()
		<-done
	})
}

// TestTheEndOfRunEndsEveryStream.
func TestTheEndOfRunEndsEveryStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, feedtest.NewLog(0), feed.Config{})
		rd := r.subscribe(feed.SubscribeOptions{})
		rd.drain()
		r.stop()
		for rd.step() {
		}
		if last := rd.blocks[len(rd.blocks)-1]; last.reason() != "shutdown" {
			t.Errorf("last block %+v", last)
		}
		rd.close()
	})
}

// TestNextReturnsWhenItsContextEnds, or the subscriber is closed.
func TestNextReturnsWhenItsContextEnds(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(feed.SubscribeOptions{})
		rd.drain()
		ctx, cancel := context.WithCancel(r.Context())
		got := make(chan error)
		go func() { _, err := rd.sub.Next(ctx); got <- err }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("next: %v", err)
		}
		go func() { _, err := rd.sub.Next(r.Context()); got <- err }()
		synctest.Wait()
		rd.close()
		if err := <-got; !errors.Is(err, feed.ErrEnded) {
			t.Errorf("next: %v", err)
		}
	})
}

func TestNewChecksItsConfiguration(t *testing.T) {
	log := feedtest.NewLog(0)
	for name, cfg := range map[string]feed.Config{
		"no log":             {},
		"negative queue":     {Log: log, QueueFrames: -1},
		"negative heartbeat": {Log: log, Heartbeat: -1},
		"bad hidden type":    {Log: log, HideTypes: []string{"a b"}},
	} {
		if _, err := feed.New(cfg); feed.CodeOf(err) != feed.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAgeIsAppliedWithoutAppends, and reaches the ring.
func TestAgeIsAppliedWithoutAppends(t *testing.T) {
	inMemory(t, feed.Retention{Age: time.Minute}, feed.Config{}, func(r *rig) {
		r.publish(1, 5)
		time.Sleep(70 * time.Second)
		if s := r.feed.Status(); s.Events != 0 || s.Oldest != 6 || s.Head.Seq != 5 {
			t.Errorf("%d events, oldest %d, head %d", s.Events, s.Oldest, s.Head.Seq)
		}
		rd := r.subscribe(r.at(string(r.feed.Status().Epoch) + "-2"))
		rd.endsWith(feed.ReasonCursorExpired)
		rd.close()
	})
}

// TestSubscribersAreListedInTheOrderOfArrival.
func TestSubscribersAreListedInTheOrderOfArrival(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		first := r.subscribe(feed.SubscribeOptions{Filter: r.filter("a.>")})
		time.Sleep(time.Second)
		second := r.subscribe(feed.SubscribeOptions{})
		second.drain()
		infos := r.feed.Subscribers()
		if len(infos) != 2 || infos[0].ID != first.sub.ID() || infos[1].ID != second.sub.ID() {
			t.Fatalf("%+v", infos)
		}
		if infos[0].Topics[0] != "a.>" || infos[1].Topics[0] != ">" || infos[0].State.String() != "replaying" || infos[1].State.String() != "live" {
			t.Errorf("%+v", infos)
		}
		first.close()
		second.close()
		if n := r.feed.Status().Total; n != 0 {
			t.Errorf("%d subscribers left", n)
		}
	})
}

// TestRetriesStaySpreadAtTheirBounds: a crowd on the shortest or the longest
// retry would come back in one wave.
func TestRetriesStaySpreadAtTheirBounds(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 2 * time.Second, time.Minute, time.Hour} {
		inBubble(t, 0, feed.Config{ReconnectDelay: delay}, func(r *rig, log *feedtest.Log) {
			seen := make(map[string]int)
			for range 200 {
				for _, frame := range []*feed.Frame{r.feed.Refusal(feed.DrainAtCapacity), r.connected()} {
					b := parse(frame.Bytes)
					ms, err := strconv.Atoi(b.retry)
					if err != nil || ms < 500 || ms > 60_000 {
						t.Fatalf("delay %v: retry %q", delay, b.retry)
					}
					seen[b.name+b.retry]++
				}
			}
			for value, n := range seen {
				if n > 20 {
					t.Errorf("delay %v: %d of 400 got %s", delay, n, value)
				}
			}
		})
	}
}

// connected returns the first frame of a stream.
func (r *rig) connected() *feed.Frame {
	r.Helper()
	rd := r.subscribe(feed.SubscribeOptions{})
	defer rd.close()
	frames, err := rd.sub.Next(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return frames[0]
}
