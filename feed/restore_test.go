package feed_test

import (
	"strconv"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// TestAStoreThatItsGuardKeepsShut: nobody is served and the reason is told,
// newcomers stay away for long, and the streams that are there live on until
// the operator has decided: a new epoch then ends them.
func TestAStoreThatItsGuardKeepsShut(t *testing.T) {
	inBubble(t, 0, feed.Config{Heartbeat: time.Second}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 3)
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.drain()
		shut := &feed.Error{Code: feed.CodeRestoreNotFinalized, Msg: "the store was restored"}
		log.FailReads(shut)
		log.FailAppends(shut)
		time.Sleep(5 * time.Second)
		if err := r.feed.Ready(); feed.CodeOf(err) != feed.CodeRestoreNotFinalized || err.Error() != shut.Error() {
			t.Errorf("ready: %v, want %v", err, shut)
		}
		if _, err := r.feed.Subscribe(r.Context(), fromStart(feed.StartLive)); feed.CodeOf(err) != feed.CodeRestoreNotFinalized {
			t.Errorf("subscribe: %v", err)
		}
		if _, err := r.feed.Publish(r.Context(), []feed.Draft{{}}); feed.CodeOf(err) != feed.CodeRestoreNotFinalized {
			t.Errorf("publish: %v", err)
		}
		for range 100 {
			b := parse(r.feed.Refusal(feed.DrainNotReady).Bytes)
			if ms, err := strconv.Atoi(b.retry); err != nil || ms < 30_000 || ms > 60_000 {
				t.Fatalf("retry %q, want 30,000 to 60,000", b.retry)
			}
		}
		rd.step()
		if b := rd.blocks[len(rd.blocks)-1]; b.name != feed.TypeHeartbeat || b.seq() != 3 {
			t.Errorf("%+v, want a heartbeat at 3", b)
		}
		log.Renew()
		log.FailReads(nil)
		log.FailAppends(nil)
		rd.endsWith(feed.ReasonEpochChanged)
		rd.close()
		if err := r.feed.Ready(); err != nil {
			t.Errorf("ready: %v", err)
		}
	})
}
