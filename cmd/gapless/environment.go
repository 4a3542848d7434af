package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// unsetEmpty makes an empty variable count as none, and returns the names of
// those that were: container files write GAPLESS_X=${X:-} for what may be
// absent.
func unsetEmpty() (names []string, err error) {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" && strings.HasPrefix(name, "GAPLESS_") {
			if err := os.Unsetenv(name); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// neverEmpty are the flags whose absence means something else than what an
// empty value was meant to say: each group says one thing, and with none of it
// events stay in memory, another store is looked after, or anybody may write.
func neverEmpty() [][]string {
	return [][]string{{"store", "store-file", "url"}, {"publish-key", "publish-key-file"}}
}

// isNeverEmpty reports whether an empty value of a flag is a mistake.
func isNeverEmpty(flag string) bool {
	return flag != "url" && slices.ContainsFunc(neverEmpty(), func(group []string) bool { return slices.Contains(group, flag) })
}

// refuseEmpty refuses a command whose store or key was to come from a variable
// that is empty, where neither the command line nor another variable says it
// instead. The config file does not: a variable is there to win over it.
func refuseEmpty(parsed *kong.Context, empty []string) error {
	for _, group := range neverEmpty() {
		var missing string // a variable
		said := false
		for _, flag := range parsed.Selected().Flags {
			if !slices.Contains(group, flag.Name) {
				continue
			}
			from := source(parsed, flag)
			said = said || from == "flag" || from == "env"
			if i := slices.IndexFunc(empty, func(name string) bool { return slices.Contains(flag.Envs, name) }); i >= 0 && isNeverEmpty(flag.Name) {
				missing = empty[i]
			}
		}
		if missing != "" && !said {
			return fmt.Errorf("%s is empty, as an unset variable leaves it: give it a value, or unset it%s", missing, absence(parsed, group[0]))
		}
	}
	return nil
}

// absence says what a command does without a flag.
func absence(parsed *kong.Context, flag string) string {
	switch {
	case flag == "publish-key":
		return " for no key"
	case slices.ContainsFunc(parsed.Selected().Flags, func(f *kong.Flag) bool { return f.Name == "listen" }):
		return " for memory:"
	}
	return ""
}
