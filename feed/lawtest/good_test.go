package lawtest

import (
	"testing"
	"time"
)

// resumeAfterCut is the plainest history: a snapshot, a cut, a resume to the head. Five events on topic a.
func resumeAfterCut() []Record {
	return history(
		published(epochA, 1, 5),
		subscribe(1, epochA, "").connected("snapshot", 0, 1, 2).events(1, 2).mark(KindLive, 2, 2).events(3).cut().records,
		subscribe(2, epochA, cursorOf(epochA, 3)).connected("resume", 3, 1, 4).events(4).mark(KindLive, 4, 4).
			events(5).mark(KindHeartbeat, 5, 5).records,
	)
}

// filtered is a reader of topic b among events of topic a: holes in seq, and bookmarks that pass them.
func filtered() []Record {
	return history(
		published(epochA, 1, 2), []Record{publish(epochA, 3, "b")}, published(epochA, 4, 6), []Record{publish(epochA, 7, "b")},
		subscribe(1, epochA, "", "b").connected("snapshot", 0, 1, 4).on("b", 3).mark(KindLive, 4, 4).mark(KindHeartbeat, 6, 6).cut().records,
		subscribe(2, epochA, cursorOf(epochA, 6), "b").connected("resume", 6, 1, 6).mark(KindLive, 6, 6).on("b", 7).records,
	)
}

// resynced is a client whose server restarts with an empty memory.
func resynced() []Record {
	return history(
		published(epochA, 1, 3), published(epochB, 1, 2),
		subscribe(1, epochA, "").connected("snapshot", 0, 1, 3).events(1, 2, 3).mark(KindLive, 3, 3).cut().records,
		subscribe(2, epochB, cursorOf(epochA, 3)).resync("epoch_changed", epochB).cut().records,
		subscribe(3, epochB, cursorOf(epochB, 0)).connected("snapshot", 0, 1, 1).events(1).mark(KindLive, 1, 1).events(2).records,
	)
}

