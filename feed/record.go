package feed

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

// record is an event with its frames, each encoded at most once, by whoever
// needs it first.
type record struct {
	*Event
	epoch  Epoch
	shared bool // found through records for as long as somebody holds a frame
	frames [shapes]encoding
}

type encoding struct {
	once  sync.Once
	done  atomic.Bool // frame or err is set
	frame *Frame
	err   error
}

// frame returns the event's frame in one shape. On first use it encodes it
// and tells made what came of it.
func (r *record) frame(shape Shape, made func(*Frame, error)) (*Frame, error) {
	e := &r.frames[shape.index()]
	e.once.Do(func() {
		if e.frame, e.err = encode(r.Event, r.epoch, shape); e.err == nil && r.shared {
			e.frame.record = r
		}
		e.done.Store(true)
		made(e.frame, e.err)
	})
	return e.frame, e.err
}

// encoded reports whether the frame is ready, or known to be impossible.
func (r *record) encoded(shape Shape) bool { return r.frames[shape.index()].done.Load() }

// records finds the record of an event that somebody still holds, so that
// readers that replay the same part of the log share its frames. It keeps
// nothing alive itself. Safe for concurrent use.
type records struct {
	mu   sync.Mutex
	held map[recordKey]weak.Pointer[record]
}

type recordKey struct {
	epoch Epoch
	Position
}

// of returns the record of an event.
func (c *records) of(ev *Event, epoch Epoch) *record {
	key := recordKey{epoch: epoch, Position: ev.Position()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rec := c.held[key].Value(); rec != nil {
		return rec
	}
	rec := &record{Event: ev, epoch: epoch, shared: true}
	if c.held == nil {
		c.held = make(map[recordKey]weak.Pointer[record])
	}
	c.held[key] = weak.Make(rec)
	runtime.AddCleanup(rec, c.forget, key)
	return rec
}

// forget drops the entry of a record that is gone.
func (c *records) forget(key recordKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[key].Value() == nil {
		delete(c.held, key)
	}
}
