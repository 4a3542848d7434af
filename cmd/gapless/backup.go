package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"gapless/feed"
)

type backupCommand struct {
	Make   backupMakeCommand   `cmd:"" default:"withargs" help:"Copy a store. The word itself can be left out."`
	Verify backupVerifyCommand `cmd:"" help:"Look whether a copy is whole."`
}

// Help implements [kong.HelpProvider].
func (*backupCommand) Help() string {
	return `A directory that is called verify or make has to be written as ./verify, ./make .

Examples:
  gapless backup /var/backups/gapless/monday
  gapless backup --store sqlite:events.db monday
  gapless backup verify /var/backups/gapless/monday`
}

type backupMakeCommand struct {
	targetFlags
	Final bool   `env:"-" help:"Seal the store first: it takes no more events, so that nothing can be missing from the copy."`
	Yes   bool   `env:"-" help:"Do not ask before sealing. Needed without a terminal."`
	Actor string `placeholder:"NAME" help:"Who does this, for the audit trail. Default: this user, at this machine."`
	Dir   string `arg:"" help:"A new or empty directory: with a gateway on its machine, as an absolute path."`
}

// Help implements [kong.HelpProvider].
func (*backupMakeCommand) Help() string {
	return `Copies a store while it goes on, and writes manifest.json beside the copy: epoch, bounds, the fence of the head, checksums. Of PostgreSQL it writes the manifest and a README.txt with the commands that copy the data, since pg_dump and pg_basebackup do that best.

Without --store the gateway makes it, on its own machine. A gateway whose client goes away gives the backup up.

With --final the store is sealed first: it takes no more events (503), also after a restart. The copy can then take over elsewhere without a loss: gapless restore finalize --relocation DIR/manifest.json. Without --final it can be restored, at the price of a new epoch.

Examples:
  gapless backup /var/backups/gapless/monday
  gapless backup --store sqlite:events.db monday
  gapless backup --final --yes /mnt/move
  gapless backup verify monday`
}

// Run copies.
func (c *backupMakeCommand) Run(ctx context.Context, parsed *kong.Context, con *console) error {
	if err := c.choose(parsed); err != nil {
		return err
	}
	if c.Actor == "" {
		c.Actor = actor()
	}
	if c.fromStore {
		dir, err := filepath.Abs(c.Dir)
		if err != nil {
			return err
		}
		c.Dir = dir
	} else if !filepath.IsAbs(c.Dir) {
		return usageErrorf("%q: the gateway makes the backup on its own machine: want an absolute path there (or --store, where no gateway has the store open)", c.Dir)
	}
	if c.Final {
		if err := con.consent(ctx, c.Yes, "The store takes no more events from now on. Seal it?"); err != nil {
			return err
		}
	}
	t, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	progress := newShare(con, "copying")
	opts := feed.BackupOptions{Actor: c.Actor, Final: c.Final, Progress: progress.set}
	stop := func() {}
	if !c.fromStore {
		stop = progress.tick() // a gateway tells no share
	}
	manifest, err := t.backup(ctx, c.Dir, opts)
	stop()
	progress.end()
	if err = errors.Join(err, t.close()); err != nil {
		return err
	}
	_, err = fmt.Fprint(con.out, describeBackup(manifest, c.Dir))
	return err
}

func describeBackup(m feed.Manifest, dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: epoch %s, seq %d to %d\n", printable(dir), m.Epoch, m.OldestSeq, m.HeadSeq)
	for _, f := range m.Files {
		fmt.Fprintf(&b, "    %s, %s\n", printable(f.Name), readableSize(f.Bytes))
	}
	if m.Store == string(storePostgres) {
		b.WriteString("README.txt there has the commands that copy the data.\n")
	}
	if m.Final {
		b.WriteString("The store is sealed. Where the copy takes over: gapless restore finalize --relocation manifest.json\n")
	}
	return b.String()
}
