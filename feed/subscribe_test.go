package feed_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// TestCursorTable walks every row of the table of what a cursor gets, at its
// seams, over a log that trimmed: oldest 11, head 20.
func TestCursorTable(t *testing.T) {
	inBubble(t, 10, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 20)
		synctest.Wait()
		status := r.feed.Status()
		if status.Oldest != 11 || status.Head.Seq != 20 {
			t.Fatalf("oldest %d, head %d", status.Oldest, status.Head.Seq)
		}
		epoch := string(status.Epoch)
		fence := make(map[uint64]string)
		for seq := uint64(10); seq <= 20; seq++ {
			page, err := log.Read(r.Context(), seq, feed.Limit{})
			if err != nil {
				t.Fatal(err)
			}
			fence[seq] = page.Anchor.String()
		}
		const foreign, wrong = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "ZZZZZZZZ"

		for _, c := range []struct {
			name, cursor string
			after        uint64 // events after this, then live
			reason       feed.Reason
		}{
			{"oldest-2", epoch + "-9", 0, feed.ReasonCursorExpired},
			{"oldest-2 with a fence", epoch + "-9-" + wrong, 0, feed.ReasonCursorExpired},
			{"oldest-1", epoch + "-10", 10, ""},
			{"oldest-1 with its fence", epoch + "-10-" + fence[10], 10, ""},
			{"oldest-1 with another fence", epoch + "-10-" + wrong, 0, feed.ReasonHistoryChanged},
			{"oldest", epoch + "-11-" + fence[11], 11, ""},
			{"oldest with another fence", epoch + "-11-" + wrong, 0, feed.ReasonHistoryChanged},
			{"inside", epoch + "-15", 15, ""},
			{"head", epoch + "-20-" + fence[20], 20, ""},
			{"head with another fence", epoch + "-20-" + fence[19], 0, feed.ReasonHistoryChanged},
			{"head+1", epoch + "-21", 0, feed.ReasonCursorAhead},
			{"head+1 with a fence", epoch + "-21-" + wrong, 0, feed.ReasonCursorAhead},
			{"the largest seq", epoch + "-18446744073709551615", 0, feed.ReasonCursorAhead},
			{"no epoch", "15", 0, feed.ReasonEpochMissing},
			{"no epoch, expired", "1", 0, feed.ReasonEpochMissing},
			{"no epoch, ahead", "99", 0, feed.ReasonEpochMissing},
			{"foreign epoch below head", foreign + "-15", 0, feed.ReasonEpochChanged},
			{"foreign epoch above head", foreign + "-99", 0, feed.ReasonEpochChanged},
			{"foreign epoch, expired", foreign + "-1-" + wrong, 0, feed.ReasonEpochChanged},
			{"seq 0", epoch + "-0", 10, ""},
			{"seq 0 of a foreign epoch", foreign + "-0", 10, ""},
			{"bare 0", "0", 10, ""},
		} {
			rd := r.subscribe(r.at(c.cursor))
			if c.reason != "" {
				rd.endsWith(c.reason)
				if len(rd.blocks) != 1 {
					t.Errorf("%s: blocks %v, want the resync alone", c.name, rd.names())
				}
				last := rd.blocks[0]
				if last.id != epoch+"-0" || last.field("epoch") != epoch || last.field("oldest_seq") != 11.0 ||
					last.field("head_seq") != 20.0 || last.field("seq") != 0.0 || last.retry == "" {
					t.Errorf("%s: resync %+v", c.name, last)
				}
			} else {
				rd.drain()
				if got, want := rd.seqs(), upTo(c.after+1, 20); !slices.Equal(got, want) {
					t.Errorf("%s: events %v, want %v", c.name, got, want)
				}
				if names := rd.names(); names[0] != feed.TypeConnected || names[len(names)-1] != feed.TypeLive {
					t.Errorf("%s: blocks %v", c.name, names)
				}
			}
			rd.close()
		}

		invalid := r.subscribe(feed.SubscribeOptions{From: feed.From{Invalid: true}})
		invalid.endsWith(feed.ReasonCursorInvalid)
		invalid.close()
	})
}

// TestAnUnknownAnchorExpiresAFencedCursor: where the log does not know the
// fence of what it trimmed, oldest-1 can be served only without a fence.
func TestAnUnknownAnchorExpiresAFencedCursor(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 5)
		log.TrimTo(4)
		log.ForgetTrimmed()
		synctest.Wait()
		epoch := string(r.feed.Status().Epoch)
		rd := r.subscribe(r.at(epoch + "-3-7K3M9Q2P"))
		rd.endsWith(feed.ReasonCursorExpired)
		rd.close()
		rd = r.subscribe(r.at(epoch + "-3"))
		rd.drain()
		rd.wantSeqs(upTo(4, 5))
		rd.close()
	})
}

