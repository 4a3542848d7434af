package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// routes builds the router. Every GET route answers HEAD too; OPTIONS is
// answered for every path that exists.
func (s *Server) routes() http.Handler {
	r := chi.NewRouter()
	r.Use(s.record, s.recoverPanics, s.boundWrites, s.boundBodies, s.crossOrigin, s.answerOptions(r))
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		s.reject(w, r, problemf(codeNotFound, "there is nothing at this path"))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Allow", strings.Join(allowed(r, req.URL.Path), ", "))
		s.reject(w, req, problemf(codeMethodNotAllowed, "the path takes another method: see the Allow header"))
	})
	read := func(pattern string, handler http.HandlerFunc) {
		r.Get(pattern, handler)
		r.Head(pattern, handler)
	}

	read("/events", s.events)
	read("/api/v1/events", s.catchUp)
	r.With(s.guardWrite).Post("/api/v1/events", s.publish)

	read("/api/v1/status", s.status)
	r.With(s.requireKey).Get("/api/v1/connections", s.connections)
	r.With(s.requireKey).Head("/api/v1/connections", s.connections)
	r.With(s.guardWrite).Delete("/api/v1/connections/{id}", s.cut)

	read("/healthz", s.healthz)
	read("/readyz", s.readyz)
	read("/metrics", s.metrics.handler().ServeHTTP)

	if s.cfg.OpenAPI != nil {
		read("/openapi.yaml", s.openAPI)
	}
	if s.cfg.Dashboard != nil {
		read("/", s.cfg.Dashboard.ServeHTTP)
		read("/dashboard/*", s.cfg.Dashboard.ServeHTTP)
	}
	if s.cfg.Example != nil {
		read("/example", s.cfg.Example.ServeHTTP)
	}
	if s.cfg.Client != nil {
		read("/client.js", s.cfg.Client.ServeHTTP)
	}
	return r
}

func (s *Server) openAPI(w http.ResponseWriter, r *http.Request) {
	s.respond(w, http.StatusOK, "application/yaml", s.cfg.OpenAPI)
}

// allowed lists the methods that a path takes; none where it does not exist.
func allowed(routes chi.Routes, path string) []string {
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
			methods := allowed(routes, r.URL.Path)
			if len(methods) == 0 && r.URL.Path != "*" {
				s.reject(w, r, problemf(codeNotFound, "there is nothing at this path"))
				return
			}
			w.Header().Set("Allow", strings.Join(methods, ", "))
			w.WriteHeader(http.StatusNoContent)
		})
	}
}
