package feed

// ring holds the most recent events with their frames: what a reader that is
// nearly caught up needs, without another read of the log. It covers the
// positions from base to the last record. Guarded by Feed.mu.
type ring struct {
	base      Position  // of the event before the first record
	records   []*record // a circular buffer, grown on demand
	first     int
	n         int
	bytes     int64
	maxEvents int
	maxBytes  int64
}

// reset empties the ring; it then covers just base.
func (r *ring) reset(base Position) {
	*r = ring{base: base, maxEvents: r.maxEvents, maxBytes: r.maxBytes}
}

// push appends the next record and drops the oldest beyond the bounds.
func (r *ring) push(rec *record) {
	if r.n == len(r.records) {
		r.grow()
	}
	r.records[(r.first+r.n)%len(r.records)] = rec
	r.n++
	r.bytes += rec.Size()
	for r.n > 1 && (r.n > r.maxEvents || r.bytes > r.maxBytes) {
		r.drop()
	}
}

func (r *ring) grow() {
	records := make([]*record, max(16, 2*len(r.records)))
	for i := range r.n {
		records[i] = r.records[(r.first+i)%len(r.records)]
	}
	r.records, r.first = records, 0
}

func (r *ring) drop() {
	oldest := r.records[r.first]
	r.records[r.first] = nil
	r.first = (r.first + 1) % len(r.records)
	r.n--
	r.bytes -= oldest.Size()
	r.base = oldest.Position()
}

// trim drops what the log no longer holds.
func (r *ring) trim(oldest uint64) {
	for r.n > 0 && r.base.Seq+1 < oldest {
		r.drop()
	}
}

func (r *ring) get(i int) *record { return r.records[(r.first+i)%len(r.records)] }

// after returns the index of the first record behind pos and the fence at
// pos; ok is false where the ring does not cover pos.
func (r *ring) after(pos Position) (index int, fence Fence, ok bool) {
	if pos.Seq < r.base.Seq || pos.Seq > r.base.Seq+uint64(r.n) {
		return 0, Fence{}, false
	}
	index = int(pos.Seq - r.base.Seq)
	if index == 0 {
		return 0, r.base.Fence, true
	}
	return index, r.get(index - 1).Fence, true
}

// find returns the record of an event, nil where the ring has none.
func (r *ring) find(epoch Epoch, pos Position) *record {
	if pos.Seq <= r.base.Seq || pos.Seq > r.base.Seq+uint64(r.n) {
		return nil
	}
	if rec := r.get(int(pos.Seq - r.base.Seq - 1)); rec.epoch == epoch && rec.Fence == pos.Fence {
		return rec
	}
	return nil
}
