package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"

	"gapless/feed"
)

// Codes of problems beside those of the feed (feed.Code).
const (
	codeUnauthorized     feed.Code = "unauthorized"
	codeForbidden        feed.Code = "forbidden"
	codeMethodNotAllowed feed.Code = "method_not_allowed"
	codeTimeout          feed.Code = "timeout"
	codeUnsupportedMedia feed.Code = "unsupported_media_type"
	codeResyncRequired   feed.Code = "resync_required"
)

// statusOf is the one table from a code to its HTTP status.
func statusOf(code feed.Code) int {
	switch code {
	case feed.CodeInvalid:
		return http.StatusBadRequest
	case codeUnauthorized:
		return http.StatusUnauthorized
	case codeForbidden:
		return http.StatusForbidden
	case feed.CodeNotFound:
		return http.StatusNotFound
	case codeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case codeTimeout:
		return http.StatusRequestTimeout
	case feed.CodeIDConflict, feed.CodeConflict, feed.CodeEpochChanged:
		return http.StatusConflict
	case codeResyncRequired:
		return http.StatusGone
	case feed.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case codeUnsupportedMedia:
		return http.StatusUnsupportedMediaType
	case feed.CodeNotReady, feed.CodeUnavailable, feed.CodeRestoreNotFinalized, feed.CodeSealed:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// problem is an error answer, RFC 9457. It is also the error that carries one.
type problem struct {
	Type   string     `json:"type"`
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail"`
	Code   feed.Code  `json:"code"`
	Epoch  feed.Epoch `json:"epoch,omitempty"` // with the members below
	// Reason says more than the code: of a 410 why, of /readyz what is missing.
	Reason string `json:"reason,omitempty"`
	*resyncMembers
	*lineMembers
}

// resyncMembers are what a 410 adds.
type resyncMembers struct {
	OldestSeq uint64 `json:"oldest_seq"`
	HeadSeq   uint64 `json:"head_seq"`
}

// lineMembers are what an NDJSON body's failure adds.
type lineMembers struct {
	Line int `json:"line"`
	linesAccepted
}

// Error renders the code and the detail.
func (p *problem) Error() string { return string(p.Code) + ": " + p.Detail }

// problemf makes a problem of its code's status.
func problemf(code feed.Code, format string, args ...any) *problem {
	status := statusOf(code)
	return &problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: fmt.Sprintf(format, args...), Code: code,
	}
}

// problemOf turns any error into a problem. What a client cannot mend is not
// told in detail.
func problemOf(err error) *problem {
	var p *problem
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return problemf(feed.CodeTooLarge, "the body exceeds %d bytes", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problemf(codeTimeout, "the body did not arrive in time")
	case errors.Is(err, context.Canceled):
		return problemf(feed.CodeUnavailable, "the request was given up")
	}
	code := feed.CodeOf(err)
	detail := messages(err, code)
	switch {
	case code == feed.CodeInternal || detail == "":
		detail = "the server failed; its log says why"
	case code == feed.CodeUnavailable:
		detail = "the store does not answer at present"
	}
	return problemf(code, "%s", detail)
}

// operatorProblem is problemOf for those who look after the store. They are
// told what the store says also where a reader could do nothing about it.
func operatorProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	code := feed.CodeOf(err)
	detail := messages(err, code)
	switch {
	case detail == "":
		return problemOf(err)
	case code == feed.CodeInternal:
		detail += "; the server's log says why"
	}
	return problemf(code, "%s", detail)
}

// messages joins what the errors of a chain say to people. The last cause is
// told where it is about the caller's own input.
func messages(err error, code feed.Code) string {
	text := ""
	for err != nil {
		var e *feed.Error
		msg := ""
		if errors.As(err, &e) {
			msg, err = e.Msg, e.Err
		} else {
			if code == feed.CodeInvalid {
				msg = err.Error()
			}
			err = nil
		}
		switch {
		case text == "":
			text = msg
		case msg != "":
			text += ": " + msg
		}
	}
	return text
}

// fail answers with the problem that err stands for.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	s.answerProblem(w, r, problemOf(err), err)
}

// failOperator is fail for those who look after the store.
func (s *Server) failOperator(w http.ResponseWriter, r *http.Request, err error) {
	s.answerProblem(w, r, operatorProblem(err), err)
}

func (s *Server) answerProblem(w http.ResponseWriter, r *http.Request, p *problem, err error) {
	if p.Status == http.StatusInternalServerError {
		s.log.Error().Err(err).Str("path", clip(r.URL.Path)).Msg("a request failed")
	}
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter(p.Code)))
	}
	s.respond(w, p.Status, "application/problem+json", encodeJSON(p))
}

// retryAfter is when to come back, in seconds, drawn so that a crowd does not
// return at once. What waits for a person takes longer.
func retryAfter(code feed.Code) int {
	if code == feed.CodeRestoreNotFinalized || code == feed.CodeSealed {
		return 30 + rand.IntN(31)
	}
	return 1 + rand.IntN(3)
}

// reject is fail for a request whose body may not have been read to its end.
func (s *Server) reject(w http.ResponseWriter, r *http.Request, err error) {
	leaveBody(w, r)
	s.fail(w, r, err)
}

// clip shortens foreign text for a message.
func clip(text string) string {
	const most = 128
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
