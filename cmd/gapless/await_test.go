package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"gapless/feed"
)

func unanswered(msg string, cause error) error {
	return &feed.Error{Code: feed.CodeUnavailable, Msg: msg, Err: cause}
}

func TestAwaitWaitsOnlyWhereThatHelps(t *testing.T) {
	server := func(code string) error {
		return unanswered("cannot connect", &pgconn.PgError{Code: code, Message: "no"})
	}
	for name, tt := range map[string]struct {
		err   error
		code  int
		waits bool
	}{
		"a wrong password":     {server("28P01"), exitFailure, false},
		"a role that may not":  {server("28000"), exitFailure, false},
		"a missing database":   {server("3D000"), exitFailure, false},
		"a missing privilege":  {server("42501"), exitFailure, false},
		"a missing schema":     {unanswered("the schema is missing: run `gapless migrate`", nil), exitFailure, false},
		"another failure":      {&feed.Error{Code: feed.CodeInvalid, Msg: "no"}, exitFailure, false},
		"an unknown host":      {unanswered("cannot connect", &net.DNSError{Err: "no such host", IsNotFound: true}), exitUnavailable, false},
		"a silent name server": {unanswered("cannot connect", &net.DNSError{Err: "time", IsTimeout: true}), exitUnavailable, true},
		"a server that starts": {server("57P03"), exitUnavailable, true},
		"nobody":               {unanswered("cannot connect", errors.New("failed to connect:\n\trefused")), exitUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told bytes.Buffer
				began := time.Now()
				err := await(t.Context(), &console{err: &told}, storeName{kind: storePostgres, text: "postgres://u:s3cret@h/d"},
					func(context.Context) error { return tt.err })
				code := exitFailure
				if coded := (*exitError)(nil); errors.As(err, &coded) {
					code = coded.code
				}
				waited := time.Since(began)
				if !errors.Is(err, tt.err) || code != tt.code || tt.waits && waited != storePatience || !tt.waits && waited != 0 {
					t.Errorf("%v, exit code %d, after %v", err, code, waited)
				}
				if text := told.String(); (strings.Count(text, "waiting for up to 15s\n") == 1) != tt.waits || strings.Count(text, "\n") > 1 || strings.Contains(text+err.Error(), "s3cret") {
					t.Errorf("told %q", text)
				}
			})
		})
	}
}

func TestAwaitTellsASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		answers := make(chan error, 1)
		time.AfterFunc(2*time.Second, func() { answers <- nil })
		err := await(t.Context(), &console{err: &told}, storeName{kind: storePostgres, text: "postgres://h/d"},
			func(context.Context) error { return <-answers })
		if err != nil || told.String() != "gapless: store postgres://h/d: it does not answer yet; waiting for up to 15s\n" {
			t.Errorf("%v: %q", err, told.String())
		}
	})
}

func TestAwaitSaysTheCauseAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		err := await(t.Context(), &console{err: new(bytes.Buffer)}, storeName{kind: storePostgres, text: "postgres://h/d"},
			func(ctx context.Context) error {
				if tried++; tried == 1 {
					return unanswered("connection refused", nil)
				}
				<-ctx.Done()
				return unanswered("given up", ctx.Err())
			})
		if err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Error(err)
		}
	})
}
