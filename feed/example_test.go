package feed_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"gapless/feed"
	"gapless/feed/memory"
)

// A program that embeds a feed and serves it to browsers with net/http alone.
func Example() {
	log, err := memory.New(memory.Config{})
	if err != nil {
		panic(err)
	}
	f, err := feed.New(feed.Config{Log: log})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	if err := f.WaitReady(ctx); err != nil {
		panic(err)
	}

	events := func(w http.ResponseWriter, r *http.Request) {
		opts := feed.SubscribeOptions{}
		if id := r.Header.Get("Last-Event-ID"); id != "" {
			opts.Cursor, err = feed.ParseCursor(id)
			opts.Invalid = err != nil // the stream will say so
		}
		sub, err := f.Subscribe(r.Context(), opts)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer sub.Close()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		for {
			frames, err := sub.Next(r.Context())
			if err != nil {
				return // feed.ErrEnded, or the client has gone
			}
			for _, frame := range frames {
				if _, err := w.Write(frame.Bytes); err != nil {
					return
				}
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	}
	server := httptest.NewServer(http.HandlerFunc(events))

	if _, err := f.Publish(ctx, []feed.Draft{{Type: "greeting", Topic: "hello", Data: []byte(`{"to": "world"}`)}}); err != nil {
		panic(err)
	}

	resp, err := http.Get(server.URL + "/events")
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			fmt.Println(name)
		}
		if _, data, ok := strings.Cut(line, `"data":`); ok {
			fmt.Println(strings.TrimSuffix(data, "}"))
		}
		if line == "event: server.live" {
			break // all that was published so far has come
		}
	}
	resp.Body.Close()
	server.Close()
	http.DefaultClient.CloseIdleConnections()
	stop()
	<-done
	// Output:
	// server.connected
	// greeting
	// {"to":"world"}
	// server.live
}

// A worker that catches up page by page, keeps its cursor, and later goes on
// from there.
func ExampleFeed_Read() {
	log, err := memory.New(memory.Config{})
	if err != nil {
		panic(err)
	}
	f, err := feed.New(feed.Config{Log: log})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx)
	}()
	if err := f.WaitReady(ctx); err != nil {
		panic(err)
	}
	for _, order := range []string{"1", "2", "3", "4"} {
		topic := "orders.eu"
		if order == "2" {
			topic = "orders.us"
		}
		if _, err := f.Publish(ctx, []feed.Draft{{Topic: topic, Data: []byte(order)}}); err != nil {
			panic(err)
		}
	}

	filter, err := feed.NewFilter([]string{"orders.eu"}, nil, true)
	if err != nil {
		panic(err)
	}
	from := feed.From{Start: feed.Start{Mode: feed.StartAll}}
	for {
		page, err := f.Read(ctx, feed.ReadOptions{From: from, Filter: filter, Limit: 2})
		if err != nil {
			panic(err)
		}
		if page.Resync != "" {
			panic("begin anew, from a snapshot: " + page.Resync)
		}
		for _, event := range page.Events {
			fmt.Println(strings.Split(string(event), ",")[0] + "}")
		}
		fmt.Printf("%d events, up to %d of %d\n", len(page.Events), page.Last.Seq, page.Head.Seq)
		if !page.HasMore {
			break
		}
		from = feed.From{Cursor: page.Last} // page.Last.String() survives a restart of the worker
	}
	stop()
	<-done
	// Output:
	// {"seq":1}
	// {"seq":3}
	// 2 events, up to 3 of 4
	// {"seq":4}
	// 1 events, up to 4 of 4
}
