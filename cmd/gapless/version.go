package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is that of the program and of its HTTP interface.
const version = "0.1.0"

type versionCommand struct{}

// Help implements [kong.HelpProvider].
func (versionCommand) Help() string {
	return "Example:\n  gapless version"
}

// Run prints the version, the source revision where the build knows it, and
// the toolchain.
func (versionCommand) Run(con *console) error {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " (" + s.Value[:min(12, len(s.Value))] + ")"
			}
		}
	}
	_, err := fmt.Fprintf(con.out, "gapless %s%s %s %s/%s\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
