package feedtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gapless/feed"
)

// wantWebhook compares what a caller sets; what the store sets is left out.
func wantWebhook(t *testing.T, got, want feed.Webhook) {
	t.Helper()
	if got.ID != want.ID || got.URL != want.URL || !slices.Equal(got.Topics, want.Topics) || got.Secret != want.Secret ||
		got.Status != want.Status || got.Reason != want.Reason || got.Cursor != want.Cursor {
		t.Errorf("the webhook is\n%+v\nwant\n%+v", got, want)
	}
}

func (k *keeper) webhook(id string) feed.Webhook {
	k.Helper()
	w, err := k.store.Webhook(k.ctx, id)
	if err != nil {
		k.Fatalf("get webhook %q: %v", id, err)
	}
	return w
}

func (s *suite) testWebhookFields(t *testing.T) {
	t.Run("every field comes back as it was stored", func(t *testing.T) {
		k := s.openStore(t, webhooks, Config{})
		k.fill(2)
		at := k.cursors()
		for i, w := range []feed.Webhook{
			{URL: "https://example.org/a?b=c&d=%20#e", Secret: "whsec_" + strings.Repeat("Aa0+/", 20) + "=", Status: feed.WebhookActive},
			{URL: "http://[::1]:8080/ü", Topics: []string{"a", "a.b-c_D.*", "*.x.>", ">"}, Secret: `'"\%$1`, Status: feed.WebhookPaused, Reason: "on 'holiday'\n\"ü\" \\ \U0001F600"},
			{URL: "https://example.org/", Topics: slices.Repeat([]string{strings.Repeat("t", feed.MaxTopicBytes)}, 64), Status: feed.WebhookFailed, Reason: "410 Gone"},
		} {
			w.ID, w.Cursor = string(rune('a'+i)), at[i]
			if err := k.store.CreateWebhook(k.ctx, w); err != nil {
				t.Fatalf("create: %v", err)
			}
			wantWebhook(t, k.webhook(w.ID), w)
			all, err := k.store.Webhooks(k.ctx)
			if err != nil || len(all) != i+1 {
				t.Fatalf("%d are listed, %v", len(all), err)
			}
			wantWebhook(t, all[i], w)
		}
	})

	t.Run("an update sets all but the cursor", func(t *testing.T) {
		cfg := Config{}
		clock := s.clockFor(&cfg)
		k := s.openStore(t, webhooks, cfg)
		k.fill(3)
		at := k.cursors()
		first := feed.Webhook{ID: "w", URL: "https://example.org/1", Topics: []string{"a", "b"}, Secret: "s1", Status: feed.WebhookActive, Cursor: at[1]}
		other := first
		other.ID = "v"
		for _, w := range []feed.Webhook{first, other} {
			if err := k.store.CreateWebhook(k.ctx, w); err != nil {
				t.Fatalf("create: %v", err)
			}
		}
		created := k.webhook("w")
		k.move("w", at[1], at[2])
		for _, change := range []feed.Webhook{
			{ID: "w", URL: "https://example.org/2", Topics: []string{"c"}, Secret: "s2", Status: feed.WebhookFailed, Reason: "gave up"},
			{ID: "w", URL: "https://example.org/3", Status: feed.WebhookPaused, Secret: "s3", Cursor: at[3], ResetFrom: at[1], Created: created.Created.Add(-time.Hour)},
			{ID: "w", URL: "https://example.org/3", Topics: []string{">"}, Secret: "s3", Status: feed.WebhookActive, Cursor: feed.Cursor{Epoch: "foreign"}},
		} {
			clock.step(time.Minute)
			if err := k.store.UpdateWebhook(k.ctx, change); err != nil {
				t.Fatalf("update: %v", err)
			}
			got := k.webhook("w")
			change.Cursor = at[2]
			wantWebhook(t, got, change)
			if !got.Created.Equal(created.Created) || got.Updated.Before(created.Updated) || got.ResetFrom != (feed.Cursor{}) {
				t.Errorf("an update made %+v of %+v", got, created)
			}
			k.wantStamp("updated", got.Updated, clock)
		}
		wantWebhook(t, k.webhook("v"), other)
		k.move("w", at[2], at[3])
	})

	t.Run("an update of one that is not there is refused", func(t *testing.T) {
		k := s.openStore(t, webhooks, Config{})
		k.create("there", k.head())
		k.refused("update", feed.CodeNotFound, func() error {
			return k.store.UpdateWebhook(k.ctx, feed.Webhook{ID: "nobody", URL: "https://example.org/", Status: feed.WebhookPaused})
		})
	})

	t.Run("an update beside moves loses none of them", func(t *testing.T) {
		const moves = 25
		k := s.openStore(t, webhooks, Config{})
		k.fill(moves)
		at := k.cursors()
		k.create("w", at[0])
		together(2, func(i int) {
			for n := range moves {
				var err error
				if i == 0 {
					err = k.store.MoveWebhook(k.ctx, "w", at[n], at[n+1])
				} else {
					err = k.store.UpdateWebhook(k.ctx, feed.Webhook{ID: "w", URL: "https://example.org/new", Status: feed.WebhookPaused})
				}
				if err != nil {
					t.Errorf("%v", err)
					return
				}
			}
		})
		k.wantCursor("w", at[moves])
		if got := k.webhook("w"); got.URL != "https://example.org/new" || got.Status != feed.WebhookPaused {
			t.Errorf("the update is lost: %+v", got)
		}
	})

	t.Run("its topics belong to the caller", func(t *testing.T) {
		k := s.openStore(t, webhooks, Config{})
		topics := []string{"a", "b"}
		if err := k.store.CreateWebhook(k.ctx, feed.Webhook{ID: "w", URL: "u", Status: feed.WebhookActive, Topics: topics, Cursor: k.head()}); err != nil {
			t.Fatal(err)
		}
		topics[0] = "changed"
		k.webhook("w").Topics[1] = "changed"
		all, err := k.store.Webhooks(k.ctx)
		if err != nil {
			t.Fatal(err)
		}
		all[0].Topics[0] = "changed"
		if got := k.webhook("w").Topics; !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("topics are %q", got)
		}
	})
}
