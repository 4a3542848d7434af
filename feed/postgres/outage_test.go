//go:build linux && e2e

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/postgres/pgtest"
)

// TestADatabaseThatIsDownComesUp: a store opens without its database, refuses
// what it is asked for, and serves as soon as the database does.
func TestADatabaseThatIsDownComesUp(t *testing.T) {
	p, url := newProxy(t, database(t))
	p.set(func(p *proxy) { p.shut = true })
	s := openStore(t, Config{URL: strings.Replace(url, "postgres@", "postgres:s3cret@", 1)})
	ctx := patient(t)
	for name, call := range map[string]func() error{
		"append": func() error { _, err := s.Append(ctx, []feed.Draft{draft("a", 1)}); return err },
		"read":   func() error { _, err := s.Read(ctx, 0, feed.Limit{}); return err },
		"search": func() error { _, err := s.Search(ctx, feed.Search{N: 1}); return err },
		"trim":   func() error { return s.Trim(ctx) },
	} {
		if err := call(); feed.CodeOf(err) != feed.CodeUnavailable || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := s.Wait(short, feed.Cursor{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	p.set(func(p *proxy) { p.shut = false })
	if a := appendOne(t, s, draft("a", 1)); a.Seq != 1 {
		t.Errorf("%+v", a)
	}
	// The listener comes back by itself.
	if err := s.Wait(ctx, feed.Cursor{}); err != nil {
		t.Error(err)
	}
}

// TestASlowDatabaseIsWaitedFor: every answer takes its time, and comes.
func TestASlowDatabaseIsWaitedFor(t *testing.T) {
	p, url := newProxy(t, database(t))
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("warm-up", 1))
	p.set(func(p *proxy) { p.delay = scaled(600*time.Millisecond, 2500*time.Millisecond) }) // up to 5 s a round trip
	if a := appendOne(t, s, draft("slow", 1)); a.Seq != 2 || a.Duplicate {
		t.Errorf("%+v", a)
	}
	p.set(func(p *proxy) { p.delay = 0 })
	wantLog(t, s, 2)
}

// TestAHungDatabaseHangsNobodyForEver: the callers' deadlines hold while
// nothing comes back, and all is well afterwards.
func TestAHungDatabaseHangsNobodyForEver(t *testing.T) {
	p, url := newProxy(t, database(t))
	s := openStore(t, Config{URL: url, tryPatience: time.Second})
	appendOne(t, s, draft("warm-up", 1))
	p.set(func(p *proxy) { p.hang = true })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for n := range 10 {
		wg.Go(func() {
			if _, err := s.Append(ctx, []feed.Draft{draft(fmt.Sprint(n), 1)}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("append: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := s.Read(ctx, 0, feed.Limit{Events: 1}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("read: %v", err)
			}
		})
	}
	wg.Wait()
	p.set(func(p *proxy) { p.hang = false })
	p.breakAll()
	for n := range 10 {
		appendOne(t, s, draft(fmt.Sprint(n), 1))
	}
	wantLog(t, s, 11)
}

// TestAServerThatIsKilledKeepsWhatItAcknowledged kills a server that syncs in
// the middle of appends from two processes, again and again.
func TestAServerThatIsKilledKeepsWhatItAcknowledged(t *testing.T) {
	c := pgtest.New(t)
	url := c.Database(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	stores := []*Store{openStore(t, Config{URL: url}), openStore(t, Config{URL: url})}
	ctx := patient(t)
	var stop atomic.Bool
	var mu sync.Mutex
	acknowledged := make(map[uint64]string)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for n := 0; !stop.Load(); n++ {
				d := draft(fmt.Sprintf("%d-%d", w, n), 50)
				for ctx.Err() == nil {
					receipt, err := stores[w%2].Append(ctx, []feed.Draft{d})
					if err == nil {
						mu.Lock()
						if other, ok := acknowledged[receipt.Events[0].Seq]; ok {
							t.Errorf("seq %d was given to %s and %s", receipt.Events[0].Seq, other, d.ID)
						}
						acknowledged[receipt.Events[0].Seq] = d.ID
						mu.Unlock()
						break
					}
					if feed.CodeOf(err) != feed.CodeUnavailable {
						t.Errorf("append: %v", err)
						return
					}
					pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	for range 3 {
		mu.Lock()
		before := len(acknowledged)
		mu.Unlock()
		for done := 0; done < before+200 && ctx.Err() == nil; {
			pause(ctx, 5*time.Millisecond)
			mu.Lock()
			done = len(acknowledged)
			mu.Unlock()
		}
		c.Kill(t)
		c.Start(t)
	}
	stop.Store(true)
	wg.Wait()
	wantLog(t, stores[0], uint64(len(acknowledged)))
	for _, ev := range retained(t, stores[1]) {
		if acknowledged[ev.Seq] != ev.ID {
			t.Errorf("seq %d holds %q, acknowledged was %q", ev.Seq, ev.ID, acknowledged[ev.Seq])
		}
	}
	t.Logf("%d events", len(acknowledged))
}

// TestStoresShareOneOrder: two processes append and follow; both see one order,
// and an id that both are given at once is one event.
func TestStoresShareOneOrder(t *testing.T) {
	const each = 150
	url := database(t)
	stores := []*Store{openStore(t, Config{URL: url}), openStore(t, Config{URL: url})}
	ctx := patient(t)
	at := headOf(t, stores[0])
	var wg sync.WaitGroup
	orders := make([][]*feed.Event, 2)
	firsts := make([][]feed.Appended, 2)
	for i, s := range stores {
		wg.Go(func() { orders[i] = follow(t, ctx, s, at, 3*each) })
		wg.Go(func() {
			for n := range each {
				receipt, err := s.Append(ctx, []feed.Draft{draft(fmt.Sprintf("own-%d-%d", i, n), 10), draft(fmt.Sprint("shared-", n), 10)})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				firsts[i] = append(firsts[i], receipt.Events[1])
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for n := range each {
		a, b := firsts[0][n], firsts[1][n]
		if a.Seq != b.Seq || a.Duplicate == b.Duplicate {
			t.Errorf("an id given to both: %+v and %+v", a, b)
		}
	}
	for i := range orders[0] {
		if orders[0][i].Position() != orders[1][i].Position() || orders[0][i].ID != orders[1][i].ID {
			t.Fatalf("the orders differ at %d", i)
		}
	}
	wantLog(t, stores[0], 3*each)
}

// TestConnectionsThatWentSilentAreGivenUp: the network swallows what is sent
// on those that there are, and lets new ones through.
func TestConnectionsThatWentSilentAreGivenUp(t *testing.T) {
	p, url := newProxy(t, database(t))
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("warm-up", 1))
	var views sync.WaitGroup
	held := make(chan struct{})
	for range cap(s.slots) {
		views.Go(func() {
			_ = s.view(patient(t), "hold", func(context.Context, querier, instance) error { <-held; return nil })
		})
	}
	eventually(t, "there are many", func() bool { return s.pool.Stat().AcquiredConns() == int32(cap(s.slots)) })
	close(held)
	views.Wait()
	pause(patient(t), 1100*time.Millisecond) // from then on an idle one is looked at
	p.set(func(p *proxy) { p.mute = p.born })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // much less than one patience for each
	defer cancel()
	if _, err := s.Append(ctx, []feed.Draft{draft("a", 1)}); err != nil {
		t.Error(err)
	}
	if _, err := s.Read(ctx, 0, feed.Limit{Events: 1}); err != nil {
		t.Error(err)
	}
	wantLog(t, s, 2)
}

// TestACallThatTimesOutLetsGoOfTheOthers: connections that are too young to be
// looked at hang as well.
func TestACallThatTimesOutLetsGoOfTheOthers(t *testing.T) {
	p, url := newProxy(t, database(t))
	s := openStore(t, Config{URL: url, callPatience: 300 * time.Millisecond, tryPatience: 300 * time.Millisecond})
	appendOne(t, s, draft("warm-up", 1))
	p.set(func(p *proxy) { p.mute = p.born })
	if _, err := s.Consumers(patient(t)); feed.CodeOf(err) != feed.CodeUnavailable {
		t.Errorf("%v", err)
	}
	eventually(t, "new connections are made", func() bool { _, err := s.Consumers(t.Context()); return err == nil })
	appendOne(t, s, draft("a", 1))
}

// TestALongCheckTakesNobodysPlace, however few connections there are.
func TestALongCheckTakesNobodysPlace(t *testing.T) {
	s := openStore(t, Config{URL: database(t), MaxConns: MinConns, callPatience: 5 * time.Second})
	appendOne(t, s, draft("a", 1))
	began, goOn, checked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		checked <- s.Check(patient(t), func(float64) { once.Do(func() { close(began); <-goOn }) })
	}()
	<-began
	if _, err := s.Read(patient(t), 0, feed.Limit{Events: 1}); err != nil {
		t.Error(err)
	}
	if _, err := s.RestoreStatus(patient(t)); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-checked; err != nil {
		t.Error(err)
	}
}

// TestAHungDatabaseDoesNotHoldUpClose, nor what still waits for it.
func TestAHungDatabaseDoesNotHoldUpClose(t *testing.T) {
	p, url := newProxy(t, database(t))
	s := openStore(t, Config{URL: url})
	if err := s.view(patient(t), "hold", func(context.Context, querier, instance) error {
		appendOne(t, s, draft("warm-up", 1)) // on a second connection
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.set(func(p *proxy) { p.hang = true })
	calls := make(chan error, 2)
	go func() { _, err := s.Append(context.Background(), []feed.Draft{draft("q", 1)}); calls <- err }()
	go func() { _, err := s.Read(context.Background(), 0, feed.Limit{}); calls <- err }()
	eventually(t, "they are under way", func() bool { return s.pool.Stat().AcquiredConns() == 2 })
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second): // a patience of the client library is 15 s
		t.Error("it waits for the database")
		<-closed
	}
	for range 2 {
		if err := <-calls; !errors.Is(err, feed.ErrClosed) {
			t.Errorf("%v", err)
		}
	}
}
