package server_test

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"
)

// document is the description of the API, loaded once. It is only read.
var document = sync.OnceValues(func() (*openapi3.T, error) {
	plain := func(r io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		b, err := io.ReadAll(r)
		return string(b), err
	}
	for _, contentType := range []string{"text/event-stream", "text/html"} {
		openapi3filter.RegisterBodyDecoder(contentType, plain)
	}
	return openapi3.NewLoader().LoadFromFile("../openapi.yaml")
})

func describedAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// describedPath turns a route's pattern into the document's path.
func describedPath(pattern string) string { return strings.Replace(pattern, "/*", "/{file}", 1) }

// largestChecked bounds the answers that are validated: the large ones differ
// only in size.
const largestChecked = 64 << 10

// validate checks an answer against the document. Every answer that a test of
// this package gets through gateway.do passes here.
func validate(t *testing.T, routes http.Handler, req *http.Request, a answer) {
	t.Helper()
	rctx := chi.NewRouteContext()
	routed := req.URL.RawPath
	if routed == "" {
		routed = req.URL.Path
	}
	if len(a.body) > largestChecked || !routes.(chi.Routes).Match(rctx, req.Method, routed) {
		return // no route: 404, 405, OPTIONS
	}
	path := describedPath(rctx.RoutePattern())
	item := describedAPI(t).Paths.Value(path)
	if item == nil || item.GetOperation(req.Method) == nil {
		if req.Method != http.MethodHead {
			t.Errorf("%s %s is not described", req.Method, path)
		}
		return
	}
	op := item.GetOperation(req.Method)
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: req,
			Route:   &routers.Route{Spec: describedAPI(t), Path: path, PathItem: item, Method: req.Method, Operation: op},
		},
		Status: a.status, Header: a.header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if op.Responses.Value(strconv.Itoa(a.status)) == nil {
		t.Errorf("%s %s: status %d is not described", req.Method, path, a.status)
		return
	}
	if err := openapi3filter.ValidateResponse(t.Context(), input.SetBodyBytes(a.body)); err != nil {
		t.Errorf("%s %s: %v\n%s", req.Method, path, err, a.body)
	}
}

func TestEveryRouteIsDescribed(t *testing.T) {
	yaml, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	g := start(t, func(o *options) {
		o.server.Dashboard, o.server.Example, o.server.Client, o.server.OpenAPI = page, page, page, yaml
	})
	doc := describedAPI(t)
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described[method+" "+path] = false
		}
	}
	err = chi.Walk(g.server.Handler().(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		key := method + " " + describedPath(route)
		if _, ok := described[key]; ok {
			described[key] = true
			return nil
		}
		if method == http.MethodHead { // every GET answers it: the document says so once
			if _, ok := described["GET "+describedPath(route)]; ok {
				return nil
			}
		}
		t.Errorf("the route %s is not described", key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, routed := range described {
		if !routed {
			t.Errorf("%s is described, and not routed", key)
		}
	}
	if a := g.do("GET", "/openapi.yaml", ""); string(a.body) != string(yaml) {
		t.Errorf("the document is served with %d bytes, of %d", len(a.body), len(yaml))
	}
}

// Every parameter that the server reads is described, and the other way.
func TestParametersAreDescribed(t *testing.T) {
	doc := describedAPI(t)
	for path, want := range map[string]string{
		"GET /events":         "Last-Event-ID cursor epoch format last_event_id named since_seq start topic type",
		"GET /api/v1/events":  "Last-Event-ID cursor epoch last_event_id limit since_seq start topic type wait",
		"POST /api/v1/events": "Idempotency-Key id topic type",
		"GET /api/v1/audit":   "before limit",
	} {
		method, path, _ := strings.Cut(path, " ")
		var names []string
		for _, p := range doc.Paths.Value(path).GetOperation(method).Parameters {
			names = append(names, p.Value.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// What the document says of a publish body is what is taken.
func TestDescribedBodies(t *testing.T) {
	g := start(t)
	op := describedAPI(t).Paths.Value("/api/v1/events").Post
	schema := op.RequestBody.Value.Content["application/json"].Schema.Value
	for _, body := range []string{`{"type":"a","topic":"b","id":"c","data":{}}`, `{}`, `[{}]`, `{"x":1}`, `{"type":1}`, `[]`, `1`, `{"type":"a b"}`, `{"topic":"a..b"}`} {
		var value any
		answer{body: []byte(body)}.decode(t, &value)
		described := schema.VisitJSON(value) == nil
		taken := g.do("POST", "/api/v1/events", body, jsonType).status < 300
		if described != taken {
			t.Errorf("%s: described as valid: %v, taken: %v", body, described, taken)
		}
	}
}
