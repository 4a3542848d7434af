package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gapless/feed"
	"gapless/feed/upstream"
)

// notices prints events in turn and returns what is told of them.
func notices(t *testing.T, format, start string, events ...upstream.Event) []string {
	t.Helper()
	var text bytes.Buffer
	p := &printer{out: io.Discard, notices: &text, format: format, start: start}
	for _, ev := range events {
		if _, err := p.print(ev); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

const (
	epochOne = "01KB7Q3V9W8ZJ4M2T6R5N0XYCD"
	epochTwo = "01KB7Q3V9W8ZJ4M2T6R5N0XYCE"
)

func cursorAt(epoch string, seq uint64) string { return fmt.Sprintf("%s-%d", epoch, seq) }

func connectedAt(start, epoch string, since, head uint64) upstream.Event {
	return upstream.Event{ID: cursorAt(epoch, since), Type: feed.TypeConnected,
		Data: fmt.Appendf(nil, `{"epoch":%q,"start":%q,"since_seq":%d,"head_seq":%d}`, epoch, start, since, head)}
}

func eventAt(epoch string, seq uint64) upstream.Event {
	return upstream.Event{ID: cursorAt(epoch, seq), Type: "message", Data: fmt.Appendf(nil, `{"seq":%d}`, seq)}
}

func bookmarkAt(epoch string, seq uint64) upstream.Event {
	return upstream.Event{ID: cursorAt(epoch, seq), Type: feed.TypeHeartbeat, Data: fmt.Appendf(nil, `{"epoch":%q,"head_seq":%d}`, epoch, seq)}
}

func drainingAfter(epoch string, seq uint64) upstream.Event {
	return upstream.Event{ID: cursorAt(epoch, seq), Type: feed.TypeDraining, Data: fmt.Appendf(nil, `{"epoch":%q,"reason":"cut"}`, epoch)}
}

func resyncTo(epoch string, at, head uint64, reason feed.Reason) upstream.Event {
	return upstream.Event{ID: cursorAt(epoch, at), Type: feed.TypeResync,
		Data: fmt.Appendf(nil, `{"seq":0,"reason":%q,"epoch":%q,"head_seq":%d}`, reason, epoch, head)}
}

func TestTailPromisesOnlyWhatItFollowed(t *testing.T) {
	const nothing, live = "nothing was missed", "goes on live after seq 4"
	draining := drainingAfter(epochOne, 7)
	for name, tt := range map[string]struct {
		events []upstream.Event
		want   string // in the last notice
	}{
		"after an event":     {[]upstream.Event{connectedAt("live", epochOne, 6, 6), eventAt(epochOne, 7), connectedAt("resume", epochOne, 7, 9)}, "resumed after seq 7: " + nothing},
		"after a bookmark":   {[]upstream.Event{connectedAt("live", epochOne, 6, 6), bookmarkAt(epochOne, 8), connectedAt("resume", epochOne, 8, 9)}, "resumed after seq 8: " + nothing},
		"after its start":    {[]upstream.Event{connectedAt("live", epochOne, 6, 6), connectedAt("resume", epochOne, 6, 9)}, "resumed after seq 6: " + nothing},
		"after a drain":      {[]upstream.Event{connectedAt("live", epochOne, 6, 6), eventAt(epochOne, 7), draining, connectedAt("resume", epochOne, 7, 9)}, "resumed after seq 7: " + nothing},
		"drained before all": {[]upstream.Event{draining, connectedAt("resume", epochOne, 7, 9)}, "connected, from seq 8 on; the head is 9"},
		"the first of all":   {[]upstream.Event{connectedAt("resume", epochOne, 7, 9)}, "connected, from seq 8 on; the head is 9"},
		"after a resync": {[]upstream.Event{connectedAt("live", epochOne, 6, 6), eventAt(epochOne, 7),
			resyncTo(epochTwo, 4, 4, feed.ReasonEpochChanged), connectedAt("resume", epochTwo, 4, 5)}, live},
		"after a resync in the same epoch": {[]upstream.Event{connectedAt("live", epochOne, 3, 3), eventAt(epochOne, 4),
			resyncTo(epochOne, 4, 4, feed.ReasonLagged), connectedAt("resume", epochOne, 4, 5)}, live},
		"after a resync and a drain": {[]upstream.Event{connectedAt("live", epochOne, 6, 6),
			resyncTo(epochTwo, 4, 4, feed.ReasonEpochChanged), drainingAfter(epochTwo, 4), connectedAt("resume", epochTwo, 4, 5)}, live},
		"after a resync that has been got over": {[]upstream.Event{resyncTo(epochTwo, 4, 4, feed.ReasonEpochChanged),
			connectedAt("resume", epochTwo, 4, 5), eventAt(epochTwo, 5), connectedAt("resume", epochTwo, 5, 6)}, "resumed after seq 5: " + nothing},
		"elsewhere than it was": {[]upstream.Event{connectedAt("live", epochOne, 6, 6), connectedAt("resume", epochTwo, 6, 9)}, "connected, from seq 7 on"},
		"after a resync with a snapshot": {[]upstream.Event{connectedAt("snapshot", epochOne, 0, 6), eventAt(epochOne, 7),
			resyncTo(epochTwo, 0, 4, feed.ReasonEpochChanged), connectedAt("snapshot", epochTwo, 0, 5)}, "connected, first what the server has kept; the head is 5"},
	} {
		told := notices(t, "pretty", "live", tt.events...)
		if last := told[len(told)-1]; !strings.Contains(last, tt.want) {
			t.Errorf("%s: %q, want %q", name, last, tt.want)
		}
	}
}

func TestTailSaysWhatComesAfterAResync(t *testing.T) {
	for _, tt := range []struct {
		start  string
		reason feed.Reason
		want   string
	}{
		{"live", feed.ReasonEpochChanged, "· resync (epoch_changed): the server began a new timeline, as after a restart of a memory store; it holds events up to seq 4, which are not printed (--start snapshot prints them)"},
		{"live", feed.ReasonLagged, "; of its events up to seq 4, those that were not printed yet are left out (--start snapshot prints what it keeps)"},
		{"snapshot", feed.ReasonEpochChanged, "memory store; what comes next is a snapshot of what the server keeps"},
		{"all", feed.ReasonCursorExpired, "; what comes next is everything that the server keeps"},
		{"last:5", feed.ReasonCursorAhead, "; what comes next is a snapshot: the last 5 events that the server keeps"},
	} {
		if told := notices(t, "json", tt.start, resyncTo(epochTwo, 0, 4, tt.reason)); len(told) != 1 || !strings.Contains(told[0], tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.start, tt.reason, told, tt.want)
		}
	}
}

func TestTailTellsWhyAConnectionEndsInEveryFormat(t *testing.T) {
	for _, format := range []string{"pretty", "json", "raw"} {
		if told := notices(t, format, "live", drainingAfter(epochOne, 7)); !strings.Contains(told[0], "· the server ends the connection (cut)") {
			t.Errorf("%s: %q", format, told)
		}
	}
}

func TestTailTellsOutagesInItsOwnWords(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, tt := range []struct {
		cause error
		want  string
	}{
		{nil, "· connection ended; coming back in 3.4 s\n"},
		{refused, "· connection lost (connection refused); coming back in 3.4 s\n"},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), "· connection lost (connection reset by peer); coming back in 3.4 s\n"},
		{io.ErrUnexpectedEOF, "· connection lost (it was cut off); coming back in 3.4 s\n"},
		{&upstream.ResponseError{Status: 503}, "· connection lost (answered 503); coming back in 3.4 s\n"},
		{&upstream.ResponseError{Status: 503, Detail: "a\x1b[2J"}, "· connection lost (answered 503: a\uFFFD[2J); coming back in 3.4 s\n"},
		{errors.New("lookup nowhere: no such host"), "· connection lost (lookup nowhere: no such host); coming back in 3.4 s\n"},
	} {
		var text bytes.Buffer
		p := &printer{notices: &text, format: "json"}
		p.waiting(tt.cause, 3416*time.Millisecond)
		if text.String() != tt.want {
			t.Errorf("%v: %q, want %q", tt.cause, text.String(), tt.want)
		}
	}
}

