package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/launchdarkly/eventsource"
	"github.com/tmaxmax/go-sse"

	"gapless/feed/upstream"
)

// heard is an event as a client's library gives it.
type heard struct{ id, event, data string }

// An interop client reads the stream at url from a cursor ("" for none) and
// hands over what it hears until ctx ends.
type interopClient func(ctx context.Context, t *testing.T, url, cursor string, hear func(heard))

func interopClients() map[string]interopClient {
	return map[string]interopClient{
		"gapless/feed/upstream": func(ctx context.Context, t *testing.T, url, cursor string, hear func(heard)) {
			c, err := upstream.New(upstream.Config{URL: url, LastEventID: cursor, ReconnectDelay: 10 * time.Millisecond, MaxFloor: time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			err = c.Run(ctx, func(_ context.Context, e upstream.Event) error {
				hear(heard{e.ID, e.Type, string(e.Data)})
				return nil
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		},
		"tmaxmax/go-sse": func(ctx context.Context, t *testing.T, url, cursor string, hear func(heard)) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if cursor != "" {
				req.Header.Set("Last-Event-ID", cursor)
			}
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := &sse.Client{HTTPClient: &http.Client{Transport: transport}}
			c := client.NewConnection(req)
			c.Buffer(nil, 4<<20) // its scanner stops at 64 KiB else
			c.SubscribeToAll(func(e sse.Event) { hear(heard{e.LastEventID, e.Type, e.Data}) })
			if err := c.Connect(); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		},
		"launchdarkly/eventsource": func(ctx context.Context, t *testing.T, url, cursor string, hear func(heard)) {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			s, err := eventsource.SubscribeWithURL(url, eventsource.StreamOptionLastEventID(cursor),
				eventsource.StreamOptionHTTPClient(&http.Client{Transport: transport}),
				eventsource.StreamOptionInitialRetry(10*time.Millisecond),
				eventsource.StreamOptionErrorHandler(func(error) eventsource.StreamErrorHandlerResult {
					return eventsource.StreamErrorHandlerResult{}
				}))
			if err != nil {
				t.Error(err)
				return
			}
			stop := context.AfterFunc(ctx, s.Close)
			defer stop()
			// Its goroutine ends only when every event was taken.
			for e := range s.Events {
				hear(heard{e.Id(), e.Event(), e.Data()})
			}
		},
	}
}

// Other people's clients read the same bytes to the same events, come back by
// themselves after a cut, and miss and repeat nothing.
func TestInterop(t *testing.T) {
	for name, client := range interopClients() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, func(o *options) { o.feed.ReconnectDelay = 500 * time.Millisecond })
			texts := []string{"", "a", "two\nlines", "\n", " leading", ": colon", "é😀", strings.Repeat("x", 65537), strings.Repeat("y", 1<<20), "end"}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			events := make(chan heard, 64)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				client(ctx, t, "http://"+g.addr+"/events?topic=i&format=raw", "", func(h heard) {
					select {
					case events <- h:
					case <-ctx.Done():
					}
				})
			}()
			defer func() { cancel(); <-ended }()
			next := func() heard {
				t.Helper()
				for {
					select {
					case h := <-events:
						switch h.event {
						case "server.connected", "server.live", "heartbeat":
							continue
						}
						return h
					case <-ctx.Done():
						t.Fatal("nothing came")
					}
				}
			}
			var ids []string
			for i, text := range texts {
				quoted, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				p := g.publish(fmt.Sprintf(`{"type":"order.created","topic":"i","data":%s}`, quoted))
				h := next()
				if h.event != "order.created" || h.data != text || !strings.HasPrefix(h.id, fmt.Sprintf("%s-%d-", p.Epoch, p.Events[0].Seq)) {
					t.Errorf("%.80v, want %.80q", h, text)
				}
				ids = append(ids, h.id)
				if i == 4 {
					if !g.feed.Cut(connectionID(t, g.feed)) {
						t.Fatal("not cut")
					}
					if h := next(); h.event != "server.draining" {
						t.Errorf("%v, want server.draining", h)
					}
				}
			}
			for _, a := range wantPage(t, g.do("GET", "/api/v1/events?topic=i", "")).Events {
				if len(ids) == 0 || a.Cursor != ids[0] {
					t.Fatalf("the log has %s next, the client %v", a.Cursor, ids)
				}
				ids = ids[1:]
			}
		})
	}
}

// A dead cursor costs each of them one resync, and then they are served.
func TestInteropResync(t *testing.T) {
	for name, client := range interopClients() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, func(o *options) { o.feed.ReconnectDelay = 500 * time.Millisecond })
			p := g.publishN(1, 3)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			events := make(chan heard, 64)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				client(ctx, t, "http://"+g.addr+"/events", foreignEpoch+"-7", func(h heard) {
					select {
					case events <- h:
					case <-ctx.Done():
					}
				})
			}()
			defer func() { cancel(); <-ended }()
			var got []string
			for len(got) == 0 || got[len(got)-1] != "server.live" {
				select {
				case h := <-events:
					got = append(got, h.event)
					if h.event == "n" && !strings.HasPrefix(h.id, p.Epoch) {
						t.Errorf("%v", h)
					}
				case <-ctx.Done():
					t.Fatalf("only %v came", got)
				}
			}
			if fmt.Sprint(got) != "[resync_required server.connected server.status n n n server.live]" {
				t.Errorf("%v", got)
			}
		})
	}
}
