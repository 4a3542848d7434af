package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"gapless/feed"
)

// keyring holds the publish keys as digests: comparing those takes the same
// time whatever the key and its length.
type keyring [][sha256.Size]byte

func newKeyring(keys []string) (keyring, error) {
	ring := make(keyring, 0, len(keys))
	for _, key := range keys {
		if key == "" || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, &feed.Error{Code: feed.CodeInvalid, Op: "server", Msg: "a publish key is empty, or holds other than printable ASCII without spaces"}
		}
		ring = append(ring, sha256.Sum256([]byte(key)))
	}
	return ring, nil
}

// holds compares with every key, whatever came of those before.
func (k keyring) holds(key string) bool {
	digest := sha256.Sum256([]byte(key))
	found := 0
	for i := range k {
		found |= subtle.ConstantTimeCompare(digest[:], k[i][:])
	}
	return found == 1
}

// requireKey lets a request pass that has a publish key, or any where no key
// is configured.
func (s *Server) requireKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.checkKey(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="gapless"`)
			s.reject(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) checkKey(r *http.Request) error {
	if len(s.keys) == 0 {
		return nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	key = strings.TrimSpace(key)
	switch {
	case key == "" || !strings.EqualFold(scheme, "Bearer"):
		return problemf(codeUnauthorized, "a publish key is needed: send the header Authorization: Bearer KEY")
	case !s.keys.holds(key):
		return problemf(codeForbidden, "the publish key is not one of this server's")
	}
	return nil
}

// guard is requireKey and, where no key is configured and nobody has
// consented to that, requires that the request is local: see checkLocal.
func (s *Server) guard(next http.Handler) http.Handler {
	return s.requireLocal(!s.cfg.Open, "set a publish key (--publish-key), or consent to open writes (--open)", next)
}

// guardAdmin is guard for what operators do to the store. Consent to open
// writes is none to that: without a key it stays with this machine, and is
// not for what came through a proxy: see checkDirect.
func (s *Server) guardAdmin(next http.Handler) http.Handler {
	return s.requireLocal(true, "set a publish key (--publish-key): --open does not open this", s.requireDirect(next))
}

// requireDirect refuses what checkDirect refuses, where no key is configured.
func (s *Server) requireDirect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(s.keys) == 0 {
			if err := checkDirect(r); err != nil {
				s.reject(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// requireLocal is requireKey and, where no key is configured and local is
// true, refuses what checkLocal refuses, with what would help.
func (s *Server) requireLocal(local bool, remedy string, next http.Handler) http.Handler {
	guarded := s.requireKey(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(s.keys) == 0 && local {
			if err := checkLocal(r); err != nil {
				err.Detail += "; " + remedy
				s.reject(w, r, err)
				return
			}
		}
		guarded.ServeHTTP(w, r)
	})
}

// checkLocal refuses a request from another machine, and one that a page
// somewhere on the web may be behind: under a foreign origin, or under a name
// of its own that was made to resolve to this machine (DNS rebinding). What a
// proxy on this machine passes on under a loopback name counts as local: see
// checkDirect.
func checkLocal(r *http.Request) *problem {
	// A Host header is what the client says; the peer is not.
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !peer.Addr().Unmap().IsLoopback() {
		return problemf(codeForbidden, "without a publish key, only clients on the server's own machine may do this")
	}
	if !isLoopback(r.Host) {
		return problemf(codeForbidden, "without a publish key, only requests to a loopback host may do this, not to %q", clip(r.Host))
	}
	// Browsers send Origin with every write; other clients do not. The CORS
	// list is no help: it is for reading.
	for _, origin := range r.Header.Values("Origin") {
		if strings.EqualFold(origin, ownOrigin(r)) {
			continue
		}
		return problemf(codeForbidden, "without a publish key, a page of the origin %q may not do this", clip(origin))
	}
	return nil
}

// proxyHeaders are those by which proxies tell that a request is not theirs:
// RFC 7239 (Forwarded) with what was used before it, and RFC 9110, section
// 7.6.3 (Via).
func proxyHeaders() []string {
	return []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}
}

// checkDirect refuses a request that says that it came through a proxy: the
// peer's address is then the proxy's, and the client may be anywhere. An
// empty header says so too. A proxy that adds none of them is not seen.
func checkDirect(r *http.Request) *problem {
	for _, name := range proxyHeaders() {
		if _, has := r.Header[name]; has {
			return problemf(codeForbidden, "without a publish key, only clients on the server's own machine may do this, and this request came through a proxy (it has the header %s); set a publish key (--publish-key) to administer through a proxy", name)
		}
	}
	return nil
}

// ownOrigin is the origin of a page that this server itself has served, as
// far as the request shows.
func ownOrigin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// isLoopback reports whether a Host header names this machine and nothing
// that a stranger could make resolve to it.
func isLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == "localhost" {
		return true
	}
	if sub, ok := strings.CutSuffix(name, ".localhost"); ok {
		return sub != "" && !strings.ContainsAny(sub, "[]:@/")
	}
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