// TestAnEmptyLogHasOldestAboveHead: the rows hold where all was trimmed.
func TestAnEmptyLogHasOldestAboveHead(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 5)
		log.TrimTo(6)
		epoch := string(r.feed.Status().Epoch)
		for cursor, reason := range map[string]feed.Reason{"-4": feed.ReasonCursorExpired, "-5": "", "-6": feed.ReasonCursorAhead} {
			rd := r.subscribe(r.at(epoch + cursor))
			if reason != "" {
				rd.endsWith(reason)
			} else {
				rd.drain()
				rd.wantSeqs(nil)
			}
			rd.close()
		}
	})
}

func TestStart(t *testing.T) {
	inBubble(t, 0, feed.Config{SnapshotEvents: 4}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 12) // t.0 holds 3, 6, 9, 12
		synctest.Wait()
		status := r.feed.Status()
		for _, c := range []struct {
			start  string
			topic  string
			want   []uint64
			starts string
		}{
			{"", ">", upTo(9, 12), "snapshot"},
			{"snapshot", "t.0", []uint64{3, 6, 9, 12}, "snapshot"},
			{"all", ">", upTo(1, 12), "snapshot"},
			{"all", "t.1", []uint64{1, 4, 7, 10}, "snapshot"},
			{"last:2", "t.0", []uint64{9, 12}, "snapshot"},
			{"last:0", ">", nil, "snapshot"},
			{"last:99", "t.2", []uint64{2, 5, 8, 11}, "snapshot"},
			{"live", ">", nil, "live"},
		} {
			start, err := feed.ParseStart(c.start)
			if err != nil {
				t.Fatal(err)
			}
			rd := r.subscribe(feed.SubscribeOptions{From: feed.From{Start: start}, Filter: r.filter(c.topic)})
			rd.drain()
			if !slices.Equal(rd.seqs(), c.want) {
				t.Errorf("start %q on %s: events %v, want %v", c.start, c.topic, rd.seqs(), c.want)
			}
			connected := rd.blocks[0]
			wantID := string(status.Epoch) + "-0"
			if c.starts == "live" {
				wantID = feed.Cursor{Epoch: status.Epoch, Position: status.Head}.String()
			}
			if connected.field("start") != c.starts || connected.id != wantID {
				t.Errorf("start %q: %+v, want start %s and id %s", c.start, connected, c.starts, wantID)
			}
			rd.close()
		}
		for _, bad := range []string{"Live", "last", "last:", "last:-1", "last:+1", "last:x", "now"} {
			if _, err := feed.ParseStart(bad); feed.CodeOf(err) != feed.CodeInvalid {
				t.Errorf("start %q: %v, want invalid", bad, err)
			}
		}
	})
}

// TestASearchThatTheScanLimitCutsShortSaysSo: the stream begins, and
// server.connected carries truncated.
func TestASearchThatTheScanLimitCutsShortSaysSo(t *testing.T) {
	filter, err := feed.NewFilter([]string{"t.>"}, []string{"rare"}, false)
	if err != nil {
		t.Fatal(err)
	}
	inBubble(t, 0, feed.Config{ScanLimit: 5}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 20)
		rd := r.subscribe(feed.SubscribeOptions{Filter: filter})
		rd.drain()
		if rd.blocks[0].field("truncated") != true {
			t.Errorf("connected %+v, want truncated", rd.blocks[0])
		}
		rd.close()
		rd = r.subscribe(feed.SubscribeOptions{From: feed.From{Start: feed.Start{Mode: feed.StartLast, N: 3}}})
		rd.drain()
		if rd.blocks[0].field("truncated") != nil {
			t.Errorf("connected %+v, want no truncated", rd.blocks[0])
		}
		rd.wantSeqs(upTo(18, 20))
		rd.close()
	})
}

// TestAResyncOfALiveStreamSendsToTheHead: a page that reloads its state on a
// resync misses nothing until it is back.
func TestAResyncOfALiveStreamSendsToTheHead(t *testing.T) {
	inBubble(t, 2, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 5)
		synctest.Wait()
		status := r.feed.Status()
		opts := r.at(string(status.Epoch) + "-1")
		opts.Start = feed.Start{Mode: feed.StartLive}
		rd := r.subscribe(opts)
		rd.endsWith(feed.ReasonCursorExpired)
		want := feed.Cursor{Epoch: status.Epoch, Position: status.Head}.String()
		if rd.last != want {
			t.Errorf("id %s, want the head %s", rd.last, want)
		}
		rd.close()
	})
}

