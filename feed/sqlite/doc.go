// Package sqlite keeps the log, and the control state beside it, in one
// SQLite file: a store for one server, with nothing to install.
//
// # What it guarantees
//
//   - Append returns after its events are on disk: SQLite's write-ahead log
//     was synced (synchronous=FULL) with their transaction in it. A process
//     that is killed, or a machine that loses its power, loses nothing that
//     was acknowledged, as far as the disk keeps what it says it has synced.
//   - Seqs are contiguous and in commit order, since one goroutine commits.
//     What waits is committed together; a batch that fails by itself, for an id
//     with other content, takes nobody with it.
//   - A transaction that fails (a full disk, a failing one) changes nothing:
//     all that was in it fails with [feed.CodeUnavailable], and the next one
//     works as soon as the disk does.
//   - One process has a file at a time, whatever the names under which it is
//     opened. A file that is deleted or replaced under a running store stops
//     its appends, since nothing that was written to it would be found again.
//   - A log that is not where this store last left it, since the file was put
//     back from a copy, or is one, is noticed at Open and not served: see
//     [feed.Durable]. So is one of which only consumers, webhooks or the seal
//     are older.
//   - Every call ends with its context while it waits, for its turn or for
//     another program that has the database locked. A commit that has begun
//     runs to its end.
//   - After a stop without Close, Open reads the events and their index whole,
//     which takes about a second for a million: a copy that was put in place
//     beside the write-ahead log of another state is a mixture of both.
//   - Retention holds after each append and Trim. Bounds of at least 1,000
//     events or 1 MiB have slack, of a twentieth and at most 1,024 events or
//     1 MiB, until Trim. A backlog that is far larger than what an append
//     stores goes in steps. What was trimmed makes room inside the file, which
//     so stops growing, but does not shrink.
//
// # What it does not guarantee
//
//   - That a restore of the file and its witness together, to the same moment,
//     is noticed at Open: nothing beside them remembers more. Fences protect
//     the readers all the same. Nor that audit entries alone are missing.
//   - Anything on a network file system without working locks and syncs.
//
// # Files
//
//   - PATH: the database. Its tables are meant to be read, by sqlite3 too:
//     see schema.go.
//   - PATH-wal, PATH-shm: SQLite's write-ahead log and its index. They belong
//     to the database while it is open, and after a crash: a copy of PATH alone
//     then lacks the newest commits. A clean Close removes them.
//   - PATH-witness: where the last commit left the log and its control state,
//     for the restore guard.
//   - PATH-lock: only where the system or file system has no open file
//     description locks.
//
// # What is synced when
//
// The write-ahead log at each commit, before it is acknowledged. The database
// at checkpoints, which run beside the commits, and at Close. The witness is
// written after each commit and synced at Open and Close: a power cut may
// leave it behind the log, never ahead of it, so it raises no false alarm. The
// directory when files are made in it.
//
// # Memory
//
// The newest 8,192 events, of 16 MiB at most, are kept in memory and serve
// most reads; ids of the dedupe window take some 50 bytes each; SQLite's page
// caches 8 MiB and, for each of four readers, 4 MiB.
package sqlite
