// Package web holds what the gateway serves to browsers: the dashboard at /,
// the ten-line sample page at /example and the module at /client.js. They are
// plain HTML, CSS and JavaScript, embedded in the binary as they stand: no
// build step, no framework, and no request to any origin but the gateway's own.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed dashboard example client
var files embed.FS

// dashboardPolicy is the Content-Security-Policy of the dashboard. Nothing
// inline runs, and nothing is fetched from or sent to another origin, so an
// event's payload stays text whatever it contains.
const dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// examplePolicy is the Content-Security-Policy of the sample page; %s is the
// digest of its one inline script. Its icon is an empty one, so that browsers
// do not ask for /favicon.ico.
const examplePolicy = "default-src 'none'; script-src 'sha256-%s'; connect-src 'self'; img-src data:; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// clientPolicy is the Content-Security-Policy of the browser client. The page
// that imports it has its own; this one is for the file opened as a page.
const clientPolicy = "default-src 'none'; frame-ancestors 'none'"

// asset is one embedded file, ready to be served.
type asset struct {
	body        []byte
	contentType string
	etag        string // strong: the quoted digest of body
	policy      string // Content-Security-Policy
}

// assets answers a request from a fixed set of files, by exact URL path.
type assets map[string]asset

// Dashboard returns the handler of the dashboard: the page at /, its scripts
// and style sheet under /dashboard/. Any other path is 404, any method but GET
// and HEAD is 405.
//
// Each answer carries a strong ETag of the content and Cache-Control: no-cache,
// so a browser asks every time and gets 304 until the binary changes. All
// digests are computed here, once; the handler is safe for concurrent use and
// does not block.
func Dashboard() http.Handler {
	served := assets{}
	entries, err := fs.ReadDir(files, "dashboard")
	if err != nil {
		panic("web: embedded dashboard: " + err.Error()) // the binary was built without its files
	}
	for _, entry := range entries {
		file := "dashboard/" + entry.Name()
		url := "/" + file
		if entry.Name() == "index.html" {
			url = "/"
		}
		served[url] = load(file, dashboardPolicy)
	}
	return served
}

// Example returns the handler of /example, the sample page that reads /events
// with a plain EventSource. Its Content-Security-Policy allows that one inline
// script, by digest. Caching, methods and other paths are as for Dashboard.
func Example() http.Handler {
	page := load("example/index.html", "")
	page.policy = fmt.Sprintf(examplePolicy, scriptDigest(page.body))
	return assets{"/example": page}
}

// Client returns the handler of /client.js, the browser client: an ES module that
// any page may import, whose stream is the gateway's. Caching, methods and other
// paths are as for Dashboard. Which pages of other origins may import it is for
// the CORS headers of the server around it.
func Client() http.Handler {
	return assets{"/client.js": load("client/client.js", clientPolicy)}
}

// ServeHTTP serves the asset whose URL path is the request's.
func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	found, ok := a[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	header.Set("Content-Type", found.contentType)
	header.Set("Content-Security-Policy", found.policy)
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", found.etag)
	// ServeContent answers If-None-Match from the ETag. The zero time keeps it
	// from sending Last-Modified, which an embedded file does not have.
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(found.body))
}

// load reads one embedded file. It panics where the file is missing or of an
// unknown kind: both are faults of the build, not of a request.
func load(file, policy string) asset {
	body, err := files.ReadFile(file)
	if err != nil {
		panic("web: embedded file: " + err.Error())
	}
	// Not mime.TypeByExtension: it reads the machine's own tables, which differ.
	var contentType string
	switch path.Ext(file) {
	case ".html":
		contentType = "text/html; charset=utf-8"
	case ".css":
		contentType = "text/css; charset=utf-8"
	case ".js":
		contentType = "text/javascript; charset=utf-8"
	default:
		panic("web: embedded file of unknown kind: " + file)
	}
	digest := sha256.Sum256(body)
	return asset{
		body:        body,
		contentType: contentType,
		etag:        `"` + base64.RawURLEncoding.EncodeToString(digest[:16]) + `"`,
		policy:      policy,
	}
}

// scriptDigest returns the base64 SHA-256 of the page's one inline script, as a
// browser computes it for Content-Security-Policy (CSP Level 3, section 6.7.3):
// over the script's text, whose line ends the HTML parser has made LF.
func scriptDigest(page []byte) string {
	_, rest, _ := bytes.Cut(page, []byte("<script>"))
	script, _, ok := bytes.Cut(rest, []byte("</script>"))
	if !ok {
		panic("web: the example page has no inline script")
	}
	digest := sha256.Sum256(bytes.ReplaceAll(script, []byte("\r\n"), []byte("\n")))
	return base64.StdEncoding.EncodeToString(digest[:])
}
