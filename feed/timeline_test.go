package feed_test

import (
	"context"
	"fmt"
	"sync"

	"gapless/feed"
)

// node is an event of the reference model. Each knows the one before it on
// its branch, so that a log which was rolled back is a tree.
type node struct {
	prev      *node // nil at the root, which is seq 0
	seq       uint64
	fence     string
	topic     string
	typ, data string
}

// common returns the last node that two branches share.
func (n *node) common(other *node) *node {
	for n != other {
		if n.seq < other.seq {
			n, other = other, n
		}
		n = n.prev
	}
	return n
}

// timeline is the reference: what was stored, in the order in which it was.
type timeline struct {
	mu     sync.Mutex
	epoch  feed.Epoch
	root   *node
	head   *node
	nodes  map[string]*node // by seq-fence
	oldest func() uint64    // the log's, now
	resets int
}

func newTimeline(epoch feed.Epoch, oldest func() uint64) *timeline {
	root := &node{}
	return &timeline{epoch: epoch, root: root, head: root, nodes: map[string]*node{"0-": root}, oldest: oldest}
}

// grow adds an event that the log has stored.
func (l *timeline) grow(ev *feed.Event) {
	n := &node{prev: l.head, seq: ev.Seq, fence: ev.Fence.String(), topic: ev.Topic, typ: ev.Type, data: string(ev.Data)}
	l.head = n
	l.nodes[fmt.Sprintf("%d-%s", n.seq, n.fence)] = n
}

// back returns the node at seq on the branch that ends at n.
func (n *node) back(seq uint64) *node {
	for n.seq > seq {
		n = n.prev
	}
	return n
}

// sync takes over what was stored behind a seq. What retention has trimmed at
// once has no fence that anybody could have seen.
func (l *timeline) sync(ctx context.Context, log feed.Log, drafts []feed.Draft, head uint64) error {
	page, err := log.Read(ctx, 0, feed.Limit{})
	if err != nil {
		return err
	}
	for i, d := range drafts {
		ev := &feed.Event{Seq: head + 1 + uint64(i), Topic: d.Topic, Type: d.Type, Data: d.Data}
		if at, err := log.Read(ctx, ev.Seq, feed.Limit{}); err != nil {
			return err
		} else if ev.Seq >= page.Oldest-1 {
			ev.Fence = at.Anchor
		}
		l.grow(ev)
	}
	if l.head.seq != page.Head.Seq {
		return fmt.Errorf("the log is at %d, the reference at %d", page.Head.Seq, l.head.seq)
	}
	return nil
}
