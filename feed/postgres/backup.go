package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"gapless/feed"
)

// backupReadme is the file that says how the data itself is copied.
const backupReadme = "README.txt"

// Backup implements [feed.Durable]. It writes the manifest and a text with
// the commands that copy the data: those are PostgreSQL's own, and may run on
// another machine.
func (s *Store) Backup(ctx context.Context, dir string, opts feed.BackupOptions) (m feed.Manifest, err error) {
	const op = "backup"
	if err := emptyDir(op, dir); err != nil {
		return m, err
	}
	progress := opts.Progress
	if progress == nil {
		progress = func(float64) {}
	}
	var in instance
	if opts.Final {
		in, err = s.seal(ctx, op, opts.Actor)
	} else {
		err = s.view(ctx, op, func(_ context.Context, _ querier, now instance) error { in = now; return nil })
	}
	if err != nil {
		return m, err
	}
	progress(0.2)
	m, err = s.describe(ctx, op, dir, &in, opts, progress)
	if err != nil { // the next try finds the directory as this one did
		for _, name := range []string{backupReadme, feed.ManifestName} {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
	if err != nil && opts.Final && feed.CodeOf(err) != feed.CodeConflict {
		err = &feed.Error{
			Code: feed.CodeOf(err), Op: op, Err: err,
			Msg: "the store stays sealed: make the final backup again, or open it for appends with `gapless restore finalize`",
		}
	}
	return m, err
}

// describe writes what a backup consists of.
func (s *Store) describe(ctx context.Context, op, dir string, in *instance, opts feed.BackupOptions, progress func(float64)) (m feed.Manifest, err error) {
	m = feed.Manifest{
		Format: feed.ManifestFormat, Store: storeName, Epoch: in.Epoch,
		OldestSeq: in.Oldest, HeadSeq: in.Head.Seq, HeadFence: in.Head.Fence,
		Identity: in.Found.String(), Final: opts.Final, Time: in.Now,
	}
	if err := writeReadme(dir, backupText(s.cfg.URL, m)); err != nil {
		return m, backupFailed(op, dir, err)
	}
	file, err := feed.HashFile(ctx, dir, backupReadme)
	if err != nil {
		return m, backupFailed(op, dir, err)
	}
	m.Files = []feed.ManifestFile{file}
	progress(0.6)
	if err := s.finish(ctx, op, dir, opts.Actor, m); err != nil {
		return m, err
	}
	progress(1)
	return m, nil
}

// finish writes the manifest and the audit entry. A final one it writes while
// it holds the log, so that at that moment the seal is still what it was.
func (s *Store) finish(ctx context.Context, op, dir, actor string, m feed.Manifest) error {
	write := func() error {
		if err := m.Write(dir); err != nil {
			return backupFailed(op, dir, err)
		}
		return nil
	}
	if !m.Final {
		if err := write(); err != nil {
			return err
		}
		return s.decide(ctx, op, func(ctx context.Context, q querier, _ *instance) error {
			return recordAudit(ctx, q, actor, feed.ActionBackup, m)
		})
	}
	return s.update(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		if in.SealedAt.IsZero() || in.Epoch != m.Epoch || in.Head.Seq != m.HeadSeq || in.Head.Fence != m.HeadFence || in.Found.String() != m.Identity {
			return conflict(op, "the seal was taken away while the backup was made, so that it is not a final one")
		}
		if err := recordAudit(ctx, q, actor, feed.ActionBackup, m); err != nil {
			return err
		}
		return write()
	})
}

// seal makes the store refuse every change from now on, and returns what it
// holds. Sealed twice is sealed. Cursors that are being moved, and rows that
// applications have written to the outbox, are waited for: what comes after
// the seal sees it.
func (s *Store) seal(ctx context.Context, op, actor string) (sealed instance, err error) {
	err = s.update(ctx, op, func(ctx context.Context, q querier, in *instance) error {
		sealed = *in
		if !in.SealedAt.IsZero() {
			return nil
		}
		if _, err := q.Exec(ctx, "lock table gapless.consumers, gapless.webhooks in exclusive mode"); err != nil {
			return err
		}
		if err := holdOutbox(ctx, q, op); err != nil {
			return err
		}
		in.SealedAt = in.Now
		sealed = *in
		return recordAudit(ctx, q, actor, feed.ActionSeal, struct {
			HeadSeq   uint64     `json:"head_seq"`
			HeadFence feed.Fence `json:"head_fence"`
		}{in.Head.Seq, in.Head.Fence})
	})
	return sealed, err
}

// outboxPatience is how long a seal waits for transactions that have written
// to the outbox. Applications that write to it wait for as long.
const outboxPatience = "3s"

// holdOutbox waits until no open transaction has written to the outbox, and
// keeps others from it until the end of this one.
func holdOutbox(ctx context.Context, q querier, op string) error {
	_, err := q.Exec(ctx, "select set_config('lock_timeout', $1::text, true)", outboxPatience)
	if err == nil {
		_, err = q.Exec(ctx, "lock table gapless.outbox in exclusive mode")
	}
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) && server.Code == "42501" {
		return unavailable(op, "nothing is sealed: the database role has no right on gapless.outbox: grant it select, insert, update and delete there", err)
	} else if errors.As(err, &server) && server.Code == "55P03" {
		return conflict(op, "nothing is sealed: an application has an open transaction that wrote to the outbox; stop the applications, and seal then")
	}
	return err
}

