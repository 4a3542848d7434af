package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"gapless/feed"
)

// origins are the patterns of those whose pages may read.
type origins struct {
	any      bool
	patterns []originPattern
}

// originPattern is scheme://host with a port: its number, "" for the scheme's
// own, or "*" for any.
type originPattern struct{ scheme, host, port string }

func parseOrigins(patterns []string) (origins, error) {
	var o origins
	for _, text := range patterns {
		if text == "*" {
			o.any = true
			continue
		}
		bare, anyPort := strings.CutSuffix(text, ":*")
		p, ok := splitOrigin(bare)
		if !ok || anyPort && p.port != "" {
			return origins{}, &feed.Error{Code: feed.CodeInvalid, Op: "server",
				Msg: fmt.Sprintf("CORS origin %q: want scheme://host, scheme://host:port, scheme://host:* or *", text)}
		}
		if anyPort {
			p.port = "*"
		}
		o.patterns = append(o.patterns, p)
	}
	return o, nil
}

// splitOrigin reads an origin as a browser sends it (RFC 6454 section 6.2).
func splitOrigin(origin string) (originPattern, bool) {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Hostname() == "" {
		return originPattern{}, false
	}
	if u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery || strings.HasSuffix(u.Host, ":") {
		return originPattern{}, false
	}
	return originPattern{scheme: strings.ToLower(u.Scheme), host: strings.ToLower(u.Hostname()), port: u.Port()}, true
}

// allow reports whether a page of this origin may read.
func (o origins) allow(origin string) bool {
	if o.any {
		return true
	}
	got, ok := splitOrigin(origin)
	return ok && slices.ContainsFunc(o.patterns, func(p originPattern) bool {
		return p.scheme == got.scheme && p.host == got.host && (p.port == "*" || p.port == got.port)
	})
}

// crossOrigin tells browsers which pages of other origins may read: without
// credentials, and nothing but read (Fetch standard, section 3.2). A page
// that may not gets its answer without these headers, and its browser keeps
// it from the page.
func (s *Server) crossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if !s.origins.any && len(s.origins.patterns) > 0 {
			h.Add("Vary", "Origin")
		}
		origin := r.Header.Get("Origin")
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		if origin == "" || !reads || !s.origins.allow(origin) {
			next.ServeHTTP(w, r)
			return
		}
		if s.origins.any {
			origin = "*"
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "Last-Event-ID, Cache-Control")
			h.Set("Access-Control-Max-Age", "7200")
		}
		next.ServeHTTP(w, r)
	})
}
