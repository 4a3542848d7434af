package server

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"gapless/feed"
	"gapless/feed/memory"
)

func runningFeed(t *testing.T) *feed.Feed {
	t.Helper()
	log, err := memory.New(memory.Config{Retention: feed.Retention{Events: 1024}, DedupeWindow: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	f, err := feed.New(feed.Config{Log: log, Heartbeat: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return f
}

// scrape returns the samples of an answer to /metrics, by name and labels.
func scrape(t *testing.T, m *metrics) map[string]string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil || rec.Code != 200 {
		t.Fatalf("scrape: status %d, %v: %s", rec.Code, err, body)
	}
	samples := make(map[string]string)
	for line := range strings.Lines(string(body)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			samples[name] = value
		}
	}
	return samples
}

func wantSamples(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s = %q, want %q", name, got[name], value)
		}
	}
}

func TestMetricsAreLintClean(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := newMetrics(reg, runningFeed(t), newStoreWatch(nil), "1.2.3")
	m.request("/healthz", "GET", 200, time.Millisecond)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsStartAtZeroForEveryReason(t *testing.T) {
	got := scrape(t, newMetrics(prometheus.NewRegistry(), runningFeed(t), newStoreWatch(nil), "1.2.3"))
	want := map[string]string{
		`gapless_build_info{version="1.2.3"}`:                     "1",
		`gapless_ready`:                                           "1",
		`gapless_last_resync_timestamp_seconds`:                   "0",
		`gapless_log_oldest_seq`:                                  "1",
		`gapless_log_head_seq`:                                    "0",
		`gapless_log_retention_events`:                            "1024",
		`gapless_log_retention_bytes`:                             "0",
		`gapless_queue_limit_bytes`:                               "5.36870912e+08",
		`gapless_stream_write_errors_total{kind="timeout"}`:       "0",
		`gapless_stream_write_errors_total{kind="reset"}`:         "0",
		`gapless_stream_write_errors_total{kind="other"}`:         "0",
		`gapless_publish_requests_total{format="json"}`:           "0",
		`gapless_encodings_total{format="raw",named="false"}`:     "0",
		`gapless_encodings_total{format="envelope",named="true"}`: "0",
		`gapless_connections{state="lagging"}`:                    "0",
		`gapless_store_restore_not_finalized`:                     "0",
		`gapless_store_sealed`:                                    "0",
		`gapless_store_outbox_moved_total`:                        "0",
		`gapless_store_outbox_parked_total`:                       "0",
	}
	for _, r := range feed.Reasons() {
		want[fmt.Sprintf(`gapless_resyncs_total{reason="%s"}`, r)] = "0"
	}
	for _, r := range []string{"not_ready", "shutdown", "at_capacity", "other"} {
		want[fmt.Sprintf(`gapless_stream_refusals_total{reason="%s"}`, r)] = "0"
	}
	wantSamples(t, got, want)
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if got[name] == "" {
			t.Errorf("no %s", name)
		}
	}
}

