package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gapless/feed"
)

var _ feed.Durable = (*Store)(nil)

// storeName is what this kind of store is called.
const storeName = "sqlite"

// RestoreStatus implements [feed.Durable]. The identity of a SQLite store is
// a place in its log: expected is the one that the witness file beside the
// database holds, found is the head.
func (s *Store) RestoreStatus(ctx context.Context) (feed.RestoreStatus, error) {
	status := feed.RestoreStatus{Store: storeName, Guard: s.cfg.Guard, Cause: s.guardCause()}
	// The witness follows the log, so it is read first: else a commit in between
	// would make it look ahead.
	if _, last, err := readWitness(s.witnessPath()); err == nil {
		status.Expected = last.cursor.String()
	}
	err := s.view(ctx, "restore status", func(tx *sql.Tx, in instance) (err error) {
		status.Sealed = in.sealed
		status.Epoch, status.OldestSeq = in.epoch, in.oldest
		status.HeadSeq, status.HeadFence = in.head.Seq, in.head.Fence
		status.Found = in.identity()
		if status.Cause != "" {
			if err := s.lookAgain(tx, in, &status); err != nil {
				return err
			}
		}
		status.Skips, err = skips(tx, in, in.cursor())
		return err
	})
	if err != nil {
		return feed.RestoreStatus{}, err
	}
	status.Finalized = status.Cause == ""
	return status, nil
}

// lookAgain says what the guard sees now in a store that it keeps shut, so
// that the log stands still.
func (s *Store) lookAgain(tx *sql.Tx, in instance, status *feed.RestoreStatus) error {
	expected, cause, err := s.testimony(in, fenceIn(context.Background(), tx))
	if err != nil {
		return err
	}
	if cause == "" {
		cause = "the witness file agrees with the log now, but did not when the store was opened: start again"
	}
	status.Expected, status.Cause = expected, cause
	return nil
}

// Finalize implements [feed.Durable].
//
// The witness is renewed behind the commit. A process that dies between the
// two leaves a log in its new epoch beside a witness of the old one: the next
// start finds the guard shut, and finalizing again mints another epoch,
// skips nothing more, and keeps what each cursor's reset says.
func (s *Store) Finalize(ctx context.Context, opts feed.FinalizeOptions) (feed.Finalized, error) {
	const op = "restore finalize"
	done := feed.Finalized{DryRun: opts.DryRun}
	look := func(tx *sql.Tx, in instance, to feed.Epoch) (err error) {
		if opts.Epoch != "" && opts.Epoch != in.epoch {
			return conflict(op, fmt.Sprintf("the store is in epoch %s, not in %s as it was when you looked: somebody finalized it meanwhile; look again", in.epoch, opts.Epoch))
		}
		done.Time = microTime(s.micros())
		done.OldEpoch, done.OldestSeq = in.epoch, in.oldest
		done.HeadSeq, done.HeadFence = in.head.Seq, in.head.Fence
		done.Identity = feed.Cursor{Epoch: to, Position: in.head}.String()
		done.Skips, err = skips(tx, in, feed.Cursor{Epoch: to, Position: in.head})
		return err
	}
	if opts.DryRun {
		err := s.view(ctx, op, func(tx *sql.Tx, in instance) error { return look(tx, in, in.epoch) })
		if err != nil {
			return feed.Finalized{}, err
		}
		return done, nil
	}
	epoch, err := feed.NewEpoch(s.cfg.Now(), rand.Reader)
	if err != nil {
		return feed.Finalized{}, err
	}
	done.NewEpoch = epoch
	err = s.transact(ctx, op, rules{anyway: true, sealed: true, settles: true}, func(tx *sql.Tx, in *instance) error {
		if err := look(tx, *in, epoch); err != nil {
			return err
		}
		in.epoch, in.sealed, in.witnessed = epoch, false, true
		for _, h := range holders() {
			if err := h.reset(tx, in.cursor(), s.micros()); err != nil {
				return err
			}
		}
		return addAudit(context.Background(), tx, s.cfg.Now(), opts.Actor, feed.ActionFinalize, done)
	})
	if err != nil {
		return feed.Finalized{}, err
	}
	return done, nil
}

// reset moves every cursor to the head. A cursor whose last reset was not
// acknowledged keeps what that says: it is where its holder really is.
func (h holder) reset(tx *sql.Tx, head feed.Cursor, now int64) error {
	const text = `epoch || '-' || seq || CASE WHEN fence = '' OR seq = 0 THEN '' ELSE '-' || fence END`
	_, err := tx.Exec("UPDATE "+h.table+" SET reset_from = CASE reset_from WHEN '' THEN "+text+" ELSE reset_from END,"+
		" epoch = ?, seq = ?, fence = ?, updated = ?",
		string(head.Epoch), int64(head.Seq), head.Fence.String(), now)
	return err
}

