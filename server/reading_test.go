package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// block is one SSE block as a client sees it.
type block struct {
	event, data, id, retry string
	hasData                bool
}

// stream is an open event stream.
type stream struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
	end  context.CancelFunc
}

// subscribe opens /events with a query such as "?topic=a"; it must be 200.
func (g *gateway) subscribe(query string, headers ...string) *stream {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	req := g.request("GET", "/events"+query, nil, append([]string{"Accept: text/event-stream"}, headers...)...)
	resp, err := g.client.Do(req.WithContext(ctx))
	if err != nil {
		g.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		g.t.Fatalf("GET /events%s: %d %s", query, resp.StatusCode, b)
	}
	s := &stream{t: g.t, resp: resp, in: bufio.NewReaderSize(resp.Body, 64<<10), end: cancel}
	g.t.Cleanup(s.close)
	return s
}

func (s *stream) close() {
	s.end()
	s.resp.Body.Close()
}

// next returns the next block; false at a clean end of the stream.
func (s *stream) next() (block, bool) {
	s.t.Helper()
	b, ok, err := readBlock(s.in)
	if err != nil {
		s.t.Fatalf("reading the stream: %v", err)
	}
	return b, ok
}

// want returns the next block, which must be of this event.
func (s *stream) want(event string) block {
	s.t.Helper()
	b, ok := s.next()
	if !ok || b.event != event {
		s.t.Fatalf("got %+v (more: %v), want %s", b, ok, event)
	}
	return b
}

// wantEnd reads the clean end.
func (s *stream) wantEnd() {
	s.t.Helper()
	if b, ok := s.next(); ok {
		s.t.Fatalf("got %+v, want the end", b)
	}
}

// envelope is the data of an event's block.
type envelope struct {
	Seq    uint64
	Epoch  string
	ID     string
	Time   time.Time
	Type   string
	Topic  string
	Data   json.RawMessage
	CE     json.RawMessage
	Cursor string
}

// events returns the next n events; control frames between them are skipped.
func (s *stream) events(n int) []envelope {
	s.t.Helper()
	var list []envelope
	for len(list) < n {
		b, ok := s.next()
		if !ok {
			s.t.Fatalf("the stream ended after %d of %d events", len(list), n)
		}
		switch b.event {
		case "server.connected", "server.live", "heartbeat", "server.status":
			continue
		case "resync_required", "server.draining":
			s.t.Fatalf("%s %s after %d of %d events", b.event, b.data, len(list), n)
		}
		var e envelope
		if err := json.Unmarshal([]byte(b.data), &e); err != nil {
			s.t.Fatalf("%v in %q", err, b.data)
		}
		e.Cursor = b.id
		list = append(list, e)
	}
	return list
}

// readBlock parses one block as the HTML standard says (section 9.2.6). A
// block without its blank line is none.
func readBlock(in *bufio.Reader) (b block, ok bool, err error) {
	var data []string
	some := false
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return block{}, false, nil
		}
		if err != nil {
			return block{}, false, err
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if bytes.IndexByte(line, '\r') >= 0 {
			return block{}, false, fmt.Errorf("a carriage return in %q", line)
		}
		if len(line) == 0 {
			if !some {
				continue
			}
			b.data = strings.Join(data, "\n")
			b.hasData = data != nil
			return b, true, nil
		}
		some = true
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			b.event = value
		case "data":
			data = append(data, value)
		case "id":
			b.id = value
		case "retry":
			b.retry = value
		default:
			return block{}, false, fmt.Errorf("unexpected line %q", line)
		}
	}
}
