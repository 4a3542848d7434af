package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gapless/feed"
)

// labelOther stands for every label value outside of the known ones, so that
// no input of a client's can grow the number of series.
const labelOther = "other"

// The known values of labels. Each series exists from the start, at 0: an
// alert on an increase sees the first one.
var (
	publishFormats = []string{"json", "batch", "ndjson", "cloudevents", "text"}
	refusalReasons = []string{
		string(feed.DrainNotReady), string(feed.DrainShutdown), string(feed.DrainAtCapacity),
	}
	writeErrorKinds = []string{"timeout", "reset"}
	httpMethods     = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodOptions,
		http.MethodPut, http.MethodPatch,
	}
)

// metrics counts what the HTTP side does, and exposes it together with what
// the feed counts. All methods are safe for concurrent use and do not block.
type metrics struct {
	registry *prometheus.Registry

	publishes       *prometheus.CounterVec
	publishEvents   *prometheus.CounterVec
	publishDuration *prometheus.HistogramVec
	refusals        *prometheus.CounterVec
	streamsEnded    prometheus.Counter
	writeErrors     *prometheus.CounterVec
	requests        *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec
}

// newMetrics registers everything with reg: a registry serves one server.
func newMetrics(reg *prometheus.Registry, f *feed.Feed, watch *storeWatch, version string) *metrics {
	// From a cached page to a slow disk or a slow NDJSON producer.
	latency := []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60}
	m := &metrics{
		registry: reg,
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gapless_publish_requests_total",
			Help: "Publish requests that were answered with success, by the format of their body.",
		}, []string{"format"}),
		publishEvents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gapless_publish_request_events_total",
			Help: "Events in publish requests that were answered with success, duplicates included, by the format of the body.",
		}, []string{"format"}),
		publishDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gapless_publish_duration_seconds",
			Help:    "Time from a publish request's decoding until its events were durably stored, by the format of the body.",
			Buckets: latency,
		}, []string{"format"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gapless_stream_refusals_total",
			Help: "Streams that were refused, by reason. Browsers get such a refusal as status 200 with a server.draining block.",
		}, []string{"reason"}),
		streamsEnded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gapless_streams_ended_total",
			Help: "Streams that were served and have ended, whoever ended them.",
		}),
		writeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gapless_stream_write_errors_total",
			Help: "Streams that ended because a write, a flush or a deadline failed, by kind.",
		}, []string{"kind"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gapless_http_requests_total",
			Help: "HTTP requests that have ended, by route pattern, method and status.",
		}, []string{"route", "method", "status"}),
		requestDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gapless_http_request_duration_seconds",
			Help:    "Duration of HTTP requests other than streams, by route pattern.",
			Buckets: latency,
		}, []string{"route"}),
	}
	for _, format := range append([]string{labelOther}, publishFormats...) {
		m.publishes.WithLabelValues(format)
		m.publishEvents.WithLabelValues(format)
		m.publishDuration.WithLabelValues(format)
	}
	for _, reason := range append([]string{labelOther}, refusalReasons...) {
		m.refusals.WithLabelValues(reason)
	}
	for _, kind := range append([]string{labelOther}, writeErrorKinds...) {
		m.writeErrors.WithLabelValues(kind)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "gapless_build_info",
		Help:        "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	reg.MustRegister(
		m.publishes, m.publishEvents, m.publishDuration, m.refusals, m.streamsEnded, m.writeErrors,
		m.requests, m.requestDuration, info, newFeedCollector(f), newStoreCollector(f, watch),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// published counts one publish request that succeeded. Events includes
// duplicates.
func (m *metrics) published(format string, events int, took time.Duration) {
	format = knownLabel(format, publishFormats)
	m.publishes.WithLabelValues(format).Inc()
	m.publishEvents.WithLabelValues(format).Add(float64(events))
	m.publishDuration.WithLabelValues(format).Observe(took.Seconds())
}

// streamRefused counts a stream that was not to begin.
func (m *metrics) streamRefused(reason string) {
	m.refusals.WithLabelValues(knownLabel(reason, refusalReasons)).Inc()
}

// streamEnded counts a served stream's end.
func (m *metrics) streamEnded() { m.streamsEnded.Inc() }

// writeError counts a stream that a failed write ended: "timeout", "reset" or
// "other".
func (m *metrics) writeError(kind string) {
	m.writeErrors.WithLabelValues(knownLabel(kind, writeErrorKinds)).Inc()
}

// unmeasuredRoute is the one route whose requests last as long as their reader
// wants, so that their duration says nothing about the server.
const unmeasuredRoute = "/events"

// request counts one HTTP request. The route is a pattern of the router's,
// never a path; empty where no route matched.
func (m *metrics) request(route, method string, status int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, knownLabel(method, httpMethods), strconv.Itoa(status)).Inc()
	if route != unmeasuredRoute {
		m.requestDuration.WithLabelValues(route).Observe(took.Seconds())
	}
}

