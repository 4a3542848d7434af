package feedtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

// Hands reach into a place behind its store's back, while no store is open
// there. What cannot be seen without a nil one is left out.
type Hands struct {
	// Disturb makes what the guard remembers differ from what it will find, as
	// after a restore: it keeps every store shut that is opened there next.
	Disturb func(t *testing.T, place string)
	// SetCursor puts the stored cursor of a consumer (kind "consumer") or of a
	// webhook ("webhook") anywhere, as a branch leaves it that was lost.
	SetCursor func(t *testing.T, place, kind, name string, at feed.Cursor)
}

// RunDurable checks that what open returns keeps the contract of
// [feed.Durable]: that it comes back as it was, and what a restore, a backup
// and a relocation do.
//
// A place is a name of lower-case letters and digits, for which the backend's
// test has a file or a database, empty where the name is new. Open opens the
// place, strictly guarded, and returns when the store answers; the suite
// closes the store, often to open the place again. Where the guard keeps the
// store shut, open succeeds all the same. A second store at one place is
// either refused or shares it: see [LacksSharing].
func RunDurable(t *testing.T, open func(t *testing.T, place string, cfg Config) (feed.Durable, error), hands Hands, lacks ...Lack) {
	s := &durableSuite{suite: &suite{lacks: lacks}, open: open, hands: hands}
	t.Run("reopen", s.testReopen)
	t.Run("one place", s.testSharing)
	t.Run("status", s.testStatus)
	t.Run("finalize", s.testFinalize)
	t.Run("finalize under load", s.testFinalizeUnderLoad)
	t.Run("backup", s.testBackup)
	t.Run("final backup", s.testSeal)
	t.Run("relocate", s.testRelocate)
	t.Run("check", s.testCheck)
	if hands.Disturb != nil {
		t.Run("guard", s.testGuard)
	}
	t.Run("closed", s.testDurableClose)
}

type durableSuite struct {
	*suite
	open   func(t *testing.T, place string, cfg Config) (feed.Durable, error)
	hands  Hands
	places int
}

// site is a place, and how it is opened.
type site struct {
	*testing.T
	suite *durableSuite
	place string
	cfg   Config
	next  int // drafts go on being new
}

func (s *durableSuite) site(t *testing.T, cfg Config) *site {
	s.places++
	return &site{T: t, suite: s, place: fmt.Sprint("place", s.places), cfg: cfg}
}

// durable is a durable store under test.
type durable struct {
	*keeper
	site    *site
	durable feed.Durable
}

// open opens the place.
func (p *site) open() *durable {
	p.Helper()
	store, err := p.suite.open(p.T, p.place, p.cfg)
	if err != nil {
		p.Fatalf("open %s: %v", p.place, err)
	}
	p.Cleanup(func() { store.Close() })
	holder := &suite{lacks: p.suite.lacks, openLog: func(*testing.T, Config) feed.Log { return store }}
	d := &durable{keeper: holder.openStore(p.T, consumers, p.cfg), site: p, durable: store}
	d.next = p.next
	return d
}

// close closes the store; its place may be opened again.
func (d *durable) close() {
	d.Helper()
	d.site.next = d.next
	if err := d.durable.Close(); err != nil {
		d.Fatalf("close: %v", err)
	}
}

// reopen closes the store and opens its place again.
func (d *durable) reopen() *durable {
	d.Helper()
	d.close()
	return d.site.open()
}

func (d *durable) status() feed.RestoreStatus {
	d.Helper()
	status, err := d.durable.RestoreStatus(d.ctx)
	if err != nil {
		d.Fatalf("restore status: %v", err)
	}
	return status
}

func (d *durable) finalize(opts feed.FinalizeOptions) feed.Finalized {
	d.Helper()
	done, err := d.durable.Finalize(d.ctx, opts)
	if err != nil {
		d.Fatalf("finalize: %v", err)
	}
	return done
}

// contents is the log and the control state as text.
func (d *durable) contents() string {
	d.Helper()
	var b strings.Builder
	page := d.read(d.bounds().Oldest-1, feed.Limit{})
	info := d.log.Info()
	fmt.Fprintf(&b, "%s %d to %d %s, before it %s, %d events, %d bytes\n",
		page.Epoch, page.Oldest, page.Head.Seq, page.Head.Fence, page.TrimmedFence, info.Events, info.Bytes)
	for _, ev := range d.all() {
		fmt.Fprintln(&b, eventText(ev))
	}
	return b.String() + d.snapshot() + d.outline()
}

