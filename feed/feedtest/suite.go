package feedtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gapless/feed"
)

// Config is what the suite asks of a log that it opens.
type Config struct {
	// Retention is what the log is to keep; a zero field bounds nothing, and
	// the zero Retention lets the log keep its default, at least 1,000 events.
	// A bound below 1,000 events or 1 MiB has to hold exactly; a log that keeps
	// more may trim seldom, and exceed the bound by a twentieth.
	Retention feed.Retention
	// DedupeWindow is for how long a publisher's id stays taken; zero: the
	// log's default, at least a minute.
	DedupeWindow time.Duration
	// Now is the clock that stamps events, ages them, and counts the window;
	// nil: the log's own. Safe for concurrent use.
	Now func() time.Time
}

// Lack names an ability that a log does not have in a test.
type Lack uint8

const (
	// LacksClock: the log cannot be given a clock (it asks a database's or a
	// broker's), so [Config].Now is always nil. Left out: age, the end of the
	// dedupe window, a clock that jumps back.
	LacksClock Lack = iota
	// LacksExpiry: the log never forgets an id, whatever the window.
	LacksExpiry
	// LacksByteBound: the log does not bound the bytes that it keeps.
	LacksByteBound
	// LacksAgeBound: the log does not bound the age of what it keeps.
	LacksAgeBound
	// LacksTrimmedFence: the fence of the last trimmed event is not kept (a
	// broker trims by itself). The anchor at oldest − 1 may then be unknown,
	// though never wrong.
	LacksTrimmedFence
	// LacksSharing: a place serves one durable store at a time; a second one
	// that is opened there is refused. See [RunDurable].
	LacksSharing
)

// Run checks that the logs that open returns keep the contract of [feed.Log].
// Open returns a new, empty log of its own epoch; the suite closes it, and
// what else it holds goes into t.Cleanup. Run takes some seconds, and starts
// goroutines that have ended when it returns.
func Run(t *testing.T, open func(t *testing.T, cfg Config) feed.Log, lacks ...Lack) {
	s := &suite{openLog: open, lacks: lacks}
	t.Run("append", s.testAppend)
	t.Run("append together", s.testTogether)
	t.Run("idempotency", s.testIdempotency)
	t.Run("time", s.testTime)
	t.Run("read", s.testRead)
	t.Run("search", s.testSearch)
	t.Run("search far", s.testSearchFar)
	t.Run("wait", s.testWait)
	t.Run("trim", s.testTrim)
	t.Run("race", s.testRace)
	t.Run("close", s.testClose)
	t.Run("context", s.testContext)
}

type suite struct {
	openLog func(t *testing.T, cfg Config) feed.Log
	lacks   []Lack
}

// needs reports whether the log has all of these abilities.
func (s *suite) needs(abilities ...Lack) bool {
	return !slices.ContainsFunc(abilities, func(a Lack) bool { return slices.Contains(s.lacks, a) })
}

// patience is when a call that should have returned counts as hanging.
const patience = time.Minute

// open returns a log and the test's hands on it. Without a clock in the
// configuration, the log uses its own.
func (s *suite) open(t *testing.T, cfg Config) *subject {
	t.Helper()
	log := s.openLog(t, cfg)
	t.Cleanup(func() { log.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return &subject{T: t, log: log, ctx: ctx}
}

// subject is a log under test; its helpers fail the test on any error.
type subject struct {
	*testing.T
	log  feed.Log
	ctx  context.Context // ends when patience does
	next int
}

// draft makes a valid draft with an id and a payload that are its own.
func (s *subject) draft() feed.Draft {
	s.next++
	return feed.Draft{
		ID: fmt.Sprint("id-", s.next), Type: "made", Topic: fmt.Sprint("t.", s.next%3),
		Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, s.next)),
	}
}

func (s *subject) drafts(n int) []feed.Draft {
	drafts := make([]feed.Draft, n)
	for i := range drafts {
		drafts[i] = s.draft()
	}
	return drafts
}

// append stores a batch and returns its receipt.
func (s *subject) append(drafts ...feed.Draft) feed.Receipt {
	s.Helper()
	receipt, err := s.log.Append(s.ctx, drafts)
	if err != nil {
		s.Fatalf("append: %v", err)
	}
	if len(receipt.Events) != len(drafts) {
		s.Fatalf("the receipt has %d entries for %d drafts", len(receipt.Events), len(drafts))
	}
	for i, a := range receipt.Events {
		if a.ID != drafts[i].ID {
			s.Fatalf("entry %d of the receipt is of %q, want %q", i, a.ID, drafts[i].ID)
		}
	}
	return receipt
}

// fill appends n events, one a batch.
func (s *subject) fill(n int) {
	s.Helper()
	for range n {
		s.append(s.draft())
	}
}

// conflict appends a batch that must fail with an id conflict.
func (s *subject) conflict(drafts ...feed.Draft) {
	s.Helper()
	before := s.bounds()
	if _, err := s.log.Append(s.ctx, drafts); feed.CodeOf(err) != feed.CodeIDConflict {
		s.Fatalf("append: %v, want an error of code %s", err, feed.CodeIDConflict)
	}
	if after := s.bounds(); after != before {
		s.Fatalf("a refused batch moved the log from %+v to %+v", before, after)
	}
}

func (s *subject) trim() {
	s.Helper()
	if err := s.log.Trim(s.ctx); err != nil {
		s.Fatalf("trim: %v", err)
	}
}

func (s *subject) read(after uint64, limit feed.Limit) feed.Page {
	s.Helper()
	page, err := s.log.Read(s.ctx, after, limit)
	if err != nil {
		s.Fatalf("read after %d: %v", after, err)
	}
	return page
}

func (s *subject) bounds() feed.Bounds {
	s.Helper()
	return s.read(0, feed.Limit{}).Bounds
}

// all reads everything that the log holds, page by page.
func (s *subject) all() []*feed.Event {
	s.Helper()
	var events []*feed.Event
	for after := s.bounds().Oldest - 1; ; {
		page := s.read(after, feed.Limit{Events: 500})
		if len(page.Events) == 0 {
			return events
		}
		events = append(events, page.Events...)
		after = events[len(events)-1].Seq
	}
}

// wantBounds checks oldest and head.
func (s *subject) wantBounds(oldest, head uint64) {
	s.Helper()
	if b := s.bounds(); b.Oldest != oldest || b.Head.Seq != head {
		s.Fatalf("the log holds %d to %d, want %d to %d", b.Oldest, b.Head.Seq, oldest, head)
	}
}

// together runs n functions at once and waits for them. They report with
// Errorf: only the test's own goroutine may end it.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// clock is one that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 11, 30, 15, 41, 0, 123456000, time.UTC)}
}

// Now returns the clock's time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// move moves the clock, back where d is negative.
func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// seqs lists the seqs of events.
func seqs(events []*feed.Event) []uint64 {
	list := make([]uint64, len(events))
	for i, ev := range events {
		list[i] = ev.Seq
	}
	return list
}
