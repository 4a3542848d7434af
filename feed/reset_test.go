package feed_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// regrow rolls the log back to seq and grows it to above where it was, as a
// restored store does: the numbers mean other events now.
func regrow(r *rig, log *feedtest.Log, seq uint64, to int) {
	r.Helper()
	log.Silence(true)
	log.Rollback(seq)
	for n := int(seq) + 1; n <= to; n++ {
		log.Foreign(feed.Event{ID: "regrown", Type: "n", Topic: "t.0", Data: json.RawMessage("0")})
	}
	log.Silence(false)
}

// TestALogRolledBackUnderALiveReader ends the stream with log_reset, with the
// head lower, equal or higher than before, and never delivers the new branch.
func TestALogRolledBackUnderALiveReader(t *testing.T) {
	for name, to := range map[string]int{"head lower": 5, "head equal": 10, "head higher": 14} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
				r.publish(1, 10)
				rd := r.subscribe(fromStart(feed.StartAll))
				rd.drain()
				regrow(r, log, 5, to)
				rd.endsWith(feed.ReasonLogReset)
				rd.wantSeqs(upTo(1, 10))
				if last := rd.blocks[len(rd.blocks)-1]; last.field("head_seq") != float64(to) {
					t.Errorf("resync %+v, want head %d", last, to)
				}
				old := rd.last
				rd.close()
				// The feed itself goes on from the new branch.
				again := r.subscribe(r.at(old))
				again.drain()
				if got := again.seqs(); len(got) != to {
					t.Errorf("after the reset: events %v, want %d", got, to)
				}
				r.publishTo("t.0", "1")
				again.drain()
				again.wantSeqs(upTo(1, uint64(to)+1))
				again.close()
			})
		})
	}
}

// TestALogRolledBackDropsWhatIsQueued: the queue may hold events of the lost
// branch.
func TestALogRolledBackDropsWhatIsQueued(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(fromStart(feed.StartLive))
		rd.drain()
		r.publish(1, 10)
		synctest.Wait()
		regrow(r, log, 5, 12)
		time.Sleep(2 * time.Second) // the pump's poll finds out
		rd.endsWith(feed.ReasonLogReset)
		rd.wantSeqs(nil)
		rd.close()
	})
}

// TestALogRolledBackBetweenTwoReplayPages is caught by the next page's
// anchor, before the pump knows.
func TestALogRolledBackBetweenTwoReplayPages(t *testing.T) {
	for name, to := range map[string]int{"head lower": 700, "head higher": 4000} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 0, feed.Config{RingEvents: 8, PollInterval: time.Hour}, func(r *rig, log *feedtest.Log) {
				for range 6 {
					r.batch(500)
				}
				synctest.Wait()
				rd := r.subscribe(fromStart(feed.StartAll))
				for len(rd.seqs()) < 1200 {
					rd.step()
				}
				regrow(r, log, 600, to)
				rd.endsWith(feed.ReasonLogReset)
				n := uint64(len(rd.seqs()))
				if n < 1200 || n > 3000 {
					t.Errorf("%d events before the reset", n)
				}
				rd.wantSeqs(upTo(1, n))
				rd.close()
			})
		})
	}
}

// TestALogRolledBackBeforeTheAttach: the last page is of another branch than
// the ring.
func TestALogRolledBackBeforeTheAttach(t *testing.T) {
	inBubble(t, 0, feed.Config{PollInterval: time.Hour}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 10)
		synctest.Wait()
		regrow(r, log, 5, 10) // the pump and its ring still hold the old branch
		page, err := log.Read(r.Context(), 8, feed.Limit{})
		if err != nil {
			t.Fatal(err)
		}
		cursor := feed.Cursor{Epoch: page.Epoch, Position: feed.Position{Seq: 8, Fence: page.Anchor}}
		rd := r.subscribe(r.at(cursor.String()))
		rd.endsWith(feed.ReasonLogReset)
		rd.wantSeqs(nil)
		rd.close()
	})
}

