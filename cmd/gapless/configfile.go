package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// fileResolver gives flags the values of a YAML file. It comes after the
// command line and the environment, before the defaults.
type fileResolver struct {
	path   string
	values map[string]string
	lines  map[string]int // where each value stands
	used   map[string]int // the lines of the values that nothing overrides
}

// loadConfigFile reads a YAML mapping from flag names to values. A key that
// is none of the flags is an error, for a typing error would otherwise leave
// a default in force unseen.
func loadConfigFile(path string, flags []*kong.Flag) (*fileResolver, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("config file %s: %w", path, err)
	}
	r := &fileResolver{path: path, values: make(map[string]string), lines: make(map[string]int), used: make(map[string]int)}
	if document.Kind == 0 {
		return r, nil // nothing but comments
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("config file %s, line %d: want a mapping from flag names to values", path, root.Line)
	}
	var names, unknown []string
	allowed := make(map[string]*kong.Flag)
	for _, flag := range flags {
		if flag.Name != "help" && flag.Name != "config" {
			names = append(names, flag.Name)
			allowed[flag.Name] = flag
		}
	}
	seen := make(map[string]int)
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if line, ok := seen[key.Value]; ok {
			return nil, fmt.Errorf("config file %s, line %d: %s is set already, on line %d", path, key.Line, key.Value, line)
		}
		seen[key.Value] = key.Line
		flag := allowed[key.Value]
		if flag == nil {
			unknown = append(unknown, fmt.Sprintf("%q (line %d)", key.Value, key.Line))
			continue
		}
		if value.Tag == "!!null" && !isNeverEmpty(flag.Name) {
			continue
		}
		text, err := flagText(value)
		if err == nil {
			err = try(flag, value, text)
		}
		r.values[key.Value], r.lines[key.Value] = text, key.Line
		if err != nil {
			return nil, fmt.Errorf("config file %s, line %d: %s: %w", path, key.Line, key.Value, err)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(names)
		return nil, fmt.Errorf("config file %s: unknown key %s; allowed: %s",
			path, strings.Join(unknown, ", "), strings.Join(names, ", "))
	}
	return r, nil
}

// try decodes a value as the flag would, for an error that the file's name and
// the line can be put before.
func try(flag *kong.Flag, node *yaml.Node, text string) error {
	none := node.Kind == yaml.SequenceNode && len(node.Content) == 0 // said on purpose
	if isNeverEmpty(flag.Name) && (text == "" || node.Tag == "!!null") && !none {
		return errors.New("it is empty, as an unset variable leaves it: give it a value, or leave the line out")
	}
	if flag.Enum != "" && !slices.Contains(flag.EnumSlice(), text) {
		return fmt.Errorf("%q: want one of %s", text, strings.Join(flag.EnumSlice(), ", "))
	}
	target := reflect.New(flag.Target.Type()).Elem()
	decode := &kong.DecodeContext{Value: flag.Value, Scan: kong.Scan().PushTyped(text, kong.FlagValueToken)}
	return flag.Mapper.Decode(decode, target)
}

// flagText writes a YAML value as it would stand on a command line.
func flagText(node *yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		return node.Value, nil
	case yaml.AliasNode:
		return flagText(node.Alias)
	case yaml.SequenceNode:
		items := make([]string, 0, len(node.Content))
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("want a list of plain values")
			}
			items = append(items, item.Value)
		}
		return kong.JoinEscaped(items, ','), nil
	}
	return "", fmt.Errorf("want a plain value or a list")
}

// Validate implements [kong.Resolver].
func (r *fileResolver) Validate(*kong.Application) error { return nil }

// Resolve implements [kong.Resolver].
func (r *fileResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, ok := r.values[flag.Name]
	if !ok || envSet(flag) {
		return nil, nil
	}
	r.used[flag.Name] = r.lines[flag.Name]
	return value, nil
}

func envSet(flag *kong.Flag) bool {
	return slices.ContainsFunc(flag.Envs, func(name string) bool {
		_, ok := os.LookupEnv(name)
		return ok
	})
}

// source says where a flag's value comes from: flag, env, file or default.
func source(ctx *kong.Context, flag *kong.Flag) string {
	for _, path := range ctx.Path {
		if path.Flag == flag && path.Resolved {
			return "file"
		}
		if path.Flag == flag {
			return "flag"
		}
	}
	if envSet(flag) {
		return "env"
	}
	return "default"
}
