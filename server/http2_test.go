package server_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// http2Client speaks HTTP/2 without TLS, by prior knowledge.
func http2Client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * patience}
}

// TestHTTP2OutlivesTheWriteTimeout: a deadline there is a timer that resets
// the stream, whether or not anything is being written. Streams that are
// silent for longer, long polls and slow uploads all live on.
func TestHTTP2OutlivesTheWriteTimeout(t *testing.T) {
	g := start(t, func(o *options) {
		o.server.WriteTimeout = 50 * time.Millisecond
		o.feed.Heartbeat = 200 * time.Millisecond
	})
	client := http2Client(t)
	resp, err := client.Get("http://" + g.addr + "/events?start=live")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatal(resp.Proto)
	}
	st := &stream{t: t, in: bufio.NewReader(resp.Body)}
	for _, want := range []string{"server.connected", "server.live", "heartbeat", "heartbeat"} {
		st.want(want)
	}

	poll, err := client.Get("http://" + g.addr + "/api/v1/events?start=live&wait=300ms")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(poll.Body)
	poll.Body.Close()
	if err != nil || poll.StatusCode != 200 {
		t.Errorf("long poll: %s, %v: %s", poll.Status, err, body)
	}

	lines, in := io.Pipe()
	go func() {
		for range 3 {
			if _, err := io.WriteString(in, `{"type":"line"}`+"\n"); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond) // the producer pauses for longer than a write may take
		}
		in.Close()
	}()
	posted, err := client.Post("http://"+g.addr+"/api/v1/events", "application/x-ndjson", lines)
	if err != nil {
		t.Fatal(err)
	}
	body, err = io.ReadAll(posted.Body)
	posted.Body.Close()
	if err != nil || posted.StatusCode != 201 || !strings.Contains(string(body), `"accepted":3`) {
		t.Errorf("slow lines: %s, %v: %s", posted.Status, err, body)
	}
	for seen := 0; seen < 3; {
		if b, ok := st.next(); !ok {
			t.Fatal("the stream ended")
		} else if b.event == "line" {
			seen++
		}
	}

	go g.stop()
	for b, ok := st.next(); b.event != "server.draining"; b, ok = st.next() {
		if !ok || b.event != "heartbeat" {
			t.Fatalf("%+v, want server.draining", b)
		}
	}
	st.wantEnd()
}

// TestHTTP2EndsAnswersThatNobodyTakes: a client that opens no window gets
// every answer reset, whoever writes it.
func TestHTTP2EndsAnswersThatNobodyTakes(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("page")) // to nobody
	})
	g := start(t, func(o *options) {
		o.server.WriteTimeout = 100 * time.Millisecond
		o.server.Dashboard, o.server.Example, o.server.Client, o.server.OpenAPI = page, page, page, []byte("openapi")
	})
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	const settings, headers, reset = 4, 1, 3
	send := func(kind, flags byte, id uint32, payload string) {
		t.Helper()
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
		frame = append(frame, flags)
		frame = binary.BigEndian.AppendUint32(frame, id)
		if _, err := c.Write(append(frame, payload...)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	send(settings, 0, 0, "\x00\x04\x00\x00\x00\x00") // initial window: 0
	open := make(map[uint32]string)
	for i, path := range []string{"/", "/dashboard/", "/example", "/client.js", "/openapi.yaml", "/metrics", "/healthz", "/api/v1/status", "/api/v1/events", "/events"} {
		id := uint32(2*i + 1)
		open[id] = path
		// GET, http, the path and the authority: RFC 7541 sections 6.1 and 6.2.2.
		send(headers, 5, id, "\x82\x86\x04"+string(rune(len(path)))+path+"\x01\x09localhost")
	}
	in := bufio.NewReader(c)
	for len(open) > 0 {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			t.Fatalf("never reset: %v (%v)", open, err)
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if _, err := in.Discard(n); err != nil {
			t.Fatal(err)
		}
		if head[3] == reset {
			delete(open, binary.BigEndian.Uint32(head[5:]))
		}
	}
}
