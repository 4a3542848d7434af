package postgres

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"gapless/feed"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one step of the schema. Steps only ever add to it, so that a
// version of the program runs on every later schema.
type migration struct {
	version int
	name    string
	sql     string
}

// migrations lists the steps in their order: the files NNNN_name.sql, from 1
// without a hole.
func migrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	steps := make([]migration, len(names))
	for i, path := range names {
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "migrations/"), ".sql")
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 || len(number) != 4 {
			return nil, fmt.Errorf("migration %s: want the number %04d", name, i+1)
		}
		steps[i] = migration{version: i + 1, name: name, sql: string(text)}
	}
	return steps, nil
}

// migrationLock is the key of the advisory lock that migrators hold.
const migrationLock = 0x6761706c657373 // "gapless"

// Migrate brings the schema up to date, says from which version to which, and
// sets the log up where that was not done. Several may run at once. Gateways
// may run meanwhile: a step waits for a table at most some seconds at a time,
// so that it does not block appends behind a long reader. The error has
// [feed.CodeInvalid] or [feed.CodeUnavailable].
func Migrate(ctx context.Context, url string) (from, to int, err error) {
	cfg, _, err := parseURL(url)
	if err != nil {
		return 0, 0, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return 0, 0, migrateFailure(ctx, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	from, to, err = migrate(ctx, conn, migrationFiles)
	if err != nil {
		return from, to, migrateFailure(ctx, err)
	}
	return from, to, nil
}

func migrateFailure(ctx context.Context, err error) error {
	var fe *feed.Error
	if errors.As(err, &fe) {
		return fe
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return unavailable("migrate", "the schema cannot be brought up to date", err)
}

// migrate applies what is missing, one transaction a step, and sets the log up.
func migrate(ctx context.Context, conn *pgx.Conn, files fs.FS) (from, to int, err error) {
	steps, err := migrations(files)
	if err != nil {
		return 0, 0, err
	}
	first := true
	for done := false; !done; {
		err := patiently(ctx, func() error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				version, err := lockSchema(ctx, tx)
				if err != nil {
					return err
				}
				if first {
					from, first = version, false
				}
				to = version
				if version < len(steps) {
					to = version + 1
					return apply(ctx, tx, steps[version])
				}
				done = true
				return setUp(ctx, tx)
			})
		})
		if err != nil {
			return from, from, err
		}
	}
	return from, to, nil
}

// patiently tries again where a table was locked for too long, or where the
// step and an append wanted each other's tables.
func patiently(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "55P03" && server.Code != "40P01" || attempt == 10 || !pause(ctx, time.Second) {
			return err
		}
	}
}

// lockSchema keeps other migrators out, makes what the first needs, and
// returns the schema's version.
func lockSchema(ctx context.Context, tx pgx.Tx) (version int, err error) {
	var encoding string
	var server int
	var recovery bool
	if err := tx.QueryRow(ctx, `select current_setting('server_encoding'), current_setting('server_version_num')::int, pg_is_in_recovery()`).
		Scan(&encoding, &server, &recovery); err != nil {
		return 0, err
	}
	switch {
	case recovery:
		return 0, unavailable("migrate", errInRecovery.Error(), nil)
	case encoding != "UTF8":
		return 0, &feed.Error{Code: feed.CodeInvalid, Op: "migrate", Msg: fmt.Sprintf("the database has the encoding %s, and events need UTF8", encoding)}
	case server < 130000:
		return 0, &feed.Error{Code: feed.CodeInvalid, Op: "migrate", Msg: fmt.Sprintf("the server is PostgreSQL %d, and 13 or later is needed", server/10000)}
	}
	if _, err := tx.Exec(ctx, `select set_config('lock_timeout', '0', true), pg_advisory_xact_lock($1::bigint)`, int64(migrationLock)); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, `set local lock_timeout = '3s'`); err != nil {
		return 0, err
	}
	var schema, table bool
	if err := tx.QueryRow(ctx, `select to_regnamespace('gapless') is not null, to_regclass('gapless.migration') is not null`).Scan(&schema, &table); err != nil {
		return 0, err
	}
	if !schema {
		if _, err := tx.Exec(ctx, `create schema gapless`); err != nil {
			return 0, err
		}
	}
	if !table {
		_, err := tx.Exec(ctx, `create table gapless.migration (
			version int primary key, name text not null, applied timestamptz not null default clock_timestamp())`)
		return 0, err
	}
	return schemaVersion(ctx, tx)
}

