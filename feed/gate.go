package feed

import (
	"context"
	"sync"
	"time"
)

// gate bounds the events that are appended here and not yet offered by the
// pump. Without it, publishers that are faster than the pump would make a
// short log trim what no live subscriber has been offered.
type gate struct {
	mu       sync.Mutex
	limit    uint64
	reserved uint64        // by appends under way
	appended uint64        // the highest seq appended here
	offered  uint64        // where the pump is
	moved    chan struct{} // closed on each change; nil: nobody waits
}

// gateWait is the longest time for which a publisher waits for the pump: a
// log that cannot be read must not stop one that can be written.
const gateWait = time.Second

// pendingLimit leaves the pump half of what the log keeps.
func pendingLimit(r Retention) uint64 {
	const most = 1 << 16
	if r.Events == 0 {
		return most
	}
	return min(max(r.Events/2, 1), most)
}

// reserve takes room for n events, waiting for it for gateWait at the most. A
// batch above the limit passes alone. The error is ctx's; nothing is then
// reserved.
func (g *gate) reserve(ctx context.Context, n uint64) error {
	bounded, cancel := context.WithTimeout(ctx, gateWait)
	defer cancel()
	for {
		g.mu.Lock()
		pending := g.pendingLocked()
		if pending == 0 || pending+n <= g.limit || bounded.Err() != nil && ctx.Err() == nil {
			g.reserved += n
			g.mu.Unlock()
			return nil
		}
		moved := g.movedLocked()
		g.mu.Unlock()
		select {
		case <-moved:
		case <-bounded.Done():
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
}

// settle gives a reservation back; last is the highest seq that the append
// stored, 0 for none.
func (g *gate) settle(n, last uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reserved -= n
	g.appended = max(g.appended, last)
	g.notifyLocked()
}

// advance tells where the pump is. After a reset of the log it may be lower
// than before, and what was appended to the lost branch is then not awaited.
func (g *gate) advance(offered uint64, reset bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.offered = offered
	if reset {
		g.appended = offered
	}
	g.notifyLocked()
}

// flush blocks until everything appended is offered, for gateWait at the
// most: what is not by then is left to the readers' cursors.
func (g *gate) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, gateWait)
	defer cancel()
	for {
		g.mu.Lock()
		pending, moved := g.pendingLocked(), g.movedLocked()
		g.mu.Unlock()
		if pending == 0 {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (g *gate) pendingLocked() uint64 {
	if g.appended <= g.offered {
		return g.reserved
	}
	return g.reserved + g.appended - g.offered
}

func (g *gate) movedLocked() <-chan struct{} {
	if g.moved == nil {
		g.moved = make(chan struct{})
	}
	return g.moved
}

func (g *gate) notifyLocked() {
	if g.moved != nil {
		close(g.moved)
		g.moved = nil
	}
}
