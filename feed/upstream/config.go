package upstream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

const (
	defaultMaxEventBytes  = 32 << 20
	defaultReconnectDelay = 2 * time.Second
	defaultMaxDelay       = 30 * time.Second
	defaultMaxFloor       = time.Hour
	defaultStableAfter    = 10 * time.Second

	// maxMaxEventBytes keeps every sum of sizes inside an int of 32 bits.
	maxMaxEventBytes = 512 << 20
)

// Config tells a Client what to read and how. Only URL is needed.
type Config struct {
	// URL is the stream's address, http or https. Every connection starts here again, also after redirects.
	URL string
	// Header is sent with every request, one value a name. Accept, Accept-Encoding, Host and Last-Event-ID are the
	// client's own and refused. After a redirect to another host net/http leaves credentials out.
	Header http.Header
	// HTTPClient makes the requests; its redirect policy and cookie jar count. Its Timeout must be 0: it would
	// end every stream. Default: one of this Client's own, without idle connections after Run.
	HTTPClient *http.Client
	// Transport makes the requests where no HTTPClient is given; set one of them at most. As net/http demands,
	// reading a response must end when the request's context does.
	Transport http.RoundTripper
	// LastEventID is the cursor from which the first connection resumes. Empty: the server decides.
	LastEventID string
	// MaxEventBytes bounds one event: its field lines with one line end each, as sent; comments and unknown
	// fields do not count once their line is over. Default 32 MiB, at most 512 MiB. Memory is bounded by a
	// small multiple of it, a larger one where an event consists of very short lines.
	MaxEventBytes int
	// ReconnectDelay is the window of the first wait, from which full jitter picks; it doubles with every
	// connection that fails or ends before StableAfter. Default 2 s.
	ReconnectDelay time.Duration
	// MaxDelay bounds the window. Default 30 s.
	MaxDelay time.Duration
	// MaxFloor bounds what a server's retry field or Retry-After header may ask for. Default 1 h.
	MaxFloor time.Duration
	// StableAfter is how long a stream must have been open for the window to start anew. Default 10 s.
	StableAfter time.Duration
	// Settled, if set, is asked of every event, from Run's goroutine, before the handler gets it, whether it shows
	// that the server serves this client, or ends the stream in good order. Once it has said so of one, the failures
	// before are forgotten, and the wait after that connection is the server's floor plus a jitter of up to half of
	// it, however short the stream was: for servers that set a retry field with a thought. Where the floor
	// is below an eighth of ReconnectDelay, or none, the wait has ReconnectDelay's window as ever. It must not
	// block, nor keep or change the event.
	Settled func(Event) bool
	// IdleTimeout ends a connection on which no byte has arrived for so long, the wait for the response
	// included, and makes another. Time that the handler takes does not count. 0: never. Set it to a
	// few heartbeats where the server sends heartbeats: a proxy may keep a connection whose origin is gone.
	IdleTimeout time.Duration
	// Jitter picks a duration in [0, window). Default: evenly, from the runtime's random source.
	Jitter func(window time.Duration) time.Duration
	// Logger hears of connections made and lost. Neither URL, header fields nor events are logged. The zero Logger is
	// silent.
	Logger zerolog.Logger
	// OnState, if set, is called at every change of state, from Run's goroutine, before the handler sees
	// anything that follows. It must not block.
	OnState func(State)
	// OnWait, if set, is called at the start of every wait, from Run's goroutine, after OnState: why the last
	// connection ended or failed, nil after a clean end of the stream, and how long the wait is. The error's text
	// may hold what the server or the network said, never the URL. It must not block.
	OnWait func(cause error, delay time.Duration)
}

// withDefaults returns cfg checked and completed.
func (cfg Config) withDefaults() (Config, error) {
	fail := func(format string, args ...any) (Config, error) {
		return Config{}, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
	}
	// The URL itself is not part of any message: it may hold a token.
	target, err := url.Parse(cfg.URL)
	if err != nil {
		return fail("URL cannot be parsed")
	}
	if (target.Scheme != "http" && target.Scheme != "https") || target.Host == "" {
		return fail("URL must be an http or https URL with a host")
	}
	for name, values := range cfg.Header {
		switch key := http.CanonicalHeaderKey(name); {
		case key == "Last-Event-Id":
			return fail("header %s: use Config.LastEventID", name)
		case key == "Accept" || key == "Accept-Encoding" || key == "Host":
			return fail("header %s is set by the client", name)
		case len(values) != 1:
			return fail("header %s has %d values, want one", name, len(values))
		case !isToken(name) || !sendable(values[0]):
			return fail("header %q cannot be sent", name)
		}
	}
	if cfg.HTTPClient != nil && cfg.Transport != nil {
		return fail("HTTPClient and Transport are both set")
	}
	if cfg.HTTPClient != nil && cfg.HTTPClient.Timeout != 0 {
		return fail("HTTPClient.Timeout is %v, it would end every stream", cfg.HTTPClient.Timeout)
	}
	if !sendable(cfg.LastEventID) {
		return fail("LastEventID holds characters that no header may hold")
	}

	if cfg.MaxEventBytes == 0 {
		cfg.MaxEventBytes = defaultMaxEventBytes
	}
	if cfg.MaxEventBytes < 0 || cfg.MaxEventBytes > maxMaxEventBytes {
		return fail("MaxEventBytes is %d, want 1 to %d", cfg.MaxEventBytes, maxMaxEventBytes)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		unset time.Duration
	}{
		{"ReconnectDelay", &cfg.ReconnectDelay, defaultReconnectDelay},
		{"MaxDelay", &cfg.MaxDelay, max(defaultMaxDelay, cfg.ReconnectDelay)},
		{"MaxFloor", &cfg.MaxFloor, defaultMaxFloor},
		{"StableAfter", &cfg.StableAfter, defaultStableAfter},
		{"IdleTimeout", &cfg.IdleTimeout, 0},
	} {
		if *d.value == 0 {
			*d.value = d.unset
		}
		if *d.value < 0 {
			return fail("%s is %v, want a positive duration", d.name, *d.value)
		}
	}
	if cfg.MaxDelay < cfg.ReconnectDelay {
		return fail("MaxDelay is %v, below ReconnectDelay %v", cfg.MaxDelay, cfg.ReconnectDelay)
	}
	if cfg.MaxDelay > math.MaxInt64/2 || cfg.MaxFloor > math.MaxInt64/2 {
		return fail("MaxDelay and MaxFloor must leave room for their sum")
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func(window time.Duration) time.Duration { return rand.N(window) }
	}
	cfg.Header = cfg.Header.Clone()
	return cfg, nil
}

// sendable reports whether value can be sent in a header field (RFC 9110, section 5.5): no control character but tab.
func sendable(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return true
}

// isToken reports whether name can be a header field's name (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	for _, c := range name {
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", c) {
			return false
		}
	}
	return name != ""
}

// newTransport returns a transport whose connections notice a dead peer. It sets no limit to the wait for a
// response: some servers hold the head back until their first event.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        2,
		IdleConnTimeout:     30 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}
