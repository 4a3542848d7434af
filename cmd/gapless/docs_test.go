package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// model is the grammar of the program.
func model(t *testing.T) *kong.Application {
	t.Helper()
	return newParser(t.Context(), &console{out: io.Discard, err: io.Discard}, "test").Model
}

// leaves are those that run: the leaves of the grammar. A name is all of
// its words, without the one that can be left out.
func leaves(t *testing.T) map[string]*kong.Node {
	t.Helper()
	found := make(map[string]*kong.Node)
	var walk func(prefix string, nodes []*kong.Node)
	walk = func(prefix string, nodes []*kong.Node) {
		for _, node := range nodes {
			name := strings.TrimSpace(prefix + " " + node.Name)
			if node.Tag != nil && node.Tag.Default == "withargs" {
				name = prefix
			}
			if len(node.Children) == 0 {
				found[name] = node
			}
			walk(name, node.Children)
		}
	}
	walk("", model(t).Children)
	return found
}

// flagNames are the flags of every command.
func flagNames(t *testing.T) []string {
	var names []string
	for _, command := range leaves(t) {
		for _, flag := range command.Flags {
			names = append(names, flag.Name)
		}
	}
	return names
}

func TestEveryFlagHasItsVariable(t *testing.T) {
	for _, command := range leaves(t) {
		for _, flag := range command.Flags {
			if flag.Name == "yes" || flag.Name == "final" { // consent is given by hand
				if len(flag.Envs) > 0 {
					t.Errorf("%s --%s has the variables %v", command.Name, flag.Name, flag.Envs)
				}
				continue
			}
			want := "GAPLESS_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
			if !slices.Contains(flag.Envs, want) {
				t.Errorf("%s --%s: variables %v, want %s", command.Name, flag.Name, flag.Envs, want)
			}
		}
	}
}

// TestDocsDescribeEveryFlag compares docs/cli.md with the grammar, both ways.
func TestDocsDescribeEveryFlag(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]string)
	for part := range strings.SplitSeq(string(text), "\n## ") {
		name, body, _ := strings.Cut(part, "\n")
		sections[strings.Trim(name, "`")] = body
	}
	documented := regexp.MustCompile("(?m)^\\| `--([a-z-]+)`")
	for name, command := range leaves(t) {
		body, ok := sections["gapless "+name]
		if !ok {
			t.Errorf("no section gapless %s", name)
			continue
		}
		if name == "config" {
			continue // takes what serve takes
		}
		var want []string
		for _, flag := range command.Flags {
			if flag.Name != "help" {
				want = append(want, flag.Name)
			}
		}
		if strings.Contains(body, "[client flags](#client-flags)") {
			body += sections["Client flags"]
		}
		if strings.Contains(body, "[store flags](#store-flags)") {
			body += sections["Store flags"]
		}
		var got []string
		for _, m := range documented.FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("gapless %s: documented %v, the program has %v", name, got, want)
		}
		for _, flag := range command.Flags {
			if flag.HasDefault && !strings.Contains(flag.Default, "test") && flag.Default != "" &&
				!regexp.MustCompile("(?m)^\\| `--"+flag.Name+"` \\| `"+regexp.QuoteMeta(flag.Default)+"` \\|").MatchString(body) {
				t.Errorf("gapless %s: --%s: its default %s is not documented", name, flag.Name, flag.Default)
			}
		}
	}
}
