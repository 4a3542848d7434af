package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"gapless/feed"
)

// routes builds the router. Every GET route answers HEAD too; OPTIONS is
// answered for every path that exists.
func (s *Server) routes() http.Handler {
	r := chi.NewRouter()
	r.Use(s.record, s.recoverPanics, s.boundWrites, s.boundBodies, s.crossOrigin, s.answerOptions(r))
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		s.reject(w, r, problemf(feed.CodeNotFound, "there is nothing at this path"))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		methods := allowed(r, req)
		if len(methods) == 0 { // a method that chi does not know
			s.reject(w, req, problemf(feed.CodeNotFound, "there is nothing at this path"))
			return
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		s.reject(w, req, problemf(codeMethodNotAllowed, "the path takes another method: see the Allow header"))
	})
	read := func(pattern string, handler http.HandlerFunc) {
		r.Get(pattern, handler)
		r.Head(pattern, handler)
	}

	read("/events", s.events)
	read("/api/v1/events", s.catchUp)
	r.With(s.guard).Post("/api/v1/events", s.publish)

	read("/api/v1/status", s.status)
	r.With(s.guard).Get("/api/v1/connections", s.connections)
	r.With(s.guard).Head("/api/v1/connections", s.connections)
	r.With(s.guard).Delete("/api/v1/connections/{id}", s.cut)

	admin := r.With(s.guardAdmin)
	for _, route := range []struct {
		pattern string
		handler http.HandlerFunc
	}{{"/api/v1/audit", s.audit}, {"/api/v1/admin/restore", s.restoreStatus}} {
		admin.Get(route.pattern, route.handler)
		admin.Head(route.pattern, route.handler)
	}
	admin.Post("/api/v1/admin/restore/finalize", s.finalize)
	admin.Post("/api/v1/admin/backup", s.makeBackup)

	read("/healthz", s.healthz)
	read("/readyz", s.readyz)
	read("/metrics", s.whole(s.metrics.handler()))

	if s.cfg.OpenAPI != nil {
		read("/openapi.yaml", s.openAPI)
	}
	if s.cfg.Dashboard != nil {
		read("/", s.page(s.cfg.Dashboard))
		read("/dashboard/*", s.page(s.cfg.Dashboard))
	}
	if s.cfg.Example != nil {
		read("/example", s.page(s.cfg.Example))
	}
	if s.cfg.Client != nil {
		read("/client.js", s.whole(s.cfg.Client))
	}
	return r
}

// page serves a handler that was passed in. What it does not have is a
// problem as everywhere.
func (s *Server) page(pages http.Handler) http.HandlerFunc {
	return s.whole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pw := &pageWriter{ResponseWriter: w}
		pages.ServeHTTP(pw, r)
		if pw.missing {
			s.fail(w, r, problemf(feed.CodeNotFound, "there is nothing at this path"))
		}
	}))
}

// pageWriter keeps a 404 to itself.
type pageWriter struct {
	http.ResponseWriter
	missing bool
}

// Unwrap gives the writer beneath, as http.ResponseController asks for it.
func (w *pageWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader passes on every status but 404.
func (w *pageWriter) WriteHeader(status int) {
	if w.missing = status == http.StatusNotFound; !w.missing {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write drops the body of a 404.
func (w *pageWriter) Write(b []byte) (int, error) {
	if w.missing {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

func (s *Server) openAPI(w http.ResponseWriter, r *http.Request) {
	s.respond(w, http.StatusOK, "application/yaml", s.cfg.OpenAPI)
}

// allowed lists the methods that a request's path takes; none where it does
// not exist. The path is the one that chi routes by.
func allowed(routes chi.Routes, r *http.Request) []string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			methods = append(methods, method)
		}
	}
	if len(methods) > 0 {
		methods = append(methods, http.MethodOptions)
	}
	return slices.Clip(methods)
}

// answerOptions answers OPTIONS, which no route does. What a page of another
// origin may do stands in the CORS headers: see crossOrigin.
func (s *Server) answerOptions(routes chi.Routes) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodOptions {
				next.ServeHTTP(w, r)
				return
			}
			methods := allowed(routes, r)
			if len(methods) == 0 && r.URL.Path != "*" {
				s.reject(w, r, problemf(feed.CodeNotFound, "there is nothing at this path"))
				return
			}
			w.Header().Set("Allow", strings.Join(methods, ", "))
			w.WriteHeader(http.StatusNoContent)
		})
	}
}
