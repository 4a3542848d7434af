package feed

import (
	"context"
	"sync"
	"time"
)

// gate bounds what is appended here and not yet offered by the pump, in events
// and bytes. Without it, publishers that are faster than the pump would make a
// short log trim what no live subscriber has been offered.
type gate struct {
	mu      sync.Mutex
	limit   load          // zero bounds nothing
	held    load          // by appends under way, and by batches below
	batches []heldBatch   // appended, not known to be offered
	offered uint64        // where the pump is
	resets  uint64        // of the log
	moved   chan struct{} // closed on each change; nil: nobody waits
}

// load is an amount of events, and of bytes by [Event.Size].
type load struct {
	events uint64
	bytes  int64
}

// reservation is a load under way.
type reservation struct {
	load
	resets uint64 // of the log, before it
}

// heldBatch is one append, up to its last seq.
type heldBatch struct {
	load
	last uint64
}

// gateWait is the longest time for which a publisher waits for the pump: a
// log that cannot be read must not stop one that can be written.
const gateWait = time.Second

// gateLimit leaves the pump half of what the log keeps.
func gateLimit(r Retention) load {
	const most = 1 << 16
	l := load{events: most, bytes: r.Bytes / 2}
	if r.Events > 0 {
		l.events = min(max(r.Events/2, 1), most)
	}
	return l
}

func (l load) fits(more, limit load) bool {
	return l.events+more.events <= limit.events && (limit.bytes == 0 || l.bytes+more.bytes <= limit.bytes)
}

// reserve takes room for a batch, waiting for it for gateWait at the most. A
// batch above the limit passes alone. It returns what settle asks for. The
// error is ctx's; nothing is then reserved.
func (g *gate) reserve(ctx context.Context, batch load) (reservation, error) {
	bounded, cancel := context.WithTimeout(ctx, gateWait)
	defer cancel()
	for {
		g.mu.Lock()
		if g.held == (load{}) || g.held.fits(batch, g.limit) || bounded.Err() != nil && ctx.Err() == nil {
			g.held.events += batch.events
			g.held.bytes += batch.bytes
			r := reservation{load: batch, resets: g.resets}
			g.mu.Unlock()
			return r, nil
		}
		moved := g.movedLocked()
		g.mu.Unlock()
		select {
		case <-moved:
		case <-bounded.Done():
			if err := ctx.Err(); err != nil {
				return reservation{}, err
			}
		}
	}
}

// settle says what became of a reservation: last is the highest seq that the
// append stored, 0 for none. It is held until the pump has offered that,
// unless the log was reset meanwhile: its seqs may be of the lost branch.
func (g *gate) settle(r reservation, last uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.resets != g.resets {
		last = 0
	}
	g.batches = append(g.batches, heldBatch{load: r.load, last: last})
	g.releaseLocked()
}

// advance tells where the pump is. After a reset of the log it may be lower
// than before, and what was appended to the lost branch is then not awaited.
func (g *gate) advance(offered uint64, reset bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offered = offered
	if reset {
		g.resets++
		for i := range g.batches {
			g.batches[i].last = 0
		}
	}
	g.releaseLocked()
}

// releaseLocked gives up what was offered.
func (g *gate) releaseLocked() {
	kept := g.batches[:0]
	for _, b := range g.batches {
		if b.last > g.offered {
			kept = append(kept, b)
			continue
		}
		g.held.events -= b.events
		g.held.bytes -= b.bytes
	}
	g.batches = kept
	if g.moved != nil {
		close(g.moved)
		g.moved = nil
	}
}

// flush blocks until everything appended is offered, for gateWait at the
// most: what is not by then is left to the readers' cursors.
func (g *gate) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, gateWait)
	defer cancel()
	for {
		g.mu.Lock()
		held, moved := g.held, g.movedLocked()
		g.mu.Unlock()
		if held == (load{}) {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (g *gate) movedLocked() <-chan struct{} {
	if g.moved == nil {
		g.moved = make(chan struct{})
	}
	return g.moved
}
