package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gapless/feed"
)

// askedStore is a store of which only its guard is asked. It answers when the
// test says so, whatever becomes of the context.
type askedStore struct {
	feed.Durable
	questions chan context.Context
	answers   chan feed.RestoreStatus // closed: an error
}

func (s *askedStore) RestoreStatus(ctx context.Context) (feed.RestoreStatus, error) {
	s.questions <- ctx
	status, ok := <-s.answers
	if !ok {
		return status, errors.New("it failed")
	}
	return status, nil
}

func newAskedStore() *askedStore {
	return &askedStore{questions: make(chan context.Context, 9), answers: make(chan feed.RestoreStatus, 9)}
}

// wantLook looks, and says for how long that may take.
func wantLook(t *testing.T, w *storeWatch, ctx context.Context, guard feed.GuardMode, takes time.Duration) {
	t.Helper()
	began := time.Now()
	if got := w.look(ctx); got.Guard != guard || time.Since(began) != takes {
		t.Errorf("%q after %v, want %q after %v", got.Guard, time.Since(began), guard, takes)
	}
}

func TestAStoreIsAskedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newAskedStore()
		w := newStoreWatch(st)
		// It hangs: the one that asks waits a little, the others do not.
		wantLook(t, w, t.Context(), "", watchWait)
		for range 5 {
			wantLook(t, w, t.Context(), "", 0)
		}
		time.Sleep(10 * watchTimeout)
		wantLook(t, w, t.Context(), "", 0)
		if ctx := <-st.questions; len(st.questions) != 0 || ctx.Err() == nil {
			t.Errorf("%d more questions at once; the first was not given up", len(st.questions))
		}
		st.answers <- feed.RestoreStatus{Guard: feed.GuardStrict}
		synctest.Wait()
		wantLook(t, w, t.Context(), feed.GuardStrict, 0)
		time.Sleep(watchEvery - 1)
		wantLook(t, w, t.Context(), feed.GuardStrict, 0)
		if len(st.questions) != 0 {
			t.Error("it was asked again too soon")
		}
		// Later it hangs again: what it said stands.
		time.Sleep(time.Nanosecond)
		wantLook(t, w, t.Context(), feed.GuardStrict, watchWait)
		wantLook(t, w, t.Context(), feed.GuardStrict, 0)
		close(st.answers) // and fails, which counts as asked
		synctest.Wait()
		wantLook(t, w, t.Context(), feed.GuardStrict, 0)
		if len(st.questions) != 1 {
			t.Errorf("%d questions", len(st.questions))
		}
	})
}

// A page that is given up takes nothing from the question that it asked.
func TestALookOutlivesThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newAskedStore()
		w := newStoreWatch(st)
		gone, leave := context.WithCancel(t.Context())
		leave()
		wantLook(t, w, gone, "", 0)
		if ctx := <-st.questions; ctx.Err() != nil {
			t.Errorf("the question left with the page: %v", ctx.Err())
		}
		st.answers <- feed.RestoreStatus{Guard: feed.GuardOff}
		synctest.Wait()
		wantLook(t, w, t.Context(), feed.GuardOff, 0)
	})
}

// What was asked before a change says nothing about what is after it.
func TestAChangeOvertakesALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newAskedStore()
		w := newStoreWatch(st)
		wantLook(t, w, t.Context(), "", watchWait)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if sealed, known := w.sealed(t.Context()); !sealed || !known {
				t.Errorf("sealed %v, known %v", sealed, known)
			}
		}()
		synctest.Wait()
		st.answers <- feed.RestoreStatus{Guard: feed.GuardOff}
		st.answers <- feed.RestoreStatus{Guard: feed.GuardStrict, Sealed: true}
		<-done
		wantLook(t, w, t.Context(), feed.GuardStrict, 0)

		w.forget() // nobody asks at the time
		st.answers <- feed.RestoreStatus{Guard: feed.GuardVerify}
		wantLook(t, w, t.Context(), feed.GuardVerify, 0)
		// A store that hangs does not say whether it is sealed.
		if _, known := w.sealed(t.Context()); known {
			t.Error("it knows what the store has not said")
		}
		if _, known := w.sealed(t.Context()); known {
			t.Error("it knows what the store has not said")
		}
		close(st.answers)
	})
}
