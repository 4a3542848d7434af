package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// What makes Run return although its context lives: a new connection would meet the same again. All but
// ErrRunning, ErrConfig and ErrEventTooLarge come inside a *ResponseError.
var (
	// ErrNoContent: the server answered 204, the standard's way to tell a client not to come back.
	ErrNoContent = errors.New("the server has ended the stream for good (204)")
	// ErrUnauthorized: the server answered 401.
	ErrUnauthorized = errors.New("the server asks for credentials, or refuses these (401)")
	// ErrForbidden: the server answered 403.
	ErrForbidden = errors.New("the server refuses access to the stream (403)")
	// ErrNotFound: the server answered 404 or 410.
	ErrNotFound = errors.New("there is no stream at this URL")
	// ErrStatus: the server answered with another status that waiting does not heal: a redirect that leads
	// nowhere, a 2xx that is neither 200 nor 204, a 4xx other than 408, 425 and 429.
	ErrStatus = errors.New("the server refuses the request")
	// ErrContentType: the server answered 200 with something that is no text/event-stream.
	ErrContentType = errors.New("the answer is not an event stream")
	// ErrContentEncoding: the stream is compressed in a way that nobody asked for.
	ErrContentEncoding = errors.New("the event stream is in an encoding that was not asked for")
	// ErrEventTooLarge: one event is larger than Config.MaxEventBytes. Its predecessors were delivered, it
	// was not, and the cursor stands before it.
	ErrEventTooLarge = errors.New("upstream: an event is larger than MaxEventBytes")
	// ErrRunning: Run was called while another Run of the same Client was active.
	ErrRunning = errors.New("upstream: the client is running already")
	// ErrConfig: New was given a Config that cannot work, or Run no handler.
	ErrConfig = errors.New("upstream: invalid configuration")
)

// Why a connection ended that is made again. They reach the log, never a caller.
var (
	errUnavailable = errors.New("the server is not available now")
	errIdle        = errors.New("nothing arrived within the idle timeout")
	errForm        = errors.New("a frame lost its form on the way through the client library")
)

// ResponseError is an answer that is no usable event stream. errors.Is finds the named error inside it.
type ResponseError struct {
	// Status is the HTTP status.
	Status int
	// ContentType and ContentEncoding are the answer's header fields of these names, as they came.
	ContentType, ContentEncoding string
	// Detail is the detail, or else the title, of a problem document (RFC 9457) that came with the answer,
	// as far as it lies in its first 4 KiB. Empty where there is none.
	Detail string

	err        error
	retryAfter time.Duration
}

// Error describes the answer. What the server wrote is quoted, so it cannot reach a terminal as control
// characters.
func (e *ResponseError) Error() string {
	msg := fmt.Sprintf("upstream: %d %s: %v", e.Status, http.StatusText(e.Status), e.err)
	switch {
	case errors.Is(e.err, ErrContentType):
		msg += fmt.Sprintf(": %q", e.ContentType)
	case errors.Is(e.err, ErrContentEncoding):
		msg += fmt.Sprintf(": %q", e.ContentEncoding)
	}
	if e.Detail != "" {
		msg += fmt.Sprintf(": %q", e.Detail)
	}
	return msg
}

// Unwrap returns the named error.
func (e *ResponseError) Unwrap() error { return e.err }

// final reports whether err is of a kind that another connection would only meet again.
func final(err error) bool {
	var refusal *ResponseError
	if errors.As(err, &refusal) {
		return !errors.Is(refusal.err, errUnavailable)
	}
	return errors.Is(err, ErrEventTooLarge)
}

// withoutURL takes off the wrapping that net/http puts around every error: it quotes the URL, whose query may
// hold a token.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
