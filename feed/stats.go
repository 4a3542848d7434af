package feed

import (
	"sync/atomic"
	"time"
)

// FrameSizeBuckets are the upper bounds, in bytes, of [Stats.FrameSizes]; one
// more bucket holds what is larger.
var FrameSizeBuckets = [...]float64{256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}

// DrainBuckets are the upper bounds, in seconds, of [Stats.DrainTimes].
var DrainBuckets = [...]float64{0.001, 0.01, 0.1, 0.5, 1, 5, 15, 60, 300}

// Histogram is a snapshot of one distribution: counts by bucket (not
// cumulative), the last one open-ended.
type Histogram struct {
	Counts []uint64
	Count  uint64
	Sum    float64
}

// Stats is a snapshot of what the feed counted since it was made.
type Stats struct {
	EventsPublished  uint64 // stored, without duplicates
	BytesPublished   uint64 // payload bytes of those
	Batches          uint64
	Duplicates       uint64
	Encodings        map[Shape]uint64
	EncodingFailures uint64
	FrameSizes       Histogram // bytes, one observation an encoding
	Deliveries       uint64    // events written to subscribers
	DeliveredBytes   uint64
	Heartbeats       uint64
	Overflows        uint64    // a full queue: live to lagging
	Rejoins          uint64    // lagging, and live again
	DrainTimes       Histogram // seconds from overflow until the queue was drained
	Resyncs          map[Reason]uint64
	LastResync       Resynced
	Resumes          uint64 // subscribes with a cursor that was served
	QueueHighWater   uint64 // frames, the most that one queue ever held
	QueueBytes       int64  // in all queues now
	LogErrors        uint64
}

// Resynced tells of one resync.
type Resynced struct {
	Time   time.Time // zero: none yet
	Reason Reason
}

// counters are the live values behind [Stats]; all are safe for concurrent use.
type counters struct {
	events, bytes, batches, duplicates atomic.Uint64
	encodings                          [shapes]atomic.Uint64
	encodingFailures                   atomic.Uint64
	frameSizes                         [len(FrameSizeBuckets) + 1]atomic.Uint64
	frameBytes                         atomic.Uint64
	deliveries, deliveredBytes         atomic.Uint64
	heartbeats                         atomic.Uint64
	overflows, rejoins                 atomic.Uint64
	drainTimes                         [len(DrainBuckets) + 1]atomic.Uint64
	drainNanos                         atomic.Int64
	resyncs                            [9]atomic.Uint64 // in the order of Reasons
	lastResync                         atomic.Pointer[Resynced]
	resumes                            atomic.Uint64
	queueHighWater                     atomic.Uint64
	queueBytes                         atomic.Int64
	logErrors                          atomic.Uint64
}

func (c *counters) encoded(shape Shape, frame *Frame, err error) {
	if err != nil {
		c.encodingFailures.Add(1)
		return
	}
	c.encodings[shape.index()].Add(1)
	c.frameSizes[bucket(FrameSizeBuckets[:], float64(len(frame.Bytes)))].Add(1)
	c.frameBytes.Add(uint64(len(frame.Bytes)))
}

func (c *counters) drained(took time.Duration) {
	c.drainTimes[bucket(DrainBuckets[:], took.Seconds())].Add(1)
	c.drainNanos.Add(int64(took))
}

func (c *counters) resynced(reason Reason, now time.Time) {
	for i, r := range Reasons() {
		if r == reason {
			c.resyncs[i].Add(1)
		}
	}
	c.lastResync.Store(&Resynced{Time: now, Reason: reason})
}

func (c *counters) queueHeld(frames int) {
	for n := uint64(frames); ; {
		old := c.queueHighWater.Load()
		if n <= old || c.queueHighWater.CompareAndSwap(old, n) {
			return
		}
	}
}

func bucket(bounds []float64, v float64) int {
	for i, b := range bounds {
		if v <= b {
			return i
		}
	}
	return len(bounds)
}

func histogram(counts []atomic.Uint64, sum float64) Histogram {
	h := Histogram{Counts: make([]uint64, len(counts)), Sum: sum}
	for i := range counts {
		h.Counts[i] = counts[i].Load()
		h.Count += h.Counts[i]
	}
	return h
}

// Stats returns a snapshot of the counters. It does not block.
func (f *Feed) Stats() Stats {
	c := &f.stats
	s := Stats{
		EventsPublished:  c.events.Load(),
		BytesPublished:   c.bytes.Load(),
		Batches:          c.batches.Load(),
		Duplicates:       c.duplicates.Load(),
		Encodings:        make(map[Shape]uint64, shapes),
		EncodingFailures: c.encodingFailures.Load(),
		FrameSizes:       histogram(c.frameSizes[:], float64(c.frameBytes.Load())),
		Deliveries:       c.deliveries.Load(),
		DeliveredBytes:   c.deliveredBytes.Load(),
		Heartbeats:       c.heartbeats.Load(),
		Overflows:        c.overflows.Load(),
		Rejoins:          c.rejoins.Load(),
		DrainTimes:       histogram(c.drainTimes[:], time.Duration(c.drainNanos.Load()).Seconds()),
		Resyncs:          make(map[Reason]uint64, len(c.resyncs)),
		Resumes:          c.resumes.Load(),
		QueueHighWater:   c.queueHighWater.Load(),
		QueueBytes:       c.queueBytes.Load(),
		LogErrors:        c.logErrors.Load(),
	}
	for i := range c.encodings {
		s.Encodings[shapeAt(i)] = c.encodings[i].Load()
	}
	for i, r := range Reasons() {
		s.Resyncs[r] = c.resyncs[i].Load()
	}
	if last := c.lastResync.Load(); last != nil {
		s.LastResync = *last
	}
	return s
}
