package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gapless/feed"
)

// maxAudit is how many audit entries are kept; older ones go.
const maxAudit = 1024

// control is the control state. It ends with the process, as the events do.
type control struct {
	consumers map[string]feed.Consumer
	webhooks  map[string]feed.Webhook
	audit     []feed.AuditEntry // oldest first
	audited   uint64            // seq of the newest entry
}

func newControl() control {
	return control{consumers: make(map[string]feed.Consumer), webhooks: make(map[string]feed.Webhook)}
}

// Consumers implements [feed.State].
func (l *Log) Consumers(ctx context.Context) (list []feed.Consumer, err error) {
	err = l.view(ctx, "consumers", func() error {
		list = slices.SortedFunc(maps.Values(l.control.consumers), func(a, b feed.Consumer) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
	return list, err
}

// Consumer implements [feed.State].
func (l *Log) Consumer(ctx context.Context, name string) (c feed.Consumer, err error) {
	err = l.view(ctx, "consumer", func() (err error) {
		c, err = find(l.control.consumers, "consumer", name)
		return err
	})
	return c, err
}

// CreateConsumer implements [feed.State].
func (l *Log) CreateConsumer(ctx context.Context, c feed.Consumer) error {
	return l.update(ctx, "create consumer", func(now time.Time) error {
		at, err := l.createLocked(has(l.control.consumers, c.Name), c.Name, c.Cursor)
		if err == nil {
			l.control.consumers[c.Name] = feed.Consumer{Name: c.Name, Cursor: at, Created: now, Updated: now}
		}
		return err
	})
}

// MoveConsumer implements [feed.State].
func (l *Log) MoveConsumer(ctx context.Context, name string, from, to feed.Cursor) error {
	return l.update(ctx, "move consumer", func(now time.Time) error {
		c, err := find(l.control.consumers, "consumer", name)
		if err == nil {
			c.Cursor, err = l.moveLocked(c.Cursor, from, to)
		}
		if err == nil {
			c.ResetFrom, c.Updated = feed.Cursor{}, now
			l.control.consumers[name] = c
		}
		return err
	})
}

// DeleteConsumer implements [feed.State].
func (l *Log) DeleteConsumer(ctx context.Context, name string) error {
	return l.update(ctx, "delete consumer", func(time.Time) error {
		_, err := find(l.control.consumers, "consumer", name)
		delete(l.control.consumers, name)
		return err
	})
}

// Webhooks implements [feed.State].
func (l *Log) Webhooks(ctx context.Context) (list []feed.Webhook, err error) {
	err = l.view(ctx, "webhooks", func() error {
		list = slices.SortedFunc(maps.Values(l.control.webhooks), func(a, b feed.Webhook) int { return cmp.Compare(a.ID, b.ID) })
		for i := range list {
			list[i].Topics = slices.Clone(list[i].Topics)
		}
		return nil
	})
	return list, err
}

// Webhook implements [feed.State].
func (l *Log) Webhook(ctx context.Context, id string) (w feed.Webhook, err error) {
	err = l.view(ctx, "webhook", func() (err error) {
		w, err = find(l.control.webhooks, "webhook", id)
		w.Topics = slices.Clone(w.Topics)
		return err
	})
	return w, err
}

// CreateWebhook implements [feed.State].
func (l *Log) CreateWebhook(ctx context.Context, w feed.Webhook) error {
	return l.update(ctx, "create webhook", func(now time.Time) error {
		at, err := l.createLocked(has(l.control.webhooks, w.ID), w.ID, w.Cursor)
		if err == nil {
			w.Topics = slices.Clone(w.Topics)
			w.Cursor, w.ResetFrom, w.Created, w.Updated = at, feed.Cursor{}, now, now
			l.control.webhooks[w.ID] = w
		}
		return err
	})
}

// UpdateWebhook implements [feed.State].
func (l *Log) UpdateWebhook(ctx context.Context, w feed.Webhook) error {
	return l.update(ctx, "update webhook", func(now time.Time) error {
		held, err := find(l.control.webhooks, "webhook", w.ID)
		if err == nil {
			held.URL, held.Topics, held.Secret = w.URL, slices.Clone(w.Topics), w.Secret
			held.Status, held.Reason, held.Updated = w.Status, w.Reason, now
			l.control.webhooks[w.ID] = held
		}
		return err
	})
}

// MoveWebhook implements [feed.State].
func (l *Log) MoveWebhook(ctx context.Context, id string, from, to feed.Cursor) error {
	return l.update(ctx, "move webhook", func(now time.Time) error {
		w, err := find(l.control.webhooks, "webhook", id)
		if err == nil {
			w.Cursor, err = l.moveLocked(w.Cursor, from, to)
		}
		if err == nil {
			w.ResetFrom, w.Updated = feed.Cursor{}, now
			l.control.webhooks[id] = w
		}
		return err
	})
}

// DeleteWebhook implements [feed.State].
func (l *Log) DeleteWebhook(ctx context.Context, id string) error {
	return l.update(ctx, "delete webhook", func(time.Time) error {
		_, err := find(l.control.webhooks, "webhook", id)
		delete(l.control.webhooks, id)
		return err
	})
}

// Audit implements [feed.State]. The last 1,024 entries are kept.
func (l *Log) Audit(ctx context.Context, before uint64, limit int) (list []feed.AuditEntry, err error) {
	err = l.view(ctx, "audit", func() error {
		for _, entry := range slices.Backward(l.control.audit) {
			if len(list) >= limit {
				break
			}
			if before == 0 || entry.Seq < before {
				entry.Detail = bytes.Clone(entry.Detail)
				list = append(list, entry)
			}
		}
		return nil
	})
	return list, err
}

// RecordAudit implements [feed.State].
func (l *Log) RecordAudit(ctx context.Context, entry feed.AuditEntry) error {
	if err := entry.Normalize(); err != nil {
		return err
	}
	return l.update(ctx, "audit", func(now time.Time) error {
		l.control.audited++
		entry.Seq, entry.Time, entry.Detail = l.control.audited, now, bytes.Clone(entry.Detail)
		if l.control.audit = append(l.control.audit, entry); len(l.control.audit) > maxAudit {
			l.control.audit = slices.Delete(l.control.audit, 0, 1)
		}
		return nil
	})
}

// view runs do with the lock held for reading.
func (l *Log) view(ctx context.Context, op string, do func() error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.runLocked(ctx, op, do)
}

// update runs do, which changes nothing where it fails, with the lock held.
func (l *Log) update(ctx context.Context, op string, do func(now time.Time) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runLocked(ctx, op, func() error { return do(l.cfg.Now().UTC().Truncate(feed.TimeUnit)) })
}

func (l *Log) runLocked(ctx context.Context, op string, do func() error) error {
	if l.closed {
		return feed.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return &feed.Error{Code: feed.CodeUnavailable, Op: op, Err: err}
	}
	err := do()
	if e, ok := err.(*feed.Error); ok { //nolint:errorlint // only what this file made has no operation yet
		e.Op = op
	}
	return err
}

func (l *Log) foreign(at feed.Cursor) error {
	return &feed.Error{Code: feed.CodeEpochChanged, Msg: fmt.Sprintf("the cursor %s is not of the running epoch, %s", at, l.epoch)}
}

func has[T any](all map[string]T, name string) bool {
	_, ok := all[name]
	return ok
}

func find[T any](all map[string]T, kind, name string) (T, error) {
	held, ok := all[name]
	if !ok {
		return held, &feed.Error{Code: feed.CodeNotFound, Msg: fmt.Sprintf("there is no %s %q", kind, name)}
	}
	return held, nil
}

func conflict(format string, args ...any) error {
	return &feed.Error{Code: feed.CodeConflict, Msg: fmt.Sprintf(format, args...)}
}

// createLocked checks the name and the cursor of what is new.
func (l *Log) createLocked(taken bool, name string, at feed.Cursor) (feed.Cursor, error) {
	if taken {
		return at, conflict("the name %q is taken", name)
	}
	return l.heldLocked(at)
}

// moveLocked returns the cursor that replaces `now`.
func (l *Log) moveLocked(now, from, to feed.Cursor) (feed.Cursor, error) {
	if from.Epoch != l.epoch {
		return now, l.foreign(from)
	}
	to, err := l.heldLocked(to)
	switch {
	case err != nil:
		return now, err
	case from.Seq != now.Seq || !from.Fence.Agrees(now.Fence):
		return now, conflict("the cursor is %s, not %s", now, from)
	case to.Seq < now.Seq || to.Seq == now.Seq && !to.Fence.Agrees(now.Fence):
		return now, conflict("the cursor is %s and never moves back, to %s", now, to)
	case to.Seq == now.Seq && !to.Fence.Known():
		return now, nil // its fence, of what is trimmed, is known here alone
	}
	return to, nil
}

// heldLocked checks a cursor against the log, and completes it with the fence
// that the log holds there. What is trimmed cannot be compared.
func (l *Log) heldLocked(at feed.Cursor) (feed.Cursor, error) {
	bounds := l.boundsLocked()
	switch {
	case at.Epoch != l.epoch:
		return at, l.foreign(at)
	case at.Seq > bounds.Head.Seq:
		return at, conflict("the cursor %s is above the head, %d", at, bounds.Head.Seq)
	case at.Seq+1 < bounds.Oldest:
		return at, nil
	}
	held := l.positionLocked(at.Seq)
	if !held.Fence.Agrees(at.Fence) {
		return at, conflict("the cursor %s is of another event than the log holds at %d", at, at.Seq)
	}
	at.Position = held
	return at, nil
}
