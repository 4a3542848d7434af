package feed_test

import (
	"context"
	"testing"

	"gapless/feed"
	"gapless/feed/feedtest"
)

// TestAppendingTellsOfAStoreThatFails: what the store fails counts, until it
// takes an append again; what the caller gave up or got wrong does not.
func TestAppendingTellsOfAStoreThatFails(t *testing.T) {
	inBubble(t, 0, feed.Config{}, func(r *rig, log *feedtest.Log) {
		publish := func(ctx context.Context, id, data string) error {
			_, err := r.feed.Publish(ctx, []feed.Draft{{ID: id, Data: []byte(data)}})
			return err
		}
		want := func(what string, code feed.Code) {
			t.Helper()
			if err := r.feed.Appending(); (err == nil) != (code == "") || err != nil && feed.CodeOf(err) != code {
				t.Errorf("%s: %v, want %q", what, err, code)
			}
			if err := r.feed.Ready(); err != nil {
				t.Errorf("%s: readers are not served: %v", what, err)
			}
		}
		want("at the start", "")
		full := &feed.Error{Code: feed.CodeUnavailable, Msg: "the disk is full"}
		log.FailAppends(full)
		given, cancel := context.WithCancel(r.Context())
		cancel()
		if publish(given, "a", "1") == nil {
			t.Error("stored")
		}
		want("given up", "")
		if err := publish(r.Context(), "a", "1"); feed.CodeOf(err) != feed.CodeUnavailable {
			t.Errorf("publish: %v", err)
		}
		want("full", feed.CodeUnavailable)
		log.FailAppends(nil)
		want("nobody has tried", feed.CodeUnavailable)
		if err := publish(r.Context(), "a", "1"); err != nil {
			t.Errorf("publish: %v", err)
		}
		want("there is space", "")
		if err := publish(r.Context(), "a", "2"); feed.CodeOf(err) != feed.CodeIDConflict {
			t.Errorf("publish: %v", err)
		}
		want("a conflict", "")
		log.FailAppends(full)
		if publish(r.Context(), "b", "1") == nil {
			t.Error("stored")
		}
		log.FailAppends(&feed.Error{Code: feed.CodeSealed, Msg: "sealed"})
		if err := publish(r.Context(), "b", "1"); feed.CodeOf(err) != feed.CodeSealed {
			t.Errorf("publish: %v", err)
		}
		want("sealed", "")
	})
}

// TestSourcesWithControlCharacters are refused: not every store keeps a NUL.
func TestSourcesWithControlCharacters(t *testing.T) {
	for _, source := range []string{"\x00", "/a\x00b", "a\nb", "a\tb", "\x1f", "\x7f"} {
		d := feed.Draft{Source: source}
		if err := d.Normalize(); feed.CodeOf(err) != feed.CodeInvalid || err == nil {
			t.Errorf("%q: %v", source, err)
		}
	}
	for _, source := range []string{"", "/shop", "urn:ü", "a b~"} {
		d := feed.Draft{Source: source}
		if err := d.Normalize(); err != nil {
			t.Errorf("%q: %v", source, err)
		}
	}
}
