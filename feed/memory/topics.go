package memory

import (
	"container/heap"
	"maps"
	"slices"

	"gapless/feed"
)

// topicIndex lists the retained seqs of each topic, in order, so that a
// search for a quiet topic does not walk the whole log.
type topicIndex map[string]*seqs

// seqs is a queue: dropped from the front as the log trims, in step with it.
type seqs struct {
	list  []uint64
	first int
}

func (x topicIndex) add(topic string, seq uint64) {
	s := x[topic]
	if s == nil {
		s = &seqs{}
		x[topic] = s
	}
	s.list = append(s.list, seq)
}

// drop forgets a topic's oldest seq.
func (x topicIndex) drop(topic string) {
	s := x[topic]
	s.first++
	switch {
	case s.first == len(s.list):
		delete(x, topic)
	case s.first >= 64 && s.first*2 >= len(s.list):
		s.list = append([]uint64(nil), s.list[s.first:]...)
		s.first = 0
	}
}

// manyTopics can always be compared, whatever the scan limit.
const manyTopics = 10_000

// matching returns the topics that the filter matches. It reports false where
// walking the events is the shorter way: every topic matches, or there are
// more topics than may be examined. Many topics against many patterns take
// long, so they are compared without the lock.
func (l *Log) matching(filter feed.Filter, scanLimit int) (topics []string, indexed bool) {
	if filter.AllTopics() {
		return nil, false
	}
	if topics, ok := filter.ExactTopics(); ok {
		return topics, true
	}
	l.mu.RLock()
	if scanLimit > 0 && len(l.topics) > max(scanLimit, manyTopics) {
		l.mu.RUnlock()
		return nil, false
	}
	all := slices.Collect(maps.Keys(l.topics))
	l.mu.RUnlock()
	return slices.DeleteFunc(all, func(topic string) bool { return !filter.MatchTopic(topic) }), true
}

// candidates yields seqs of some topics, newest first: a merge of their lists,
// the list with the newest seq on top of the heap.
type candidates [][]uint64

// candidatesLocked collects the lists to search.
func (l *Log) candidatesLocked(topics []string) *candidates {
	var c candidates
	for _, topic := range topics {
		if s := l.topics[topic]; s != nil {
			c = append(c, s.list[s.first:])
		}
	}
	heap.Init(&c)
	return &c
}

func (c *candidates) next() (seq uint64, ok bool) {
	if len(*c) == 0 {
		return 0, false
	}
	list := (*c)[0]
	seq = list[len(list)-1]
	if (*c)[0] = list[:len(list)-1]; len(list) == 1 {
		heap.Pop(c)
	} else {
		heap.Fix(c, 0)
	}
	return seq, true
}

func (c candidates) newest(i int) uint64 {
	if len(c[i]) == 0 {
		return 0
	}
	return c[i][len(c[i])-1]
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (c candidates) Len() int           { return len(c) }
func (c candidates) Less(i, j int) bool { return c.newest(i) > c.newest(j) }
func (c candidates) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)        { *c = append(*c, x.([]uint64)) }
func (c *candidates) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}
