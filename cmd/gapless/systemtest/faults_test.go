//go:build linux

package systemtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The list of faults names, in every row, who reported the fault and a test that is there.
func TestFaultsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	text, err := os.ReadFile(filepath.Join(root, "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]string{} // the source of a folder's tests
	name := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)` \\(([a-z0-9/]+)\\)")
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") || strings.HasPrefix(line, "| fault |") {
			continue
		}
		rows++
		if len(cells) != 4 {
			t.Errorf("%d cells, want 4: %s", len(cells), line)
			continue
		}
		fault, reported, shown := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), cells[3]
		if reported == "" {
			t.Errorf("%s: nobody reported it", fault)
		}
		named := name.FindAllStringSubmatch(shown, -1)
		if len(named) == 0 || len(named) != strings.Count(shown, "`")/2 {
			t.Errorf("%s: the tests are not `Test…` (folder): %s", fault, shown)
		}
		for _, n := range named {
			test, dir := n[1], n[2]
			if _, ok := declared[dir]; !ok {
				declared[dir] = testSource(t, filepath.Join(root, dir))
			}
			if !strings.Contains(declared[dir], "\nfunc "+test+"(") {
				t.Errorf("%s: %s has no %s", fault, dir, test)
			}
		}
	}
	if rows < 37 {
		t.Errorf("%d faults, want at least 37", rows)
	}
}

// testSource joins the test files of a folder.
func testSource(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("\n")
		all.Write(source)
	}
	return all.String()
}