// outline is what the store says of itself, also where its guard is shut.
func (d *durable) outline() string {
	d.Helper()
	s := d.status()
	return fmt.Sprintf("%s: %d to %d %s, finalized %v, sealed %v", s.Epoch, s.OldestSeq, s.HeadSeq, s.HeadFence, s.Finalized, s.Sealed)
}

func eventText(ev *feed.Event) string {
	return fmt.Sprintf("%d %s %q %s %q %q %q %s %s", ev.Seq, ev.Fence, ev.ID, ev.Time.UTC(), ev.Type, ev.Topic, ev.Source, ev.Data, ev.CE)
}

// wantSame compares two contents.
func (d *durable) wantSame(what, before, after string) {
	d.Helper()
	if before == after {
		return
	}
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			d.Errorf("%s: line %d was\n%s\nand is\n%s", what, i+1, a[i], b[i])
			return
		}
	}
	d.Errorf("%s: it had %d lines and has %d", what, len(a), len(b))
}

// wantCode checks that a call failed with a code, and a message.
func (s *subject) wantCode(what string, err error, code feed.Code) {
	s.Helper()
	if err == nil || feed.CodeOf(err) != code {
		s.Errorf("%s: %v, want an error of code %s", what, err, code)
	} else if e := (*feed.Error)(nil); !errors.As(err, &e) || e.Msg == "" && e.Err == nil {
		s.Errorf("%s: %v has no message for people", what, err)
	}
}

// wantAudited checks the newest audit entry of an action, and decodes its
// detail.
func wantAudited[T any](d *durable, action, actor string) (detail T) {
	d.Helper()
	for _, entry := range d.audit(0, 1000) {
		if entry.Action != action {
			continue
		}
		if entry.Actor != actor {
			d.Errorf("%s is audited as done by %q, want %q", action, entry.Actor, actor)
		}
		if err := json.Unmarshal(entry.Detail, &detail); err != nil {
			d.Errorf("%s: the audit entry's detail is %s: %v", action, entry.Detail, err)
		}
		return detail
	}
	d.Errorf("%s is not audited", action)
	return detail
}

// audited counts the audit entries of an action.
func (d *durable) audited(action string) int {
	d.Helper()
	list := d.audit(0, 1000)
	return len(slices.DeleteFunc(list, func(e feed.AuditEntry) bool { return e.Action != action }))
}

// wantEqual compares two answers by their fields. Both have their times in
// UTC, and no empty list but nil.
func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n%+v\nwant\n%+v", what, got, want)
	}
}

// wantTime checks a time that an answer carries.
func (d *durable) wantTime(what string, got time.Time) {
	d.Helper()
	if d.site.cfg.Now == nil && time.Since(got).Abs() > 30*time.Minute || got.IsZero() {
		d.Errorf("%s: its time is %v", what, got)
	}
}

// cursorKey names one server-side cursor.
type cursorKey struct{ kind, name string }

// furnish stores ten events, of which the last eight are kept, with consumers
// and webhooks all over the log. It returns the cursors at 0 to 10, and where
// each consumer and webhook is.
func (s *durableSuite) furnish(t *testing.T, cfg Config) (*durable, []feed.Cursor, map[cursorKey]feed.Cursor) {
	t.Helper()
	cfg.Retention = feed.Retention{Events: 8}
	d := s.site(t, cfg).open()
	d.fill(8)
	at := d.cursors()
	d.fill(2)
	at = append(at, d.cursors()[9:]...)
	d.wantBounds(3, 10)
	placed := map[cursorKey]feed.Cursor{
		{"consumer", "start"}: at[0], {"consumer", "trimmed"}: at[1], {"consumer", "oldest"}: at[2],
		{"consumer", "behind"}: at[5], {"consumer", "head"}: at[10],
		{"webhook", "behind"}: at[9], {"webhook", "head"}: at[10],
	}
	for key, cursor := range placed {
		d.kindOf(key).create(key.name, cursor)
	}
	return d, at, placed
}

// kindOf is the store's hands on one kind of cursor.
func (d *durable) kindOf(key cursorKey) *keeper {
	k := *d.keeper
	if key.kind == webhooks.name {
		k.kind = webhooks
	}
	return &k
}

// wantCursors checks where every consumer and webhook is.
func (d *durable) wantCursors(want map[cursorKey]feed.Cursor) {
	d.Helper()
	for key, cursor := range want {
		d.kindOf(key).wantCursor(key.name, cursor)
	}
}

func sortedKeys(m map[cursorKey]feed.Cursor) []cursorKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b cursorKey) int { return strings.Compare(a.kind+a.name, b.kind+b.name) })
}
