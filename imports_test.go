package gapless_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed says which packages of this module each part may import, and for
// the engine also which modules of others. Imports point one way:
// cmd → server → feed; only cmd knows the backends and the web pages.
var allowed = []struct {
	dir     string
	subdirs bool
	inside  []string // import paths in this module; with / at the end: all below
	outside []string // the same of others; nil: any
}{
	{dir: ".", outside: []string{}},
	{dir: "feed", outside: []string{"github.com/oklog/ulid/v2", "github.com/rs/zerolog"}},
	{dir: "feed/lawtest", subdirs: true, outside: []string{}},
	{dir: "feed/upstream", subdirs: true},
	{dir: "feed/memory", subdirs: true, inside: []string{"gapless/feed"}, outside: []string{}},
	{dir: "feed/sqlite", subdirs: true, inside: []string{"gapless/feed"},
		outside: []string{"modernc.org/", "golang.org/x/sys/unix", "github.com/oklog/ulid/v2", "github.com/rs/zerolog"}},
	{dir: "feed/postgres", subdirs: true, inside: []string{"gapless/feed"},
		outside: []string{"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/", "github.com/oklog/ulid/v2", "github.com/rs/zerolog"}},
	{dir: "feed", subdirs: true, inside: []string{"gapless/feed"}},
	{dir: "server", subdirs: true, inside: []string{"gapless/feed"}},
	{dir: "web", subdirs: true, outside: []string{}},
	{dir: "cmd", subdirs: true, inside: []string{"gapless", "gapless/server", "gapless/feed", "gapless/feed/", "gapless/web"}},
}

// TestImportsPointOneWay: the packages that programs are built from; tests
// may import more.
func TestImportsPointOneWay(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		checked++
		dir := filepath.ToSlash(filepath.Dir(path))
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range file.Imports {
			name, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			if !mayImport(dir, name) {
				t.Errorf("%s must not import %s", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 20 {
		t.Errorf("only %d files were checked", checked)
	}
}

func mayImport(dir, name string) bool {
	for _, rule := range allowed {
		if dir != rule.dir && (!rule.subdirs || !strings.HasPrefix(dir+"/", rule.dir+"/")) {
			continue
		}
		switch {
		case name == "gapless" || strings.HasPrefix(name, "gapless/"):
			return among(rule.inside, name)
		case strings.Contains(strings.SplitN(name, "/", 2)[0], "."):
			return rule.outside == nil || among(rule.outside, name)
		default:
			// The standard library; but the engine knows no HTTP and no SQL.
			return dir != "feed" || name != "net/http" && name != "database/sql"
		}
	}
	return false
}

// among reports whether a list holds a path, or a beginning of it that ends in
// a slash.
func among(list []string, name string) bool {
	return slices.ContainsFunc(list, func(in string) bool {
		return name == in || strings.HasSuffix(in, "/") && strings.HasPrefix(name, in)
	})
}

// TestTheImportRulesBite: the rule that matters most, against examples.
func TestTheImportRulesBite(t *testing.T) {
	for _, c := range []struct {
		dir, name string
		want      bool
	}{
		{"feed", "gapless/server", false}, {"feed", "net/http", false}, {"feed", "github.com/go-chi/chi/v5", false},
		{"feed/memory", "gapless/feed", true}, {"feed/memory", "gapless/server", false},
		{"feed/memory", "modernc.org/sqlite", false}, {"feed/sqlite", "modernc.org/sqlite", true}, {"feed/sqlite", "modernc.org/sqlite/lib", true},
		{"feed/sqlite", "gapless/feed/postgres", false}, {"feed/sqlite", "github.com/jackc/pgx/v5", false},
		{"feed/postgres", "github.com/jackc/pgx/v5/pgxpool", true}, {"feed/postgres/pgtest", "github.com/jackc/pgx/v5", true}, {"feed/postgres", "gapless/feed/sqlite", false},
		{"server", "gapless/feed", true}, {"server", "gapless/feed/memory", false}, {"server", "gapless/feed/sqlite", false}, {"server", "gapless/web", false},
		{"cmd/gapless", "gapless/feed/memory", true}, {"cmd/gapless", "gapless/feed/postgres", true}, {"web", "gapless/feed", false}, {"elsewhere", "fmt", false},
	} {
		if got := mayImport(c.dir, c.name); got != c.want {
			t.Errorf("%s imports %s: %v, want %v", c.dir, c.name, got, c.want)
		}
	}
}
