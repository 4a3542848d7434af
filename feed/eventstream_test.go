package feed_test

import (
	"bytes"
	"strings"
)

// message is one event as a client dispatches it.
type message struct {
	event string // "message" where the block has no event line
	data  string
	id    string // the last event id, also where the block has no id line
	retry string
}

// eventStream interprets a stream by the rules of the HTML standard, section
// 9.2.6, and of nothing else: it knows no cursors and no frames of ours.
type eventStream struct {
	rest    []byte // an unfinished line
	begun   bool   // the place of a byte order mark has passed
	sawCR   bool   // the last line ended with CR: an LF next belongs to it
	hasData bool
	data    strings.Builder
	block   message
	id      string // of the blocks dispatched
	buffer  string // the id that the next blank line makes the last event id
}

// write takes more of the stream and returns the events that it completes.
func (s *eventStream) write(p []byte) []message {
	s.rest = append(s.rest, p...)
	if !s.begun && len(s.rest) >= 3 {
		s.rest = bytes.TrimPrefix(s.rest, []byte("\xef\xbb\xbf"))
		s.begun = true
	}
	var messages []message
	for {
		if s.sawCR && len(s.rest) > 0 {
			s.rest, s.sawCR = bytes.TrimPrefix(s.rest, []byte("\n")), false
		}
		end := bytes.IndexAny(s.rest, "\r\n")
		if end < 0 {
			return messages
		}
		line := string(s.rest[:end])
		s.sawCR = s.rest[end] == '\r'
		s.rest = s.rest[end+1:]
		if m, ok := s.line(line); ok {
			messages = append(messages, m)
		}
	}
}

func (s *eventStream) line(line string) (message, bool) {
	if line == "" {
		return s.dispatch()
	}
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "event":
		s.block.event = value
	case "data":
		s.data.WriteString(value)
		s.data.WriteByte('\n')
		s.hasData = true
	case "id":
		if !strings.Contains(value, "\x00") {
			s.buffer = value
		}
	case "retry":
		if strings.Trim(value, "0123456789") == "" {
			s.block.retry = value
		}
	}
	return message{}, false
}

func (s *eventStream) dispatch() (message, bool) {
	m, deliver := s.block, s.hasData
	s.id = s.buffer
	m.id = s.id
	m.data = strings.TrimSuffix(s.data.String(), "\n")
	if m.event == "" {
		m.event = "message"
	}
	s.block, s.hasData = message{}, false
	s.data.Reset()
	return m, deliver
}
