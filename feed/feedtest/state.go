package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"gapless/feed"
)

// RunState checks that the stores that open returns keep the contract of
// [feed.State]. Open is as for [Run], of which RunState takes up
// [LacksClock], [LacksAgeBound] and [LacksTrimmedFence].
func RunState(t *testing.T, open func(t *testing.T, cfg Config) feed.Store, lacks ...Lack) {
	s := &suite{
		openLog: func(t *testing.T, cfg Config) feed.Log { return open(t, cfg) },
		lacks:   lacks,
	}
	for _, kind := range cursorKinds {
		t.Run(kind.name+"s", func(t *testing.T) {
			t.Run("life", func(t *testing.T) { s.testLife(t, kind) })
			t.Run("create", func(t *testing.T) { s.testCreate(t, kind) })
			t.Run("move", func(t *testing.T) { s.testMove(t, kind) })
			t.Run("names", func(t *testing.T) { s.testNames(t, kind) })
		})
	}
	t.Run("webhook fields", s.testWebhookFields)
	t.Run("audit", s.testAudit)
	t.Run("concurrent use", s.testStateRace)
	t.Run("context", s.testStateContext)
	t.Run("close", s.testStateClose)
}

// cursorKind is one of the two things that have a cursor in a store, so that
// what holds for both is written once.
type cursorKind struct {
	name   string
	create func(ctx context.Context, s feed.State, name string, at feed.Cursor) error
	get    func(ctx context.Context, s feed.State, name string) (held, error)
	list   func(ctx context.Context, s feed.State) ([]held, error)
	move   func(ctx context.Context, s feed.State, name string, from, to feed.Cursor) error
	delete func(ctx context.Context, s feed.State, name string) error
}

// held is what a consumer and a webhook have in common.
type held struct {
	name             string
	cursor           feed.Cursor
	resetFrom        feed.Cursor
	created, updated time.Time
}

var cursorKinds = []cursorKind{consumers, webhooks}

var consumers = cursorKind{
	name: "consumer",
	create: func(ctx context.Context, s feed.State, name string, at feed.Cursor) error {
		return s.CreateConsumer(ctx, feed.Consumer{Name: name, Cursor: at})
	},
	get: func(ctx context.Context, s feed.State, name string) (held, error) {
		c, err := s.Consumer(ctx, name)
		return heldConsumer(c), err
	},
	list: func(ctx context.Context, s feed.State) ([]held, error) {
		all, err := s.Consumers(ctx)
		return convert(all, heldConsumer), err
	},
	move: func(ctx context.Context, s feed.State, name string, from, to feed.Cursor) error {
		return s.MoveConsumer(ctx, name, from, to)
	},
	delete: func(ctx context.Context, s feed.State, name string) error { return s.DeleteConsumer(ctx, name) },
}

var webhooks = cursorKind{
	name: "webhook",
	create: func(ctx context.Context, s feed.State, name string, at feed.Cursor) error {
		return s.CreateWebhook(ctx, feed.Webhook{ID: name, URL: "https://example.org/", Secret: "s", Status: feed.WebhookActive, Cursor: at})
	},
	get: func(ctx context.Context, s feed.State, name string) (held, error) {
		w, err := s.Webhook(ctx, name)
		return heldWebhook(w), err
	},
	list: func(ctx context.Context, s feed.State) ([]held, error) {
		all, err := s.Webhooks(ctx)
		return convert(all, heldWebhook), err
	},
	move: func(ctx context.Context, s feed.State, name string, from, to feed.Cursor) error {
		return s.MoveWebhook(ctx, name, from, to)
	},
	delete: func(ctx context.Context, s feed.State, name string) error { return s.DeleteWebhook(ctx, name) },
}

// String is for messages of tests.
func (h held) String() string {
	return fmt.Sprintf("%q at %s, reset from %s, created %v, updated %v", h.name, h.cursor, h.resetFrom, h.created, h.updated)
}

func heldConsumer(c feed.Consumer) held {
	return held{c.Name, c.Cursor, c.ResetFrom, c.Created, c.Updated}
}

func heldWebhook(w feed.Webhook) held { return held{w.ID, w.Cursor, w.ResetFrom, w.Created, w.Updated} }

func convert[A, B any](all []A, one func(A) B) []B {
	list := make([]B, len(all))
	for i, a := range all {
		list[i] = one(a)
	}
	return list
}

// keeper is a store under test, and one kind of what it keeps.
type keeper struct {
	*subject
	kind  cursorKind
	store feed.Store
}

func (s *suite) openStore(t *testing.T, kind cursorKind, cfg Config) *keeper {
	t.Helper()
	log := s.open(t, cfg)
	return &keeper{subject: log, kind: kind, store: log.log.(feed.Store)}
}

