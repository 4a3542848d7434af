package lawtest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// simulation is a tiny server with readers that keeps the law, and writes the history of it.
type simulation struct {
	t       *rapid.T
	history []Record
	epoch   int
	log     []Record // what it holds, seqs oldest.. contiguous
	oldest  uint64
	head    uint64
	readers []*simReader
}

// simReader is one client: where it stands.
type simReader struct {
	name   string
	topics []string
	conn   int
	open   bool
	fresh  bool // the next subscribe has no cursor
	cursor position
	served uint64 // the server's read position
}

func (s *simulation) epochName() string { return fmt.Sprintf("%02dX", s.epoch) }

func (s *simulation) write(rec Record) { s.history = append(s.history, rec) }

func (s *simulation) publish() {
	s.head++
	rec := publish(s.epochName(), s.head, rapid.SampledFrom([]string{"a", "a.x", "b", "b.y.z"}).Draw(s.t, "topic"))
	rec.ID = fmt.Sprintf("%s-%d", s.epochName(), s.head)
	entry := logged(s.epochName(), s.head, rec.Topic)
	entry.ID = rec.ID
	s.log = append(s.log, entry)
	switch rapid.IntRange(0, 5).Draw(s.t, "answer") {
	case 0: // the answer was lost, and the publisher repeats
		s.write(Record{Kind: KindPublish, ID: rec.ID, Topic: rec.Topic, Type: rec.Type, Data: rec.Data, Outcome: OutcomeUnknown})
		rec.Duplicate, rec.Status = true, 200
	case 1: // and again
		s.write(rec)
		rec.Duplicate, rec.Status = true, 200
	}
	s.write(rec)
}

func (s *simulation) trim() {
	if s.oldest < s.head {
		s.oldest++
		s.log = s.log[1:]
	}
}

func (s *simulation) restart() {
	for _, r := range s.readers {
		s.cut(r)
	}
	s.epoch++
	s.log, s.oldest, s.head = nil, 1, 0
}

func (s *simulation) cut(r *simReader) {
	if r.open {
		s.write(Record{Kind: KindCut, Client: r.name, Conn: r.conn, By: CutByPeer})
		r.open = false
	}
}

func (s *simulation) connect(r *simReader) {
	r.conn++
	sub := Record{Kind: KindSubscribe, Client: r.name, Conn: r.conn, Topics: r.topics}
	if r.fresh {
		r.cursor = position{}
	}
	r.fresh = false
	if r.cursor.epoch != "" {
		sub.Cursor = cursorOf(r.cursor.epoch, r.cursor.seq)
	}
	s.write(sub)
	r.open = true
	if r.cursor.seq == 0 {
		s.control(r, Record{Kind: KindConnected, Start: "snapshot", OldestSeq: s.oldest, HeadSeq: s.head}, 0)
		r.served = s.oldest - 1
		return
	}
	switch {
	case r.cursor.epoch != s.epochName():
		s.resync(r, "epoch_changed")
	case r.cursor.seq+1 < s.oldest:
		s.resync(r, "cursor_expired")
	default:
		s.control(r, Record{Kind: KindConnected, Start: "resume", SinceSeq: r.cursor.seq, OldestSeq: s.oldest, HeadSeq: s.head}, r.cursor.seq)
		r.served = r.cursor.seq
	}
}

func (s *simulation) control(r *simReader, rec Record, seq uint64) {
	rec.Client, rec.Conn, rec.Epoch = r.name, r.conn, s.epochName()
	rec.Cursor = cursorOf(rec.Epoch, seq)
	s.write(rec)
	r.cursor = position{epoch: rec.Epoch, seq: seq}
}

func (s *simulation) resync(r *simReader, reason string) {
	s.control(r, Record{Kind: KindResync, Reason: reason}, 0)
	s.cut(r)
}

// deliver hands out up to n events of the log, with bookmarks over what does not match.
func (s *simulation) deliver(r *simReader, n int) {
	if r.served+1 < s.oldest {
		s.resync(r, "lagged")
		return
	}
	for _, e := range s.log[r.served+1-s.oldest:] {
		if n == 0 {
			return
		}
		n--
		r.served = e.Seq
		if !slices.ContainsFunc(r.topics, func(p string) bool { return matchTopic(p, e.Topic) }) {
			continue
		}
		e.Client, e.Conn = r.name, r.conn
		s.write(e)
		r.cursor = e.place()
	}
	if rapid.Bool().Draw(s.t, "heartbeat") {
		s.control(r, Record{Kind: KindHeartbeat, HeadSeq: s.head}, r.served)
	}
}

// simulate draws a run in which every reader ends at the head.
func simulate(t *rapid.T) ([]Record, Options) {
	s := &simulation{t: t, oldest: 1}
	for i, topics := range [][]string{{">"}, {"a.*", "b.>"}, {"b", "a"}} {
		s.readers = append(s.readers, &simReader{name: fmt.Sprintf("r%d", i), topics: topics})
	}
	steps := rapid.IntRange(10, 80).Draw(t, "steps")
	for range steps {
		r := rapid.SampledFrom(s.readers).Draw(t, "reader")
		switch rapid.IntRange(0, 19).Draw(t, "step") {
		case 0:
			s.restart()
		case 1:
			s.trim()
		case 2:
			s.cut(r)
			r.fresh = rapid.IntRange(0, 3).Draw(t, "fresh") == 0
		case 3, 4, 5, 6, 7, 8:
			s.publish()
		default:
			if !r.open {
				s.connect(r)
			} else {
				s.deliver(r, rapid.IntRange(1, 4).Draw(t, "n"))
			}
		}
	}
	for _, r := range s.readers {
		for range 3 { // a resync, and the start after it
			if !r.open {
				s.connect(r)
			}
			if r.open {
				s.deliver(r, -1)
			}
		}
	}
	return s.history, Options{MustReach: true}
}
