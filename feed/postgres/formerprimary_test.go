//go:build linux && e2e

package postgres

import (
	"testing"

	"gapless/feed"
)

// leadTo makes new connections of a proxy lead to a database, and breaks those
// that there are.
func (p *proxy) leadTo(t *testing.T, url string) {
	t.Helper()
	p.set(func(p *proxy) { p.server = hostOf(t, url) })
	p.breakAll()
}

// failedOver returns a pair of servers of which the standby was promoted, with
// a log that was finalized there, and the way that leads to it.
func failedOver(t *testing.T) (r *replicated, p *proxy, url string) {
	t.Helper()
	r = replicate(t)
	p, url = newProxy(t, r.url)
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("shared", 10))
	r.replayed(t)
	r.promote(t)
	p.leadTo(t, r.standby.URL("postgres"))
	eventually(t, "the restore is finalized", func() bool {
		_, err := s.Finalize(patient(t), feed.FinalizeOptions{Actor: "test"})
		return err == nil
	})
	appendOne(t, s, draft("new", 10))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return r, p, url
}

// refusedBy waits until an append is refused by the guard, and fails the test
// where one is taken.
func refusedBy(t *testing.T, s *Store) {
	t.Helper()
	eventually(t, "the guard refuses", func() bool {
		_, err := s.Append(patient(t), []feed.Draft{draft("old", 10)})
		if err == nil {
			t.Fatal("the former primary took an event")
		}
		return feed.CodeOf(err) == feed.CodeRestoreNotFinalized
	})
}

// TestAFormerPrimaryIsRefusedByWhoNeverRanOnIt: a gateway that was started
// after the failover is led to the former primary, whose epoch it has never
// met. It is led back while no connection breaks.
func TestAFormerPrimaryIsRefusedByWhoNeverRanOnIt(t *testing.T) {
	r, p, url := failedOver(t)
	s := openStore(t, Config{URL: url})
	appendOne(t, s, draft("newer", 10))
	r.primary.Start(t)
	p.leadTo(t, r.primary.URL("postgres"))
	refusedBy(t, s)
	p.set(func(p *proxy) { p.server = hostOf(t, r.standby.URL("postgres")) })
	eventually(t, "the guard is content", func() bool {
		_, err := s.Append(patient(t), []feed.Draft{draft("newest", 10)})
		return err == nil
	})
	eventually(t, "waiting works", func() bool {
		at, _ := s.known.seen()
		at.Seq--
		return s.Wait(patient(t), at) == nil
	})
}
