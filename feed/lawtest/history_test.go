package lawtest

import (
	"fmt"
	"slices"
)

// The helpers below write histories of events that are numbered by their seq: event n has the id "e<n>", the
// payload {"n":<n>} and the fence F<n>.

const (
	epochA = "01A"
	epochB = "01B"
)

func cursorOf(epoch string, seq uint64) string {
	if seq == 0 {
		return epoch + "-0"
	}
	return fmt.Sprintf("%s-%d-F%d", epoch, seq, seq)
}

func publish(epoch string, seq uint64, topic string) Record {
	return Record{Kind: KindPublish, ID: fmt.Sprintf("e%d", seq), Topic: topic, Type: "t", Data: fmt.Sprintf(`{"n":%d}`, seq),
		Outcome: OutcomeAcknowledged, Status: 201, Epoch: epoch, Seq: seq}
}

// published are acknowledged publishes from..to, on topic a.
func published(epoch string, from, to uint64) []Record {
	var out []Record
	for seq := from; seq <= to; seq++ {
		out = append(out, publish(epoch, seq, "a"))
	}
	return out
}

func logged(epoch string, seq uint64, topic string) Record {
	return Record{Kind: KindEvent, Cursor: cursorOf(epoch, seq), Epoch: epoch, Seq: seq,
		ID: fmt.Sprintf("e%d", seq), Topic: topic, Type: "t", Data: fmt.Sprintf(`{"n": %d}`, seq)}
}

// connection writes the records of one connection of client c.
type connection struct {
	conn    int
	epoch   string
	records []Record
}

func subscribe(conn int, epoch, cursor string, topics ...string) *connection {
	c := &connection{conn: conn, epoch: epoch}
	return c.add(Record{Kind: KindSubscribe, Cursor: cursor, Topics: topics})
}

func (c *connection) add(rec Record) *connection {
	rec.Client, rec.Conn = "c", c.conn
	c.records = append(c.records, rec)
	return c
}

func (c *connection) connected(start string, since, oldest, head uint64) *connection {
	return c.add(Record{Kind: KindConnected, Start: start, Cursor: cursorOf(c.epoch, since), Epoch: c.epoch,
		SinceSeq: since, OldestSeq: oldest, HeadSeq: head})
}

func (c *connection) events(seqs ...uint64) *connection { return c.on("a", seqs...) }

func (c *connection) on(topic string, seqs ...uint64) *connection {
	for _, seq := range seqs {
		c.add(logged(c.epoch, seq, topic))
	}
	return c
}

func (c *connection) mark(kind Kind, seq, head uint64) *connection {
	return c.add(Record{Kind: kind, Cursor: cursorOf(c.epoch, seq), Epoch: c.epoch, HeadSeq: head})
}

func (c *connection) resync(reason, epoch string) *connection {
	return c.add(Record{Kind: KindResync, Reason: reason, Epoch: epoch, Cursor: cursorOf(epoch, 0)})
}

func (c *connection) cut() *connection { return c.add(Record{Kind: KindCut, By: CutByPeer}) }

func history(parts ...[]Record) []Record { return slices.Concat(parts...) }

// with returns a copy of a history with one record changed.
func with(h []Record, i int, change func(*Record)) []Record {
	h = slices.Clone(h)
	change(&h[i])
	return h
}

// index returns the index of the nth record (from 0) that is of a kind.
func index(h []Record, kind Kind, n int) int {
	for i := range h {
		if h[i].Kind == kind {
			if n == 0 {
				return i
			}
			n--
		}
	}
	panic(fmt.Sprintf("no such %s", kind))
}
