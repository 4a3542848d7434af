package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"
)

type restoreCommand struct {
	Status   restoreStatusCommand   `cmd:"" help:"Say in plain words what the store's guard sees, and which command to run."`
	Finalize restoreFinalizeCommand `cmd:"" help:"Declare a restore done: a new epoch begins. With --relocation: the store only moved, and nothing changes."`
}

// Help implements [kong.HelpProvider].
func (*restoreCommand) Help() string {
	return `Examples:
  gapless restore status
  gapless restore finalize --dry-run
  gapless restore finalize --store sqlite:events.db --relocation /backup/manifest.json`
}

type restoreStatusCommand struct {
	targetFlags
	JSON bool `help:"What the guard sees, as JSON."`
}

// Help implements [kong.HelpProvider].
func (*restoreStatusCommand) Help() string {
	return `A durable store remembers what it runs on. Where that has changed behind its back, as after a restore, a move or a failover, nothing is served until somebody says what happened. This command says what is seen, what it means, and which command fits which answer. It changes nothing.

It asks a running gateway, also one that is not ready. With --store it opens the store itself: a SQLite file must then not be open in a gateway, a PostgreSQL database may be.

Exit code 0: the guard is content; 3: it keeps the store shut, or the gateway cannot be reached, or with --store the database does not answer.

Examples:
  gapless restore status
  gapless restore status --url http://10.0.0.7:8080 --token-file key
  gapless restore status --store sqlite:events.db
  gapless restore status --json | jq .skips`
}

// Run looks.
func (c *restoreStatusCommand) Run(ctx context.Context, parsed *kong.Context, con *console) error {
	if err := c.choose(parsed); err != nil {
		return err
	}
	t, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	status, err := t.status(ctx)
	if err = errors.Join(err, t.close()); err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(con, status)
	} else {
		_, err = fmt.Fprint(con.out, explain(status, c.arguments()))
	}
	if err == nil && !status.Finalized {
		err = &exitError{exitUnavailable, errors.New("the store is shut until an operator says what happened to it")}
	}
	return err
}
