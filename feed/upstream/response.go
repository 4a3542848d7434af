package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

const (
	// problemBytes is how much of a refusal's body is read for its detail.
	problemBytes = 4 << 10
	// problemWait is how long that may take.
	problemWait = 2 * time.Second
)

// filterTransport puts a filter around the body of every answer that is an event stream. Others, redirects
// among them, pass as they are: net/http follows the latter, judge refuses the rest.
type filterTransport struct {
	base http.RoundTripper
	wrap func(io.ReadCloser) io.ReadCloser
}

// RoundTrip makes one request through the base transport.
func (t filterTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err == nil && judge(resp) == nil {
		resp.Body = t.wrap(resp.Body)
	}
	return resp, err
}

// judge returns nil for an answer that is an event stream, else a *ResponseError without its detail.
func judge(resp *http.Response) error {
	refuse := func(err error) error {
		return &ResponseError{
			Status:          resp.StatusCode,
			ContentType:     resp.Header.Get("Content-Type"),
			ContentEncoding: resp.Header.Get("Content-Encoding"),
			err:             err,
		}
	}
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		// A parameter that cannot be read does not make it another type.
		kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) || kind != "text/event-stream" {
			return refuse(ErrContentType)
		}
		// net/http takes the header off where it has asked for gzip itself and decodes it.
		if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
			return refuse(ErrContentEncoding)
		}
		return nil
	case code == http.StatusNoContent:
		return refuse(ErrNoContent)
	case code == http.StatusUnauthorized:
		return refuse(ErrUnauthorized)
	case code == http.StatusForbidden:
		return refuse(ErrForbidden)
	case code == http.StatusNotFound || code == http.StatusGone:
		return refuse(ErrNotFound)
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusTooEarly, code >= 500:
		return refuse(errUnavailable)
	}
	return refuse(ErrStatus)
}

// admit judges the answer that the redirects have led to. It closes the body of one that it refuses: the library
// does not. cancel must end the request; it is called when the refusal's body does not arrive in time.
func admit(resp *http.Response, cancel context.CancelFunc) error {
	err := judge(resp)
	var refusal *ResponseError
	if !errors.As(err, &refusal) {
		return nil
	}
	defer resp.Body.Close()
	refusal.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	kind, _, _ := mime.ParseMediaType(refusal.ContentType)
	if kind == "application/problem+json" {
		timer := time.AfterFunc(problemWait, cancel)
		defer timer.Stop()
		refusal.Detail = problemDetail(resp.Body)
	}
	return refusal
}

func problemDetail(body io.Reader) string {
	var problem struct{ Title, Detail string }
	// What cannot be read is no detail, and no reason to say less about the refusal itself.
	_ = json.NewDecoder(io.LimitReader(body, problemBytes)).Decode(&problem)
	if problem.Detail != "" {
		return problem.Detail
	}
	return problem.Title
}