func TestMetricsTellWhatTheFeedCounted(t *testing.T) {
	f := runningFeed(t)
	m := newMetrics(prometheus.NewRegistry(), f, newStoreWatch(nil), "dev")
	ctx := t.Context()
	publish := func(drafts ...feed.Draft) {
		t.Helper()
		if _, err := f.Publish(ctx, drafts); err != nil {
			t.Fatal(err)
		}
	}
	publish(feed.Draft{ID: "a", Data: []byte(`"12345678"`)}, feed.Draft{ID: "b", Data: []byte(`{}`)})
	publish(feed.Draft{ID: "a", Data: []byte(`"12345678"`)})

	filter, err := feed.NewFilter(nil, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	expired := feed.From{Cursor: feed.Cursor{Epoch: "elsewhere", Position: feed.Position{Seq: 1}}}
	gone, err := f.Subscribe(ctx, feed.SubscribeOptions{From: expired, Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	sub, err := f.Subscribe(ctx, feed.SubscribeOptions{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for events := 0; events < 2; {
		frames, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, fr := range frames {
			if !fr.Control {
				events++
			}
		}
	}
	if _, err := sub.Next(ctx); err != nil { // what was taken before is now delivered
		t.Fatal(err)
	}
	got := scrape(t, m)
	wantSamples(t, got, map[string]string{
		`gapless_events_published_total`:                          "2",
		`gapless_events_published_bytes_total`:                    "12",
		`gapless_publish_batches_total`:                           "2",
		`gapless_publish_duplicates_total`:                        "1",
		`gapless_encodings_total{format="envelope",named="true"}`: "2",
		`gapless_frame_size_bytes_count`:                          "2",
		`gapless_frame_size_bytes_bucket{le="512"}`:               "2",
		`gapless_frame_size_bytes_bucket{le="+Inf"}`:              "2",
		`gapless_deliveries_total`:                                "2",
		`gapless_resyncs_total{reason="epoch_changed"}`:           "1",
		`gapless_log_head_seq`:                                    "2",
		`gapless_log_retained_events`:                             "2",
		`gapless_connections{state="live"}`:                       "1",
	})
	if got["gapless_last_resync_timestamp_seconds"] == "0" {
		t.Error("the last resync has no time")
	}
	if got["gapless_frame_size_bytes_sum"] != got["gapless_delivered_bytes_total"] {
		t.Errorf("encoded %s bytes, delivered %s", got["gapless_frame_size_bytes_sum"], got["gapless_delivered_bytes_total"])
	}
}

func TestMetricsCountRequestsAndStreams(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry(), runningFeed(t), newStoreWatch(nil), "dev")
	m.published("ndjson", 7, 20*time.Millisecond)
	m.streamRefused("not_ready")
	m.streamEnded()
	m.writeError("timeout")
	m.request("/api/v1/events", "POST", 201, time.Millisecond)
	m.request("/events", "GET", 200, time.Hour)
	m.request("", "GET", 404, time.Millisecond)
	got := scrape(t, m)
	wantSamples(t, got, map[string]string{
		`gapless_publish_requests_total{format="ndjson"}`:                                    "1",
		`gapless_publish_request_events_total{format="ndjson"}`:                              "7",
		`gapless_publish_duration_seconds_count{format="ndjson"}`:                            "1",
		`gapless_stream_refusals_total{reason="not_ready"}`:                                  "1",
		`gapless_streams_ended_total`:                                                        "1",
		`gapless_stream_write_errors_total{kind="timeout"}`:                                  "1",
		`gapless_http_requests_total{method="POST",route="/api/v1/events",status="201"}`:     "1",
		`gapless_http_requests_total{method="GET",route="/events",status="200"}`:             "1",
		`gapless_http_requests_total{method="GET",route="none",status="404"}`:                "1",
		`gapless_http_request_duration_seconds_count{route="/api/v1/events"}`:                "1",
		`gapless_http_request_duration_seconds_count{route="/events"}`:                       "", // a stream's duration is its reader's
		`gapless_http_request_duration_seconds_bucket{route="/api/v1/events",le="0.000500"}`: "",
	})
}

func TestMetricsLabelsAreBounded(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry(), runningFeed(t), newStoreWatch(nil), "dev")
	m.request("/healthz", "BREW", 200, 0)
	before := len(scrape(t, m))
	for i := range 50 {
		odd := fmt.Sprintf("odd-%d", i)
		m.published(odd, 1, 0)
		m.streamRefused(odd)
		m.writeError(odd)
		m.request("/healthz", odd, 200, 0)
	}
	got := scrape(t, m)
	if len(got) != before {
		t.Errorf("unknown label values grew the scrape from %d samples to %d", before, len(got))
	}
	wantSamples(t, got, map[string]string{
		`gapless_stream_refusals_total{reason="other"}`:                             "50",
		`gapless_http_requests_total{method="other",route="/healthz",status="200"}`: "51",
	})
}
