package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
)

type publishCommand struct {
	clientFlags
	Type     string        `placeholder:"TYPE" help:"Type of the event. Default: message. With a stream: of the lines that name none."`
	Topic    string        `placeholder:"TOPIC" help:"Topic of the event. Default: default. With a stream: of the lines that name none."`
	ID       string        `placeholder:"ID" help:"Id of the event. The same id and content again is not stored again. Default: a new one."`
	Text     bool          `help:"DATA is text, also where it could be read as JSON."`
	RetryFor time.Duration `default:"15s" help:"For how long to retry what failed on the way, or was answered with 429 or 503. 0: do not."`
	Data     *string       `arg:"" optional:"" help:"The payload. Where it is valid JSON it goes as JSON, else as a JSON string. Absent or -: events from stdin, one JSON object a line."`
}

// Help implements [kong.HelpProvider].
func (*publishCommand) Help() string {
	return `Prints the receipt as JSON once the gateway has the events. Every event has an id before it is first sent, so a retry never doubles it.

From stdin, each line is an event: {"type":…,"topic":…,"data":…,"id":…}, of which only data is needed. Lines go out as they come, in requests of at most 500. A line that the gateway refuses ends the command; its number is told, and the events before it stay published.

Examples:
  gapless publish '{"n":7}' --type order.created --topic orders.eu
  gapless publish 'plain text'
  gapless publish --text 42
  gapless publish --id invoice-4711 '{"total":99}'
  generate-events | gapless publish
  gapless publish --topic import < events.ndjson`
}

// Run publishes the argument, or what stdin holds.
func (c *publishCommand) Run(ctx context.Context, con *console) error {
	if c.RetryFor < 0 {
		return usageErrorf("--retry-for %v: want 0 or a duration such as 15s", c.RetryFor)
	}
	if c.Data == nil && (con.inTerminal || c.Text) {
		return usageErrorf("nothing to publish: want DATA, or without --text events on stdin")
	}
	cl, err := c.newClient()
	if err != nil {
		return err
	}
	defer cl.close()
	retry := &retrier{limit: c.RetryFor, notice: con.err}
	if c.Data == nil || *c.Data == "-" && !c.Text {
		if c.ID != "" {
			return usageErrorf("--id %q: a stream of events cannot have one id; put it into the lines", c.ID)
		}
		return c.publishLines(ctx, con, cl, retry)
	}
	if err := c.refuseFile(); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	var answer json.RawMessage
	err = retry.do(ctx, func(ctx context.Context) error {
		return cl.post(ctx, nil, header, body, &answer)
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(con.out, "%s\n", answer)
	return err
}

// refuseFile takes a file's name for what was most likely meant: its content.
// What is valid JSON is no such slip, whatever files are called.
func (c *publishCommand) refuseFile() error {
	if c.Text || json.Valid([]byte(*c.Data)) {
		return nil
	}
	for _, name := range []string{*c.Data, strings.TrimPrefix(*c.Data, "@")} {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return usageErrorf("%q is a file; to send its lines: gapless publish < %s; to publish the text itself: --text", name, shellWord(name))
		}
	}
	return nil
}

// shellWord writes a name so that a shell takes it for one word.
func shellWord(name string) string {
	const plain = "-._/+,:@%ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	if strings.Trim(name, plain) == "" {
		return name
	}
	return "'" + strings.ReplaceAll(printable(name), "'", `'\''`) + "'"
}

// body is the publish object of the argument.
func (c *publishCommand) body() ([]byte, error) {
	event := struct {
		Type  string          `json:"type,omitempty"`
		Topic string          `json:"topic,omitempty"`
		ID    string          `json:"id"`
		Data  json.RawMessage `json:"data"`
	}{c.Type, c.Topic, c.ID, json.RawMessage(*c.Data)}
	if event.ID == "" {
		event.ID = ulid.Make().String()
	}
	for _, text := range []string{*c.Data, c.Type, c.Topic, c.ID} {
		if !utf8.ValidString(text) {
			return nil, usageErrorf("an argument is not valid UTF-8")
		}
	}
	if c.Text || !json.Valid(event.Data) {
		quoted, err := json.Marshal(*c.Data)
		if err != nil {
			return nil, err
		}
		event.Data = quoted
	}
	return json.Marshal(event)
}
