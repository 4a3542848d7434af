package server

import (
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"gapless/feed"
)

// peer is what the HTTP side knows of a stream's client.
type peer struct{ remote, userAgent string }

// peers holds the clients of the streams under way, by connection id.
type peers struct {
	mu   sync.Mutex
	byID map[string]peer
}

func (p *peers) add(id string, who peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byID[id] = who
}

func (p *peers) remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byID, id)
}

func (p *peers) get(id string) peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}

// connection is one stream, for operators.
type connection struct {
	ID             string    `json:"id"`
	Since          time.Time `json:"since"`
	Remote         string    `json:"remote"`
	UserAgent      string    `json:"user_agent"`
	Topics         []string  `json:"topics"`
	Types          []string  `json:"types"`
	Format         string    `json:"format"`
	Named          bool      `json:"named"`
	State          string    `json:"state"`
	Lag            uint64    `json:"lag"`
	QueueFrames    int       `json:"queue_frames"`
	QueueBytes     int64     `json:"queue_bytes"`
	QueueHighWater int       `json:"queue_high_water"`
	Delivered      uint64    `json:"delivered"`
	Bookmark       string    `json:"bookmark"`
}

// connections is GET /api/v1/connections.
func (s *Server) connections(w http.ResponseWriter, r *http.Request) {
	list := []connection{}
	for _, info := range s.feed.Subscribers() {
		if info.State == feed.StateClosed {
			continue
		}
		who := s.peers.get(info.ID)
		c := connection{
			ID: info.ID, Since: info.Since.UTC(), Remote: who.remote, UserAgent: who.userAgent,
			Topics: info.Topics, Types: info.Types,
			Format: info.Shape.Format.String(), Named: !info.Shape.Unnamed, State: info.State.String(), Lag: info.Lag,
			QueueFrames: info.QueueFrames, QueueBytes: info.QueueBytes, QueueHighWater: info.QueueHighWater,
			Delivered: info.Delivered, Bookmark: info.Bookmark.String(),
		}
		if c.Types == nil {
			c.Types = []string{}
		}
		list = append(list, c)
	}
	s.respondJSON(w, http.StatusOK, map[string][]connection{"connections": list})
}

// cut is DELETE /api/v1/connections/{id}: the stream ends with
// server.draining, and its client comes back with its cursor.
func (s *Server) cut(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if !s.feed.Cut(id) {
		s.fail(w, r, problemf(feed.CodeNotFound, "there is no connection %q", clip(id)))
		return
	}
	s.log.Info().Str("connection_id", id).Str("remote", r.RemoteAddr).Msg("a connection was cut by request")
	w.WriteHeader(http.StatusNoContent)
}
