package main

import (
	"fmt"
	"os"

	"github.com/rs/zerolog"
)

// newLogger writes to stderr: stdout is for what a command was asked for.
func newLogger(con *console, level, format string) (zerolog.Logger, error) {
	lvl, err := zerolog.ParseLevel(level)
	if err != nil {
		return zerolog.Nop(), fmt.Errorf("--log-level: %w", err)
	}
	if format == "console" || format == "auto" && con.errTerminal {
		return zerolog.New(consoleWriter(con)).Level(lvl).With().Timestamp().Logger(), nil
	}
	return zerolog.New(con.err).Level(lvl).With().Timestamp().Logger(), nil
}

func consoleWriter(con *console) zerolog.ConsoleWriter {
	return zerolog.ConsoleWriter{Out: con.err, NoColor: !con.errTerminal || os.Getenv("NO_COLOR") != "", TimeFormat: "15:04:05"}
}
