package feed

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"
)

// Publish normalizes the drafts and appends them as one batch, all or
// nothing. It returns when the log has them durably. Drafts without an id get
// a ULID. Where the pump is far behind, it waits for it first, a second at
// the most, so that a burst is not trimmed before anybody was offered it.
//
// Errors: [CodeInvalid], [CodeTooLarge], [CodeIDConflict], [CodeNotReady],
// [CodeUnavailable].
func (f *Feed) Publish(ctx context.Context, drafts []Draft) (Receipt, error) {
	for i := range drafts {
		if err := drafts[i].Reserved(); err != nil {
			return Receipt{}, atDraft(drafts, i, err)
		}
	}
	return f.append(ctx, drafts)
}

// Announce appends one event of the server's own: its topic lies under
// `gapless`, where nobody can publish.
func (f *Feed) Announce(ctx context.Context, draft Draft) (Receipt, error) {
	return f.append(ctx, []Draft{draft})
}

func (f *Feed) append(ctx context.Context, drafts []Draft) (Receipt, error) {
	if len(drafts) == 0 {
		return Receipt{}, invalid("publish", "no events")
	}
	if len(drafts) > MaxBatchEvents {
		return Receipt{}, &Error{Code: CodeTooLarge, Op: "publish", Msg: fmt.Sprintf("%d events, at most %d make a batch", len(drafts), MaxBatchEvents)}
	}
	batch := make([]Draft, len(drafts))
	copy(batch, drafts)
	var size load
	for i := range batch {
		if err := batch[i].Normalize(); err != nil {
			return Receipt{}, atDraft(drafts, i, err)
		}
		if batch[i].Minted = false; batch[i].ID == "" {
			batch[i].ID, batch[i].Minted = ulid.Make().String(), true
		}
		size.events++
		size.bytes += batch[i].size()
	}
	reserved, err := f.gate.reserve(ctx, size)
	if err != nil {
		return Receipt{}, &Error{Code: CodeUnavailable, Op: "publish", Msg: "given up while waiting", Err: err}
	}
	// Checked under the reservation, for which Drain waits: what is accepted
	// here is offered before the streams are told to leave.
	if err := f.Ready(); err != nil {
		f.gate.settle(reserved, 0)
		return Receipt{}, err
	}
	receipt, err := f.cfg.Log.Append(ctx, batch)
	f.appended(ctx, err)
	if err != nil {
		f.gate.settle(reserved, 0)
		return Receipt{}, err
	}
	var last, stored, bytes uint64
	for i, a := range receipt.Events {
		if a.Duplicate {
			continue
		}
		stored++
		last = max(last, a.Seq)
		bytes += uint64(len(batch[i].Data))
	}
	f.gate.settle(reserved, last)
	f.stats.batches.Add(1)
	f.stats.events.Add(stored)
	f.stats.bytes.Add(bytes)
	f.stats.duplicates.Add(size.events - stored)
	return receipt, nil
}

// Appending returns nil while the store takes what is appended, else the error
// with which it failed the last append: a full disk, a database without its
// file. Readers are served on. Only an append finds out that it works again,
// so whoever tells publishers to stay away has to try: see [Feed.Announce].
func (f *Feed) Appending() error {
	if err := f.failing.Load(); err != nil {
		return *err
	}
	return nil
}

// appended takes up how an append ended. One that was given up, or refused
// for what it says, says nothing of the store.
func (f *Feed) appended(ctx context.Context, err error) {
	switch {
	case err != nil && (ctx.Err() != nil || CodeOf(err) != CodeUnavailable && CodeOf(err) != CodeSealed):
	case err != nil && CodeOf(err) != CodeSealed: // a seal is no failure
		if f.failing.Swap(&err) == nil {
			f.cfg.Logger.Error().Err(err).Msg("the store takes no events")
		}
	case f.failing.Load() != nil && f.failing.Swap(nil) != nil:
		f.cfg.Logger.Info().Msg("the store takes events again")
	}
}

// atDraft names the draft that an error is about, where there are several.
func atDraft(drafts []Draft, i int, err error) error {
	if len(drafts) == 1 {
		return err
	}
	return &Error{Code: CodeOf(err), Op: "publish", Msg: fmt.Sprintf("event %d of the batch", i), Err: err}
}
