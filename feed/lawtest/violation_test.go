package lawtest

import (
	"slices"
	"testing"
)

// TestCheckFails holds, for every rule, histories that break just that rule.
func TestCheckFails(t *testing.T) {
	resume, holes, restart := resumeAfterCut(), filtered(), resynced()
	event := func(n int) int { return index(resume, KindEvent, n) } // event n+1 of resume
	drop := func(h []Record, i int) []Record { return slices.Delete(slices.Clone(h), i, i+1) }
	insert := func(h []Record, i int, rec Record) []Record { return slices.Insert(slices.Clone(h), i, rec) }
	of := func(conn int, rec Record) Record { rec.Client, rec.Conn = "c", conn; return rec }
	reader := func(conn int, epoch string, seqs ...uint64) []Record {
		return subscribe(conn, epoch, "").connected("snapshot", 0, 1, seqs[len(seqs)-1]).events(seqs...).records
	}
	// Events 3 and 4 were lost in a rollback, and another 3 took their place.
	lost3, lost4, other3 := publish(epochA, 3, "a"), publish(epochA, 4, "a"), publish(epochA, 3, "a")
	lost3.Lost, lost4.Lost, other3.ID = true, true, "other3"
	rolledBack := history(published(epochA, 1, 2), []Record{lost3, lost4, other3})
	fullLog := []Record{logged(epochA, 1, "a"), logged(epochA, 2, "a"), logged(epochA, 3, "a")}

	for _, tt := range []struct {
		name    string
		rule    Rule
		history []Record
		opts    Options
		records []int // the expected proof, where it is worth saying
	}{
		{"two events change places", RuleOrdered, history(published(epochA, 1, 3), reader(1, epochA, 1, 3, 2)), Options{}, []int{6, 7}},
		{"an event of the past after a resume", RuleOrdered, history(published(epochA, 1, 3),
			subscribe(1, epochA, "").connected("live", 0, 1, 0).events(1, 3).cut().records,
			subscribe(2, epochA, cursorOf(epochA, 3)).connected("resume", 3, 1, 3).events(2).records), Options{}, nil},

		{"the boundary event again after a resume", RuleUnique,
			insert(resume, event(3), of(2, logged(epochA, 3, "a"))), Options{MustReach: true}, []int{event(2), event(3)}},
		{"an event at the cursor of a first subscribe", RuleUnique, history(published(epochA, 1, 3),
			subscribe(1, epochA, cursorOf(epochA, 2)).connected("resume", 2, 1, 3).events(2, 3).records), Options{}, nil},
		{"one publish under two seqs", RuleUnique, history(published(epochA, 1, 1), reader(1, epochA, 1),
			[]Record{of(1, with([]Record{logged(epochA, 2, "a")}, 0, func(r *Record) { r.ID = "e1" })[0])}), Options{}, nil},

		{"an event is left out", RuleGapFree, drop(resume, event(0)), Options{}, []int{0, event(0) - 1, event(0)}},
		{"an event is lost in a cut", RuleGapFree, drop(drop(resume, event(3)), event(3)), Options{}, nil},
		{"a client resumes behind an event it never handled", RuleGapFree, history(published(epochA, 1, 3), reader(1, epochA, 1, 2)[:3],
			subscribe(2, epochA, cursorOf(epochA, 2)).connected("resume", 2, 1, 3).events(3).records), Options{}, nil},
		{"a snapshot begins late", RuleGapFree, history(published(epochA, 1, 3), reader(1, epochA, 2, 3)), Options{}, nil},
		{"a snapshot of the last two has one", RuleGapFree, history(published(epochA, 1, 3),
			(&connection{conn: 1, epoch: epochA}).add(Record{Kind: KindSubscribe, Start: "last:2"}).
				connected("snapshot", 0, 1, 3).events(3).mark(KindLive, 3, 3).records), Options{}, nil},
		{"a snapshot of everything begins late", RuleGapFree, history(published(epochA, 1, 3),
			(&connection{conn: 1, epoch: epochA}).add(Record{Kind: KindSubscribe, Start: "all"}).
				connected("snapshot", 0, 1, 3).events(2, 3).records), Options{SnapshotEvents: 2}, nil},
		{"a snapshot begins late, and goes on for long", RuleGapFree, history(published(epochA, 1, 5),
			subscribe(1, epochA, "").connected("snapshot", 0, 1, 3).events(3).mark(KindLive, 3, 3).events(4, 5).records), Options{SnapshotEvents: 2}, nil},
		{"another client got what this one did not", RuleGapFree, history(
			reader(1, epochA, 1, 2, 3),
			func() []Record {
				h := reader(1, epochA, 1, 3)
				for i := range h {
					h[i].Client = "d"
				}
				return h
			}()), Options{}, nil},
		{"a rolled back log is read on without a word", RuleGapFree, history(
			published(epochA, 1, 4), func() []Record {
				h := []Record{publish(epochA, 3, "a")}
				h[0].ID, h[0].Lost = "lost3", true
				return h
			}(),
			reader(1, epochA, 1, 2), []Record{of(1, with(fullLog, 2, func(r *Record) { r.ID = "lost3" })[2]), of(1, logged(epochA, 4, "a"))},
		), Options{}, nil},
		{"a gap on the branch that was lost later", RuleGapFree, history(rolledBack, reader(1, epochA, 1, 2, 4),
			subscribe(2, epochA, cursorOf(epochA, 4)).resync("history_changed", epochA).records), Options{}, []int{2, 8, 9}},

		{"another payload", RuleFaithful, with(resume, event(1), func(r *Record) { r.Data = `{"n":2.0}` }), Options{}, []int{1, event(1)}},
		{"another payload, known by hash", RuleFaithful, with(resume, event(1), func(r *Record) {
			r.Data, r.DataHash = "", HashJSON(`{"n":"2"}`)
		}), Options{}, nil},
		{"another type", RuleFaithful, with(resume, event(1), func(r *Record) { r.Type = "u" }), Options{}, nil},
		{"another topic", RuleFaithful, with(resume, event(1), func(r *Record) { r.Topic = "b" }), Options{}, nil},
		{"another id", RuleFaithful, with(resume, event(1), func(r *Record) { r.ID = "x" }), Options{}, nil},
		{"another payload, unanswered publish", RuleFaithful, history([]Record{{Kind: KindPublish, ID: "e1", Topic: "a", Type: "t", Data: `0`,
			Outcome: OutcomeUnknown}}, reader(1, epochA, 1)), Options{}, nil},
		{"another fence than the log", RuleFaithful, with(resume, event(1), func(r *Record) { r.Cursor += "0" }), Options{Log: history(fullLog,
			[]Record{logged(epochA, 4, "a"), logged(epochA, 5, "a")})}, nil},
		{"the id line names another event", RuleFaithful, with(resume, event(1), func(r *Record) { r.Cursor = cursorOf(epochA, 1) }), Options{}, nil},
		{"an event that the log does not have", RuleFaithful, history(published(epochA, 1, 3), reader(1, epochA, 1, 2, 3, 4)), Options{Log: fullLog}, nil},
		{"the log altered a payload", RuleFaithful, published(epochA, 1, 1), Options{Log: with(fullLog, 0, func(r *Record) { r.Data = "7" })}, nil},

		{"a client ends before the head", RuleAcknowledged, resume[:len(resume)-2], Options{MustReach: true}, []int{4, len(resume) - 3}},
		{"a client ends in an old epoch", RuleAcknowledged, restart[:index(restart, KindSubscribe, 2)], Options{MustReach: true}, nil},
		{"a client that was never served", RuleAcknowledged, history(published(epochA, 1, 1), subscribe(1, epochA, "").cut().records),
			Options{MustReach: true}, nil},
		{"a client ends on the branch that was lost", RuleAcknowledged, history(rolledBack, reader(1, epochA, 1, 2, 3, 4)), Options{MustReach: true}, nil},
		{"an answer with another seq", RuleAcknowledged, with(resume, 4, func(r *Record) { r.Seq = 9 }), Options{MustReach: true}, []int{4, event(4)}},
		{"an answer with another epoch", RuleAcknowledged, with(resume, 1, func(r *Record) { r.Epoch = epochB }), Options{}, nil},
		{"an answer with another epoch and no seq", RuleAcknowledged, history(
			with(published(epochA, 2, 2), 0, func(r *Record) { r.Seq = 0 }),
			subscribe(1, epochA, "").connected("live", 0, 1, 0).mark(KindHeartbeat, 5, 5).resync("log_reset", epochB).records,
			subscribe(2, epochB, "").connected("snapshot", 0, 2, 2).events(2).records), Options{}, nil},
		{"two events answered with one seq", RuleAcknowledged, with(published(epochA, 1, 2), 1, func(r *Record) { r.Seq = 1 }), Options{}, []int{0, 1}},
		{"a duplicate answered with another seq", RuleAcknowledged, with(published(epochA, 1, 2), 1, func(r *Record) {
			r.ID, r.Data, r.Duplicate = "e1", `{"n":1}`, true
		}), Options{}, []int{0, 1}},
		{"a repeat accepted as new", RuleAcknowledged, with(published(epochA, 1, 2), 1, func(r *Record) {
			r.ID, r.Data, r.Seq = "e1", `{"n":1}`, 1
		}), Options{}, nil},
		{"a repeat stored and delivered as new", RuleAcknowledged, func() []Record {
			h := history(published(epochA, 1, 2), reader(1, epochA, 1, 2))
			for _, i := range []int{1, 5} {
				h[i].ID, h[i].Data = "e1", `{"n":1}`
			}
			return h
		}(), Options{}, []int{0, 1}},
		{"a duplicate with another payload", RuleAcknowledged, with(published(epochA, 1, 2), 1, func(r *Record) {
			r.ID, r.Seq, r.Duplicate = "e1", 1, true
		}), Options{}, nil},
		{"an acknowledged event is not in the log", RuleAcknowledged, published(epochA, 1, 4), Options{Log: fullLog}, []int{3}},
		{"an event acknowledged without a seq is not in the log", RuleAcknowledged,
			with(published(epochA, 1, 4), 3, func(r *Record) { r.Seq = 0 }), Options{Log: fullLog}, nil},
		{"the log has it elsewhere", RuleAcknowledged, with(published(epochA, 1, 2), 1, func(r *Record) { r.Seq = 3; r.ID = "e2" }), Options{Log: fullLog}, nil},
		{"a refused event is delivered", RuleAcknowledged, history([]Record{{Kind: KindPublish, ID: "e1", Topic: "a", Outcome: OutcomeRefused, Status: 400}},
			reader(1, epochA, 1)), Options{}, nil},
		{"one client gets it at another place", RuleAcknowledged, history(published(epochA, 1, 2), reader(1, epochA, 1, 2), func() []Record {
			h := subscribe(1, epochA, cursorOf(epochA, 2)).events(3).records
			h[1].ID, h[0].Client, h[1].Client = "e2", "d", "d"
			return h
		}()), Options{}, nil},

		{"a heartbeat passes an event that is due", RuleBookmarkSound, with(holes, index(holes, KindHeartbeat, 0), func(r *Record) {
			r.Cursor, r.HeadSeq = cursorOf(epochA, 7), 7
		}), Options{}, []int{6, index(holes, KindHeartbeat, 0)}},
		{"live passes an event that is due", RuleBookmarkSound, with(resume, index(resume, KindLive, 1), func(r *Record) {
			r.Cursor, r.HeadSeq = cursorOf(epochA, 5), 5
		}), Options{}, nil},
		{"connected passes an event that is due", RuleBookmarkSound, with(resume, index(resume, KindConnected, 1), func(r *Record) {
			r.Cursor, r.SinceSeq = cursorOf(epochA, 4), 4
		}), Options{}, nil},
		{"a snapshot's connected is not at the beginning", RuleBookmarkSound, with(resume, index(resume, KindConnected, 0), func(r *Record) {
			r.Cursor, r.SinceSeq = cursorOf(epochA, 2), 2
		}), Options{}, nil},
		{"a bookmark passes an event of the branch that was lost later", RuleBookmarkSound, history(rolledBack, reader(1, epochA, 1, 2),
			[]Record{of(1, Record{Kind: KindHeartbeat, Cursor: cursorOf(epochA, 4)})},
			subscribe(2, epochA, cursorOf(epochA, 4)).resync("history_changed", epochA).records), Options{}, nil},
		{"draining passes an event that is due", RuleBookmarkSound, insert(resume, event(2), of(1, Record{Kind: KindDraining, Cursor: cursorOf(epochA, 3)})), Options{}, nil},
		{"an unpublished event comes after its bookmark", RuleBookmarkSound, history(subscribe(1, epochA, "").connected("live", 1, 1, 1).
			mark(KindHeartbeat, 3, 3).add(Record{Kind: KindEvent, Cursor: cursorOf(epochA, 3)}).records), Options{}, nil},
		{"a bookmark goes back", RuleBookmarkSound, with(resume, index(resume, KindHeartbeat, 0), func(r *Record) { r.Cursor = cursorOf(epochA, 4) }), Options{}, nil},
		{"connected goes back", RuleBookmarkSound, with(resume, index(resume, KindConnected, 1), func(r *Record) {
			r.Cursor, r.SinceSeq = cursorOf(epochA, 2), 2
		}), Options{}, nil},
		{"a bookmark beyond its own head", RuleBookmarkSound, with(resume, index(resume, KindHeartbeat, 0), func(r *Record) { r.Cursor = cursorOf(epochA, 6) }), Options{}, nil},
		{"id and data of a bookmark disagree", RuleBookmarkSound, with(resume, index(resume, KindHeartbeat, 0), func(r *Record) { r.Cursor = cursorOf(epochB, 5) }), Options{}, nil},
		{"id and data of connected disagree", RuleBookmarkSound, with(resume, index(resume, KindConnected, 1), func(r *Record) { r.SinceSeq = 2 }), Options{}, nil},

		{"an event on a topic that was not asked for", RuleAsked, insert(holes, index(holes, KindLive, 0)+1, of(1, logged(epochA, 5, "a"))), Options{}, nil},
		{"an event of a type that was not asked for", RuleAsked, with(resume, index(resume, KindSubscribe, 1), func(r *Record) { r.Types = []string{"u"} })[:event(3)+1],
			Options{}, nil},
		{"a hidden event", RuleAsked, reader(1, epochA, 1), Options{HiddenTypes: []string{"t"}}, nil},
		{"the server's own event on an unnamed stream", RuleAsked,
			with(subscribe(1, epochA, "").connected("snapshot", 0, 1, 1).on("gapless.status", 1).records, 0, func(r *Record) { r.Unnamed = true }), Options{}, nil},

		{"an unknown reason", RuleResync, with(restart, index(restart, KindResync, 0), func(r *Record) { r.Reason = "tired" }), Options{}, nil},
		{"an event after the resync", RuleResync, insert(restart, index(restart, KindResync, 0)+1, of(2, logged(epochB, 1, "a"))), Options{},
			[]int{index(restart, KindResync, 0), index(restart, KindResync, 0) + 1}},
		{"an id that keeps the client where it is", RuleResync, with(restart, index(restart, KindResync, 0), func(r *Record) { r.Cursor = cursorOf(epochB, 1) }), Options{}, nil},
		{"an id of the old epoch", RuleResync, with(restart, index(restart, KindResync, 0), func(r *Record) { r.Cursor = cursorOf(epochA, 0) }), Options{}, nil},
		{"another epoch without a resync", RuleResync, history(published(epochA, 1, 2), published(epochB, 3, 3), reader(1, epochA, 1, 2),
			[]Record{of(1, logged(epochB, 3, "a"))}), Options{}, nil},
		{"a cursor answered by a snapshot", RuleResync, history(published(epochA, 1, 2), reader(1, epochA, 1, 2),
			with(reader(2, epochA, 1, 2), 0, func(r *Record) { r.Cursor = cursorOf(epochA, 2) })), Options{}, nil},
		{"a number without an epoch answered by a stream", RuleResync, history(published(epochA, 1, 2),
			with(reader(2, epochA, 1, 2), 0, func(r *Record) { r.Cursor = "2" })), Options{}, nil},

		{"no subscribe", RuleRecorded, history(published(epochA, 1, 2), reader(1, epochA, 1, 2)[1:]), Options{}, nil},
		{"two subscribes", RuleRecorded, insert(resume, event(1), of(1, Record{Kind: KindSubscribe})), Options{}, nil},
		{"two connected", RuleRecorded, insert(resume, event(1), resume[index(resume, KindConnected, 0)]), Options{}, nil},
		{"a frame after the cut", RuleRecorded, insert(resume, index(resume, KindCut, 0)+1, of(1, logged(epochA, 4, "a"))), Options{}, nil},
		{"an id that is no cursor", RuleRecorded, with(resume, index(resume, KindHeartbeat, 0), func(r *Record) { r.Cursor = "5" }), Options{}, nil},
		{"an event without a place", RuleRecorded, history(resume, []Record{of(2, Record{Kind: KindEvent, Epoch: epochA})}), Options{}, nil},
		{"no client", RuleRecorded, with(resume, index(resume, KindHeartbeat, 0), func(r *Record) { r.Client = "" }), Options{}, nil},
		{"an unknown kind", RuleRecorded, with(resume, index(resume, KindHeartbeat, 0), func(r *Record) { r.Kind = "hum" }), Options{}, nil},
		{"an unknown outcome", RuleRecorded, with(published(epochA, 1, 1), 0, func(r *Record) { r.Outcome = "" }), Options{}, nil},
		{"an acknowledgement without an epoch", RuleRecorded, with(published(epochA, 1, 1), 0, func(r *Record) { r.Epoch = "" }), Options{}, nil},
	} {
		t.Run(string(tt.rule)+"/"+tt.name, func(t *testing.T) {
			violations := Check(tt.history, tt.opts)
			if len(violations) != 1 || violations[0].Rule != tt.rule {
				t.Fatalf("got %v, want one violation of %q", violations, tt.rule)
			}
			if tt.records != nil && !slices.Equal(violations[0].Records, tt.records) {
				t.Errorf("proof is %v, want %v: %v", violations[0].Records, tt.records, violations[0])
			}
			if v := violations[0]; len(v.Records) == 0 || v.Excerpt(tt.history) == "" || v.Message == "" {
				t.Errorf("no proof: %v", v)
			}
		})
	}
}

// A wrong answer does not hide that a client ended too early.
func TestCheckReportsAllViolations(t *testing.T) {
	h := resumeAfterCut()
	h = with(h[:len(h)-2], 1, func(r *Record) { r.Epoch = epochB })
	violations := Check(h, Options{MustReach: true})
	if len(violations) != 2 || violations[0].Records[0] != 1 || violations[1].Records[0] != 4 {
		t.Errorf("got %v, want one for the answer in record 1 and one for the end without record 4", violations)
	}
}

func TestCheckOrdersViolations(t *testing.T) {
	h := history(published(epochA, 1, 9),
		subscribe(1, epochA, "").connected("snapshot", 0, 1, 9).events(2, 2, 1, 5).mark(KindHeartbeat, 9, 9).events(7).records)
	var got []Rule
	for _, v := range Check(h, Options{}) {
		got = append(got, v.Rule)
	}
	want := []Rule{RuleUnique, RuleOrdered, RuleGapFree, RuleBookmarkSound}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
