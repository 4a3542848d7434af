package feedtest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"gapless/feed"
)

// place checks a cursor, and completes it.
func (r *reference) place(at feed.Cursor) (feed.Cursor, error) {
	b := r.bounds()
	switch {
	case at.Epoch != b.Epoch:
		return at, &feed.Error{Code: feed.CodeEpochChanged, Msg: "of another epoch"}
	case at.Seq > b.Head.Seq:
		return at, &feed.Error{Code: feed.CodeConflict, Msg: "above the head"}
	case at.Seq+1 < b.Oldest:
		return at, nil
	}
	fence := r.log.trimmed
	if at.Seq >= b.Oldest {
		fence = r.log.events[at.Seq-b.Oldest].Fence
	}
	if !fence.Agrees(at.Fence) {
		return at, &feed.Error{Code: feed.CodeConflict, Msg: "of another event"}
	}
	at.Fence = fence
	return at, nil
}

func (r *reference) moved(now, from, to feed.Cursor) (feed.Cursor, error) {
	if from.Epoch != r.log.epoch {
		return now, &feed.Error{Code: feed.CodeEpochChanged, Msg: "from another epoch"}
	}
	to, err := r.place(to)
	if err == nil && (now != from || to.Seq < now.Seq || to.Seq == now.Seq && !to.Fence.Agrees(now.Fence)) {
		err = &feed.Error{Code: feed.CodeConflict, Msg: "not from there, or back"}
	}
	if to.Seq == now.Seq && !to.Fence.Known() {
		to.Fence = now.Fence
	}
	return to, err
}

func lookUp[T any](all map[string]T, name string) (T, error) {
	found, ok := all[name]
	if !ok {
		return found, &feed.Error{Code: feed.CodeNotFound, Msg: "there is none"}
	}
	return found, nil
}

func free[T any](all map[string]T, name string) error {
	if _, ok := all[name]; ok {
		return &feed.Error{Code: feed.CodeConflict, Msg: "taken"}
	}
	return nil
}

func inOrder[T any](all map[string]T) []T {
	var list []T
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

func (r *reference) Consumers(ctx context.Context) (list []feed.Consumer, err error) {
	err = r.do(ctx, false, func() error { list = inOrder(r.consumers); return nil })
	return list, err
}

func (r *reference) Consumer(ctx context.Context, name string) (c feed.Consumer, err error) {
	err = r.do(ctx, false, func() error { c, err = lookUp(r.consumers, name); return err })
	return c, err
}

func (r *reference) CreateConsumer(ctx context.Context, c feed.Consumer) error {
	return r.change(ctx, func() error {
		at, err := r.place(c.Cursor)
		if err = errors.Join(err, free(r.consumers, c.Name)); err == nil {
			r.consumers[c.Name] = feed.Consumer{Name: c.Name, Cursor: at, Created: now(), Updated: now()}
		}
		return err
	})
}

func (r *reference) MoveConsumer(ctx context.Context, name string, from, to feed.Cursor) error {
	return r.change(ctx, func() error {
		c, err := lookUp(r.consumers, name)
		if err != nil {
			return err
		}
		if c.Cursor, err = r.moved(c.Cursor, from, to); err == nil {
			c.ResetFrom, c.Updated = feed.Cursor{}, now()
			r.consumers[name] = c
		}
		return err
	})
}

func (r *reference) DeleteConsumer(ctx context.Context, name string) error {
	return r.change(ctx, func() error {
		_, err := lookUp(r.consumers, name)
		delete(r.consumers, name)
		return err
	})
}

func cloned(w feed.Webhook) feed.Webhook {
	w.Topics = slices.Clone(w.Topics)
	return w
}

func (r *reference) Webhooks(ctx context.Context) (list []feed.Webhook, err error) {
	err = r.do(ctx, false, func() error { list = convert(inOrder(r.webhooks), cloned); return nil })
	return list, err
}

func (r *reference) Webhook(ctx context.Context, id string) (w feed.Webhook, err error) {
	err = r.do(ctx, false, func() error { w, err = lookUp(r.webhooks, id); return err })
	return cloned(w), err
}

func (r *reference) CreateWebhook(ctx context.Context, w feed.Webhook) error {
	return r.change(ctx, func() error {
		at, err := r.place(w.Cursor)
		if err = errors.Join(err, free(r.webhooks, w.ID)); err == nil {
			w = cloned(w)
			w.Cursor, w.ResetFrom, w.Created, w.Updated = at, feed.Cursor{}, now(), now()
			r.webhooks[w.ID] = w
		}
		return err
	})
}

func (r *reference) UpdateWebhook(ctx context.Context, w feed.Webhook) error {
	return r.change(ctx, func() error {
		old, err := lookUp(r.webhooks, w.ID)
		if err == nil {
			w = cloned(w)
			w.Cursor, w.ResetFrom, w.Created, w.Updated = old.Cursor, old.ResetFrom, old.Created, now()
			r.webhooks[w.ID] = w
		}
		return err
	})
}

func (r *reference) MoveWebhook(ctx context.Context, id string, from, to feed.Cursor) error {
	return r.change(ctx, func() error {
		w, err := lookUp(r.webhooks, id)
		if err != nil {
			return err
		}
		if w.Cursor, err = r.moved(w.Cursor, from, to); err == nil {
			w.ResetFrom, w.Updated = feed.Cursor{}, now()
			r.webhooks[id] = w
		}
		return err
	})
}

func (r *reference) DeleteWebhook(ctx context.Context, id string) error {
	return r.change(ctx, func() error {
		_, err := lookUp(r.webhooks, id)
		delete(r.webhooks, id)
		return err
	})
}

func (r *reference) Audit(ctx context.Context, before uint64, limit int) (list []feed.AuditEntry, err error) {
	err = r.do(ctx, false, func() error {
		for _, entry := range slices.Backward(r.audit) {
			if len(list) < limit && (before == 0 || entry.Seq < before) {
				list = append(list, entry)
			}
		}
		return nil
	})
	return list, err
}

func (r *reference) RecordAudit(ctx context.Context, entry feed.AuditEntry) error {
	if err := entry.Normalize(); err != nil {
		return err
	}
	return r.do(ctx, true, func() error { r.recordLocked(entry.Actor, entry.Action, entry.Detail); return nil })
}

func (d *disk) recordLocked(actor, action string, detail any) {
	text, err := json.Marshal(detail)
	if err != nil {
		panic(err)
	}
	d.audit = append(d.audit, feed.AuditEntry{Seq: uint64(len(d.audit) + 1), Time: now(), Actor: actor, Action: action, Detail: text})
}
