package feed

// queue holds one subscriber's accepted frames that are not yet taken. It is
// bounded in frames and bytes, and holds no memory while it is empty. Guarded
// by Subscriber.mu.
type queue struct {
	frames    []*Frame // a circular buffer, grown on demand
	first     int
	n         int
	bytes     int64
	maxFrames int
	maxBytes  int64
	highWater int
}

// fits reports whether frames of these numbers can be accepted. An empty
// queue takes one frame whatever its size, so that a large event passes.
func (q *queue) fits(frames int, bytes int64) bool {
	if q.n == 0 && frames == 1 {
		return true
	}
	return q.n+frames <= q.maxFrames && q.bytes+bytes <= q.maxBytes
}

func (q *queue) push(f *Frame) {
	if q.n == len(q.frames) {
		frames := make([]*Frame, max(4, 2*len(q.frames)))
		for i := range q.n {
			frames[i] = q.frames[(q.first+i)%len(q.frames)]
		}
		q.frames, q.first = frames, 0
	}
	q.frames[(q.first+q.n)%len(q.frames)] = f
	q.n++
	q.bytes += int64(len(f.Bytes))
	q.highWater = max(q.highWater, q.n)
}

func (q *queue) peek() *Frame { return q.frames[q.first] }

func (q *queue) pop() *Frame {
	f := q.frames[q.first]
	q.frames[q.first] = nil
	q.first = (q.first + 1) % len(q.frames)
	q.n--
	q.bytes -= int64(len(f.Bytes))
	if q.n == 0 {
		q.first = 0
		if len(q.frames) > 64 { // a burst is over: give its memory back
			q.frames = nil
		}
	}
	return f
}

// clear drops everything and returns the bytes that it held.
func (q *queue) clear() int64 {
	bytes := q.bytes
	q.frames, q.first, q.n, q.bytes = nil, 0, 0, 0
	return bytes
}
