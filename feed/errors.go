package feed

import (
	"errors"
	"strings"
)

// Code is the machine-readable kind of an [Error]. Codes are stable: they
// appear unchanged in problem+json answers.
type Code string

const (
	// CodeInvalid: the caller's input breaks a rule of the contract.
	CodeInvalid Code = "invalid"
	// CodeTooLarge: an event, a batch or a body exceeds its size limit.
	CodeTooLarge Code = "too_large"
	// CodeIDConflict: the idempotency key was used for other content.
	CodeIDConflict Code = "id_conflict"
	// CodeNotReady: the feed or its log does not serve at present.
	CodeNotReady Code = "not_ready"
	// CodeUnavailable: the log failed; the same call may succeed later.
	CodeUnavailable Code = "unavailable"
	// CodeRestoreNotFinalized: the store runs on something else than it
	// remembers; an operator has to say what happened. See [Durable].
	CodeRestoreNotFinalized Code = "restore_not_finalized"
	// CodeSealed: a final backup was made, so that the store takes no appends.
	CodeSealed Code = "sealed"
	// CodeNotFound: there is no such consumer or webhook.
	CodeNotFound Code = "not_found"
	// CodeConflict: the name is taken, or the state is another than the caller
	// expects.
	CodeConflict Code = "conflict"
	// CodeEpochChanged: the cursor is of another epoch than the store.
	CodeEpochChanged Code = "epoch_changed"
	// CodeInternal: a defect, or a failure with no better name.
	CodeInternal Code = "internal"
)

// Error is what the feed and its backends return: a code for machines, the
// operation, a sentence for people, and the cause where there is one.
type Error struct {
	Code Code
	Op   string // "append", "read", "subscribe", …
	Msg  string
	Err  error
}

// Error renders "op: message: cause".
func (e *Error) Error() string {
	parts := make([]string, 0, 3)
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if e.Msg != "" {
		parts = append(parts, e.Msg)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first [Error] in err's chain, and
// [CodeInternal] where there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// What [Feed.Ready] returns while the feed itself does not serve yet, or no
// longer.
var (
	ErrStarting = &Error{Code: CodeNotReady, Msg: "starting"}
	ErrDraining = &Error{Code: CodeNotReady, Msg: string(DrainShutdown)}
)

// ErrClosed is returned by a [Log] that was closed.
var ErrClosed = &Error{Code: CodeNotReady, Msg: "the log is closed"}

func invalid(op, msg string) *Error { return &Error{Code: CodeInvalid, Op: op, Msg: msg} }