// Relocate implements [feed.Durable]. It is for the copy: where the witness
// agreed with the log at Open, the store is the source, and is refused, since
// it would take the same numbers in the same epoch as its copy. That holds
// with the guard off too.
//
// A process that dies behind the commit and before the witness is renewed
// leaves the guard shut, with nothing appended: the same call can be made
// again.
func (s *Store) Relocate(ctx context.Context, m feed.Manifest, actor string) (feed.Relocated, error) {
	const op = "relocate"
	if !m.Final {
		return feed.Relocated{}, conflict(op, "the manifest is not of a final backup, so that events may have been appended behind the copy: make one with `gapless backup --final`, or finalize the restore")
	}
	if m.Store != storeName {
		return feed.Relocated{}, conflict(op, fmt.Sprintf("the manifest is of a %q store, this is %q", m.Store, storeName))
	}
	var done feed.Relocated
	err := s.transact(ctx, op, rules{anyway: true, sealed: true, settles: true}, func(tx *sql.Tx, in *instance) error {
		if diff := differences(m, *in); diff != "" {
			return conflict(op, "this log is not the one that the manifest describes: "+diff)
		}
		if !s.isStrange() {
			return conflict(op, "this is where the store was sealed, or it was relocated already: a relocation is for the copy; to go on here, run `gapless restore finalize`; "+
				"and where this is a copy that was moved back over the place of an older source: stop, remove "+s.witnessPath()+", start, and relocate again")
		}
		if !in.sealed {
			if again, err := relocated(tx, m); err != nil {
				return err
			} else if !again {
				return conflict(op, "this log was not sealed, so that it is no copy that the final backup made: put that one in place, or run `gapless restore finalize`")
			}
		}
		in.sealed, in.witnessed = false, true
		done = feed.Relocated{
			Time: microTime(s.micros()), Epoch: in.epoch, HeadSeq: in.head.Seq, HeadFence: in.head.Fence,
			OldIdentity: m.Identity, NewIdentity: in.identity(),
		}
		return addAudit(context.Background(), tx, s.cfg.Now(), actor, feed.ActionRelocate, done)
	})
	if err != nil {
		return feed.Relocated{}, err
	}
	return done, nil
}

// relocated reports whether a relocation with this manifest is the last thing
// that was done to the store: then it was killed before it was answered.
func relocated(tx *sql.Tx, m feed.Manifest) (bool, error) {
	var action, detail string
	err := tx.QueryRow("SELECT action, detail FROM audit WHERE action IN (?, ?, ?, ?, ?) ORDER BY seq DESC LIMIT 1",
		feed.ActionSetUp, feed.ActionFinalize, feed.ActionRelocate, feed.ActionAdopt, feed.ActionSeal).Scan(&action, &detail)
	if errors.Is(err, sql.ErrNoRows) || err == nil && action != feed.ActionRelocate {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var last feed.Relocated
	if err := json.Unmarshal([]byte(detail), &last); err != nil {
		return false, damaged("the audit entry of the last relocation cannot be read: " + err.Error())
	}
	return last.Epoch == m.Epoch && last.HeadSeq == m.HeadSeq && last.HeadFence == m.HeadFence && last.OldIdentity == m.Identity, nil
}

// reopen renews the witness behind a transaction that said what happened, and
// lifts the guard. The caller holds s.writing.
func (s *Store) reopen(op string) error {
	if err := s.renewWitness(); err != nil {
		return unavailable(op, "the change is stored, but the witness file beside the database is not renewed: make it writable, and run the command again", err)
	}
	s.liftGuard()
	return nil
}

// differences says where a log is not what a manifest describes; "" where it
// is. Oldest may differ: age trims without an append.
func differences(m feed.Manifest, in instance) string {
	var diff []string
	add := func(what string, manifest, log any) {
		if manifest != log {
			diff = append(diff, fmt.Sprintf("%s is %v in the manifest and %v here", what, manifest, log))
		}
	}
	add("the epoch", m.Epoch, in.epoch)
	add("the head", m.HeadSeq, in.head.Seq)
	add("the head's fence", m.HeadFence, in.head.Fence)
	return strings.Join(diff, "; ")
}

// skips lists what each server-side cursor misses where all of them move to
// the head.
func skips(tx *sql.Tx, in instance, to feed.Cursor) ([]feed.Skip, error) {
	list := []feed.Skip{}
	for _, h := range holders() {
		found, err := h.skips(tx, in, to)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

func (h holder) skips(tx *sql.Tx, in instance, to feed.Cursor) ([]feed.Skip, error) {
	rows, err := tx.Query("SELECT c." + h.key + ", c.epoch, c.seq, c.fence, c.reset_from, coalesce(e.fence, '') FROM " +
		h.table + " c LEFT JOIN events e ON e.seq = c.seq ORDER BY c." + h.key)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []feed.Skip
	for rows.Next() {
		var (
			name, heldText string
			c              rowCursor
		)
		if err := rows.Scan(&name, &c.epoch, &c.seq, &c.fence, &c.resetFrom, &heldText); err != nil {
			return nil, err
		}
		at, _, err := c.parse()
		if err != nil {
			return nil, err
		}
		held, err := parseFence(heldText)
		if err != nil {
			return nil, err
		}
		if at.Seq+1 == in.oldest {
			held = in.trimmedFence
		}
		list = append(list, h.skip(in, name, at, held, to))
	}
	return list, rows.Err()
}

// skip says what one cursor misses; held is the fence that the log has at its
// seq.
func (h holder) skip(in instance, name string, at feed.Cursor, held feed.Fence, to feed.Cursor) feed.Skip {
	skip := feed.Skip{Kind: h.kind, Name: name, From: at.String(), To: to.String()}
	next := at.Seq + 1
	switch {
	case at.Epoch != in.epoch: // nothing of this log was acknowledged, as far as anybody can tell
		skip.Lost, next = at.Seq > 0, in.oldest
	case at.Seq > in.head.Seq:
		skip.Lost = true
	case !held.Agrees(at.Fence): // the event of that seq is another one, and was not acknowledged
		skip.Lost, next = true, at.Seq
	}
	if next = max(next, in.oldest); next <= in.head.Seq {
		skip.FirstSeq, skip.LastSeq = next, in.head.Seq
	}
	return skip
}
