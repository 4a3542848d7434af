package feedtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

func (s *durableSuite) testReopen(t *testing.T) {
	t.Run("a new store is set up once", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		d.wantBounds(1, 0)
		epoch := d.bounds().Epoch
		for range 2 {
			if n := d.audited(feed.ActionSetUp); n != 1 {
				t.Errorf("the audit has %d set-ups, want 1", n)
			}
			detail := wantAudited[struct{ Epoch feed.Epoch }](d, feed.ActionSetUp, d.audit(0, 1)[0].Actor)
			if detail.Epoch != epoch {
				t.Errorf("the set-up is audited with epoch %q, the store is in %s", detail.Epoch, epoch)
			}
			d = d.reopen()
			d.wantBounds(1, 0)
			if now := d.bounds().Epoch; now != epoch {
				t.Errorf("epoch %s became %s", epoch, now)
			}
		}
		if other := s.site(t, Config{}).open().bounds().Epoch; other == epoch {
			t.Errorf("another place has the same epoch, %s", epoch)
		}
	})

	t.Run("it comes back as it was", func(t *testing.T) {
		d := s.site(t, Config{Retention: feed.Retention{Events: 12}}).open()
		for round := range 4 {
			d.fill(3)
			d.append(exotic()[round*4 : round*4+4]...)
			d.create(fmt.Sprint("consumer-", round), d.head())
			if err := d.store.CreateWebhook(d.ctx, feed.Webhook{
				ID: fmt.Sprint("webhook-", round), URL: "https://example.org/", Topics: []string{"a.*", ">"}, Secret: "ü",
				Status: feed.WebhookFailed, Reason: "why", Cursor: d.head(),
			}); err != nil {
				t.Fatal(err)
			}
			d.record(feed.AuditEntry{Actor: "ann", Action: fmt.Sprint(round), Detail: json.RawMessage(`{"a":1}`)})
			before := d.contents()
			d = d.reopen()
			d.wantSame("reopened", before, d.contents())
			d.wantTrimmed(s.suite)
		}
		d.wantBounds(17, 28)
		d.wantReceipt(d.append(d.draft()), 29)
		d.wantFound(searched{patterns: []string{"t.*"}}, 3)
		d.wantFound(searched{types: []string{"made"}}, 2)
	})

	t.Run("a cursor from before is good after", func(t *testing.T) {
		d := s.site(t, Config{}).open()
		d.fill(5)
		at := d.cursors()
		d = d.reopen()
		for seq, cursor := range at {
			page := d.read(cursor.Seq, feed.Limit{Events: 10})
			if page.Epoch != cursor.Epoch || page.Anchor != cursor.Fence {
				t.Errorf("at %s the log is in epoch %s, with anchor %s", cursor, page.Epoch, page.Anchor)
			}
			d.wantFollowing(page, cursor.Seq, 5-seq)
		}
		answer := d.waiting(at[5])
		d.wantReceipt(d.append(d.draft()), 6)
		if err := <-answer; err != nil {
			t.Errorf("wait: %v", err)
		}
	})

	t.Run("what is smaller now is trimmed", func(t *testing.T) {
		d := s.site(t, Config{Retention: feed.Retention{Events: 20}}).open()
		d.fill(15)
		at := d.cursors()
		d.site.cfg.Retention.Events = 5
		d = d.reopen()
		d.trim()
		d.wantBounds(11, 15)
		if page := d.read(10, feed.Limit{}); s.needs(LacksTrimmedFence) && page.Anchor != at[10].Fence {
			t.Errorf("at oldest − 1 the anchor is %q, want %q", page.Anchor, at[10].Fence)
		}
		d.fill(2)
		d.wantBounds(13, 17)
		d.wantInfo()
	})

	t.Run("a repeat from before is a duplicate", func(t *testing.T) {
		d := s.site(t, Config{Retention: feed.Retention{Events: 2}}).open()
		drafts := d.drafts(3)
		minted := d.draft()
		minted.Minted = true
		d.append(drafts...)
		d.append(minted)
		d = d.reopen()
		d.wantReceipt(d.append(drafts[2], d.draft(), drafts[0], minted), -3, 5, -1, 6)
		other := drafts[1]
		other.Type = "other"
		d.conflict(d.draft(), other)
		d = d.reopen()
		d.wantReceipt(d.append(drafts[1], d.draft()), -2, 7)
	})

	t.Run("many events come back", func(t *testing.T) {
		const batches = 5
		d := s.site(t, Config{Retention: feed.Retention{Events: 10_000}}).open()
		for range batches {
			d.append(d.drafts(feed.MaxBatchEvents)...)
		}
		before := d.contents()
		d = d.reopen()
		d.wantSame("reopened", before, d.contents())
		d.wantFound(searched{patterns: []string{"t.1"}}, 700)
	})

	if s.needs(LacksClock) {
		t.Run("time never goes back, though the clock did", s.testReopenTime)
	}
	if s.needs(LacksClock, LacksExpiry) {
		t.Run("the dedupe window goes on", s.testReopenWindow)
	}
}

func (s *durableSuite) testReopenTime(t *testing.T) {
	clock := newClock()
	d := s.site(t, Config{Now: clock.Now}).open()
	var want []time.Time
	latest := time.Time{}
	for _, step := range []time.Duration{0, -time.Hour, 30 * time.Minute, 31 * time.Minute, -24 * time.Hour} {
		clock.move(step)
		if now := clock.Now().Truncate(feed.TimeUnit); now.After(latest) {
			latest = now
		}
		d.append(d.draft())
		want = append(want, latest)
		d = d.reopen()
	}
	for i, ev := range d.all() {
		if !ev.Time.Equal(want[i]) {
			t.Errorf("event %d has time %v, want %v", ev.Seq, ev.Time, want[i])
		}
	}
}

func (s *durableSuite) testReopenWindow(t *testing.T) {
	clock := newClock()
	d := s.site(t, Config{Now: clock.Now, DedupeWindow: time.Hour}).open()
	early := d.draft()
	d.append(early)
	clock.move(30 * time.Minute)
	late := d.draft()
	d.append(late)
	clock.move(29 * time.Minute)
	d = d.reopen()
	d.wantReceipt(d.append(early, late), -1, -2)
	clock.move(2 * time.Minute)
	d = d.reopen()
	d.wantReceipt(d.append(early, late), 3, -2)
}

// wantPlain checks a sentence for people.
func (d *durable) wantPlain(what, text string) {
	d.Helper()
	if strings.TrimSpace(text) == "" {
		d.Errorf("%s says nothing", what)
	}
}
