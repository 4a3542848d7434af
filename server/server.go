package server

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"gapless/feed"
)

// Defaults of [Config].
const (
	DefaultWriteTimeout = 10 * time.Second
	DefaultMaxBodyBytes = 64 << 20
)

// Config holds a server's options. Feed is required; every other zero field
// gets the default named beside it.
type Config struct {
	Feed   *feed.Feed
	Logger zerolog.Logger // the zero Logger writes nothing

	// State is the store's control state; nil where it has none. It serves the
	// audit trail.
	State feed.State
	// Durable is the store where it outlives the process, else nil. It serves
	// restores and backups, also while the feed does not serve.
	Durable feed.Durable

	Version string // shown by the status page and in metrics; "unknown"
	Node    string // this process's name; none
	Store   string // the store's name; what the log calls itself

	// PublishKeys guard publishing, the connections, and what operators do to
	// the store. None: whoever is on this machine may do all of it.
	PublishKeys []string
	// Open consents to anybody's publishing, and cutting of connections, where
	// there is no key. What operators do stays with this machine.
	Open bool
	// CORSOrigins are the origins whose pages may read: scheme://host[:port],
	// where the port may be `*`, or a sole `*`. None: same origin only.
	CORSOrigins []string

	// DrainDelay is for how long a stop keeps serving everything while /readyz
	// says 503 already, so that load balancers look elsewhere first; 0.
	DrainDelay     time.Duration
	WriteTimeout   time.Duration // for each piece of at most 16 KiB; 10 s
	MaxBodyBytes   int64         // of a publish that is not NDJSON; 64 MiB
	MaxConnections int           // streams at a time; 0: no bound

	Dashboard http.Handler // serves / and /dashboard/; nil: 404
	Example   http.Handler // serves /example; nil: 404
	Client    http.Handler // serves /client.js; nil: 404
	OpenAPI   []byte       // serves /openapi.yaml; nil: 404

	Registry *prometheus.Registry // for the metrics; its own

	// OnReady is called once by Serve when the server is bound and the feed
	// serves. It must not block.
	OnReady func()
}

// Server answers HTTP requests for one feed. All methods are safe for
// concurrent use.
type Server struct {
	cfg     Config
	feed    *feed.Feed
	log     zerolog.Logger
	metrics *metrics
	keys    keyring
	origins origins
	handler http.Handler
	started time.Time

	streams atomic.Int64 // under way now
	peers   peers
	pieces  pieces

	watch  *storeWatch
	backup sync.Mutex // held by the one backup under way

	leaving  atomic.Bool // a stop has begun; everything is served still
	stopping sync.Once
	stopped  chan struct{} // closed when the server begins to drain
}

// New checks the configuration and returns a server that does nothing yet:
// see [Server.Handler] and [Server.Serve]. The error has [feed.CodeInvalid].
func New(cfg Config) (*Server, error) {
	if cfg.Feed == nil {
		return nil, &feed.Error{Code: feed.CodeInvalid, Op: "server", Msg: "no feed"}
	}
	if cfg.WriteTimeout < 0 || cfg.MaxBodyBytes < 0 || cfg.MaxConnections < 0 || cfg.DrainDelay < 0 {
		return nil, &feed.Error{Code: feed.CodeInvalid, Op: "server", Msg: "a limit or an interval is negative"}
	}
	cfg.Version = cmp.Or(cfg.Version, "unknown")
	cfg.Store = cmp.Or(cfg.Store, cfg.Feed.Status().Store)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	cfg.MaxBodyBytes = cmp.Or(cfg.MaxBodyBytes, DefaultMaxBodyBytes)
	keys, err := newKeyring(cfg.PublishKeys)
	if err != nil {
		return nil, err
	}
	origins, err := parseOrigins(cfg.CORSOrigins)
	if err != nil {
		return nil, err
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	watch := newStoreWatch(cfg.Durable)
	s := &Server{
		cfg:     cfg,
		watch:   watch,
		feed:    cfg.Feed,
		log:     cfg.Logger,
		metrics: newMetrics(cfg.Registry, cfg.Feed, watch, cfg.Version),
		keys:    keys,
		origins: origins,
		started: time.Now(),
		peers:   peers{byID: make(map[string]peer)},
		stopped: make(chan struct{}),
	}
	s.handler = s.routes()
	return s, nil
}

// Handler returns the handler of every route, for HTTP/1.0, 1.1 and 2. What
// embeds it must give its http.Server no WriteTimeout.
func (s *Server) Handler() http.Handler { return s.handler }

// stop tells requests that wait for their client's next bytes to end.
func (s *Server) stop() { s.stopping.Do(func() { close(s.stopped) }) }
