package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

type configCommand struct {
	serveFlags
}

// Help implements [kong.HelpProvider].
func (*configCommand) Help() string {
	return `Takes what serve takes, checks it as serve would, and starts nothing. The comment behind each value says where it comes from. Keys are masked as a comment, so the output is a --config file that holds no secret.

Examples:
  gapless config
  GAPLESS_RETAIN_EVENTS=5000 gapless config > gapless.yaml
  gapless config --config gapless.yaml --heartbeat 5s`
}

// Run prints the effective configuration.
func (c *configCommand) Run(ctx *kong.Context, con *console) error {
	if err := c.complete(); err != nil {
		return err
	}
	if err := c.check(con); err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString("# The effective configuration of gapless serve.\n")
	for _, flag := range ctx.Selected().Flags {
		if flag.Name == "help" || flag.Name == "config" {
			continue
		}
		if flag.Name == "store" && (c.StoreFile != "" || c.serveFlags.store.hasSecret()) {
			from := source(ctx, flag)
			if c.StoreFile != "" {
				from = "what store-file says"
			}
			fmt.Fprintf(&out, "# store: '%s' # %s, masked\n", c.serveFlags.store, from)
			continue
		}
		line, err := configLine(flag, source(ctx, flag))
		if err != nil {
			return err
		}
		out.WriteString(line)
	}
	_, err := fmt.Fprint(con.out, out.String())
	return err
}

func configLine(flag *kong.Flag, from string) (string, error) {
	target := flag.Target
	if target.Kind() == reflect.Pointer {
		target = target.Elem() // complete has filled it
	}
	value := target.Interface()
	if isNeverEmpty(flag.Name) && value == "" {
		return fmt.Sprintf("# %s: '' # %s: none\n", flag.Name, from), nil
	}
	switch v := value.(type) {
	case []string:
		if flag.Name == "publish-key" && len(v) > 0 {
			return fmt.Sprintf("# publish-key: [%s] # %s, masked\n", strings.TrimSuffix(strings.Repeat("'********', ", len(v)), ", "), from), nil
		}
		if v == nil {
			value = []string{}
		}
	case optionalSize:
		value = sizeValue(v.size)
	case time.Duration:
		value = shortDuration(v)
	case size:
		value = sizeValue(v)
	}
	var node yaml.Node
	if err := node.Encode(value); err != nil {
		return "", err
	}
	node.Style |= yaml.FlowStyle
	text, err := yaml.Marshal(&node)
	return fmt.Sprintf("%s: %s # %s\n", flag.Name, strings.TrimSpace(string(text)), from), err
}

// sizeValue is a size with its unit, or a plain number where none fits.
func sizeValue(v size) any {
	if v%(1<<10) != 0 || v == 0 {
		return int64(v)
	}
	return v.String()
}

// shortDuration writes 10m rather than 10m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