// handler answers scrapes. A collector that fails is a 500: half a scrape
// would look like a reset of the counters.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, EnableOpenMetrics: true})
}

func knownLabel(value string, values []string) string {
	for _, v := range values {
		if v == value {
			return v
		}
	}
	return labelOther
}

// feedMetric is one number of the feed's.
type feedMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*feed.Stats, *feed.Status) float64
}

// feedCollector reads the feed's counters when it is scraped: the feed counts
// each thing once, and knows no Prometheus.
type feedCollector struct {
	feed        *feed.Feed
	numbers     []feedMetric
	ready       *prometheus.Desc
	encodings   *prometheus.Desc
	frameSizes  *prometheus.Desc
	drainTimes  *prometheus.Desc
	resyncs     *prometheus.Desc
	lastResync  *prometheus.Desc
	connections *prometheus.Desc
}

func newFeedCollector(f *feed.Feed) *feedCollector {
	c := &feedCollector{
		feed:        f,
		ready:       feedDesc("ready", "1 while the server serves, 0 while it starts, drains or its log does not answer."),
		encodings:   feedDesc("encodings_total", "Frames encoded: one an event and shape, however many subscribers share it.", "format", "named"),
		frameSizes:  feedDesc("frame_size_bytes", "Size of encoded frames, one observation an encoding."),
		drainTimes:  feedDesc("queue_drain_duration_seconds", "Time from a queue's overflow until its reader had taken what was accepted."),
		resyncs:     feedDesc("resyncs_total", "Subscribers that were told to resync, by reason.", "reason"),
		lastResync:  feedDesc("last_resync_timestamp_seconds", "When a subscriber was last told to resync, in Unix time; 0: never."),
		connections: feedDesc("connections", "Subscribers now, by state.", "state"),
	}
	counter := func(name, help string, value func(*feed.Stats) uint64) {
		c.numbers = append(c.numbers, feedMetric{feedDesc(name, help), prometheus.CounterValue,
			func(s *feed.Stats, _ *feed.Status) float64 { return float64(value(s)) }})
	}
	gauge := func(name, help string, value func(*feed.Stats, *feed.Status) float64) {
		c.numbers = append(c.numbers, feedMetric{feedDesc(name, help), prometheus.GaugeValue, value})
	}
	counter("events_published_total", "Events stored, without duplicates.", func(s *feed.Stats) uint64 { return s.EventsPublished })
	counter("events_published_bytes_total", "Payload bytes of the events stored.", func(s *feed.Stats) uint64 { return s.BytesPublished })
	counter("publish_batches_total", "Batches appended to the log.", func(s *feed.Stats) uint64 { return s.Batches })
	counter("publish_duplicates_total", "Events not stored again, since their key was known.", func(s *feed.Stats) uint64 { return s.Duplicates })
	counter("encoding_failures_total", "Stored events that no frame can carry.", func(s *feed.Stats) uint64 { return s.EncodingFailures })
	counter("deliveries_total", "Events written to subscribers.", func(s *feed.Stats) uint64 { return s.Deliveries })
	counter("delivered_bytes_total", "Bytes of the frames written to subscribers.", func(s *feed.Stats) uint64 { return s.DeliveredBytes })
	counter("heartbeats_total", "Heartbeats sent.", func(s *feed.Stats) uint64 { return s.Heartbeats })
	counter("queue_overflows_total", "Full queues: a live subscriber that began to lag.", func(s *feed.Stats) uint64 { return s.Overflows })
	counter("rejoins_total", "Lagging subscribers that caught up and are live again.", func(s *feed.Stats) uint64 { return s.Rejoins })
	counter("resumes_total", "Subscriptions with a cursor that was served: reconnects without a loss.", func(s *feed.Stats) uint64 { return s.Resumes })
	counter("log_errors_total", "Reads and trims of the log that failed.", func(s *feed.Stats) uint64 { return s.LogErrors })
	gauge("queue_high_water_frames", "The most frames that one queue has held since the start.", func(s *feed.Stats, _ *feed.Status) float64 { return float64(s.QueueHighWater) })
	gauge("queue_bytes", "Bytes in all queues now.", func(s *feed.Stats, _ *feed.Status) float64 { return float64(s.QueueBytes) })
	gauge("queue_limit_bytes", "Bytes that all queues together may hold.", func(*feed.Stats, *feed.Status) float64 { return float64(f.Config().QueueBytesTotal) })
	gauge("log_retention_events", "Events that the log may hold; 0: no such bound.", func(_ *feed.Stats, s *feed.Status) float64 { return float64(s.Retention.Events) })
	gauge("log_retention_bytes", "Bytes that the log may hold; 0: no such bound.", func(_ *feed.Stats, s *feed.Status) float64 { return float64(s.Retention.Bytes) })
	gauge("log_oldest_seq", "Smallest seq that the log holds; head + 1 where it is empty.", func(_ *feed.Stats, s *feed.Status) float64 { return float64(s.Oldest) })
	gauge("log_head_seq", "Seq of the last event stored in this epoch.", func(_ *feed.Stats, s *feed.Status) float64 { return float64(s.Head.Seq) })
	gauge("log_retained_events", "Events that the log holds.", func(_ *feed.Stats, s *feed.Status) float64 { return float64(s.Events) })
	gauge("log_retained_bytes", "Bytes that the log holds, as its retention counts them.", func(_ *feed.Stats, s *feed.Status) float64 { return float64(s.Bytes) })
	return c
}

func feedDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gapless_"+name, help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (c *feedCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range c.numbers {
		ch <- n.desc
	}
	for _, d := range []*prometheus.Desc{c.ready, c.encodings, c.frameSizes, c.drainTimes, c.resyncs, c.lastResync, c.connections} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *feedCollector) Collect(ch chan<- prometheus.Metric) {
	stats, status := c.feed.Stats(), c.feed.Status()
	for _, n := range c.numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(&stats, &status))
	}
	ready := 0.0
	if c.feed.Ready() == nil && c.feed.Appending() == nil {
		ready = 1
	}
	ch <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, ready)
	for shape, n := range stats.Encodings {
		ch <- prometheus.MustNewConstMetric(c.encodings, prometheus.CounterValue, float64(n),
			shape.Format.String(), strconv.FormatBool(!shape.Unnamed))
	}
	ch <- constHistogram(c.frameSizes, feed.FrameSizeBuckets[:], stats.FrameSizes)
	ch <- constHistogram(c.drainTimes, feed.DrainBuckets[:], stats.DrainTimes)
	for _, reason := range feed.Reasons() {
		ch <- prometheus.MustNewConstMetric(c.resyncs, prometheus.CounterValue, float64(stats.Resyncs[reason]), string(reason))
	}
	last := 0.0
	if !stats.LastResync.Time.IsZero() {
		last = float64(stats.LastResync.Time.UnixMicro()) / 1e6
	}
	ch <- prometheus.MustNewConstMetric(c.lastResync, prometheus.GaugeValue, last)
	for state, n := range map[feed.SubscriberState]int{
		feed.StateReplaying: status.Replaying, feed.StateLive: status.Live, feed.StateLagging: status.Lagging,
	} {
		ch <- prometheus.MustNewConstMetric(c.connections, prometheus.GaugeValue, float64(n), state.String())
	}
}

// constHistogram turns counts by bucket into cumulative ones.
func constHistogram(desc *prometheus.Desc, bounds []float64, h feed.Histogram) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	var below uint64
	for i, bound := range bounds {
		below += h.Counts[i]
		buckets[bound] = below
	}
	return prometheus.MustNewConstHistogram(desc, h.Count, h.Sum, buckets)
}