// TestACursorOfTheLostBranchIsNeverServed, while one of the shared past is.
func TestACursorOfTheLostBranchIsNeverServed(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 10)
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.drain()
		var cursors []string
		for _, b := range rd.blocks {
			if b.name == "n" {
				cursors = append(cursors, b.id)
			}
		}
		rd.close()
		regrow(r, log, 5, 20)
		time.Sleep(2 * time.Second)
		for i, cursor := range cursors {
			again := r.subscribe(r.at(cursor))
			if i < 5 {
				again.drain()
				again.wantSeqs(upTo(uint64(i)+2, 20))
			} else {
				again.endsWith(feed.ReasonHistoryChanged)
			}
			again.close()
		}
	})
}

// TestANewEpochEndsEveryStream, live, lagging and replaying.
func TestANewEpochEndsEveryStream(t *testing.T) {
	inBubble(t, 0, feed.Config{QueueFrames: 4, RingEvents: 8}, func(r *rig, log *feedtest.Log) {
		r.batch(900)
		live := r.subscribe(fromStart(feed.StartLive))
		live.drain()
		lagging := r.subscribe(fromStart(feed.StartLive))
		lagging.drain()
		replaying := r.subscribe(fromStart(feed.StartAll))
		replaying.step()
		replaying.step()
		r.publish(1, 3)
		live.drain()
		r.publish(1, 3)
		synctest.Wait()
		if s := r.feed.Status(); s.Live != 1 || s.Lagging != 1 || s.Replaying != 1 {
			t.Fatalf("live %d, lagging %d, replaying %d", s.Live, s.Lagging, s.Replaying)
		}
		log.Renew()
		for _, rd := range []*reader{live, lagging, replaying} {
			rd.endsWith(feed.ReasonEpochChanged)
			last := rd.blocks[len(rd.blocks)-1]
			if last.field("epoch") != string(r.feed.Status().Epoch) {
				t.Errorf("resync %+v, want the new epoch", last)
			}
			rd.close()
		}
	})
}

// TestALogThatShrinksUnderAReplay: trimmed past a resume is lagged; a
// snapshot of which nothing was delivered yet just begins later.
func TestALogThatShrinksUnderAReplay(t *testing.T) {
	inBubble(t, 0, feed.Config{RingEvents: 4}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 100)
		synctest.Wait()
		resume := r.subscribe(r.at(string(r.feed.Status().Epoch) + "-10"))
		snapshot := r.subscribe(fromStart(feed.StartAll))
		log.TrimTo(50)
		resume.endsWith(feed.ReasonLagged)
		resume.wantSeqs(nil)
		resume.close()
		snapshot.drain()
		snapshot.wantSeqs(upTo(50, 100))
		snapshot.close()
	})
}

// TestEventsTrimmedBeforeThePumpReadThem: who was live is told.
func TestEventsTrimmedBeforeThePumpReadThem(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 5)
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.drain()
		log.Silence(true)
		for range 20 {
			log.Foreign(feed.Event{ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("0")})
		}
		log.TrimTo(15)
		log.Silence(false)
		rd.endsWith(feed.ReasonLagged)
		rd.wantSeqs(upTo(1, 5))
		rd.close()
		again := r.subscribe(fromStart(feed.StartAll))
		again.drain()
		again.wantSeqs(upTo(15, 25))
		again.close()
	})
}

var garbage = map[string]feed.Event{
	"data is no JSON":       {ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("{")},
	"data has a line break": {ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("{\r\n}")},
	"data is not UTF-8":     {ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("\"\xff\"")},
	"type injects a field":  {ID: "x", Type: "n\ndata: y", Topic: "t.0", Data: json.RawMessage("1")},
	"id injects a field":    {ID: "1\nid: 2", Type: "n", Topic: "t.0", Data: json.RawMessage("1")},
	"no topic":              {ID: "x", Type: "n", Data: json.RawMessage("1")},
	"ce is no JSON":         {ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("1"), CE: json.RawMessage("x")},
}

