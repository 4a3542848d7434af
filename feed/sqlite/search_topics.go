package sqlite

import (
	"cmp"
	"container/heap"
	"database/sql/driver"
	"slices"
	"strings"
)

// manyTopics can always be listed, whatever the scan limit.
const manyTopics = 10_000

// listTopics hops through the index from topic to topic, in a range.
const listTopics = `WITH RECURSIVE t (topic) AS (
		SELECT (SELECT min(topic) FROM events WHERE topic >= ?1 AND topic < ?2)
		UNION ALL
		SELECT (SELECT min(topic) FROM events WHERE topic > t.topic AND topic < ?2) FROM t WHERE t.topic IS NOT NULL
	) SELECT topic FROM t WHERE topic IS NOT NULL LIMIT ?3`

// topics lists the topics of the log that the filter matches. It reports
// false where walking the events is the shorter way: nearly every topic
// matches, or there are more topics than may be examined.
func (f *finder) topics(raw rawConnection) (topics []string, ok bool, err error) {
	patterns := f.search.Filter.Topics()
	if slices.Contains(patterns, ">") {
		return nil, false, nil
	}
	most := max(f.search.ScanLimit, manyTopics)
	v := make([]driver.Value, 1)
	row := columns{values: v}
	listed := 0
	for _, prefix := range prefixes(patterns) {
		err := raw.each(listTopics, v, func() error {
			topic := row.text(0)
			if listed++; listed%256 == 0 && f.ctx.Err() != nil {
				return f.ctx.Err()
			}
			if f.search.Filter.MatchTopic(topic) {
				topics = append(topics, topic)
			}
			return row.err
		}, prefix, prefix+"\x7f", int64(most-listed+1))
		if err != nil {
			return nil, false, err
		}
		if listed > most {
			return nil, false, nil
		}
	}
	return topics, true, nil
}

// prefixes are the literal beginnings of patterns, none inside another. Topics
// are ASCII, so that everything that begins with one lies below it with a DEL.
func prefixes(patterns []string) []string {
	list := make([]string, 0, len(patterns))
	for _, p := range patterns {
		if i := strings.IndexAny(p, "*>"); i >= 0 {
			p = p[:i]
		}
		list = append(list, p)
	}
	slices.Sort(list)
	n := 0
	for _, p := range list {
		if n == 0 || !strings.HasPrefix(p, list[n-1]) {
			list[n] = p
			n++
		}
	}
	return list[:n]
}

// merge takes candidates of some topics, newest first.
func (f *finder) merge(raw rawConnection, topics []string, below uint64) error {
	var c candidates
	v := make([]driver.Value, 1)
	row := columns{values: v}
	for i, topic := range topics {
		if i%256 == 0 && f.ctx.Err() != nil {
			return f.ctx.Err()
		}
		found, err := raw.one(`SELECT seq FROM events WHERE topic = ? AND seq < ? ORDER BY seq DESC LIMIT 1`, v, topic, int64(below))
		if err != nil {
			return err
		}
		if found {
			c = append(c, &topicCursor{topic: topic, newest: uint64(row.number(0))})
		}
	}
	if row.err != nil {
		return row.err
	}
	heap.Init(&c)
	for len(c) > 0 {
		top := c[0]
		if len(top.rows) == 0 {
			if err := top.fetch(raw); err != nil {
				return err
			}
			if f.ctx.Err() != nil {
				return f.ctx.Err()
			}
		}
		if f.candidate(top.rows[0].seq, top.rows[0].typ) {
			return nil
		}
		if top.advance() {
			heap.Fix(&c, 0)
		} else {
			heap.Pop(&c)
		}
	}
	return nil
}

// topicCursor walks the events of one topic, newest first, some at a time.
type topicCursor struct {
	topic  string
	newest uint64 // seq of the next one; 0: there is none
	rows   []typedSeq
	size   int // of the last fetch
}

type typedSeq struct {
	seq uint64
	typ string
}

// fetch reads the next rows, twice as many as the last time, and one more to
// know what follows them.
func (t *topicCursor) fetch(raw rawConnection) error {
	t.size = min(max(2*t.size, 8), 256)
	v := make([]driver.Value, 2)
	row := columns{values: v}
	t.rows = t.rows[:0]
	err := raw.each(`SELECT seq, type FROM events WHERE topic = ? AND seq <= ? ORDER BY seq DESC LIMIT ?`, v, func() error {
		t.rows = append(t.rows, typedSeq{uint64(row.number(0)), row.text(1)})
		return row.err
	}, t.topic, int64(t.newest), int64(t.size+1))
	return err
}

// advance steps to the next older event, and reports whether there is one.
func (t *topicCursor) advance() bool {
	if len(t.rows) == 1 { // it was the last: fetch reads one more than is asked for
		return false
	}
	t.rows = t.rows[1:]
	t.newest = t.rows[0].seq
	if len(t.rows) == 1 {
		t.rows = t.rows[:0] // whether others follow it is not known yet
	}
	return true
}

// candidates is a heap of cursors, that of the newest event on top.
type candidates []*topicCursor

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (c candidates) Len() int           { return len(c) }
func (c candidates) Less(i, j int) bool { return cmp.Compare(c[i].newest, c[j].newest) > 0 }
func (c candidates) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)        { *c = append(*c, x.(*topicCursor)) }
func (c *candidates) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}