// emptyDir makes sure, before anything is sealed, that a backup can be
// written: the directory is new or empty, and takes files.
func emptyDir(op, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return backupFailed(op, dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return backupFailed(op, dir, err)
	}
	if len(entries) > 0 {
		return conflict(op, "%s is not empty: a backup needs a directory of its own", dir)
	}
	probe, err := os.CreateTemp(dir, ".probe")
	if err != nil {
		return backupFailed(op, dir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return backupFailed(op, dir, err)
	}
	return nil
}

// backupFailed is the error for a directory that does not take the backup. A
// cause of the caller's own stays as it is.
func backupFailed(op, dir string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	if !errors.As(err, &path) && !errors.As(err, &link) {
		return err
	}
	return &feed.Error{Code: feed.CodeInvalid, Op: op, Msg: fmt.Sprintf("the backup cannot be written to %s", dir), Err: err}
}

func writeReadme(dir, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, backupReadme), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// backupText says how to copy what the manifest describes. It holds no
// password: the tools ask, or read the usual PGPASSFILE.
func backupText(url string, m feed.Manifest) string {
	target, database := "", "gapless"
	if cfg, err := pgx.ParseConfig(url); err == nil {
		database = cfg.Database
		target = fmt.Sprintf("--host=%s --port=%d", shellWord(cfg.Host), cfg.Port)
	}
	kind := "This is a description of a running store: a copy that is made now holds event " +
		fmt.Sprint(m.HeadSeq) + " and perhaps more."
	after := `After you have restored such a copy, every gateway on it stays not ready until an
operator has looked and decided:

    gapless restore status   --store postgres://…
    gapless restore finalize --store postgres://…

Finalizing starts a new epoch: readers take a new snapshot, consumers and
webhooks go to the head. What was published after the copy is lost.`
	if m.Final {
		kind = "This is a final backup: the store is sealed and takes no more appends, so that a copy\nthat is made now, and only from now on, holds everything that was ever acknowledged.\n" +
			"Applications cannot write to its outbox either."
		after = `Where the copy has been restored, take it over without a loss. The epoch stays, and so
do the cursors of readers, consumers and webhooks:

    gapless restore finalize --store postgres://… --relocation ` + feed.ManifestName + `

It is refused if the copy is not exactly what the manifest says. Let nothing run on the
old store again. (To go on there after all, and only if the copy is
not used: gapless restore finalize, which begins a new epoch.)`
	}
	var b strings.Builder
	fmt.Fprintf(&b, `Backup of a Gapless store in PostgreSQL, %s

    epoch       %s
    events      %d to %d
    head fence  %s
    runs on     %s

%s

The data is not in this directory. Copy it with PostgreSQL's own tools, either

  one database, to any version and machine. Dump as the role that owns the schema, or as
  a superuser: the role that gateways run with may not read all of it.

    pg_dump %s --username=OWNER --format=custom --schema=gapless --file=gapless.dump %s

  A dump holds no roles. Where it is restored, first make the database and the roles that
  the old one had: the owner, the gateways', those of applications that publish by the
  outbox. Then, as the owner (with the right to create in that database) or a superuser:

    pg_restore --exit-on-error --single-transaction --dbname=NEW_DATABASE gapless.dump

  Owners and rights come with it. --no-owner --no-privileges leaves the rights out, and
  with them that not everybody may call the outbox's functions: then say these again, as
  the owner, and the grants of your roles:

    grant usage on schema gapless to public;
    revoke all on function gapless.publish(text, text, json, text, text, json) from public;
    revoke all on function gapless.requeue_parked(bigint) from public;

  or the whole cluster, with point-in-time recovery if you archive its WAL, as a role
  with REPLICATION:

    pg_basebackup %s --username=REPLICATION_ROLE --pgdata=DIRECTORY --wal-method=stream --checkpoint=fast --progress

Keep %s with the copy.

%s
`, m.Time.Format("2006-01-02 15:04:05 MST"), m.Epoch, m.OldestSeq, m.HeadSeq, m.HeadFence, m.Identity, kind,
		target, shellWord(database), target, feed.ManifestName, after)
	return b.String()
}

// shellWord quotes a word for a POSIX shell where it needs to be.
func shellWord(s string) string {
	plain := s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=") == ""
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
