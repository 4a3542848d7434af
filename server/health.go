package server

import (
	"net/http"
	"time"

	"gapless/feed"
)

// The words of a server's condition.
const (
	statusReady    = "ready"     // it serves
	statusNotReady = "not_ready" // it starts, or its log does not answer
	statusDraining = "draining"  // it stops
)

// condition is how the server is, and why where it does not serve.
type condition struct{ status, reason string }

func (s *Server) condition() condition {
	select {
	case <-s.stopped:
		return condition{statusDraining, string(feed.DrainShutdown)}
	default:
	}
	err := s.feed.Ready()
	if err == nil {
		return condition{statusReady, ""}
	}
	reason := problemOf(err).Detail
	if reason == string(feed.DrainShutdown) {
		return condition{statusDraining, reason}
	}
	return condition{statusNotReady, reason}
}

// healthz is GET /healthz: the process is alive, whatever else.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	s.respond(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
}

// readyz is GET /readyz: 200 while the server serves, else 503 and the reason.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if c := s.condition(); c.status != statusReady {
		s.fail(w, r, problemf(feed.CodeNotReady, "%s", c.reason))
		return
	}
	s.respond(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ready\n"))
}

// statusPage is the answer of GET /api/v1/status.
type statusPage struct {
	Version        string                 `json:"version"`
	Node           string                 `json:"node"`
	Status         string                 `json:"status"`
	Reason         string                 `json:"reason"`
	Store          string                 `json:"store"`
	Epoch          feed.Epoch             `json:"epoch"`
	OldestSeq      uint64                 `json:"oldest_seq"`
	HeadSeq        uint64                 `json:"head_seq"`
	RetainedEvents uint64                 `json:"retained_events"`
	RetainedBytes  int64                  `json:"retained_bytes"`
	Retention      retentionPart          `json:"retention"`
	UptimeSeconds  float64                `json:"uptime_seconds"`
	StartedAt      time.Time              `json:"started_at"`
	Connections    connectionsPart        `json:"connections"`
	PublishedTotal uint64                 `json:"published_total"`
	DeliveredTotal uint64                 `json:"delivered_total"`
	Resyncs        map[feed.Reason]uint64 `json:"resyncs"`
	LastResync     *resyncPart            `json:"last_resync"`
	HeartbeatMS    int64                  `json:"heartbeat_ms"`
	SnapshotEvents int                    `json:"snapshot_events"`
}

type retentionPart struct {
	Events     uint64  `json:"events"`
	Bytes      int64   `json:"bytes"`
	AgeSeconds float64 `json:"age_seconds"`
}

type connectionsPart struct {
	Total     int `json:"total"`
	Replaying int `json:"replaying"`
	Live      int `json:"live"`
	Lagging   int `json:"lagging"`
}

type resyncPart struct {
	Time   time.Time   `json:"time"`
	Reason feed.Reason `json:"reason"`
}

// status is GET /api/v1/status.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	st, stats, c, cfg := s.feed.Status(), s.feed.Stats(), s.condition(), s.feed.Config()
	page := statusPage{
		Version: s.cfg.Version, Node: s.cfg.Node, Status: c.status, Reason: c.reason, Store: s.cfg.Store,
		Epoch: st.Epoch, OldestSeq: st.Oldest, HeadSeq: st.Head.Seq, RetainedEvents: st.Events, RetainedBytes: st.Bytes,
		Retention:     retentionPart{Events: st.Retention.Events, Bytes: st.Retention.Bytes, AgeSeconds: st.Retention.Age.Seconds()},
		UptimeSeconds: time.Since(s.started).Seconds(), StartedAt: s.started.UTC(),
		Connections:    connectionsPart{Total: st.Total, Replaying: st.Replaying, Live: st.Live, Lagging: st.Lagging},
		PublishedTotal: stats.EventsPublished, DeliveredTotal: stats.Deliveries, Resyncs: stats.Resyncs,
		HeartbeatMS: cfg.Heartbeat.Milliseconds(), SnapshotEvents: cfg.SnapshotEvents,
	}
	if last := stats.LastResync; !last.Time.IsZero() {
		page.LastResync = &resyncPart{Time: last.Time.UTC(), Reason: last.Reason}
	}
	s.respondJSON(w, http.StatusOK, page)
}
