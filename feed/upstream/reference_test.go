package upstream

import (
	"strings"
	"time"
)

// interpretation is what a stream means.
type interpretation struct {
	events []Event
	id     string        // the cursor after the last complete block
	retry  time.Duration // the last valid retry field, or unset
}

// interpret is a second, straightforward reading of the standard's event stream interpretation, for
// comparison: the whole stream at once, line ends made equal first, strings throughout.
func interpret(stream, id string) interpretation {
	out := interpretation{id: id, retry: unset}
	stream = strings.TrimPrefix(stream, "\uFEFF")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	lines = lines[:len(lines)-1] // what no line end follows is no line

	var typ, data string
	var retry time.Duration
	for _, line := range lines {
		if line == "" {
			out.id = id
			if data != "" {
				if typ == "" {
					typ = "message"
				}
				data = strings.TrimSuffix(data, "\n")
				out.events = append(out.events, Event{ID: id, Type: typ, Data: []byte(data), Retry: retry})
			}
			typ, data, retry = "", "", 0
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			data += value + "\n"
		case "event":
			typ = value
		case "id":
			control := func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7F }
			if !strings.ContainsFunc(value, control) {
				id = value
			}
		case "retry":
			if value != "" && strings.Trim(value, "0123456789") == "" {
				ms := strings.TrimLeft(value, "0")
				retry = maxWait
				if len(ms) < 12 {
					retry = 0
					for _, c := range ms {
						retry = retry*10 + time.Duration(c-'0')*time.Millisecond
					}
					retry = min(retry, maxWait)
				}
				out.retry = retry
			}
		}
	}
	return out
}
