package server

import (
	"errors"
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

// Reasons of a server that does not serve, for machines.
const (
	reasonStarting    = "starting"
	reasonUnavailable = "store_unavailable"
	reasonAppends     = "appends_fail" // readers are served
	reasonShutdown    = string(feed.DrainShutdown)
	reasonRestore     = string(feed.CodeRestoreNotFinalized)
)

// condition is how the server is, and why where it does not serve.
type condition struct {
	status string
	code   feed.Code
	reason string // a word
	detail string // a sentence for people
}

func (s *Server) condition() condition {
	stops := condition{statusDraining, feed.CodeNotReady, reasonShutdown, reasonShutdown}
	if s.leaving.Load() {
		return stops
	}
	switch err := s.feed.Ready(); {
	case errors.Is(err, feed.ErrDraining):
		return stops
	case errors.Is(err, feed.ErrStarting):
		return condition{statusNotReady, feed.CodeNotReady, reasonStarting, reasonStarting}
	case feed.CodeOf(err) == feed.CodeRestoreNotFinalized:
		return condition{statusNotReady, feed.CodeRestoreNotFinalized, reasonRestore, problemOf(err).Detail}
	case err != nil:
		return condition{statusNotReady, feed.CodeNotReady, reasonUnavailable, problemOf(err).Detail}
	}
	if s.feed.Appending() != nil {
		return condition{statusNotReady, feed.CodeUnavailable, reasonAppends, "the store takes no events at present; the server's log says why"}
	}
	return condition{status: statusReady}
}

// draining reports whether the feed has ended publishing and streams. While a
// stop only waits for load balancers, it has not.
func (s *Server) draining() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return errors.Is(s.feed.Ready(), feed.ErrDraining)
	}
}

// healthz is GET /healthz: the process is alive, whatever else.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	s.respond(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
}

// readyz is GET /readyz: 200 while the server serves, else 503 and the reason.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if c := s.condition(); c.status != statusReady {
		p := problemf(c.code, "%s", c.detail)
		p.Reason = c.reason
		s.fail(w, r, p)
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
	Sealed         bool                   `json:"sealed"`
	Restore        *restorePart           `json:"restore"`
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

// restorePart is the store's guard; none where the store ends with the
// process, or has not answered yet.
type restorePart struct {
	Guard     feed.GuardMode `json:"guard"`
	Finalized bool           `json:"finalized"`
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
		Version: s.cfg.Version, Node: s.cfg.Node, Status: c.status, Reason: c.detail, Store: s.cfg.Store,
		Epoch: st.Epoch, OldestSeq: st.Oldest, HeadSeq: st.Head.Seq, RetainedEvents: st.Events, RetainedBytes: st.Bytes,
		Retention:     retentionPart{Events: st.Retention.Events, Bytes: st.Retention.Bytes, AgeSeconds: st.Retention.Age.Seconds()},
		UptimeSeconds: time.Since(s.started).Seconds(), StartedAt: s.started.UTC(),
		Connections:    connectionsPart{Total: st.Total, Replaying: st.Replaying, Live: st.Live, Lagging: st.Lagging},
		PublishedTotal: stats.EventsPublished, DeliveredTotal: stats.Deliveries, Resyncs: stats.Resyncs,
		HeartbeatMS: cfg.Heartbeat.Milliseconds(), SnapshotEvents: cfg.SnapshotEvents,
	}
	if guard := s.watch.look(r.Context()); guard.Guard != "" {
		page.Sealed = guard.Sealed
		page.Restore = &restorePart{Guard: guard.Guard, Finalized: !shut(s.feed)}
		if page.Epoch == "" { // the feed has not begun, as while the guard keeps it shut
			page.Epoch, page.OldestSeq, page.HeadSeq = guard.Epoch, guard.OldestSeq, guard.HeadSeq
		}
	}
	if page.Epoch == "" { // nobody knows yet what is there
		page.RetainedEvents, page.RetainedBytes = 0, 0
	}
	if last := stats.LastResync; !last.Time.IsZero() {
		page.LastResync = &resyncPart{Time: last.Time.UTC(), Reason: last.Reason}
	}
	s.respondJSON(w, http.StatusOK, page)
}
