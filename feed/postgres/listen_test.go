//go:build linux && e2e

package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gapless/feed"
)

// follow reads what follows a cursor until the seq is reached, waiting where
// there is nothing, as a feed does.
func follow(t testing.TB, ctx context.Context, s *Store, at feed.Cursor, until uint64) []*feed.Event {
	t.Helper()
	var seen []*feed.Event
	for at.Seq < until {
		if err := s.Wait(ctx, at); err != nil {
			t.Errorf("waiting at %d: %v", at.Seq, err)
			return seen
		}
		page, err := s.Read(ctx, at.Seq, feed.Limit{Events: 100})
		if err != nil {
			t.Errorf("reading after %d: %v", at.Seq, err)
			return seen
		}
		for _, ev := range page.Events {
			if ev.Seq != at.Seq+1 {
				t.Errorf("event %d follows %d", ev.Seq, at.Seq)
			}
			at.Position = ev.Position()
			seen = append(seen, ev)
		}
	}
	return seen
}

// TestANotificationWakes: an event that another process appends is seen
// before the next safety poll.
func TestANotificationWakes(t *testing.T) {
	url := database(t)
	s, other := openStore(t, Config{URL: url}), openStore(t, Config{URL: url})
	appendOne(t, other, draft("first", 10))
	listening(t, s)
	at := headOf(t, s)
	polls := 0
	for n := range 20 {
		began := time.Now()
		seq := appendOne(t, other, draft(fmt.Sprint(n), 10)).Seq
		follow(t, patient(t), s, at, seq)
		at = headOf(t, s)
		if time.Since(began) > safetyPoll/2 {
			polls++
		}
	}
	if polls > 10 {
		t.Errorf("%d of 20 events waited for a poll", polls)
	}
}

// listening waits until a store listens.
func listening(t testing.TB, s *Store) {
	t.Helper()
	name := s.pool.Config().ConnConfig.Database
	ctx := patient(t)
	for {
		var n int
		err := s.pool.QueryRow(ctx, `select count(*) from pg_stat_activity where datname = $1 and query ilike 'select i.epoch%' or query ilike 'listen%'`, name).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if _, looked := s.known.seen(); looked && n > 0 {
			return
		}
		if !pause(ctx, 5*time.Millisecond) {
			t.Fatal("the store does not listen")
		}
	}
}

// TestALostListenerIsReplaced ends the listening sessions while another
// process appends: every event is read, in order.
func TestALostListenerIsReplaced(t *testing.T) {
	const most = 400
	url := database(t)
	s, other := openStore(t, Config{URL: url}), openStore(t, Config{URL: url})
	at := headOf(t, s)
	ctx := patient(t)
	done := make(chan []*feed.Event)
	go func() { done <- follow(t, ctx, s, at, most) }()
	killer := openStore(t, Config{URL: url})
	for n := range most {
		appendOne(t, other, draft(fmt.Sprint(n), 10))
		if n%100 == 50 {
			if _, err := killer.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
				and backend_type = 'client backend' and (query ilike 'select i.epoch%' or query ilike 'listen%')`); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen := <-done; len(seen) != most {
		t.Errorf("%d events, want %d", len(seen), most)
	}
}

// TestANewListenerWakes whoever waits, though nothing changed that it can see:
// it did not hear what came before.
func TestANewListenerWakes(t *testing.T) {
	s := openStore(t, Config{URL: database(t)})
	appendOne(t, s, draft("first", 10))
	at := headOf(t, s)
	listening(t, s)
	ctx := patient(t)
	waited := make(chan error, 1)
	go func() {
		waited <- s.Wait(ctx, at)
	}()
	for s.known.idle() {
		if !pause(ctx, time.Millisecond) {
			t.Fatal("nobody waits")
		}
	}
	if _, err := s.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
		and backend_type = 'client backend' and (query ilike 'select i.epoch%' or query ilike 'listen%')`); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// TestForgedNotificationsOnlyWake: what a notification says is a hint. Waiters
// look, and do not spin.
func TestForgedNotificationsOnlyWake(t *testing.T) {
	s := openStore(t, Config{URL: database(t)})
	appendOne(t, s, draft("first", 10))
	at := headOf(t, s)
	listening(t, s)
	epoch := string(at.Epoch)
	for _, payload := range []string{"", "x", "hello there", epoch + "-9223372036854775807-7K3M9Q2P", "01ARZ3NDEKTSV4RRFFQ69G5FAV-1", epoch + "-0", epoch} {
		if _, err := s.pool.Exec(patient(t), notifyHead, payload); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	early := 0
	for s.Wait(ctx, at) == nil {
		early++
		if got := headOf(t, s); got != at {
			t.Fatalf("the head is %v, want %v", got, at)
		}
	}
	if early > 10 {
		t.Errorf("a wait returned early %d times for 7 notifications", early)
	}
	if a := appendOne(t, s, draft("second", 10)); a.Seq != 2 {
		t.Errorf("%+v", a)
	}
}

// TestListeningIsBounded: a network that swallows what is sent does not keep
// the listener for ever.
func TestListeningIsBounded(t *testing.T) {
	p, url := newProxy(t, database(t))
	s := openStore(t, Config{URL: url, callPatience: 500 * time.Millisecond, tryPatience: 500 * time.Millisecond})
	conn, closing, err := s.connect(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer closing()
	p.set(func(p *proxy) { p.mute = p.born })
	done := make(chan error, 1)
	go func() { done <- s.hear(s.ctx, conn) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it heard itself through a mute connection")
		}
	case <-time.After(20 * time.Second):
		p.breakAll()
		<-done
		t.Error("it waits without a bound")
	}
}
