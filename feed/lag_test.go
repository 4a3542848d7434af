package feed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// TestABurstLargerThanTheQueueCostsNoResync: within the retention, an
// overflow is a lag, a read of the log, and a rejoin.
func TestABurstLargerThanTheQueueCostsNoResync(t *testing.T) {
	inBubble(t, 20_000, feed.Config{QueueFrames: 64, RingEvents: 128}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(fromStart(feed.StartLive))
		rd.drain()
		for range 10 {
			r.batch(500)
		}
		synctest.Wait()
		info := rd.sub.Info()
		if info.State != feed.StateLagging || info.QueueFrames != 64 || info.Lag != 5000 {
			t.Fatalf("state %v, %d queued, lag %d; want lagging, 64, 5000", info.State, info.QueueFrames, info.Lag)
		}
		rd.drain()
		rd.wantSeqs(upTo(1, 5000))
		if info = rd.sub.Info(); info.State != feed.StateLive || info.Lag != 0 || info.Delivered != 5000 {
			t.Fatalf("%+v, want live, no lag, 5000 delivered", info)
		}
		stats := r.feed.Stats()
		if stats.Overflows != 1 || stats.Rejoins != 1 || stats.DrainTimes.Count != 1 || stats.QueueHighWater != 64 {
			t.Errorf("overflows %d, rejoins %d, drains %d, high water %d", stats.Overflows, stats.Rejoins, stats.DrainTimes.Count, stats.QueueHighWater)
		}
		if stats.QueueBytes != 0 {
			t.Errorf("%d bytes queued, want none", stats.QueueBytes)
		}
		rd.close()
	})
}

// TestALaggingReaderPastTheRetentionIsTold: queue full, log trimmed: what was
// accepted comes, and then the resync, which needs no room in the queue.
func TestALaggingReaderPastTheRetentionIsTold(t *testing.T) {
	inBubble(t, 100, feed.Config{QueueFrames: 4}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(fromStart(feed.StartLive))
		rd.drain()
		for range 6 {
			r.batch(50)
			synctest.Wait()
		}
		rd.endsWith(feed.ReasonLagged)
		rd.wantSeqs(upTo(1, 4))
		if got := r.feed.Stats().Resyncs[feed.ReasonLagged]; got != 1 {
			t.Errorf("%d resyncs counted, want 1", got)
		}
		rd.close()
	})
}

// TestASlowReaderCostsNobodyElse: beside a reader that never reads, another
// one stays live and publishing goes on.
func TestASlowReaderCostsNobodyElse(t *testing.T) {
	inMemory(t, feed.Retention{Events: 100_000}, feed.Config{QueueFrames: 16, RingEvents: 64}, func(r *rig) {
		slow := r.subscribe(fromStart(feed.StartLive))
		slow.drain()
		fast := r.subscribe(fromStart(feed.StartLive))
		fast.drain()
		for range 2000 {
			r.batch(10)
			synctest.Wait()
			fast.drain()
		}
		fast.wantSeqs(upTo(1, 20_000))
		if n := r.feed.Stats().Overflows; n != 1 {
			t.Errorf("%d overflows, want the slow reader's one", n)
		}
		if info := slow.sub.Info(); info.QueueFrames != 16 || info.State != feed.StateLagging {
			t.Errorf("slow reader %+v", info)
		}
		slow.drain()
		slow.wantSeqs(upTo(1, 20_000))
		slow.close()
		fast.close()
	})
}

// TestTheQueueIsBoundedInBytes, and one frame passes whatever its size.
func TestTheQueueIsBoundedInBytes(t *testing.T) {
	inBubble(t, 0, feed.Config{QueueBytes: 1000}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(fromStart(feed.StartLive))
		rd.drain()
		big := make([]byte, 5000)
		for i := range big {
			big[i] = 'x'
		}
		r.publishTo("t.0", `"`+string(big)+`"`)
		r.publishTo("t.0", "1")
		synctest.Wait()
		if info := rd.sub.Info(); info.QueueFrames != 1 || info.State != feed.StateLagging {
			t.Fatalf("%+v, want one frame, lagging", info)
		}
		rd.drain()
		rd.wantSeqs(upTo(1, 2))
		rd.close()
	})
}

// TestAllQueuesTogetherAreBounded: the furthest behind fall back to the log,
// the others are not disturbed, and nobody misses anything.
func TestAllQueuesTogetherAreBounded(t *testing.T) {
	inBubble(t, 0, feed.Config{QueueBytesTotal: 40_000, RingEvents: 8}, func(r *rig, log *feedtest.Log) {
		var stalled []*reader
		for range 10 {
			rd := r.subscribe(fromStart(feed.StartLive))
			rd.drain()
			stalled = append(stalled, rd)
		}
		fast := r.subscribe(fromStart(feed.StartLive))
		fast.drain()
		for n := 1; n <= 500; n++ {
			r.publish(n, n)
			synctest.Wait()
			fast.drain()
			if total := r.feed.Stats().QueueBytes; total > 44_000 {
				t.Fatalf("after event %d: %d bytes queued", n, total)
			}
		}
		fast.wantSeqs(upTo(1, 500))
		for _, rd := range stalled {
			rd.drain()
			rd.wantSeqs(upTo(1, 500))
			rd.close()
		}
		fast.close()
		if total := r.feed.Stats().QueueBytes; total != 0 {
			t.Errorf("%d bytes queued in the end", total)
		}
	})
}

