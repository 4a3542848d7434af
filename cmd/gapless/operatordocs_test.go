package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Whatever the operators' documents and files call a flag, a command or a
// variable, the program has it.
func TestOperatorsDocumentsNameWhatExists(t *testing.T) {
	known := commands(model(t).Node, "", map[string]*kong.Node{})
	flags, variables := []string{"help", "ulimit" /* Docker's */}, []string{}
	for _, command := range known {
		for _, f := range command.Flags {
			flags = append(flags, f.Name)
			variables = append(variables, f.Envs...)
		}
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	texts := map[string]string{}
	for _, path := range []string{"../../Dockerfile", "../../README.md", "../../docs/operations.md", "../../docs/architecture.md"} {
		texts[path] = read(path)
	}
	for _, dir := range []string{"../../docs/deploy", "../../docs/adr", "../../docs/bench"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "secrets" {
				return fs.SkipDir
			}
			if err == nil && !entry.IsDir() && filepath.Ext(path) != ".json" {
				texts[path] = read(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	command := regexp.MustCompile("(?:\\bgapless|/cmd/gapless|`gapless) ([a-z]+)((?: [a-z]+)?)((?: --?[a-z-]+[^`\\n|]*)?)")
	ours := regexp.MustCompile("`((?:gapless |--)[^`\\n]*)`") // pieces of code that are not another program's
	flag := regexp.MustCompile(`(?:^| )--([a-z][a-z-]+)`)
	for path, text := range texts {
		for _, m := range regexp.MustCompile(`GAPLESS_[A-Z_]*[A-Z]`).FindAllString(text, -1) {
			if !slices.Contains(variables, m) && m != "GAPLESS_LONG" {
				t.Errorf("%s: nothing reads %s", path, m)
			}
		}
		for _, code := range ours.FindAllStringSubmatch(text, -1) {
			for _, m := range flag.FindAllStringSubmatch(code[1], -1) {
				if !slices.Contains(flags, m[1]) {
					t.Errorf("%s: there is no flag --%s", path, m[1])
				}
			}
		}
		for _, line := range commandLines(text) {
			m := command.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			name := m[1]
			if node := known[name]; node != nil && len(node.Children) > 0 && (known[name+m[2]] != nil || node.DefaultCmd == nil) {
				name += m[2] // without a second word, the family is meant
			}
			node := known[name]
			if node == nil {
				t.Errorf("%s: there is no command %q", path, m[0])
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(m[3], -1) {
				if !slices.ContainsFunc(reach(node), func(have *kong.Flag) bool { return have.Name == f[1] }) {
					t.Errorf("%s: gapless %s has no --%s", path, name, f[1])
				}
			}
		}
	}
}

// reach are the flags of a command; of a family, those of its default.
func reach(node *kong.Node) []*kong.Flag {
	if node.DefaultCmd != nil {
		return append(slices.Clone(node.Flags), node.DefaultCmd.Flags...)
	}
	return node.Flags
}

// commandLines are the pieces of a text that show what is typed: code in a
// line, and blocks of shell.
func commandLines(text string) []string {
	var lines []string
	for _, m := range regexp.MustCompile("`([^`\\n]*\\bgapless [^`\\n]*)`").FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1])
	}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(block[1], "\n")...)
	}
	return lines
}

// The table of restores says which test observed each of its rows.
func TestEachRestoreIsShownByATest(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What each kind of restore looks like\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.Contains(line, "| shown by |") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		named := regexp.MustCompile("`(Test[A-Za-z0-9_]+)` \\(([a-z/]+)\\)").FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("nothing shows: %s", line)
		}
		for _, m := range named {
			sources, err := filepath.Glob(filepath.Join("../..", m[2], "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(sources, func(path string) bool {
				source, err := os.ReadFile(path)
				return err == nil && strings.Contains(string(source), "\nfunc "+m[1]+"(")
			}) {
				t.Errorf("%s has no %s", m[2], m[1])
			}
		}
	}
	if rows < 15 {
		t.Errorf("%d rows, want 15", rows)
	}
}