func schemaVersion(ctx context.Context, q querier) (version int, err error) {
	err = q.QueryRow(ctx, `select coalesce(max(version), 0) from gapless.migration`).Scan(&version)
	return version, err
}

func apply(ctx context.Context, tx pgx.Tx, step migration) error {
	// The simple protocol takes several statements at once.
	if _, err := tx.Conn().PgConn().Exec(ctx, step.sql).ReadAll(); err != nil {
		return fmt.Errorf("migration %s: %w", step.name, err)
	}
	_, err := tx.Exec(ctx, `insert into gapless.migration (version, name) values ($1::int, $2::text)`, step.version, step.name)
	return err
}

// setUp writes the instance row where there is none: of those who race, one.
func setUp(ctx context.Context, q querier) error {
	epoch, err := feed.NewEpoch(time.Now(), rand.Reader)
	if err != nil {
		return err
	}
	on, system, err := readIdentity(ctx, q)
	if err != nil {
		return err
	}
	if on.recovery {
		return errInRecovery
	}
	tag, err := q.Exec(ctx, `insert into gapless.instance (epoch, system_identifier, timeline, database)
		values ($1::text, $2::text, $3::bigint, $4::bigint) on conflict do nothing`,
		string(epoch), identity{System: system}.system(), int64(on.timeline), int64(on.database))
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return recordAudit(ctx, q, "gapless", feed.ActionSetUp, map[string]feed.Epoch{"epoch": epoch})
}

// prepare makes sure that the schema is one that this version runs on. It
// asks the database until that was so once.
func (s *Store) prepare(ctx context.Context, conn *pgx.Conn) error {
	if s.ready.Load() {
		return nil
	}
	select {
	case s.readier <- struct{}{}:
		defer func() { <-s.readier }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.ready.Load() {
		return nil
	}
	steps, err := migrations(migrationFiles)
	if err != nil {
		return err
	}
	version, setUp, err := schemaState(ctx, conn)
	if err != nil {
		return err
	}
	// Only before the first time: later on, what is missing is being restored.
	if (version < len(steps) || !setUp) && s.cfg.AutoMigrate && !s.served.Load() {
		from, to, err := migrate(ctx, conn, migrationFiles)
		if err != nil {
			return migrateFailure(ctx, err)
		}
		s.log.Info().Int("from", from).Int("to", to).Msg("the schema is up to date")
		version, setUp = to, true
	}
	switch {
	case version < len(steps):
		return errSchema
	case !setUp:
		return errNotSetUp
	case version > len(steps):
		s.log.Info().Int("schema", version).Int("known", len(steps)).Msg("the schema is newer than this version: it only adds, so that this version runs on it")
	}
	s.served.Store(true)
	s.ready.Store(true)
	return nil
}

// schemaState says which migrations were applied and whether the log was set
// up. It fails with nothing where there is no schema.
func schemaState(ctx context.Context, conn *pgx.Conn) (version int, setUp bool, err error) {
	var migration, instance bool
	if err := conn.QueryRow(ctx, `select to_regclass('gapless.migration') is not null, to_regclass('gapless.instance') is not null`).Scan(&migration, &instance); err != nil {
		return 0, false, err
	}
	if !migration || !instance {
		return 0, false, nil
	}
	if version, err = schemaVersion(ctx, conn); err != nil {
		return 0, false, err
	}
	err = conn.QueryRow(ctx, `select exists (select from gapless.instance)`).Scan(&setUp)
	return version, setUp, err
}
