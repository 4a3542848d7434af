package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
	"gapless/feed/feedtest"
	"gapless/feed/memory"
)

// lawRun is a plan under way.
type lawRun struct {
	*rig
	plan    *plan
	log     *unsteady
	faulty  *feedtest.Log // the same log, nil in memory
	line    *timeline
	clients []*client
	subs    []*feed.Subscriber // nil: not connected
	events  int
}

// run carries the plan out, each act after all has settled from the one
// before, so that a plan means one course of events.
func (p *plan) run(t *testing.T) error {
	r := &lawRun{plan: p}
	if p.inMemory {
		log, err := memory.New(memory.Config{Retention: feed.Retention{Events: uint64(p.keep)}})
		if err != nil {
			return err
		}
		r.log = steady(log)
	} else {
		r.faulty = feedtest.NewLog(p.keep)
		r.log = steady(r.faulty)
	}
	r.rig = start(t, r.log, p.cfg)
	defer r.rig.stop()
	r.line = newTimeline(r.bounds().Epoch, func() uint64 { return r.bounds().Oldest })
	for _, rp := range p.readers {
		filter, err := feed.NewFilter(rp.patterns, rp.types, rp.shape.Unnamed)
		if err != nil {
			return err
		}
		r.clients = append(r.clients, &client{log: r.line, filter: filter, shape: rp.shape, start: rp.start, snapshots: p.cfg.SnapshotEvents})
		r.subs = append(r.subs, nil)
	}
	defer func() {
		for i := range r.subs {
			r.close(i)
		}
	}()
	for i, a := range p.acts {
		if err := r.act(a); err != nil {
			return fmt.Errorf("act %d, %s: %w", i, a.kind, err)
		}
		synctest.Wait()
	}
	return r.calm()
}

func (r *lawRun) bounds() feed.Bounds {
	page, err := r.log.Log.Read(r.Context(), 0, feed.Limit{})
	if err != nil {
		r.Fatal(err)
	}
	return page.Bounds
}

func (r *lawRun) act(a act) error {
	who := a.who % len(r.clients)
	switch a.kind {
	case actPublish, actForeign:
		return r.publish(a)
	case actRead:
		for range a.n%6 + 1 {
			if more, err := r.read(who, 1); err != nil || !more {
				return err
			}
		}
	case actConnect:
		r.connect(who)
	case actCut:
		_, err := r.read(who, float64(a.n)/256)
		r.close(who)
		return err
	case actTell:
		if s := r.subs[who]; s != nil {
			r.feed.Cut(s.ID())
		}
	case actSleep:
		time.Sleep([]time.Duration{time.Millisecond, 300 * time.Millisecond, 16 * time.Second, time.Minute}[a.n%4])
	case actSlow:
		r.log.turn(func(m *mood) { m.slow = time.Duration(a.n) * 10 * time.Millisecond })
	case actStale:
		r.log.turn(func(m *mood) { m.late = time.Duration(a.n) * 10 * time.Millisecond })
	case actFail:
		r.log.turn(func(m *mood) { m.fail = true })
	case actHeal:
		r.log.heal()
	case actTrim:
		b := r.bounds()
		r.faulty.TrimTo(b.Oldest + uint64(a.n)%(b.Head.Seq+2-b.Oldest))
	case actRollback:
		b := r.bounds()
		seq := b.Oldest - 1 + uint64(a.n)%(b.Head.Seq+2-b.Oldest)
		r.faulty.Rollback(seq)
		r.line.head = r.line.head.back(seq)
		r.line.resets++
		if a.who%2 == 0 { // and grown again before anybody looks
			return r.publish(act{kind: actForeign, n: a.n, who: a.who})
		}
	case actRenew:
		r.faulty.Renew()
		r.line.epoch = r.bounds().Epoch
		r.line.resets++
	}
	return nil
}

// publish appends a batch, through the feed or beside it, and tells the
// reference.
func (r *lawRun) publish(a act) error {
	drafts := make([]feed.Draft, a.n%9+1)
	for i := range drafts {
		r.events++
		pick := a.n/9 + i*(a.who+1)
		drafts[i] = feed.Draft{
			ID: fmt.Sprint(r.events), Topic: lawTopics[pick%len(lawTopics)], Type: lawTypes[pick/2%len(lawTypes)],
			Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, r.events)),
		}
		if a.kind == actPublish && drafts[i].Topic == "gapless.status" {
			drafts[i].Topic = "a"
		}
	}
	appendTo := r.log.Log.Append
	if a.kind == actPublish {
		appendTo = r.feed.Publish
	}
	head := r.line.head.seq
	if _, err := appendTo(r.Context(), drafts); err != nil {
		if feed.CodeOf(err) == feed.CodeNotReady {
			return nil
		}
		return err
	}
	return r.line.sync(r.Context(), r.log.Log, drafts, head)
}

func (r *lawRun) connect(who int) {
	if r.subs[who] != nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	sub, err := r.feed.Subscribe(ctx, r.clients[who].connect())
	if err == nil {
		r.subs[who] = sub
	}
}

func (r *lawRun) close(who int) {
	if r.subs[who] != nil {
		r.subs[who].Close()
		r.subs[who] = nil
	}
}

// read takes what Next has at once and delivers a part of its bytes. It
// reports whether there may be more.
func (r *lawRun) read(who int, part float64) (bool, error) {
	sub, c := r.subs[who], r.clients[who]
	if sub == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
	defer cancel()
	frames, err := sub.Next(ctx)
	if errors.Is(err, feed.ErrEnded) {
		r.close(who)
		if !c.ending {
			return false, fmt.Errorf("reader %d: the stream ended without a word", who)
		}
		return false, nil
	}
	if err != nil {
		return false, nil // nothing at once
	}
	if err := r.bookmarkIsSound(sub, c); err != nil {
		return false, fmt.Errorf("reader %d: %w", who, err)
	}
	var p []byte
	for _, f := range frames {
		p = append(p, f.Bytes...)
	}
	if err := c.receive(p[:int(part*float64(len(p)))]); err != nil {
		return false, fmt.Errorf("reader %d, %+v: %w", who, r.plan.readers[who], err)
	}
	return true, nil
}

// bookmarkIsSound checks, while frames are under way that nobody has, that
// the bookmark passes nothing that the client lacks. Before server.connected
// has come, the client does not know its place.
func (r *lawRun) bookmarkIsSound(sub *feed.Subscriber, c *client) error {
	if c.pos == nil || !c.connected {
		return nil
	}
	at, err := c.at(sub.Info().Bookmark.String())
	if err != nil {
		return err
	}
	for n := at; n.seq > c.pos.seq; n = n.prev {
		if c.wants(n) && n.back(c.pos.seq) == c.pos {
			return fmt.Errorf("the bookmark, %d, passes event %d, which was not written", at.seq, n.seq)
		}
	}
	return nil
}

// calm heals the log and lets everybody come to the head.
func (r *lawRun) calm() error {
	r.log.heal()
	time.Sleep(10 * time.Second)
	if err := r.publish(act{kind: actPublish, n: 8}); err != nil {
		return err
	}
	time.Sleep(10 * time.Second)
	for who, c := range r.clients {
		for round := 0; ; round++ {
			r.connect(who)
			more, err := r.read(who, 1)
			if err != nil {
				return fmt.Errorf("in the calm: %w", err)
			}
			if !more && r.subs[who] != nil && len(c.lacks()) == 0 {
				break
			}
			if round > 2000 {
				return fmt.Errorf("in the calm: reader %d, at cursor %s, never gets %v", who, c.cursor, c.lacks())
			}
		}
	}
	return nil
}
