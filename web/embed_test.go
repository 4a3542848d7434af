package web

import (
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// get asks handler for a path and returns the answer and its body.
func get(t *testing.T, handler http.Handler, method, target string, header http.Header) (*http.Response, string) {
	t.Helper()
	request := httptest.NewRequest(method, target, nil)
	for name, values := range header {
		request.Header[name] = values
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result(), recorder.Body.String()
}

// embedded returns the text of every embedded file by its path.
func embedded(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		texts[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// served returns where each embedded file is answered, and by which handler.
func served(t *testing.T) map[string]http.Handler {
	t.Helper()
	dashboard := Dashboard()
	urls := map[string]http.Handler{"/": dashboard, "/example": Example(), "/client.js": Client()}
	for name := range embedded(t) {
		if strings.HasPrefix(name, "dashboard/") && path.Ext(name) != ".html" {
			urls["/"+name] = dashboard
		}
	}
	return urls
}

func TestEveryFileIsServedWithItsTypeAndProtections(t *testing.T) {
	contentTypes := map[string]string{
		"":     "text/html; charset=utf-8",
		".css": "text/css; charset=utf-8",
		".js":  "text/javascript; charset=utf-8",
	}
	texts := embedded(t)
	for url, handler := range served(t) {
		response, body := get(t, handler, http.MethodGet, url, nil)
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", url, response.StatusCode)
			continue
		}
		name := map[string]string{"/": "dashboard/index.html", "/example": "example/index.html", "/client.js": "client/client.js"}[url]
		if name == "" {
			name = url[1:]
		}
		if body != texts[name] {
			t.Errorf("%s: the body is not %s", url, name)
		}
		for header, want := range map[string]string{
			"Content-Type":           contentTypes[path.Ext(url)],
			"Cache-Control":          "no-cache",
			"X-Content-Type-Options": "nosniff",
			"Referrer-Policy":        "no-referrer",
		} {
			if got := response.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", url, header, got, want)
			}
		}
	}
}

func TestDashboardPolicyAllowsItsOwnOriginOnly(t *testing.T) {
	const want = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
		"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
	response, page := get(t, Dashboard(), http.MethodGet, "/", nil)
	if got := response.Header.Get("Content-Security-Policy"); got != want {
		t.Errorf("policy is %q, want %q", got, want)
	}
	// What the policy forbids must not be in the page: a browser drops it in silence.
	for _, inline := range []string{`<style`, `\sstyle=`, `\son[a-z]+=`, `<script[^>]*>[^<]`, `javascript:`} {
		if found := regexp.MustCompile(inline).FindString(page); found != "" {
			t.Errorf("the page has %q, which its policy forbids", found)
		}
	}
}

func TestExamplePolicyNamesItsOneScript(t *testing.T) {
	response, page := get(t, Example(), http.MethodGet, "/example", nil)
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	if len(scripts) != 1 {
		t.Fatalf("%d inline scripts, want 1", len(scripts))
	}
	digest := sha256.Sum256([]byte(scripts[0][1]))
	want := "script-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "';"
	policy := response.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, want) {
		t.Errorf("policy %q does not contain %q", policy, want)
	}
	for _, directive := range []string{"default-src 'none'", "connect-src 'self'", "form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, directive) {
			t.Errorf("policy %q lacks %q", policy, directive)
		}
	}
}

// A checkout with CRLF line ends must not break the page: browsers hash the
// script after the HTML parser has made every line end LF.
func TestScriptDigestIgnoresTheKindOfLineEnd(t *testing.T) {
	unix := scriptDigest([]byte("<script>\n  a\n  b\n</script>"))
	windows := scriptDigest([]byte("<script>\r\n  a\r\n  b\r\n</script>"))
	if unix != windows {
		t.Errorf("digests differ: %s and %s", unix, windows)
	}
}

func TestExampleIsTenLinesAndClearsOnASnapshot(t *testing.T) {
	page := embedded(t)["example/index.html"]
	if lines := strings.Count(page, "\n"); lines > 10 {
		t.Errorf("%d lines, want at most 10", lines)
	}
	for _, part := range []string{"new EventSource('/events?named=false')", "'server.connected'", "start === 'snapshot'"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %s", part)
		}
	}
}

func TestClientIsOneSmallModuleThatNeedsNothing(t *testing.T) {
	response, module := get(t, Client(), http.MethodGet, "/client.js", nil)
	if got := response.Header.Get("Content-Security-Policy"); got != clientPolicy {
		t.Errorf("policy is %q, want %q", got, clientPolicy)
	}
	if lines := strings.Count(module, "\n"); lines > 150 {
		t.Errorf("%d lines, want at most 150", lines)
	}
	if !strings.Contains(module, "\nexport function subscribe(url, ") {
		t.Error("it does not export subscribe")
	}
	// What a page would have to load, serve or allow besides.
	for _, need := range []string{`(?m)^import\b`, `\bimport\(`, `\bfetch\(`, `XMLHttpRequest`, `\bnew Worker`, `localStorage|sessionStorage|indexedDB`} {
		if found := regexp.MustCompile(need).FindString(module); found != "" {
			t.Errorf("it uses %q", found)
		}
	}
	if !strings.Contains(module[:strings.Index(module, "\n\n")], "Experimental") {
		t.Error("its header does not say that it is experimental")
	}
}

