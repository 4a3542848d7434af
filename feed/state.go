package feed

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// State is the control state that a store keeps beside its log: server-side
// cursors, webhooks, and the audit trail. Every method is one transaction,
// and is safe for concurrent use.
//
// What moves a cursor is conditional on the epoch that the store is in: it
// fails with [CodeEpochChanged] where the cursor is of another one. A store
// that was sealed takes no change but audit entries: else what is acknowledged
// here would not be in the copy that goes on elsewhere. The error has
// [CodeSealed].
type State interface {
	// Consumers lists the consumers in the order of their names.
	Consumers(ctx context.Context) ([]Consumer, error)
	// Consumer returns one, or an error of [CodeNotFound].
	Consumer(ctx context.Context, name string) (Consumer, error)
	// CreateConsumer stores a new one with its cursor, which has to be in the
	// running epoch, not above the head, and of the fence that the log holds
	// there. Times are the store's. Errors: [CodeConflict] where the name is
	// taken or the cursor does not fit, [CodeEpochChanged].
	CreateConsumer(ctx context.Context, c Consumer) error
	// MoveConsumer sets the cursor to `to` if it is `from` now, and takes a
	// reset as acknowledged. It never moves back, nor above the head, nor to
	// another event of the same seq. Errors:
	// [CodeNotFound], [CodeConflict], [CodeEpochChanged].
	MoveConsumer(ctx context.Context, name string, from, to Cursor) error
	// DeleteConsumer fails with [CodeNotFound] where there is none.
	DeleteConsumer(ctx context.Context, name string) error

	// Webhooks lists the webhooks in the order of their ids.
	Webhooks(ctx context.Context) ([]Webhook, error)
	// Webhook returns one, or an error of [CodeNotFound].
	Webhook(ctx context.Context, id string) (Webhook, error)
	// CreateWebhook stores a new one: as CreateConsumer.
	CreateWebhook(ctx context.Context, w Webhook) error
	// UpdateWebhook sets the URL, the topics, the secret, the status and its
	// reason; the cursor stays. It fails with [CodeNotFound].
	UpdateWebhook(ctx context.Context, w Webhook) error
	// MoveWebhook is MoveConsumer for a webhook.
	MoveWebhook(ctx context.Context, id string, from, to Cursor) error
	// DeleteWebhook fails with [CodeNotFound] where there is none.
	DeleteWebhook(ctx context.Context, id string) error

	// Audit lists entries, newest first: those below `before` (0: from the
	// newest), at most limit.
	Audit(ctx context.Context, before uint64, limit int) ([]AuditEntry, error)
	// RecordAudit adds an entry, normalized; its seq and time are the store's.
	RecordAudit(ctx context.Context, entry AuditEntry) error
}

// Consumer is a durable, named cursor of one worker or agent.
type Consumer struct {
	Name   string
	Cursor Cursor // what follows it is not acknowledged yet
	// ResetFrom is where the cursor was when a finalized restore moved it, until
	// the consumer has acknowledged that; zero: no reset is outstanding.
	ResetFrom Cursor
	Created   time.Time
	Updated   time.Time
}

// WebhookStatus says whether a webhook is delivered to.
type WebhookStatus string

const (
	// WebhookActive: events are delivered.
	WebhookActive WebhookStatus = "active"
	// WebhookPaused: an operator stopped delivery; the cursor stays.
	WebhookPaused WebhookStatus = "paused"
	// WebhookFailed: delivery gave up; Reason says why.
	WebhookFailed WebhookStatus = "failed"
)

// Webhook is a push delivery with a cursor of its own.
type Webhook struct {
	ID        string
	URL       string
	Topics    []string // patterns; none: all
	Secret    string   // signs deliveries
	Status    WebhookStatus
	Reason    string // why it is not active
	Cursor    Cursor
	ResetFrom Cursor // as [Consumer.ResetFrom]
	Created   time.Time
	Updated   time.Time
}

// AuditEntry is one thing that an operator, or the guard in their place, did
// to a store.
type AuditEntry struct {
	Seq    uint64          `json:"seq"` // of the entry, from 1; rises, may have holes
	Time   time.Time       `json:"time"`
	Actor  string          `json:"actor"`  // who
	Action string          `json:"action"` // what: see the Action constants
	Detail json.RawMessage `json:"detail"` // an object; see [AuditEntry.Normalize]
}

// Normalize makes an empty detail the empty object. It fails with
// [CodeInvalid] where the detail is not one JSON object in UTF-8.
func (e *AuditEntry) Normalize() error {
	if len(e.Detail) == 0 {
		e.Detail = json.RawMessage("{}")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(e.Detail, &object); err != nil {
		return &Error{Code: CodeInvalid, Op: "record audit", Msg: "the detail is no JSON object", Err: err}
	}
	if object == nil || !utf8.Valid(e.Detail) {
		return invalid("record audit", "the detail is no JSON object in UTF-8")
	}
	return nil
}

// Actions of audit entries.
const (
	ActionSetUp    = "store.set_up"     // a new store; detail: epoch
	ActionFinalize = "restore.finalize" // detail: [Finalized]
	ActionRelocate = "restore.relocate" // detail: [Relocated]
	ActionAdopt    = "restore.adopt"    // the guard took over a new identity; detail: [Adopted]
	ActionSeal     = "backup.seal"      // a final backup began; detail: head
	ActionBackup   = "backup"           // detail: [Manifest]
)

// Store is a log and the control state beside it.
type Store interface {
	Log
	State
}

// OutboxStats counts what a store moved out of its outbox since the process
// began.
type OutboxStats struct {
	Moved  uint64 // rows that became events, or were repeats of one
	Parked uint64 // rows that can never become one
}