func TestControlFramesOnTheWire(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 2)
		synctest.Wait()
		epoch := string(r.feed.Status().Epoch)
		rd := r.subscribe(fromStart(feed.StartAll))
		rd.drain()
		if got, want := fmt.Sprint(rd.names()), "[server.connected n n server.live]"; got != want {
			t.Fatalf("blocks %s, want %s", got, want)
		}
		connected, live := rd.blocks[0], rd.blocks[3]
		for name, want := range map[string]any{
			"connection_id": rd.sub.ID(), "epoch": epoch, "start": "snapshot", "since_seq": 0.0,
			"oldest_seq": 1.0, "head_seq": 2.0, "heartbeat_ms": 15000.0,
		} {
			if got := connected.field(name); got != want {
				t.Errorf("server.connected: %s is %v, want %v", name, got, want)
			}
		}
		if live.id != rd.blocks[2].id || live.field("head_seq") != 2.0 || live.field("epoch") != epoch {
			t.Errorf("server.live %+v", live)
		}
		rd.close()
	})
}

// TestServerLiveComesBehindAllThatWasThere: an event that was acknowledged
// before the subscribe is before server.live, however far behind the pump is.
func TestServerLiveComesBehindAllThatWasThere(t *testing.T) {
	inMemory(t, feed.Retention{Events: 1000}, feed.Config{}, func(r *rig) {
		for n := 1; n <= 50; n++ {
			r.publish(n, n)
			rd := r.subscribe(fromStart(feed.StartAll)) // the pump may not have run
			rd.drain()
			rd.wantSeqs(upTo(1, uint64(n)))
			if last := rd.blocks[len(rd.blocks)-1]; last.name != feed.TypeLive || last.seq() != uint64(n) {
				t.Fatalf("after %d events: last block %+v", n, last)
			}
			rd.close()
		}
		if n := r.feed.Stats().Encodings[feed.Shape{}]; n != 50 {
			t.Errorf("%d encodings of 50 events", n)
		}
	})
}

// TestALostHeadIsNotAwaitedForEver: the log lost what was there at the
// subscribe, and the pump never saw it.
func TestALostHeadIsNotAwaitedForEver(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 5)
		synctest.Wait()
		log.Silence(true)
		for range 5 {
			log.Foreign(feed.Event{ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("0")})
		}
		rd := r.subscribe(fromStart(feed.StartAll))
		log.Rollback(5)
		log.Silence(false)
		for len(rd.seqs()) < 5 {
			rd.step()
		}
		r.publish(6, 6)
		rd.drain()
		rd.wantSeqs(upTo(1, 6))
		rd.close()
	})
}

// TestServerLiveWaitsForAPumpThatIsFarBehind: what was there at the subscribe
// comes before it, also if that takes longer than any poll.
func TestServerLiveWaitsForAPumpThatIsFarBehind(t *testing.T) {
	inBubble(t, 0, feed.Config{PollInterval: time.Hour}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 5)
		synctest.Wait()
		log.Silence(true)
		for range 3 {
			log.Foreign(feed.Event{ID: "x", Type: "n", Topic: "t.0", Data: json.RawMessage("0")})
		}
		rd := r.subscribe(fromStart(feed.StartAll)) // head 8; the pump knows of 5
		quiet := r.subscribe(feed.SubscribeOptions{Filter: r.filter("none")})
		time.Sleep(5 * time.Second)
		rd.drain()
		quiet.drain()
		if rd.wantSeqs(upTo(1, 5)); len(rd.names()) != 6 || len(quiet.names()) != 1 {
			t.Fatalf("blocks %v and %v, want no server.live yet", rd.names(), quiet.names())
		}
		log.Silence(false)
		r.publish(9, 9)
		synctest.Wait()
		rd.drain()
		quiet.drain()
		if got := rd.names(); got[len(got)-2] != feed.TypeLive || rd.blocks[len(got)-2].seq() != 8 {
			t.Errorf("blocks %v, want server.live at 8, then event 9", got)
		}
		rd.wantSeqs(upTo(1, 9))
		if got := quiet.blocks[len(quiet.blocks)-1]; got.name != feed.TypeLive || got.seq() < 8 {
			t.Errorf("quiet: %+v, want server.live at 8 or later", got)
		}
		rd.close()
		quiet.close()
	})
}

// TestASnapshotNeverPassesWhatCameAfterIt: it may begin later where its own
// events were trimmed, but what was published since the subscribe is owed.
func TestASnapshotNeverPassesWhatCameAfterIt(t *testing.T) {
	inBubble(t, 5, feed.Config{RingEvents: 1}, func(r *rig, log *feedtest.Log) {
		r.publish(1, 10)
		synctest.Wait()
		within := r.subscribe(fromStart(feed.StartAll)) // 6 to 10
		r.publish(11, 15)                               // trims all of it
		within.drain()
		within.wantSeqs(upTo(11, 15))
		within.close()
		beyond := r.subscribe(fromStart(feed.StartAll)) // 11 to 15
		r.publish(16, 21)                               // trims 16 too
		synctest.Wait()
		beyond.endsWith(feed.ReasonLagged)
		beyond.wantSeqs(nil)
		beyond.close()
	})
}