func TestUnchangedFileIsNotSentAgain(t *testing.T) {
	tags := map[string]string{}
	for url, handler := range served(t) {
		response, full := get(t, handler, http.MethodGet, url, nil)
		etag := response.Header.Get("ETag")
		if len(etag) < 18 || etag[0] != '"' || etag[len(etag)-1] != '"' {
			t.Errorf("%s: ETag %q is no strong tag", url, etag)
		}
		if other, taken := tags[etag]; taken {
			t.Errorf("%s and %s have the same ETag", url, other)
		}
		tags[etag] = url

		response, body := get(t, handler, http.MethodGet, url, http.Header{"If-None-Match": {etag}})
		if response.StatusCode != http.StatusNotModified || body != "" {
			t.Errorf("%s: status %d and %d bytes for its own ETag, want 304 and none", url, response.StatusCode, len(body))
		}
		response, body = get(t, handler, http.MethodGet, url, http.Header{"If-None-Match": {`"another"`}})
		if response.StatusCode != http.StatusOK || body != full {
			t.Errorf("%s: status %d and %d bytes for another ETag, want all of it", url, response.StatusCode, len(body))
		}
	}
	response, _ := get(t, Dashboard(), http.MethodGet, "/", nil)
	if again := response.Header.Get("ETag"); tags[again] != "/" {
		t.Errorf("ETag of / is %s in a second handler: it must depend on the content only", again)
	}
}

func TestHeadAnswersTheHeadOnly(t *testing.T) {
	response, body := get(t, Dashboard(), http.MethodHead, "/", nil)
	if response.StatusCode != http.StatusOK || body != "" || response.Header.Get("ETag") == "" || response.ContentLength <= 0 {
		t.Errorf("status %d, %d bytes, ETag %q, length %d", response.StatusCode, len(body), response.Header.Get("ETag"), response.ContentLength)
	}
}

func TestOtherPathsAndMethodsAreRefused(t *testing.T) {
	for _, url := range []string{"/index.html", "/dashboard", "/dashboard/", "/dashboard/index.html", "/dashboard/none.js", "/dashboard/../embed.go", "/example"} {
		if response, _ := get(t, Dashboard(), http.MethodGet, url, nil); response.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: status %d, want 404", url, response.StatusCode)
		}
	}
	response, _ := get(t, Dashboard(), http.MethodPost, "/", nil)
	if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST /: status %d, Allow %q", response.StatusCode, response.Header.Get("Allow"))
	}
}

func TestNoFileNamesAnotherOrigin(t *testing.T) {
	// A URL with a scheme and host, or one that begins with the host. A comment in
	// a script has a space after its slashes.
	foreign := regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://|["'(=\s]//[a-z0-9\[]`)
	for name, text := range embedded(t) {
		for _, found := range foreign.FindAllString(text, -1) {
			t.Errorf("%s names another origin: %q", name, found)
		}
	}
}

func TestEveryReferenceLeadsToAFileAndBack(t *testing.T) {
	texts := embedded(t)
	referenced := map[string]string{}
	for _, match := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(texts["dashboard/index.html"], -1) {
		if !strings.HasPrefix(match[1], "data:") {
			referenced[match[1]] = "index.html"
		}
	}
	imports := regexp.MustCompile(`(?m)^import .* from '\./([^']+)'$`)
	for name, text := range texts {
		for _, match := range imports.FindAllStringSubmatch(text, -1) {
			referenced["dashboard/"+match[1]] = name
		}
		if strings.Contains(text, "import(") || strings.Contains(text, "@import") {
			t.Errorf("%s imports in a way that this test does not follow", name)
		}
	}
	for name, by := range referenced {
		if texts[name] == "" {
			t.Errorf("%s refers to %s, which is not embedded", by, name)
		}
	}
	for name := range texts {
		if strings.HasPrefix(name, "dashboard/") && path.Ext(name) != ".html" && referenced[name] == "" {
			t.Errorf("nothing refers to %s", name)
		}
	}
}

func TestEveryElementThatAScriptNamesIsInThePage(t *testing.T) {
	texts := embedded(t)
	page := texts["dashboard/index.html"]
	named := regexp.MustCompile(`(?:\$|put|getElementById|answer)\('([a-z-]+)'`)
	found := 0
	for name, text := range texts {
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(page, ` id="`+match[1]+`"`) {
				t.Errorf("%s names #%s, which the page does not have", name, match[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d names found: the pattern no longer fits the scripts", found)
	}
	ids := map[string]bool{}
	for _, match := range regexp.MustCompile(`\sid="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[match[1]] {
			t.Errorf("id %s is there twice", match[1])
		}
		ids[match[1]] = true
	}
	for _, match := range regexp.MustCompile(`\s(?:for|aria-labelledby|aria-describedby)="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !ids[match[1]] {
			t.Errorf("%s leads to no element", strings.TrimSpace(match[0]))
		}
	}
}

// Events carry what anybody published, so text must never become markup.
func TestScriptsWriteTextOnly(t *testing.T) {
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc`)
	for name, text := range embedded(t) {
		if found := markup.FindString(text); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
	}
}
