package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gapless/feed"
	"gapless/feed/memory"
)

// BenchmarkNDJSON publishes lines of about 512 bytes over loopback into
// memory: what the store does not cost.
func BenchmarkNDJSON(b *testing.B) {
	log, err := memory.New(memory.Config{})
	if err != nil {
		b.Fatal(err)
	}
	f, err := feed.New(feed.Config{Log: log})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	s, err := New(Config{Feed: f, Open: true})
	if err != nil {
		b.Fatal(err)
	}
	hs := httptest.NewServer(s.Handler())
	defer hs.Close()
	if err := f.WaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	const lines = 20_000
	var body bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&body, `{"type":"made","topic":"orders.%d","data":{"n":%d,"text":"%s"}}`+"\n", i%100, i, strings.Repeat("x", 430))
	}
	b.SetBytes(int64(body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		resp, err := http.Post(hs.URL+"/api/v1/events", "application/x-ndjson", bytes.NewReader(body.Bytes()))
		if err != nil || resp.StatusCode != http.StatusCreated {
			b.Fatal(resp, err)
		}
		resp.Body.Close()
	}
	b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