// TestABookmarkNeverPassesWhatWasWritten: a connection that is cut between
// the attach and the 4,000th queued frame resumes with nothing lost.
func TestABookmarkNeverPassesWhatWasWritten(t *testing.T) {
	inBubble(t, 0, feed.Config{Heartbeat: time.Second}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 10)
		for range 8 {
			r.batch(500)
		}
		synctest.Wait()
		for _, cutAfter := range []int{0, 1, 2, 3, 7, 20} {
			rd := r.subscribe(fromStart(feed.StartAll))
			for range cutAfter {
				rd.step()
			}
			if info := rd.sub.Info(); len(rd.seqs()) > 0 && info.Bookmark.Seq > rd.seqs()[len(rd.seqs())-1] {
				t.Errorf("cut after %d: bookmark %d beyond the last event %d", cutAfter, info.Bookmark.Seq, rd.seqs()[len(rd.seqs())-1])
			}
			rd.close()
			opts := r.at(orZero(rd.last))
			opts.Start = feed.Start{Mode: feed.StartAll}
			again := r.subscribe(opts)
			again.drain()
			if got := append(rd.seqs(), again.seqs()...); len(got) != 4010 || got[4009] != 4010 {
				t.Errorf("cut after %d: %d events in all, want 4010", cutAfter, len(got))
			}
			again.close()
		}
	})
}

func orZero(cursor string) string {
	if cursor == "" {
		return "0"
	}
	return cursor
}

// TestServerLiveComesOnceAfterTheHeadOfTheAttach, whatever was published
// while the reader did not read.
func TestServerLiveComesOnceAfterTheHeadOfTheAttach(t *testing.T) {
	for _, queue := range []int{4, 4096} {
		inBubble(t, 0, feed.Config{QueueFrames: queue}, func(r *rig, log *feedtest.Log) {
			r.publish(1, 3)
			synctest.Wait()
			rd := r.subscribe(fromStart(feed.StartAll))
			rd.step() // connected
			rd.step() // attach, with 1 to 3 queued, and take them
			r.publish(4, 30)
			synctest.Wait()
			rd.drain()
			rd.wantSeqs(upTo(1, 30))
			lives := 0
			for i, b := range rd.blocks {
				if b.name != feed.TypeLive {
					continue
				}
				lives++
				if before := rd.blocks[i-1].seq(); before != 3 || b.seq() != 3 || b.field("head_seq") != 3.0 {
					t.Errorf("queue %d: server.live %+v after seq %d, want 3", queue, b, before)
				}
			}
			if lives != 1 {
				t.Errorf("queue %d: %d times server.live, want once: %v", queue, lives, rd.names())
			}
			rd.close()
		})
	}
}

// TestHeartbeatsCarryTheBookmark: a reader of a quiet topic never falls out
// of the window because other topics are busy.
func TestHeartbeatsCarryTheBookmark(t *testing.T) {
	inBubble(t, 5, feed.Config{Heartbeat: 15 * time.Second}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(feed.SubscribeOptions{Filter: r.filter("quiet")})
		rd.drain()
		connected := time.Now()
		for n := range 20 {
			r.publish(n, n)
		}
		rd.step()
		beat := rd.blocks[len(rd.blocks)-1]
		if beat.name != feed.TypeHeartbeat || beat.seq() != 20 || beat.field("head_seq") != 20.0 {
			t.Fatalf("%+v, want a heartbeat at 20", beat)
		}
		if silence := time.Since(connected); silence < 15*time.Second-10*time.Millisecond || silence > 15*time.Second+10*time.Millisecond {
			t.Errorf("heartbeat after %v of silence", silence)
		}
		rd.close()
		again := r.subscribe(r.at(beat.id))
		again.drain()
		if again.blocks[0].field("start") != "resume" {
			t.Errorf("%+v, want a resume", again.blocks[0])
		}
		again.close()
	})
}

// TestAHeartbeatWhileReplayingCarriesTheScanPosition: also where the log is
// slow, or fails for a while.
func TestAHeartbeatWhileReplayingCarriesTheScanPosition(t *testing.T) {
	inBubble(t, 0, feed.Config{Heartbeat: 2 * time.Second, RingEvents: 4}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 50)
		synctest.Wait()
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.step() // connected
		log.FailReads(&feed.Error{Code: feed.CodeUnavailable, Msg: "away"})
		rd.step()
		if beat := rd.blocks[1]; beat.name != feed.TypeHeartbeat || beat.seq() != 0 {
			t.Fatalf("%+v, want a heartbeat at 0", beat)
		}
		log.FailReads(nil)
		log.DelayReads(10 * time.Second)
		rd.step()
		if beat := rd.blocks[2]; beat.name != feed.TypeHeartbeat || beat.seq() != 0 {
			t.Fatalf("%+v, want a heartbeat at 0", beat)
		}
		log.DelayReads(0)
		for len(rd.seqs()) < 50 {
			rd.step()
		}
		rd.wantSeqs(upTo(1, 50))
		rd.close()
	})
}
