package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"gapless/feed"
)

type restoreFinalizeCommand struct {
	targetFlags
	DryRun     bool   `help:"Say what would be done, and do nothing."`
	Yes        bool   `env:"-" help:"Do not ask. Needed without a terminal."`
	Relocation string `placeholder:"MANIFEST" help:"The manifest of the final backup that the store was moved with, or its directory."`
	Actor      string `placeholder:"NAME" help:"Who does this, for the audit trail. Default: this user, at this machine."`
	JSON       bool   `help:"What was done, as JSON."`
}

// Help implements [kong.HelpProvider].
func (*restoreFinalizeCommand) Help() string {
	return `Says for each consumer and webhook what it will skip, asks, and then begins a new epoch, in one transaction: every reader of a stream is told to resync, and every consumer and webhook goes on from the head. The seal of a final backup goes: do that only where the copy is not in use. Stopped in the middle, nothing has changed. The audit trail keeps who did it, when, and what was skipped.

With --relocation nothing of that happens: the store is taken for the whole copy of a final backup (gapless backup --final), and keeps its epoch and every cursor. It is refused where manifest and store differ, and at the source itself.

It works through a running gateway, also one that is not ready, or with --store on the store itself, which no gateway may have open if it is a SQLite file. gapless restore status says whether a restore or a relocation fits.

Examples:
  gapless restore finalize --dry-run
  gapless restore finalize --yes --actor 'on call: J. Doe'
  gapless restore finalize --store sqlite:events.db
  gapless restore finalize --relocation /backup/2026-11-30/manifest.json`
}

// Run finalizes, or looks at what that would do.
func (c *restoreFinalizeCommand) Run(ctx context.Context, parsed *kong.Context, con *console) error {
	if err := c.choose(parsed); err != nil {
		return err
	}
	if c.Actor == "" {
		c.Actor = actor()
	}
	var manifest feed.Manifest
	if c.Relocation != "" {
		var err error
		if manifest, err = readManifest(c.Relocation); err != nil {
			return usageErrorf("--relocation %s: %w", c.Relocation, err)
		}
	}
	t, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	if c.Relocation != "" {
		err = c.relocate(ctx, con, t, manifest)
	} else {
		err = c.finalize(ctx, con, t)
	}
	return errors.Join(err, t.close())
}

func (c *restoreFinalizeCommand) finalize(ctx context.Context, con *console, t target) error {
	status, err := t.status(ctx)
	if err != nil {
		return err
	}
	plan, err := t.finalize(ctx, feed.FinalizeOptions{Actor: c.Actor, DryRun: true})
	if err != nil {
		return err
	}
	var b strings.Builder
	describe(&b, status)
	b.WriteString("\nA new epoch begins. Every reader of a stream is told to resync. Moved to the head, with what they skip:\n")
	listSkips(&b, plan.Skips)
	question := "Finalize the restore, and begin a new epoch?"
	switch {
	case status.Sealed:
		b.WriteString("\nThis lifts the seal of a final backup: the store takes events again. Where the copy is in\nuse, or will be, the two part here: what one of them takes, the other never has.\n")
		question = "Lift the seal, and begin a new epoch? Only if the copy is not in use."
	case status.Finalized:
		b.WriteString("\nThe guard is content with this store: nothing has to be finalized.\n")
		question = "Begin a new epoch all the same?"
	}
	if err := c.show(con, b.String(), plan); err != nil || c.DryRun {
		return err
	}
	if err := con.consent(ctx, c.Yes, question); err != nil {
		return err
	}
	done, err := t.finalize(ctx, feed.FinalizeOptions{Actor: c.Actor, Epoch: plan.OldEpoch})
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(con, done)
	}
	_, err = fmt.Fprintf(con.out, "finalized: epoch %s follows %s; the log is seq %d to %d; %d cursors moved to the head\n",
		done.NewEpoch, done.OldEpoch, done.OldestSeq, done.HeadSeq, len(done.Skips))
	return err
}

func (c *restoreFinalizeCommand) relocate(ctx context.Context, con *console, t target, m feed.Manifest) error {
	status, err := t.status(ctx)
	if err != nil {
		return err
	}
	differences := compareManifest(m, status)
	var b strings.Builder
	describe(&b, status)
	fmt.Fprintf(&b, "\nThe manifest is of %s, of epoch %s with head %d, fence %s.\n", m.Time.Format("2006-01-02 15:04:05 MST"), m.Epoch, m.HeadSeq, m.HeadFence)
	if len(differences) > 0 {
		b.WriteString("They do not agree:\n")
		for _, d := range differences {
			b.WriteString("    " + d + "\n")
		}
	} else {
		b.WriteString("They agree: the epoch and every cursor stay.\n")
	}
	// A guard that is off calls every store finalized; one that runs where it was
	// last written is the source all the same. The store looks for itself, too.
	isSource := len(differences) == 0 && status.Sealed && status.Finalized && status.Expected == status.Found
	if isSource {
		b.WriteString("\nBut this is where the store was sealed, and no copy of it: there is nothing to take over. Run this where the copy is.\nTo go on here after all, and only if the copy is not in use: gapless restore finalize, without --relocation.\n")
	}
	plan := map[string]any{"dry_run": true, "agrees": len(differences) == 0 && !isSource, "differences": differences}
	if err := c.show(con, b.String(), plan); err != nil {
		return err
	}
	if len(differences) > 0 {
		return errors.New("the store is not the copy that the manifest describes; nothing was changed")
	}
	if isSource {
		return errors.New("this is the source of the final backup, and no copy of it; nothing was changed")
	}
	if c.DryRun {
		return nil
	}
	if err := con.consent(ctx, c.Yes, "Take the store over here?"); err != nil {
		return err
	}
	done, err := t.relocate(ctx, m, c.Actor)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(con, done)
	}
	_, err = fmt.Fprintf(con.out, "relocated: epoch %s goes on from seq %d\n", done.Epoch, done.HeadSeq)
	return err
}

// show tells what is about to be done: on stdout where that is all that was
// asked for, and in the form that was asked for.
func (c *restoreFinalizeCommand) show(con *console, text string, plan any) error {
	switch {
	case c.JSON && c.DryRun:
		return writeJSON(con, plan)
	case c.JSON:
		fmt.Fprint(con.err, text)
		return nil
	case c.DryRun:
		text += "\nNothing was changed.\n"
	}
	_, err := fmt.Fprint(con.out, text)
	return err
}

// compareManifest lists where a store is not the copy that a manifest
// describes. The store compares by itself, too.
func compareManifest(m feed.Manifest, s feed.RestoreStatus) []string {
	differences := []string{}
	differ := func(what string, manifest, store any) {
		if manifest != store {
			differences = append(differences, fmt.Sprintf("%s: the manifest says %v, the store %v", what, manifest, store))
		}
	}
	if !m.Final {
		differences = append(differences, "the backup was not final: its source may have taken events since")
	}
	differ("store", m.Store, s.Store)
	differ("epoch", m.Epoch, s.Epoch)
	differ("head", m.HeadSeq, s.HeadSeq)
	differ("fence of the head", m.HeadFence, s.HeadFence)
	return differences
}

func writeJSON(con *console, value any) error {
	enc := json.NewEncoder(con.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}