// TestTailComesBackAsSoonAsItIsAsked: streams that are short because the
// server ends them are no failures, so waits do not grow.
func TestTailComesBackAsSoonAsItIsAsked(t *testing.T) {
	blocks := []string{
		"event: server.connected\ndata: {\"start\":\"live\"}\n\n",
		"event: server.draining\ndata: {\"reason\":\"cut\"}\n\n",
		"event: resync_required\ndata: {\"reason\":\"lagged\"}\n\n",
		"event: server.connected\ndata: {\"start\":\"live\"}\n\ndata: {}\n\n",
	}
	var asked atomic.Int64
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(asked.Add(1))
		if n > len(blocks) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "retry: 260\n"+blocks[n-1])
	}))
	defer hs.Close()
	var text bytes.Buffer
	cmd := tailCommand{clientFlags: clientFlags{URL: hs.URL}, Format: "json"}
	if err := cmd.Run(t.Context(), &console{out: io.Discard, err: &text}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatalf("ended with %v", err)
	}
	waits := regexp.MustCompile(`coming back in ([0-9.]+) s`).FindAllStringSubmatch(text.String(), -1)
	if len(waits) != len(blocks) {
		t.Fatalf("%d waits for %d streams:\n%s", len(waits), len(blocks), text.String())
	}
	for i, m := range waits {
		if s, err := strconv.ParseFloat(m[1], 64); err != nil || s < 0.3 || s > 0.4 {
			t.Errorf("wait %d is %s s, want 0.26 to 0.39", i+1, m[1])
		}
	}
}