// TestAnEventThatCannotBeEncoded ends whom it concerns, once: a resume across
// it gets it once, a snapshot passes it, later events and readers are fine.
func TestAnEventThatCannotBeEncoded(t *testing.T) {
	for name, bad := range garbage {
		t.Run(name, func(t *testing.T) {
			for _, ring := range []int{2, 1000} {
				inBubble(t, 0, feed.Config{RingEvents: ring}, func(r *rig, log *feedtest.Log) {
					r.publish(1, 3)
					concerned := r.subscribe(fromStart(feed.StartAll))
					concerned.drain()
					other := r.subscribe(feed.SubscribeOptions{Filter: r.filter("t.2")})
					other.drain()
					log.Foreign(bad) // seq 4
					synctest.Wait()
					r.publish(5, 9)
					concerned.endsWith(feed.ReasonEncodingFailed)
					concerned.wantSeqs(upTo(1, 3))
					back := r.subscribe(r.at(concerned.last)) // E-0: the snapshot passes it
					back.drain()
					want := append(upTo(1, 3), upTo(5, 9)...)
					back.wantSeqs(want)
					other.drain()
					other.wantSeqs([]uint64{2, 5, 8})

					resume := r.subscribe(r.at(string(r.feed.Status().Epoch) + "-2"))
					resume.endsWith(feed.ReasonEncodingFailed)
					resume.wantSeqs([]uint64{3})
					after := r.subscribe(r.at(string(r.feed.Status().Epoch) + "-4"))
					after.drain()
					after.wantSeqs(upTo(5, 9))

					r.publish(10, 10)
					for _, rd := range []*reader{back, other, after} {
						rd.drain()
						if !slices.Contains(append(rd.seqs(), 10), 10) {
							t.Errorf("events %v, want 10 too", rd.seqs())
						}
					}
					page, err := r.feed.Read(r.Context(), feed.ReadOptions{Limit: 100})
					if err != nil || len(page.Events) != 9 {
						t.Errorf("catch-up: %d events, %v; want 9", len(page.Events), err)
					}
					for _, rd := range []*reader{concerned, other, back, resume, after} {
						rd.close()
					}
				})
			}
		})
	}
}

// TestAFailingLogEndsNoStream: streams live on, and go on without a gap.
func TestAFailingLogEndsNoStream(t *testing.T) {
	inBubble(t, 0, feed.Config{Heartbeat: time.Second}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 3)
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.drain()
		log.FailReads(&feed.Error{Code: feed.CodeUnavailable, Msg: "away"})
		time.Sleep(5 * time.Second)
		if err := r.feed.Ready(); feed.CodeOf(err) != feed.CodeNotReady {
			t.Errorf("ready: %v, want not ready", err)
		}
		rd.step()
		if b := rd.blocks[len(rd.blocks)-1]; b.name != feed.TypeHeartbeat {
			t.Errorf("%+v, want a heartbeat", b)
		}
		log.Foreign(feed.Event{ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("4")})
		log.FailReads(nil)
		for len(rd.seqs()) < 4 {
			rd.step()
		}
		rd.wantSeqs(upTo(1, 4))
		if err := r.feed.Ready(); err != nil {
			t.Errorf("ready: %v", err)
		}
		if r.feed.Stats().LogErrors == 0 {
			t.Error("no log errors counted")
		}
		rd.close()
	})
}

// TestALostHintOnlyCostsThePollInterval.
func TestALostHintOnlyCostsThePollInterval(t *testing.T) {
	inBubble(t, 0, feed.Config{PollInterval: 3 * time.Second}, func(r *rig, log *feedtest.Log) {
		rd := r.subscribe(fromStart(feed.StartLive))
		rd.drain()
		log.Silence(true)
		before := time.Now()
		r.publish(1, 1)
		rd.step()
		rd.wantSeqs(upTo(1, 1))
		if d := time.Since(before); d > 3*time.Second {
			t.Errorf("delivered after %v", d)
		}
		rd.close()
	})
}

