package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gapless/feed"
)

// someStatusOf is what a guard sees; shut if there is a cause.
func someStatusOf(store, cause string) feed.RestoreStatus {
	fence, _ := feed.ParseFence("7K3M9Q2P")
	return feed.RestoreStatus{
		Store: store, Guard: feed.GuardStrict, Finalized: cause == "", Cause: cause, Expected: "system 1, timeline 1, database 5", Found: "system 1, timeline 2, database 5",
		Epoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", OldestSeq: 5, HeadSeq: 42, HeadFence: fence,
		Skips: []feed.Skip{
			{Kind: "consumer", Name: "billing", FirstSeq: 40, LastSeq: 42},
			{Kind: "consumer", Name: "lost", Lost: true},
			{Kind: "webhook", Name: "01HOOK"},
			{Kind: "webhook", Name: "both", FirstSeq: 42, LastSeq: 42, Lost: true},
		},
	}
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestRestoreStatusInPlainWords(t *testing.T) {
	text := explain(someStatusOf("postgres", "this is timeline 2"), " --store X")
	wantLines(t, text,
		"store      postgres, guard strict\n",
		"log        seq 5 to 42, head fence 7K3M9Q2P\n",
		"remembers  system 1, timeline 1, database 5\n",
		"runs on    system 1, timeline 2, database 5\n",
		"The guard keeps this store shut: this is timeline 2.\n",
		"    gapless restore finalize --store X\n",
		"    gapless restore finalize --store X --relocation DIR/manifest.json\n",
		"3. The provider failed over to a replica of the same database cluster, and\n",
		"   --restore-guard verify does this by itself, but only in a gateway that ran\n",
		"    gapless serve … --restore-guard off\n",
		"    consumer  billing  seq 40 to 42 (3 events)\n",
		"    consumer  lost     nothing that this log holds; it had acknowledged events that this log does not hold\n",
		"    webhook   01HOOK   nothing: it is at the head\n",
		"    webhook   both     seq 42 to 42 (1 event); it had acknowledged",
	)
	if strings.Contains(text, "no harm") {
		t.Errorf("a relocation is called harmless:\n%s", text)
	}
	elsewhere := someStatusOf("postgres", "this is another cluster (x). Nothing is served until an operator says what happened: see `gapless restore status`")
	for from, found := range map[string]string{
		"another cluster": "system 12, timeline 2, database 5", "the old primary": "system 1, timeline 0, database 5",
		"another database": "system 1, timeline 2, database 6", "nothing known": "unknown",
	} {
		elsewhere.Found = found
		if text := explain(elsewhere, ""); strings.Contains(text, "3. ") {
			t.Errorf("a failover is no answer for %s:\n%s", from, text)
		}
	}
	text = explain(elsewhere, " --store "+storeVariable)
	wantLines(t, text, "The guard keeps this store shut: this is another cluster (x).\n", "    gapless restore finalize --store \"$GAPLESS_STORE\"\n", "GAPLESS_STORE stands for the store's URL")
	if strings.Contains(text, "gapless restore status") {
		t.Errorf("this command is no answer:\n%s", text)
	}
	text = explain(someStatusOf("sqlite", "its witness is gone."), "")
	wantLines(t, text, "The guard keeps this store shut: its witness is gone.\n", "3. I moved the file of a stopped gateway", "    gapless restore finalize\n")

	content := someStatusOf("sqlite", "")
	wantLines(t, explain(content, ""), "The guard is content")
	content.Sealed = true
	wantLines(t, explain(content, ""), "The guard is content, and a final backup has sealed this store", "copy is not in use, lift the seal and begin a new epoch:\n", "    gapless restore finalize\n")
	content.Sealed, content.Guard = false, feed.GuardOff
	wantLines(t, explain(content, ""), "The guard is off")
	empty := feed.RestoreStatus{Finalized: true, OldestSeq: 1}
	wantLines(t, explain(empty, ""), "log        empty, head 0\n")
	evil := someStatusOf("sqlite", "a\x1b]0;x\x07b")
	evil.Skips[0].Name = "x\x1b[2Jy"
	if text := explain(evil, ""); strings.ContainsAny(text, "\x1b\x07") {
		t.Errorf("%q", text)
	}
}

// fakeTarget is a store that notes what is asked of it.
type fakeTarget struct {
	seen  feed.RestoreStatus
	final []feed.FinalizeOptions
	moved []feed.Manifest
	fails error
}

func (f *fakeTarget) status(context.Context) (feed.RestoreStatus, error) { return f.seen, nil }

func (f *fakeTarget) finalize(_ context.Context, opts feed.FinalizeOptions) (feed.Finalized, error) {
	f.final = append(f.final, opts)
	done := feed.Finalized{DryRun: opts.DryRun, OldEpoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", OldestSeq: 5, HeadSeq: 42, Skips: f.seen.Skips}
	if !opts.DryRun {
		done.NewEpoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCE"
		return done, f.fails
	}
	return done, nil
}

func (f *fakeTarget) relocate(_ context.Context, m feed.Manifest, _ string) (feed.Relocated, error) {
	f.moved = append(f.moved, m)
	return feed.Relocated{Epoch: m.Epoch, HeadSeq: m.HeadSeq}, f.fails
}

func (f *fakeTarget) backup(context.Context, string, feed.BackupOptions) (feed.Manifest, error) {
	return feed.Manifest{}, nil
}

func (f *fakeTarget) close() error { return nil }

// terminal is a console of a person who types this.
func terminal(types string) (con *console, out, notices *bytes.Buffer) {
	out, notices = new(bytes.Buffer), new(bytes.Buffer)
	return &console{in: strings.NewReader(types), out: out, err: notices, inTerminal: true, outTerminal: true, errTerminal: true}, out, notices
}

func TestFinalizeListsThenAsks(t *testing.T) {
	for answer, done := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false, "yesterday\n": false} {
		f := &fakeTarget{seen: someStatusOf("sqlite", "older")}
		con, out, notices := terminal(answer)
		err := (&restoreFinalizeCommand{Actor: "me"}).finalize(t.Context(), con, f)
		if (err == nil) != done || len(f.final) < 1 || !f.final[0].DryRun || (len(f.final) == 2) != done {
			t.Errorf("%q: %v, %+v", answer, err, f.final)
		}
		wantLines(t, out.String(), "A new epoch begins.", "    consumer  billing  seq 40 to 42 (3 events)\n")
		if !strings.Contains(notices.String(), "begin a new epoch? [y/N] ") {
			t.Errorf("%q: asked %q", answer, notices)
		}
		if done {
			wantLines(t, out.String(), "finalized: epoch 01KB7Q3V9W8ZJ4M2T6R5N0XYCE follows 01KB7Q3V9W8ZJ4M2T6R5N0XYCD; the log is seq 5 to 42; 4 cursors moved to the head\n")
		} else if strings.Contains(out.String(), "finalized:") {
			t.Errorf("%q: %s", answer, out)
		}
	}
}

func TestFinalizeSaysWhereNothingHasToBe(t *testing.T) {
	f := &fakeTarget{seen: someStatusOf("sqlite", "")}
	con, out, notices := terminal("n\n")
	if err := (&restoreFinalizeCommand{}).finalize(t.Context(), con, f); err == nil {
		t.Error("it was done")
	}
	wantLines(t, out.String(), "The guard is content with this store: nothing has to be finalized.")
	if !strings.Contains(notices.String(), "all the same?") {
		t.Errorf("asked %q", notices)
	}
}

func TestFinalizeOfASealedStoreAsksForTheCopy(t *testing.T) {
	for _, cause := range []string{"", "it is elsewhere"} {
		f := &fakeTarget{seen: someStatusOf("sqlite", cause)}
		f.seen.Sealed = true
		con, out, notices := terminal("y\n")
		if err := (&restoreFinalizeCommand{}).finalize(t.Context(), con, f); err != nil {
			t.Error(err)
		}
		wantLines(t, out.String(), "This lifts the seal of a final backup: the store takes events again.")
		if !strings.Contains(notices.String(), "Lift the seal, and begin a new epoch? Only if the copy is not in use. [y/N] ") {
			t.Errorf("asked %q", notices)
		}
		if len(f.final) != 2 || f.final[1].Epoch != f.seen.Epoch {
			t.Errorf("not bound to the epoch that was listed: %+v", f.final)
		}
	}
}

func TestADryRunSaysThatItIsOne(t *testing.T) {
	f := &fakeTarget{seen: someStatusOf("sqlite", "older")}
	m := feed.Manifest{Store: "sqlite", Epoch: f.seen.Epoch, HeadSeq: 42, HeadFence: f.seen.HeadFence, Final: true}
	con, out, _ := terminal("")
	cmd := &restoreFinalizeCommand{DryRun: true}
	if err := errors.Join(cmd.finalize(t.Context(), con, f), cmd.relocate(t.Context(), con, f, m)); err != nil {
		t.Error(err)
	}
	if text := out.String(); strings.Count(text, "\nNothing was changed.\n") != 2 || !strings.HasSuffix(text, "Nothing was changed.\n") {
		t.Errorf("%s", text)
	}
}

func TestRelocationIsNotForTheSource(t *testing.T) {
	for _, guard := range []feed.GuardMode{feed.GuardStrict, feed.GuardVerify, feed.GuardOff} {
		f := &fakeTarget{seen: someStatusOf("postgres", "")}
		f.seen.Sealed, f.seen.Guard, f.seen.Found = true, guard, f.seen.Expected
		m := feed.Manifest{Store: "postgres", Epoch: f.seen.Epoch, HeadSeq: 42, HeadFence: f.seen.HeadFence, Final: true}
		con, out, notices := terminal("y\n")
		if err := (&restoreFinalizeCommand{}).relocate(t.Context(), con, f, m); err == nil || !strings.Contains(err.Error(), "source") || len(f.moved) > 0 {
			t.Errorf("guard %s: %v, %+v", guard, err, f.moved)
		}
		wantLines(t, out.String(), "But this is where the store was sealed, and no copy of it")
		if notices.Len() > 0 {
			t.Errorf("guard %s: asked %q", guard, notices)
		}
	}
}

// A guard that is off is content with a copy, too: that is no source.
func TestRelocationOfACopyWithTheGuardOff(t *testing.T) {
	f := &fakeTarget{seen: someStatusOf("postgres", "")}
	f.seen.Sealed, f.seen.Guard = true, feed.GuardOff
	m := feed.Manifest{Store: "postgres", Epoch: f.seen.Epoch, HeadSeq: 42, HeadFence: f.seen.HeadFence, Final: true}
	con, out, _ := terminal("y\n")
	if err := (&restoreFinalizeCommand{}).relocate(t.Context(), con, f, m); err != nil || len(f.moved) != 1 {
		t.Errorf("%v, %+v", err, f.moved)
	}
	wantLines(t, out.String(), "They agree: the epoch and every cursor stay.", "relocated: ")
}

func TestTheKeyOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	for text, want := range map[string]string{"k": "k", "# new\n\n k1 \nk2\n": "k1", "a b\n": "", "# none\n": "", "": ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cl, err := (&clientFlags{TokenFile: path}).newClient()
		if want == "" && (err == nil || !strings.HasPrefix(err.Error(), "--token-file "+path+": ")) || want != "" && (err != nil || cl.token != want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestProposedCommandsCanBePasted(t *testing.T) {
	for store, want := range map[string]string{
		"sqlite:a b.db":             " --store 'sqlite:a b.db'",
		"postgres://u@h/d":          " --store postgres://u@h/d",
		"postgres://u:s3cret@h/d":   ` --store "$GAPLESS_STORE"`,
		"postgres://h/d?password=x": ` --store "$GAPLESS_STORE"`,
	} {
		f := targetFlags{fromStore: true, storeFlags: storeFlags{Store: store}}
		if got := f.arguments(); got != want {
			t.Errorf("%s: %s, want %s", store, got, want)
		}
	}
}

func TestFinalizeReportsAFailure(t *testing.T) {
	f := &fakeTarget{seen: someStatusOf("sqlite", "older"), fails: errors.New("another operator was first")}
	con, out, _ := terminal("")
	err := (&restoreFinalizeCommand{Yes: true}).finalize(t.Context(), con, f)
	if !errors.Is(err, f.fails) || strings.Contains(out.String(), "finalized:") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestRelocationComparesFirst(t *testing.T) {
	status := someStatusOf("sqlite", "elsewhere")
	good := feed.Manifest{Store: "sqlite", Epoch: status.Epoch, OldestSeq: 5, HeadSeq: 42, HeadFence: status.HeadFence, Final: true}
	otherFence, _ := feed.ParseFence("00000000")
	for want, change := range map[string]func(*feed.Manifest){
		"":                             func(*feed.Manifest) {},
		"    the backup was not final": func(m *feed.Manifest) { m.Final = false },
		"    store: the manifest says postgres, the store sqlite":                       func(m *feed.Manifest) { m.Store = "postgres" },
		"    epoch: the manifest says 01KB7Q3V9W8ZJ4M2T6R5N0XYCE, the store 01KB7Q3V9W": func(m *feed.Manifest) { m.Epoch = "01KB7Q3V9W8ZJ4M2T6R5N0XYCE" },
		"    head: the manifest says 43, the store 42":                                  func(m *feed.Manifest) { m.HeadSeq = 43 },
		"    fence of the head: the manifest says 00000000, the store 7K3M9Q2P":         func(m *feed.Manifest) { m.HeadFence = otherFence },
	} {
		m := good
		change(&m)
		f := &fakeTarget{seen: status}
		con, out, _ := terminal("y\n")
		err := (&restoreFinalizeCommand{Relocation: "x"}).relocate(t.Context(), con, f, m)
		if (err == nil) != (want == "") || (len(f.moved) == 1) != (want == "") {
			t.Errorf("%s: %v, %+v", want, err, f.moved)
		}
		if want == "" {
			wantLines(t, out.String(), "They agree: the epoch and every cursor stay.\n", "relocated: epoch 01KB7Q3V9W8ZJ4M2T6R5N0XYCD goes on from seq 42\n")
		} else {
			wantLines(t, out.String(), "They do not agree:\n", want)
		}
		f = &fakeTarget{seen: status}
		con, _, _ = terminal("")
		if err := (&restoreFinalizeCommand{Relocation: "x", DryRun: true}).relocate(t.Context(), con, f, m); (err == nil) != (want == "") || len(f.moved) > 0 {
			t.Errorf("dry run, %s: %v, %+v", want, err, f.moved)
		}
	}
}

func TestConsentEndsWithTheCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	con, _, _ := terminal("")
	con.in = blockedReader{t.Context()}
	if err := con.consent(ctx, false, "Do it?"); !errors.Is(err, errInterrupted) {
		t.Errorf("%v", err)
	}
}

// blockedReader is a terminal at which nobody types, until the test ends.
type blockedReader struct{ ctx context.Context }

func (r blockedReader) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, r.ctx.Err()
}

func TestSharesAreForTerminalsOnly(t *testing.T) {
	for _, isTerminal := range []bool{true, false} {
		var out bytes.Buffer
		s := newShare(&console{err: &out, errTerminal: isTerminal}, "copying")
		s.set(0.256)
		s.set(0.5) // too soon to be shown
		s.end()
		s.end()
		if got, want := out.String(), "\r\x1b[Kcopying: 26 %\r\x1b[K"; isTerminal && got != want || !isTerminal && got != "" {
			t.Errorf("terminal %v: %q", isTerminal, got)
		}
		newShare(&console{err: &out, errTerminal: isTerminal}, "x").tick()()
	}
}
