// Package postgres keeps the log in a PostgreSQL database, version 13 or
// later, in a schema of its own named gapless. Any number of processes append
// to one log and follow it: they share its one order, and a cursor of one is
// good at every other.
//
// # Order
//
// One row, gapless.instance, holds the head. Each append is a transaction
// that locks this row first and then looks for ids that were used before,
// numbers what is new, inserts it and updates the row. So seqs are given in
// the order of commits and without holes, and no reader meets event 8 before
// event 7 can be seen. Appends that wait together are committed together.
//
// # Durability
//
// An append returns when its transaction is committed, and so is as durable
// as the server makes a commit; synchronous_commit = off is overruled, the
// other values are left as they are. Where the connection is lost in the
// middle of a commit, or the server warns that it gave up waiting for its
// standby, the next transaction that holds the row looks whether the event with
// the expected seq has the fence that was minted for it, and commits behind it
// before it is acknowledged. So does an append of nothing but repeats: their
// first commit may never have been confirmed to anybody.
//
// # Repeats
//
// For how long a publisher's id is remembered is the log's: the longest window
// that any gateway asks for holds for all, until nobody has asked for it for as
// long.
//
// # Following
//
// Each process keeps one connection on which it listens. A notification is a
// hint that a look is worth it; what is read is read from a snapshot. A look
// every two seconds stands in for a notification that was lost. A pooler that
// hands each transaction to another connection (PgBouncer in transaction
// mode) cannot listen: there, the head is polled while somebody waits.
//
// # The database role
//
// `gapless migrate` needs to create a schema and tables. The role that serves
// needs no more than
//
//	grant usage on schema gapless to app;
//	grant select on gapless.migration to app;
//	grant select, insert, update on gapless.instance to app;
//	grant select, insert, update, delete on gapless.events, gapless.dedupe,
//	    gapless.consumers, gapless.webhooks to app;
//	grant select, insert on gapless.audit to app;
//
// and what the transactional outbox asks for, beside EXECUTE on
// pg_control_system() where that was taken from PUBLIC.
package postgres
