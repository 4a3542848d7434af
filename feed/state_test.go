package feed_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"gapless/feed"
)

func TestAFenceComesBackFromItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := feed.NewFence()
		if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
			want = feed.Fence{}
		}
		text, err := json.Marshal(struct{ F feed.Fence }{want})
		if err != nil {
			t.Fatal(err)
		}
		got := struct{ F feed.Fence }{feed.NewFence()} // is overwritten, by the unknown one too
		if err := json.Unmarshal(text, &got); err != nil || got.F != want {
			t.Fatalf("%s came back as %q, %v", text, got.F, err)
		}
		if plain := want.String(); string(text) != `{"F":"`+plain+`"}` || want.Known() != (plain != "") {
			t.Fatalf("its text is %s, its string %q", text, plain)
		}
	})
}

func TestTextsThatAreNoFence(t *testing.T) {
	kept := feed.NewFence()
	for _, text := range []string{"0", "1234567", "123456789", "1234567I", "L2345678", "O2345678", "U2345678", "abcdefgh", "12345 78", "1234567\n", "1234567-", "ÄÄÄÄ"} {
		if f, ok := feed.ParseFence(text); ok || f.Known() {
			t.Errorf("%q was read as %q", text, f)
		}
		f := kept
		if err := f.UnmarshalText([]byte(text)); err == nil || feed.CodeOf(err) != feed.CodeInvalid || f != kept {
			t.Errorf("%q: %v and %q, want an error of code %s and the old fence", text, err, f, feed.CodeInvalid)
		}
	}
}

func TestGuardModes(t *testing.T) {
	for text, want := range map[string]feed.GuardMode{
		"": feed.GuardStrict, "strict": feed.GuardStrict, "verify": feed.GuardVerify, "off": feed.GuardOff,
	} {
		if got, err := feed.ParseGuardMode(text); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"Strict", "none", "of", " off"} {
		if got, err := feed.ParseGuardMode(text); err == nil || feed.CodeOf(err) != feed.CodeInvalid || got != "" {
			t.Errorf("%q: %q, %v; want an error of code %s", text, got, err, feed.CodeInvalid)
		}
	}
}