// hookedLog runs a hook once, after the next read for bounds alone.
type hookedLog struct {
	*feedtest.Log
	hook func()
}

func (l *hookedLog) Read(ctx context.Context, after uint64, limit feed.Limit) (feed.Page, error) {
	page, err := l.Log.Read(ctx, after, limit)
	if hook := l.hook; hook != nil && limit == (feed.Limit{}) {
		l.hook = nil
		hook()
	}
	return page, err
}

// TestALogRolledBackWhileASubscriberIsLookedUp: between the look at the log
// and the registration, once noticed by the pump and once not.
func TestALogRolledBackWhileASubscriberIsLookedUp(t *testing.T) {
	for name, c := range map[string]struct {
		publish int
		hook    func(r *rig, log *feedtest.Log)
		want    []uint64
	}{
		"the pump has noticed": {10, func(_ *rig, log *feedtest.Log) {
			log.Rollback(5)
			synctest.Wait()
		}, []uint64{6, 7, 8}},
		"the pump never saw the lost events": {5, func(_ *rig, log *feedtest.Log) {
			log.Rollback(5)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &hookedLog{Log: feedtest.NewLog(0)}
				r := start(t, log, feed.Config{})
				defer r.stop()
				r.publish(1, c.publish)
				synctest.Wait()
				if c.publish == 5 {
					log.Silence(true)
					for range 5 {
						log.Foreign(feed.Event{ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("0")})
					}
				}
				log.hook = func() { c.hook(r, log.Log) }
				rd := r.subscribe(fromStart(feed.StartLive))
				log.Silence(false)
				rd.step()
				if c.want == nil {
					rd.endsWith(feed.ReasonLogReset)
				} else {
					r.publish(6, 8)
					rd.drain()
					rd.wantSeqs(c.want)
				}
				rd.close()
			})
		})
	}
}

// TestASnapshotThatSentAPositionIsHeldToIt: a heartbeat hands the client a
// bookmark, also before the first event; what is trimmed behind it is a gap.
func TestASnapshotThatSentAPositionIsHeldToIt(t *testing.T) {
	inBubble(t, 5, feed.Config{RingEvents: 1}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 10) // oldest 6
		synctest.Wait()
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.step()
		log.FailReads(&feed.Error{Code: feed.CodeUnavailable, Msg: "away"})
		rd.step()
		if beat := rd.blocks[1]; beat.name != feed.TypeHeartbeat || beat.seq() != 5 {
			t.Fatalf("%+v, want a heartbeat at 5", beat)
		}
		log.FailReads(nil)
		log.TrimTo(8)
		rd.endsWith(feed.ReasonLagged)
		rd.close()
	})
}

// TestALogThatFailsAtTheSubscribe is an error for the caller, not a stream.
func TestALogThatFailsAtTheSubscribe(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		log.FailReads(&feed.Error{Code: feed.CodeUnavailable, Msg: "away"})
		for _, mode := range []feed.StartMode{feed.StartSnapshot, feed.StartAll, feed.StartLive} {
			if _, err := r.feed.Subscribe(r.Context(), fromStart(mode)); feed.CodeOf(err) != feed.CodeUnavailable {
				t.Errorf("subscribe, start %d: %v", mode, err)
			}
			if _, err := r.feed.Read(r.Context(), feed.ReadOptions{From: fromStart(mode).From}); feed.CodeOf(err) != feed.CodeUnavailable {
				t.Errorf("read, start %d: %v", mode, err)
			}
		}
		log.FailReads(nil)
		if n := r.feed.Status().Total; n != 0 {
			t.Errorf("%d subscribers left", n)
		}
	})
}
