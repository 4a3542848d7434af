package main

import (
	"context"
	"fmt"

	"gapless/feed/postgres"
)

type migrateCommand struct {
	storeFlags
}

// Help implements [kong.HelpProvider].
func (*migrateCommand) Help() string {
	return `Brings the schema "gapless" of a PostgreSQL database up to date. Needs a role that may create tables there; serve itself then needs none. Migrations only add, so gateways of the version before run on beside it. Doing it twice, or from two places at once, does no harm.

Examples:
  gapless migrate --store postgres://owner@db.example/app
  gapless migrate --store-file /run/secrets/owner-url`
}

// Run migrates.
func (c *migrateCommand) Run(ctx context.Context, con *console) error {
	name, err := c.name()
	if err != nil {
		return err
	}
	if name.kind != storePostgres {
		return usageErrorf("--store %s: only PostgreSQL is migrated by hand; a SQLite file is brought up to date when it is opened", name)
	}
	var from, to int
	err = await(ctx, con, name, func(context.Context) (err error) {
		from, to, err = postgres.Migrate(ctx, name.text) // as long as it takes, once it has begun
		return err
	})
	if err != nil {
		return err
	}
	if from == to {
		_, err = fmt.Fprintf(con.out, "the schema is up to date: version %d\n", to)
	} else {
		_, err = fmt.Fprintf(con.out, "the schema was migrated from version %d to %d\n", from, to)
	}
	return err
}
