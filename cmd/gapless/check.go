package main

import (
	"context"
	"errors"
	"fmt"
)

type checkCommand struct {
	storeFlags
}

// Help implements [kong.HelpProvider].
func (*checkCommand) Help() string {
	return `Reads the whole store and looks for damage: of its files, and of what a log promises (seqs without holes, bounds, byte totals, fences; payloads have no checksum). Changes nothing. A SQLite file must not be open in a gateway; to look at one that is, check a backup: gapless backup DIR and gapless backup verify DIR.

Exit code 0: no damage was found; 1: damage, or the store cannot be opened; 3: the database does not answer.

Examples:
  gapless check --store sqlite:events.db
  gapless check --store postgres://gapless@db.example/app`
}

// Run checks.
func (c *checkCommand) Run(ctx context.Context, con *console) error {
	name, err := c.name()
	if err != nil {
		return err
	}
	t, err := openTarget(ctx, con, name)
	if err != nil {
		return err
	}
	share := newShare(con, "checking")
	err = t.named(t.durable.Check(ctx, share.set))
	share.end()
	if ctx.Err() != nil {
		err = errInterrupted
	}
	var head uint64
	if err == nil {
		status, statusErr := t.status(ctx)
		head, err = status.HeadSeq, statusErr
	}
	if err = errors.Join(err, t.close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(con.out, "no damage was found; the head is seq %d\n", head)
	return err
}