func TestCheckPasses(t *testing.T) {
	lost := func(rec Record) Record { rec.Lost = true; return rec }
	branch := func(seq uint64, id string) (Record, Record) {
		p, e := publish(epochA, seq, "a"), logged(epochA, seq, "a")
		p.ID, e.ID, e.Cursor = id, id, cursorOf(epochA, seq)+"X"
		return p, e
	}
	newPublish, newEvent := branch(3, "other3")
	again := publish(epochA, 2, "a")
	again.Status, again.Duplicate = 200, true
	unanswered := Record{Kind: KindPublish, ID: "e2", Topic: "a", Type: "t", Data: `{"n":2}`, Outcome: OutcomeUnknown}
	late := publish(epochA, 5, "a")
	late.ID, late.Time = "e1", time.Unix(1000, 0)
	lateEvent := logged(epochA, 5, "a")
	lateEvent.ID, lateEvent.Time = "e1", time.Unix(1000, 0)

	for _, tt := range []struct {
		name    string
		history []Record
		opts    Options
	}{
		{"nothing at all", nil, Options{MustReach: true}},
		{"a resume after a cut", resumeAfterCut(), Options{MustReach: true}},
		{"a filtered reader with holes", filtered(), Options{MustReach: true}},
		{"a restart: resync, then a snapshot", resynced(), Options{MustReach: true}},
		{"duplicate publishes answer the first seq", history(
			published(epochA, 1, 1), []Record{unanswered, again, again}, published(epochA, 3, 3),
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 1).events(1, 2, 3).records,
		), Options{MustReach: true}},
		{"a slow reader lags, rejoins, and lags for good", history(
			published(epochA, 1, 40),
			subscribe(1, epochA, cursorOf(epochA, 10)).connected("resume", 10, 1, 12).events(11, 12).mark(KindLive, 12, 12).
				events(13, 14, 15, 16, 17, 18).resync("lagged", epochA).records,
			subscribe(2, epochA, cursorOf(epochA, 0)).connected("snapshot", 0, 38, 40).events(38, 39, 40).mark(KindLive, 40, 40).records,
		), Options{MustReach: true}},
		{"a new start without a cursor forgets what was missed", history(
			published(epochA, 1, 6),
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 1).events(1).cut().records,
			subscribe(2, epochA, "").add(Record{Kind: KindDraining, Reason: "at_capacity"}).cut().records,
			subscribe(3, epochA, "").add(Record{Kind: KindConnected, Start: "live", Cursor: cursorOf(epochA, 5), SinceSeq: 5}).events(6).records,
		), Options{MustReach: true}},
		{"a snapshot of the last two that match", history(
			published(epochA, 1, 9),
			(&connection{conn: 1, epoch: epochA}).add(Record{Kind: KindSubscribe, Start: "last:2"}).
				connected("snapshot", 0, 1, 9).events(8, 9).mark(KindLive, 9, 9).records,
		), Options{MustReach: true}},
		{"a snapshot that the bound of the search cut", history(
			published(epochA, 1, 9),
			subscribe(1, epochA, "").add(Record{Kind: KindConnected, Start: "snapshot", Cursor: cursorOf(epochA, 0), OldestSeq: 1, HeadSeq: 9, Truncated: true}).
				events(7, 8, 9).records,
		), Options{MustReach: true}},
		{"a snapshot that retention overtook", history(
			published(epochA, 1, 9),
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 6).events(5, 6, 7, 8, 9).records,
		), Options{Oldest: map[string]uint64{epochA: 5}}},
		{"a start=live reader is sent to the head by a resync", history(
			published(epochA, 1, 4),
			(&connection{conn: 1, epoch: epochA}).add(Record{Kind: KindSubscribe, Start: "live", Cursor: "7", Epoch: epochB}).
				add(Record{Kind: KindResync, Reason: "epoch_changed", Epoch: epochA, Cursor: cursorOf(epochA, 3)}).records,
			subscribe(2, epochA, cursorOf(epochA, 3)).connected("resume", 3, 1, 3).events(4).records,
		), Options{MustReach: true}},
		{"a client that records events only", history(
			published(epochA, 1, 4),
			(&connection{conn: 1, epoch: epochA}).add(Record{Kind: KindSubscribe, Start: "live"}).events(3).cut().records,
			subscribe(2, epochA, cursorOf(epochA, 3)).events(4).records,
		), Options{MustReach: true}},
		{"a live reader of a quiet log", history(
			published(epochA, 1, 4), (&connection{conn: 1, epoch: epochA}).add(Record{Kind: KindSubscribe, Start: "live"}).cut().records,
			subscribe(2, epochA, "").add(Record{Kind: KindConnected, Start: "live", SinceSeq: 4, Epoch: epochA}).cut().records,
		), Options{MustReach: true}},
		{"a garbage cursor heals", history(
			published(epochA, 1, 2),
			subscribe(1, epochA, "no cursor").resync("cursor_invalid", epochA).cut().records,
			subscribe(2, epochA, cursorOf(epochA, 0)).connected("snapshot", 0, 1, 2).events(1, 2).records,
		), Options{MustReach: true}},
		{"raw text and raw JSON", history(
			[]Record{
				{Kind: KindPublish, Outcome: OutcomeAcknowledged, Epoch: epochA, Seq: 1, Data: TextData("a\r\nb\rc")},
				{Kind: KindPublish, Outcome: OutcomeAcknowledged, Epoch: epochA, Seq: 2, Data: `{ "a" : "\u003c" }`},
				{Kind: KindPublish, Outcome: OutcomeAcknowledged, Epoch: epochA, Seq: 3, Topic: "gapless.x", Data: `1`},
				{Kind: KindPublish, Outcome: OutcomeAcknowledged, Epoch: epochA, Seq: 4, Data: `""`},
			},
			(&connection{conn: 1, epoch: epochA}).add(Record{Kind: KindSubscribe, Raw: true}).connected("snapshot", 0, 1, 4).
				add(Record{Kind: KindEvent, Raw: true, Cursor: cursorOf(epochA, 1), Data: "a\nb\nc"}).
				add(Record{Kind: KindEvent, Raw: true, Cursor: cursorOf(epochA, 2), Data: `{"a":"\u003c"}`}).
				add(Record{Kind: KindEvent, Raw: true, Cursor: cursorOf(epochA, 4)}).records,
		), Options{MustReach: true}},
		{"hidden types are holes", history(
			published(epochA, 1, 3),
			[]Record{{Kind: KindPublish, ID: "h", Topic: "a", Type: "secret", Outcome: OutcomeAcknowledged, Epoch: epochA, Seq: 4}},
			published(epochA, 5, 5),
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 5).events(1, 2, 3, 5).records,
		), Options{HiddenTypes: []string{"secret"}, MustReach: true}},
		{"a reference log with fences, trimmed, and answers without a seq", history(
			[]Record{publish(epochA, 1, "a"), publish(epochA, 2, "a"),
				{Kind: KindPublish, ID: "e3", Topic: "a", Type: "t", Outcome: OutcomeAcknowledged, Epoch: epochA}},
			subscribe(1, epochA, "").connected("snapshot", 0, 2, 3).events(2, 3).records,
		), Options{MustReach: true, Log: []Record{logged(epochA, 2, "a"), logged(epochA, 3, "a")}}},
		{"a log rolled back under a reader", history(
			published(epochA, 1, 2), []Record{lost(publish(epochA, 3, "a")), lost(publish(epochA, 4, "a")), newPublish},
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 4).events(1, 2, 3, 4).resync("log_reset", epochA).records,
			subscribe(2, epochA, cursorOf(epochA, 0)).connected("snapshot", 0, 1, 3).events(1, 2).add(newEvent).records,
		), Options{MustReach: true}},
		{"a log rolled back while its reader was away, on a quiet topic", history(
			[]Record{publish(epochA, 1, "a"), lost(publish(epochA, 2, "b")), lost(publish(epochA, 3, "b")), publish(epochA, 2, "a")},
			subscribe(1, epochA, "", "a").connected("snapshot", 0, 1, 3).events(1).mark(KindLive, 3, 3).cut().records,
			subscribe(2, epochA, cursorOf(epochA, 3), "a").resync("history_changed", epochA).records,
			subscribe(3, epochA, cursorOf(epochA, 0), "a").connected("snapshot", 0, 1, 2).events(1, 2).records,
		), Options{MustReach: true}},
		{"a restored log is served under a new epoch", history(
			published(epochA, 1, 3),
			subscribe(1, epochB, cursorOf(epochA, 3)).resync("epoch_changed", epochB).records,
			subscribe(2, epochB, cursorOf(epochB, 0)).connected("snapshot", 0, 1, 2).events(1, 2).records,
		), Options{Restored: true, MustReach: true}},
		{"an id is free again after the window", history(
			published(epochA, 1, 4), []Record{late},
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 5).events(1, 2, 3, 4).add(lateEvent).records,
		), Options{DedupeWindow: time.Minute, MustReach: true}},
		{"an id is free again, seen by a reader that came later", history(
			published(epochA, 1, 4), []Record{late},
			subscribe(1, epochA, "").connected("live", 4, 1, 4).add(lateEvent).records,
		), Options{DedupeWindow: time.Minute, MustReach: true}},
		{"an id is free again, of an unrecorded publisher", history(
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 5).events(1).add(lateEvent).records,
		), Options{DedupeWindow: time.Minute}},
		{"client and connections in any order of recording", func() []Record {
			h := resumeAfterCut()
			return history(h[12:], h[5:12], h[:5])
		}(), Options{MustReach: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, v := range Check(tt.history, tt.opts) {
				t.Errorf("%v\n%s", v, v.Excerpt(tt.history))
			}
		})
	}
}
