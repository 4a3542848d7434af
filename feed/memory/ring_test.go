package memory

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gapless/feed"
)

// TestRingIsAQueue compares the ring with a plain slice, through its growth
// while it is wrapped around.
func TestRingIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		var want []uint64
		seq := uint64(0)
		for _, step := range rapid.SliceOfN(rapid.IntRange(-150, 200), 1, 12).Draw(t, "pushes and shifts") {
			for ; step > 0; step-- {
				seq++
				r.push(entry{Event: &feed.Event{Seq: seq}})
				want = append(want, seq)
			}
			for ; step < 0 && len(want) > 0; step++ {
				r.shift()
				want = want[1:]
			}
			got := make([]uint64, r.n)
			for i := range got {
				got[i] = r.get(i).Seq
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

// TestRingLetsGoOfWhatItDropped: no slot outside the queue keeps an event in
// memory.
func TestRingLetsGoOfWhatItDropped(t *testing.T) {
	var r ring
	for seq := range uint64(1000) {
		r.push(entry{Event: &feed.Event{Seq: seq}})
		if r.n > 10 {
			r.shift()
		}
	}
	held := 0
	for _, ev := range r.events {
		if ev.Event != nil {
			held++
		}
	}
	if held != r.n || len(r.events) > 64 {
		t.Errorf("%d events are held in %d slots, want %d in at most 64", held, len(r.events), r.n)
	}
}
