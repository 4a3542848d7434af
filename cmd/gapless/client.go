package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// clientFlags say which gateway a command talks to, and as whom.
type clientFlags struct {
	URL       string `placeholder:"URL" help:"The gateway. Default: where GAPLESS_LISTEN says, else http://127.0.0.1:8080."`
	Token     string `placeholder:"KEY" help:"Key to send as bearer token."`
	TokenFile string `placeholder:"FILE" help:"File that holds the key: the first, where it has several, one a line."`
}

// client talks to one gateway.
type client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// newClient completes the flags. Close ends its idle connections.
func (f *clientFlags) newClient() (*client, error) {
	text := f.URL
	if text == "" {
		text = defaultURL(os.Getenv("GAPLESS_LISTEN"))
	}
	base, err := url.Parse(text)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.User != nil {
		// Not the value itself: it may hold a password.
		return nil, usageErrorf("--url: want http://HOST[:PORT] or https://HOST[:PORT], with a path where the gateway is behind one, without user and query")
	}
	base.Path = strings.TrimRight(base.Path, "/")
	token := f.Token
	if token == "" && f.TokenFile != "" {
		keys, err := readKeys("--token-file", f.TokenFile)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		token = keys[0]
	}
	if token != "" && !validKey(token) {
		return nil, usageErrorf("--token: the key (not shown) has characters that a bearer token cannot carry")
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
	}
	return &client{base: base, token: token, http: &http.Client{Transport: transport}}, nil
}

// defaultURL is where a gateway that listens there is reached from this
// machine.
func defaultURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://127.0.0.1:8080"
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

func (c *client) close() { c.http.CloseIdleConnections() }

// at is the address of a path, which may carry a query.
func (c *client) at(path string) string { return c.base.String() + path }

// do sends one request. A gateway that cannot be reached is an exitError of
// exitUnavailable.
func (c *client) do(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.at(path), body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "gapless/"+version)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return res, nil
}

func (c *client) unreachable(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &exitError{exitUnavailable, fmt.Errorf("cannot reach %s: %w", c.base, err)}
}

// getJSON reads a JSON answer of at most 1 MiB, within ten seconds.
func (c *client) getJSON(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	res, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return c.unreachable(err)
	}
	if res.StatusCode != http.StatusOK {
		return newAPIError(res, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s answered with something that is no gapless status: %w", c.base, err)
	}
	return nil
}

// post sends one publish request and reads its answer.
func (c *client) post(ctx context.Context, query url.Values, header http.Header, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	res, err := c.do(ctx, http.MethodPost, "/api/v1/events?"+query.Encode(), header, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return c.unreachable(err)
	}
	if res.StatusCode != http.StatusCreated && res.StatusCode != http.StatusOK {
		return newAPIError(res, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s answered with something that is no receipt: %w", c.base, err)
	}
	return nil
}

// patient is the client for requests that may take long: it waits for an
// answer for as long as its context does.
func (c *client) patient() *client {
	transport := c.http.Transport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = 0
	return &client{base: c.base, token: c.token, http: &http.Client{Transport: transport}}
}

// admin sends an operator's request, with a JSON body unless it is nil, and
// reads the answer.
func (c *client) admin(ctx context.Context, method, path string, body, into any) error {
	var reader io.Reader
	header := http.Header{}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	res, err := c.do(ctx, method, path, header, reader)
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return c.unreachable(err)
	}
	if res.StatusCode != http.StatusOK {
		return newAPIError(res, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s answered with something that is no gapless answer: %w", c.base, err)
	}
	return nil
}

// apiError is an answer other than success.
type apiError struct {
	status     int
	retryAfter time.Duration // 0: the gateway asked for none
	problem
}

// problem is the body of such an answer (RFC 9457), as far as commands need it.
type problem struct {
	Title, Detail, Code string
	Line                int // NDJSON: the bad one
	receipt
}

func newAPIError(res *http.Response, body []byte) *apiError {
	e := &apiError{status: res.StatusCode}
	// Anything may stand between, and answer with a page of its own.
	_ = json.Unmarshal(body, &e.problem)
	var seconds int
	if _, err := fmt.Sscanf(res.Header.Get("Retry-After"), "%d", &seconds); err == nil && seconds > 0 {
		e.retryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	return e
}

// Error says what the gateway said, and what helps.
func (e *apiError) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if text == "" {
		text = http.StatusText(e.status)
	}
	msg := fmt.Sprintf("the gateway answered %d: %s", e.status, printable(text))
	if e.status == http.StatusUnauthorized {
		msg += " (set the key with --token, GAPLESS_TOKEN or --token-file)"
	}
	return msg
}

// printable keeps what another program wrote from acting on the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, text)
}