func (k *keeper) create(name string, at feed.Cursor) {
	k.Helper()
	if err := k.kind.create(k.ctx, k.store, name, at); err != nil {
		k.Fatalf("create %s %q at %s: %v", k.kind.name, name, at, err)
	}
}

func (k *keeper) get(name string) held {
	k.Helper()
	h, err := k.kind.get(k.ctx, k.store, name)
	if err != nil {
		k.Fatalf("get %s %q: %v", k.kind.name, name, err)
	}
	return h
}

func (k *keeper) list() []held {
	k.Helper()
	all, err := k.kind.list(k.ctx, k.store)
	if err != nil {
		k.Fatalf("list %ss: %v", k.kind.name, err)
	}
	return all
}

func (k *keeper) move(name string, from, to feed.Cursor) {
	k.Helper()
	if err := k.kind.move(k.ctx, k.store, name, from, to); err != nil {
		k.Fatalf("move %s %q from %s to %s: %v", k.kind.name, name, from, to, err)
	}
}

// wantCursor checks where a cursor stands.
func (k *keeper) wantCursor(name string, want feed.Cursor) {
	k.Helper()
	if got := k.get(name).cursor; got != want {
		k.Errorf("%s %q is at %s, want %s", k.kind.name, name, got, want)
	}
}

// refused runs a call that must fail with a code and change nothing.
func (k *keeper) refused(what string, code feed.Code, do func() error) {
	k.Helper()
	before := k.snapshot()
	err := do()
	if err == nil || feed.CodeOf(err) != code {
		k.Errorf("%s: %v, want an error of code %s", what, err, code)
	} else if e := (*feed.Error)(nil); !errors.As(err, &e) || e.Msg == "" && e.Err == nil {
		k.Errorf("%s: %v has no message for people", what, err)
	}
	if after := k.snapshot(); after != before {
		k.Errorf("%s: it was refused, but changed\n%s\nto\n%s", what, before, after)
	}
}

// cursors returns the cursors at 0 to head, of which the index is the seq.
// What was trimmed before the call has none of its fence.
func (s *subject) cursors() []feed.Cursor {
	s.Helper()
	b := s.bounds()
	list := make([]feed.Cursor, b.Head.Seq+1)
	for seq := range list {
		list[seq] = feed.Cursor{Epoch: b.Epoch, Position: feed.Position{Seq: uint64(seq)}}
	}
	for _, ev := range s.all() {
		list[ev.Seq].Fence = ev.Fence
	}
	return list
}

// snapshot is all the control state as text.
func (s *subject) snapshot() string {
	s.Helper()
	state := s.log.(feed.State)
	var all struct {
		Consumers []feed.Consumer
		Webhooks  []feed.Webhook
		Audit     []feed.AuditEntry
	}
	var err [3]error
	all.Consumers, err[0] = state.Consumers(s.ctx)
	all.Webhooks, err[1] = state.Webhooks(s.ctx)
	all.Audit, err[2] = state.Audit(s.ctx, 0, 1000)
	if err := errors.Join(err[:]...); err != nil {
		s.Fatalf("listing the state: %v", err)
	}
	for i := range all.Consumers {
		inUTC(&all.Consumers[i].Created, &all.Consumers[i].Updated)
	}
	for i := range all.Webhooks {
		inUTC(&all.Webhooks[i].Created, &all.Webhooks[i].Updated)
		all.Webhooks[i].Topics = append([]string{}, all.Webhooks[i].Topics...) // nil or not
	}
	for i := range all.Audit {
		inUTC(&all.Audit[i].Time)
	}
	text, e := json.MarshalIndent(all, "", "  ")
	if e != nil {
		s.Fatalf("the state is not valid: %v", e)
	}
	return string(text)
}

func inUTC(times ...*time.Time) {
	for _, t := range times {
		*t = t.UTC()
	}
}

// wantStamp checks a time that the store set: in its unit, and of about now,
// or exactly the clock's where the test has one.
func (s *subject) wantStamp(what string, got time.Time, clock *clock) {
	s.Helper()
	if !got.Equal(got.Truncate(feed.TimeUnit)) {
		s.Errorf("%s: %v is not in units of %v", what, got, feed.TimeUnit)
	}
	if clock != nil {
		if want := clock.Now().Truncate(feed.TimeUnit); !got.Equal(want) {
			s.Errorf("%s: %v, the store's clock says %v", what, got, want)
		}
		return
	}
	// Only a wrong unit or zone is as far off as this.
	if off := time.Since(got).Abs(); off > 30*time.Minute {
		s.Errorf("%s: %v is %v off", what, got, off)
	}
}

// clockFor gives the store a clock of the test, where it can have one.
func (s *suite) clockFor(cfg *Config) *clock {
	if !s.needs(LacksClock) {
		return nil
	}
	c := newClock()
	cfg.Now = c.Now
	return c
}

// step moves a clock that there may not be.
func (c *clock) step(d time.Duration) {
	if c != nil {
		c.move(d)
	}
}
