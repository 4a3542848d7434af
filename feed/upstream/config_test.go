package upstream

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestConfigThatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{URL: ""}, "URL"},
		{Config{URL: "/events"}, "URL"},
		{Config{URL: "ftp://h/"}, "URL"},
		{Config{URL: "http://"}, "URL"},
		{Config{URL: "http://h/\x7f?token=secret"}, "URL"},
		{Config{Header: http.Header{"last-event-id": {"1"}}}, "LastEventID"},
		{Config{Header: http.Header{"Accept": {"*/*"}}}, "Accept"},
		{Config{Header: http.Header{"accept-encoding": {"br"}}}, "accept-encoding"},
		{Config{Header: http.Header{"Host": {"h"}}}, "Host"},
		{Config{Header: http.Header{"X": {"a", "b"}}}, "2 values"},
		{Config{Header: http.Header{"X": nil}}, "0 values"},
		{Config{Header: http.Header{"X": {"a\r\nY: b"}}}, "cannot be sent"},
		{Config{Header: http.Header{"X Y": {"a"}}}, "cannot be sent"},
		{Config{Header: http.Header{"": {"a"}}}, "cannot be sent"},
		{Config{HTTPClient: &http.Client{}, Transport: &memTransport{}}, "both"},
		{Config{HTTPClient: &http.Client{Timeout: time.Second}}, "Timeout"},
		{Config{LastEventID: "a\nb"}, "LastEventID"},
		{Config{LastEventID: "a\x00b"}, "LastEventID"},
		{Config{MaxEventBytes: -1}, "MaxEventBytes"},
		{Config{MaxEventBytes: 513 << 20}, "MaxEventBytes"},
		{Config{ReconnectDelay: -1}, "ReconnectDelay"},
		{Config{MaxDelay: -1}, "MaxDelay"},
		{Config{MaxDelay: time.Second}, "below ReconnectDelay"},
		{Config{MaxFloor: -1}, "MaxFloor"},
		{Config{MaxFloor: 1<<63 - 1}, "room"},
		{Config{StableAfter: -1}, "StableAfter"},
		{Config{IdleTimeout: -1}, "IdleTimeout"},
	} {
		if tt.cfg.URL == "" && tt.want != "URL" {
			tt.cfg.URL = "http://h/"
		}
		c, err := New(tt.cfg)
		if c != nil || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want ErrConfig about %q", tt.cfg, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the URL is in %q", err)
		}
	}
}

func TestDefaults(t *testing.T) {
	cfg := mustDefaults(t)
	if cfg.MaxEventBytes != 32<<20 || cfg.ReconnectDelay != 2*time.Second || cfg.MaxDelay != 30*time.Second ||
		cfg.MaxFloor != time.Hour || cfg.StableAfter != 10*time.Second || cfg.IdleTimeout != 0 || cfg.Jitter == nil {
		t.Errorf("%+v", cfg)
	}
}

func TestConfigIsCopied(t *testing.T) {
	header := http.Header{"X-A": {"b"}}
	mem := &memTransport{}
	client := newClient(t, quick(Config{Transport: mem, Header: header}))
	header.Set("X-A", "changed")
	wantRun(t, client)
	if got := mem.requests[0].Header.Get("X-A"); got != "b" {
		t.Errorf("X-A: %q, want b", got)
	}
}

func TestHTTPClientsPolicyCounts(t *testing.T) {
	own := &http.Client{
		Transport:     &memTransport{answers: []answer{status(302, "Location", "/elsewhere")}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	before := own.Transport
	_, err := collect(t, newClient(t, quick(Config{HTTPClient: own})))
	if !errors.Is(err, ErrStatus) {
		t.Fatalf("Run returned %v, want ErrStatus", err)
	}
	if own.Transport != before {
		t.Error("the caller's client was changed")
	}
}
