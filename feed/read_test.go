package feed_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// pageSeqs decodes a page and checks that each event carries its cursor.
func pageSeqs(t *testing.T, page feed.ReadResult) []uint64 {
	t.Helper()
	var seqs []uint64
	for _, raw := range page.Events {
		var ev struct {
			Seq    uint64
			Epoch  string
			Cursor string
		}
		if err := json.Unmarshal(raw, &ev); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		c, err := feed.ParseCursor(ev.Cursor)
		if err != nil || c.Seq != ev.Seq || string(c.Epoch) != ev.Epoch || !c.Fence.Known() {
			t.Errorf("event %s", raw)
		}
		seqs = append(seqs, ev.Seq)
	}
	return seqs
}

func (r *rig) read(opts feed.ReadOptions) feed.ReadResult {
	r.Helper()
	page, err := r.feed.Read(r.Context(), opts)
	if err != nil {
		r.Fatal(err)
	}
	return page
}

// TestCatchUpPagesAddUp: page by page from nothing to the head, also with a
// filter whose events are far apart.
func TestCatchUpPagesAddUp(t *testing.T) {
	inBubble(t, 0, feed.Config{ScanLimit: 2000}, func(r *rig, log *feedtest.Log) {
		for n := 1; n <= 5000; n += 500 {
			r.batch(499)
			r.publishTo("rare", "1")
		}
		for name, c := range map[string]struct {
			opts feed.ReadOptions
			want int
		}{
			"everything": {feed.ReadOptions{Limit: 700}, 5000},
			"one topic":  {feed.ReadOptions{Limit: 3, Filter: r.filter("rare")}, 10},
		} {
			opts := c.opts
			opts.Start = feed.Start{Mode: feed.StartAll}
			var seqs []uint64
			for pages := 0; ; pages++ {
				page := r.read(opts)
				seqs = append(seqs, pageSeqs(t, page)...)
				if page.Head.Seq != 5000 {
					t.Errorf("head %d", page.Head.Seq)
				}
				opts.From = feed.From{Cursor: page.Last}
				if !page.HasMore {
					break
				}
				if pages > 100 {
					t.Fatal("no end")
				}
			}
			if len(seqs) != c.want || opts.Cursor.Seq != 5000 {
				t.Errorf("%s: %d events up to %d, want %d up to 5000", name, len(seqs), opts.Cursor.Seq, c.want)
			}
		}
	})
}

// TestALongPollReturnsWithTheFirstEvent, or empty at its end, with a cursor
// that moved past what was filtered.
func TestALongPollReturnsWithTheFirstEvent(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 3)
		synctest.Wait()
		live := r.read(feed.ReadOptions{From: feed.From{Start: feed.Start{Mode: feed.StartLive}}})
		if len(live.Events) != 0 || live.Last.Seq != 3 || live.HasMore {
			t.Fatalf("start=live: %+v", live)
		}
		began := time.Now()
		time.AfterFunc(5*time.Second, func() { r.publish(4, 4) }) // topic t.1
		time.AfterFunc(9*time.Second, func() { r.publish(6, 6) }) // topic t.0
		page := r.read(feed.ReadOptions{From: feed.From{Cursor: live.Last}, Filter: r.filter("t.0"), Wait: 25 * time.Second})
		if seqs := pageSeqs(t, page); len(seqs) != 1 || seqs[0] != 5 || time.Since(began) != 9*time.Second {
			t.Errorf("%v after %v", seqs, time.Since(began))
		}
		began = time.Now()
		page = r.read(feed.ReadOptions{From: feed.From{Cursor: live.Last}, Filter: r.filter("none"), Wait: 25 * time.Second})
		if len(page.Events) != 0 || page.Last.Seq != 5 || time.Since(began) != 25*time.Second {
			t.Errorf("%+v after %v", page, time.Since(began))
		}
	})
}

// TestALongPollIsToldOfAReset.
func TestALongPollIsToldOfAReset(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 10)
		synctest.Wait()
		at := feed.Cursor{Epoch: r.feed.Status().Epoch, Position: r.feed.Status().Head}
		for name, c := range map[string]struct {
			do     func()
			reason feed.Reason
		}{
			"rolled back": {func() { regrow(r, log, 5, 10) }, feed.ReasonLogReset},
			"new epoch":   {log.Renew, feed.ReasonEpochChanged},
		} {
			time.AfterFunc(time.Second, c.do)
			page := r.read(feed.ReadOptions{From: feed.From{Cursor: at}, Wait: time.Minute})
			if page.Resync != c.reason || page.Events != nil {
				t.Errorf("%s: %+v, want %s", name, page, c.reason)
			}
			time.Sleep(2 * time.Second)
			at = feed.Cursor{Epoch: r.feed.Status().Epoch, Position: r.feed.Status().Head}
		}
	})
}

// TestAPageThatCannotBeServed carries the reason and the bounds.
func TestAPageThatCannotBeServed(t *testing.T) {
	inBubble(t, 5, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 10)
		epoch := r.feed.Status().Epoch
		for cursor, reason := range map[string]feed.Reason{
			"3": feed.ReasonEpochMissing, string(epoch) + "-3": feed.ReasonCursorExpired,
			string(epoch) + "-11": feed.ReasonCursorAhead, string(epoch) + "-8-ZZZZZZZZ": feed.ReasonHistoryChanged,
		} {
			page := r.read(feed.ReadOptions{From: r.at(cursor).From})
			if page.Resync != reason || page.Oldest != 6 || page.Head.Seq != 10 || page.Epoch != epoch {
				t.Errorf("%s: %+v, want %s", cursor, page, reason)
			}
		}
	})
}

// TestAnEventThatCannotBeEncodedEndsThePage before it, and then a resume.
func TestAnEventThatCannotBeEncodedEndsThePage(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 3)
		log.Foreign(garbage["data is no JSON"])
		r.publish(5, 6)
		epoch := string(r.feed.Status().Epoch)
		page := r.read(feed.ReadOptions{From: r.at(epoch + "-1").From, Limit: 100})
		if seqs := pageSeqs(t, page); len(seqs) != 2 || page.Last.Seq != 3 || !page.HasMore {
			t.Errorf("%v up to %d", seqs, page.Last.Seq)
		}
		page = r.read(feed.ReadOptions{From: feed.From{Cursor: page.Last}, Limit: 100})
		if page.Resync != feed.ReasonEncodingFailed {
			t.Errorf("%+v", page)
		}
	})
}
