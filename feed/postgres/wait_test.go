package postgres

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"gapless/feed"
)

const testEpoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCD"

func cursorAt(seq uint64) feed.Cursor {
	return feed.Cursor{Epoch: testEpoch, Position: feed.Position{Seq: seq}}
}

func atHead(seq uint64) *instance {
	return &instance{Epoch: testEpoch, Head: feed.Position{Seq: seq}, Oldest: 1}
}

func newKnowledge() *knowledge {
	var k knowledge
	k.init()
	return &k
}

// TestASnapshotThatEndsLateTakesNothingBack: the answer of a read that began
// before an append was committed comes after it.
func TestASnapshotThatEndsLateTakesNothingBack(t *testing.T) {
	k := newKnowledge()
	early := k.mark()
	k.observe(k.mark(), atHead(6), nil)
	k.observe(early, atHead(5), nil)
	if at, _ := k.seen(); at.Seq != 6 {
		t.Errorf("the head is known as %d, want 6", at.Seq)
	}
	if err := k.wait(t.Context(), cursorAt(5)); err != nil {
		t.Errorf("a wait below the head: %v", err)
	}
}

// TestALogThatWentBackIsBelieved where the snapshot is the newer one.
func TestALogThatWentBackIsBelieved(t *testing.T) {
	k := newKnowledge()
	k.observe(k.mark(), atHead(6), nil)
	k.observe(k.mark(), atHead(3), nil)
	if at, _ := k.seen(); at.Seq != 3 {
		t.Errorf("the head is known as %d, want 3", at.Seq)
	}
	if err := k.wait(t.Context(), cursorAt(6)); err != nil {
		t.Errorf("a wait above the head: %v", err)
	}
}

// TestAHintIsNotLost between a read and the wait that follows it, and wakes
// once.
func TestAHintIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnowledge()
		read := k.mark()
		k.hint(cursorAt(2)) // comes while the read is under way
		k.observe(read, atHead(1), nil)
		if err := k.wait(t.Context(), cursorAt(1)); err != nil {
			t.Fatalf("the hint was lost: %v", err)
		}
		k.observe(k.mark(), atHead(1), nil) // nothing new after all
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- k.wait(ctx, cursorAt(1)) }()
		synctest.Wait()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want a wait that blocks", err)
		}
	})
}

// TestAHintOfWhatIsKnownWakesNobody: it is the echo of an own append.
func TestAHintOfWhatIsKnownWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnowledge()
		k.observe(k.mark(), atHead(4), nil)
		waited := make(chan error)
		go func() { waited <- k.wait(t.Context(), cursorAt(4)) }()
		synctest.Wait()
		k.hint(cursorAt(4))
		k.hint(cursorAt(3))
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("it woke: %v", err)
		default:
		}
		k.hint(cursorAt(5))
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

// TestAnotherEventAtTheHeadEndsAWait: a log that was rolled back and has grown
// to the same seq is another one.
func TestAnotherEventAtTheHeadEndsAWait(t *testing.T) {
	k := newKnowledge()
	in := atHead(4)
	in.Head.Fence = feed.Fence([]byte("7K3M9Q2P"))
	k.observe(k.mark(), in, nil)
	at := cursorAt(4)
	at.Fence = feed.Fence([]byte("00000000"))
	if err := k.wait(t.Context(), at); err != nil {
		t.Error(err)
	}
}

// TestWaitsEnd with a trip of the guard, with a close, with another epoch.
func TestWaitsEnd(t *testing.T) {
	refusal := &feed.Error{Code: feed.CodeRestoreNotFinalized, Msg: "refused"}
	for name, c := range map[string]struct {
		event func(k *knowledge)
		want  error
	}{
		"trip":          {func(k *knowledge) { k.observe(k.mark(), atHead(9), refusal) }, refusal},
		"close":         {func(k *knowledge) { k.close() }, feed.ErrClosed},
		"doubt":         {func(k *knowledge) { k.doubt() }, nil},
		"another epoch": {func(k *knowledge) { in := atHead(4); in.Epoch = "x"; k.observe(k.mark(), in, nil) }, nil},
		"an append":     {func(k *knowledge) { k.observe(k.mark(), atHead(5), nil) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKnowledge()
				k.observe(k.mark(), atHead(4), nil)
				waited := make(chan error)
				go func() { waited <- k.wait(t.Context(), cursorAt(4)) }()
				synctest.Wait()
				if k.idle() {
					t.Error("nobody waits")
				}
				c.event(k)
				if err := <-waited; !errors.Is(err, c.want) || err != nil && c.want == nil {
					t.Errorf("%v, want %v", err, c.want)
				}
				if !k.idle() {
					t.Error("somebody still waits")
				}
			})
		})
	}
}

// TestOfTwoLooksAtOnceNeitherTurnsTheGuard: a look that began before the last
// one was taken up, and says the opposite, is a reason to look again.
func TestOfTwoLooksAtOnceNeitherTurnsTheGuard(t *testing.T) {
	refusal := &feed.Error{Code: feed.CodeRestoreNotFinalized, Msg: "refused"}
	for _, verdict := range []error{nil, refusal} {
		k := newKnowledge()
		k.observe(k.mark(), atHead(3), verdict)
		other := error(refusal)
		if verdict != nil {
			other = nil
		}
		early := k.mark()
		k.observe(k.mark(), atHead(4), verdict)
		if k.observe(early, atHead(5), other) {
			t.Error("the early one turns it")
		}
		if err := k.wait(t.Context(), cursorAt(4)); !errors.Is(err, verdict) {
			t.Errorf("a wait ends with %v, want %v", err, verdict)
		}
		if k.hints == k.heeded {
			t.Error("there is no reason to look again")
		}
		if !k.observe(k.mark(), atHead(5), other) || !errors.Is(k.tripped, other) {
			t.Error("a later one does not turn it")
		}
	}
}

// TestARefusalShowsNothingOfTheLog: what it holds is not what it is known for.
func TestARefusalShowsNothingOfTheLog(t *testing.T) {
	k := newKnowledge()
	k.observe(k.mark(), atHead(3), nil)
	k.observe(k.mark(), atHead(9), &feed.Error{Code: feed.CodeRestoreNotFinalized})
	if at, _ := k.seen(); at.Seq != 3 {
		t.Errorf("the head is known as %d", at.Seq)
	}
}
