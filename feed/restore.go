package feed

import (
	"context"
	"time"
)

// Durable is a store that outlives the process, and so can be restored from a
// copy, moved, or switched to a replica behind its gateways' backs. Its guard
// compares what it runs on with what it remembers. While they differ, every
// method of [Log] but Info and Close, and every change of [State], fails with
// [CodeRestoreNotFinalized]; the methods below, and listing, work.
type Durable interface {
	Store

	// RestoreStatus says what the guard sees. It looks again.
	RestoreStatus(ctx context.Context) (RestoreStatus, error)
	// Finalize declares a restore done, in one transaction: a new epoch, the
	// identity of what the store runs on now, every consumer and webhook to the
	// head, no seal, an audit entry. A dry run changes nothing. It is allowed
	// where the guard is content, too.
	Finalize(ctx context.Context, opts FinalizeOptions) (Finalized, error)
	// Relocate takes over a new place of an unchanged log: the epoch stays, the
	// identity is renewed, the seal goes. The manifest must be of a final backup
	// and agree with the log on epoch, head and head fence, and the log must
	// carry the seal: a copy that was made before does not. Where the guard is
	// content, this is the source itself, and is refused. The error then has
	// [CodeConflict] and nothing changes.
	Relocate(ctx context.Context, m Manifest, actor string) (Relocated, error)
	// Backup writes a copy, or what is needed to make one, and manifest.json
	// into an empty or new directory. With Final it seals the store first:
	// appends fail with [CodeSealed] from then on.
	Backup(ctx context.Context, dir string, opts BackupOptions) (Manifest, error)
	// Check looks for damage: of the files, and of the log's own rules
	// (contiguous seqs, bounds, sums). It reports progress in [0, 1] where
	// progress is not nil. Nil: none was found.
	Check(ctx context.Context, progress func(done float64)) error
}

// GuardMode is what a store does where it runs on something else than it
// remembers.
type GuardMode string

const (
	// GuardStrict: nothing is served until an operator says what happened.
	GuardStrict GuardMode = "strict"
	// GuardVerify: the new identity is taken over, and audited, where the log
	// still holds the last event that this process saw at its head; else as
	// strict. For synchronous replication.
	GuardVerify GuardMode = "verify"
	// GuardOff: identities are not compared. Fences still protect readers.
	GuardOff GuardMode = "off"
)

// ParseGuardMode reads strict, verify or off; empty is strict.
func ParseGuardMode(s string) (GuardMode, error) {
	switch m := GuardMode(s); m {
	case "":
		return GuardStrict, nil
	case GuardStrict, GuardVerify, GuardOff:
		return m, nil
	}
	return "", invalid("restore", "the guard is none of strict, verify, off")
}

// RestoreStatus is what a store's guard sees.
type RestoreStatus struct {
	Store     string    `json:"store"` // "sqlite", "postgres"
	Guard     GuardMode `json:"guard"`
	Finalized bool      `json:"finalized"` // false: the guard keeps the store shut
	Cause     string    `json:"cause"`     // in plain words, where it does
	Expected  string    `json:"expected"`  // the identity that the store remembers
	Found     string    `json:"found"`     // the one that it runs on
	Sealed    bool      `json:"sealed"`    // by a final backup
	Epoch     Epoch     `json:"epoch"`
	OldestSeq uint64    `json:"oldest_seq"`
	HeadSeq   uint64    `json:"head_seq"`
	HeadFence Fence     `json:"head_fence"`
	// Skips is what [Durable.Finalize] would skip now.
	Skips []Skip `json:"skips"`
}

// Skip is what one server-side cursor misses when a restore is finalized.
type Skip struct {
	Kind string `json:"kind"` // "consumer", "webhook"
	Name string `json:"name"` // or the webhook's id
	From string `json:"from"` // its cursor
	To   string `json:"to"`   // the head; after the restore, in the new epoch
	// FirstSeq to LastSeq are events of the log that it has not acknowledged and
	// will not be given; both 0 where there are none.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	// Lost: it had acknowledged events that the restored log does not hold (its
	// seq is above the head, or means another event, or is of another epoch).
	Lost bool `json:"lost"`
}

// FinalizeOptions say who finalizes, and whether for a look only.
type FinalizeOptions struct {
	Actor  string
	DryRun bool
	// Epoch is the one that the operator saw; where it is not empty, a store in
	// another one refuses with [CodeConflict]: somebody else was first, or this
	// is a repeat of what had worked.
	Epoch Epoch
}

// Finalized is what came of [Durable.Finalize], or would.
type Finalized struct {
	DryRun    bool      `json:"dry_run"`
	Time      time.Time `json:"time"`
	OldEpoch  Epoch     `json:"old_epoch"`
	NewEpoch  Epoch     `json:"new_epoch"` // empty in a dry run
	OldestSeq uint64    `json:"oldest_seq"`
	HeadSeq   uint64    `json:"head_seq"`
	HeadFence Fence     `json:"head_fence"`
	Identity  string    `json:"identity"`
	Skips     []Skip    `json:"skips"`
}

// Relocated is what came of [Durable.Relocate].
type Relocated struct {
	Time        time.Time `json:"time"`
	Epoch       Epoch     `json:"epoch"`
	HeadSeq     uint64    `json:"head_seq"`
	HeadFence   Fence     `json:"head_fence"`
	OldIdentity string    `json:"old_identity"`
	NewIdentity string    `json:"new_identity"`
}

// Adopted is what the guard took over by itself.
type Adopted struct {
	OldIdentity string `json:"old_identity"`
	NewIdentity string `json:"new_identity"`
	Node        string `json:"node"`
	HeadSeq     uint64 `json:"head_seq"` // the last event that the node had seen
	HeadFence   Fence  `json:"head_fence"`
}

// BackupOptions say how a backup is made.
type BackupOptions struct {
	Actor string
	Final bool // seal the store first
	// Progress is called with the share that is done, in [0, 1]; may be nil.
	Progress func(done float64)
}
