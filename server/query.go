package server

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"gapless/feed"
)

// query is a request's query, read strictly: what is malformed, or said twice
// where one value is wanted, is the developer's mistake and told as such.
// Unknown parameters are left alone.
type query struct {
	values url.Values
	err    *problem // the first mistake
}

func parseQuery(raw string) *query {
	values, err := url.ParseQuery(raw)
	q := &query{values: values}
	if err != nil {
		q.fail("the query is malformed: %v", err)
	}
	return q
}

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = problemf(feed.CodeInvalid, format, args...)
	}
}

// mistake returns the first mistake, or nil.
func (q *query) mistake() error {
	if q.err == nil {
		return nil
	}
	return q.err
}

// one returns a parameter that may stand once; "" where it is absent.
func (q *query) one(name string) string {
	values := q.values[name]
	if len(values) > 1 {
		q.fail("%s: given %d times, at most one is taken", name, len(values))
	}
	return q.values.Get(name)
}

// flag returns a parameter that is true or false.
func (q *query) flag(name string, absent bool) bool {
	switch text := q.one(name); text {
	case "":
		return absent
	case "true", "false":
		return text == "true"
	default:
		q.fail("%s: %q is neither true nor false", name, clip(text))
		return absent
	}
}

// number returns a decimal number within bounds.
func (q *query) number(name string, absent, least, most int) int {
	text := q.one(name)
	if text == "" {
		return absent
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most || text[0] == '+' {
		q.fail("%s: want a number from %d to %d", name, least, most)
		return absent
	}
	return n
}

// seq returns a decimal seq; 0 where it is absent.
func (q *query) seq(name string) uint64 {
	text := q.one(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		q.fail("%s: want a decimal number", name)
	}
	return n
}

// wait returns a duration: "25s", or a number of seconds.
func (q *query) wait(name string, most time.Duration) time.Duration {
	text := q.one(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d < 0 || d > most {
		q.fail("%s: want a duration such as 25s, or seconds, at most %s", name, most)
		return 0
	}
	return d
}

// filter reads the topics and types that are asked for.
func (q *query) filter(systemByName bool) feed.Filter {
	f, err := feed.NewFilter(q.values["topic"], q.values["type"], systemByName)
	if err != nil {
		q.fail("%s", problemOf(err).Detail)
	}
	return f
}

// cursorParameters name the positions in a query; at most one may be given.
var cursorParameters = [...]string{"cursor", "last_event_id", "since_seq"}

// from reads the position that a reader asks for. A header that is not empty
// wins over all of the query's positions.
func (q *query) from(header string) feed.From {
	start, err := feed.ParseStart(q.one("start"))
	if err != nil {
		q.fail("%s", problemOf(err).Detail)
	}
	from := feed.From{Start: start}
	epoch := feed.Epoch(q.one("epoch"))
	if header != "" {
		c, err := feed.ParseCursor(header)
		from.Invalid = err != nil
		q.place(&from, c, epoch)
		return from
	}
	given := ""
	for _, name := range cursorParameters {
		text := q.one(name)
		if text == "" {
			continue
		}
		if given != "" {
			q.fail("%s and %s: one position at a time", given, name)
			return from
		}
		given = name
		c, err := feed.ParseCursor(text)
		switch {
		case err != nil && name == "since_seq", err == nil && name == "since_seq" && c.Epoch != "":
			q.fail("since_seq: want a decimal number")
		case err != nil:
			q.fail("%s: want a cursor as `id:` carries it, or a decimal number", name)
		}
		q.place(&from, c, epoch)
	}
	return from
}

// place sets the cursor. One without an epoch of its own is a since_seq: its
// epoch is the parameter's, whatever that is, and 0 asks for all that is
// retained unless start says otherwise.
func (q *query) place(from *feed.From, c feed.Cursor, epoch feed.Epoch) {
	from.Cursor = c
	if from.Invalid || c.Epoch != "" {
		return
	}
	from.Cursor.Epoch = epoch
	if c.Seq == 0 && q.one("start") == "" {
		from.Start = feed.Start{Mode: feed.StartAll}
	}
}

// lastEventID returns the Last-Event-ID header; "" where it is absent or
// empty. Said twice, it is one malformed value, as HTTP joins them.
func lastEventID(values []string) string {
	var said []string
	for _, v := range values {
		if v != "" {
			said = append(said, v)
		}
	}
	return strings.Join(said, ", ")
}
