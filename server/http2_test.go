package server_test

import (
	"bufio"
	"io"
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
