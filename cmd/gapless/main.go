// Command gapless runs the gateway, talks to one, and looks after its store.
// docs/cli.md describes every command.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

// cli is the grammar: one field a command.
type cli struct {
	Serve   serveCommand   `cmd:"" help:"Run the gateway."`
	Publish publishCommand `cmd:"" help:"Publish one event, or a stream of them from stdin."`
	Tail    tailCommand    `cmd:"" help:"Print events as they come; resumes by itself."`
	Status  statusCommand  `cmd:"" help:"Show what a running gateway does."`
	Health  healthCommand  `cmd:"" help:"Exit 0 if a gateway serves, 1 if not."`
	Config  configCommand  `cmd:"" help:"Print the configuration that serve would run with, as YAML."`
	Migrate migrateCommand `cmd:"" help:"Bring the schema of a PostgreSQL database up to date."`
	Backup  backupCommand  `cmd:"" help:"Copy a store, or verify a copy."`
	Restore restoreCommand `cmd:"" help:"Say what happened to a store that was restored, moved or failed over."`
	Check   checkCommand   `cmd:"" help:"Look for damage in a store."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// Exit codes; docs/cli.md lists them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnavailable = 3 // the gateway cannot be reached, or does not serve
)

// exitError is a failure with its exit code. Everything else is exitFailure.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// errInterrupted ends a command that a signal stopped before it was done.
var errInterrupted = errors.New("interrupted")

// console is what a command reads from and writes to.
type console struct {
	in          io.Reader
	out, err    io.Writer
	inTerminal  bool
	outTerminal bool
	errTerminal bool
}

func main() { os.Exit(run(os.Args[1:])) }

// run parses the arguments, runs one command and returns the exit code. The
// first SIGINT or SIGTERM ends the command's context; a second one ends the
// process at once, with 1.
func run(args []string) int {
	empty, err := unsetEmpty()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gapless: error:", err)
		return exitFailure
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(exitFailure)
	}()
	con := &console{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	parser := newParser(ctx, con, hostname())
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err == nil {
		err = refuseEmpty(parsed, empty)
	}
	if err != nil {
		if failed := (*kong.ParseError)(nil); errors.As(err, &failed) {
			parsed = failed.Context
		}
		fmt.Fprintf(con.err, "gapless: error: %v\n%s --help tells what is allowed.\n", err, commandOf(parsed))
		return exitUsage
	}
	err = parsed.Run()
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(con.err, "gapless: error:", err)
	if coded := (*exitError)(nil); errors.As(err, &coded) {
		return coded.code
	}
	return exitFailure
}

// commandOf is how a command line calls its command, as far as it was read.
func commandOf(parsed *kong.Context) string {
	command := "gapless"
	if parsed != nil {
		for _, path := range parsed.Path {
			if path.Command != nil && !path.Command.Hidden {
				command += " " + path.Command.Name
			}
		}
	}
	return command
}

// newParser makes the parser of the whole grammar. The host's name is the
// default of --node.
func newParser(ctx context.Context, con *console, host string) *kong.Kong {
	return kong.Must(&cli{},
		kong.Name("gapless"),
		kong.Description("An HTTP gateway for Server-Sent Events: a subscriber gets every event it asked for, "+
			"in order, exactly once, or is told to resync."),
		kong.DefaultEnvars("GAPLESS"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, Summary: true}),
		kong.Vars{"hostname": host},
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(con),
	)
}

// hostname never fails: --node needs some default.
func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "gapless"
	}
	return name
}
