package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"gapless/feed/upstream"
)

// A server that cuts the stream after each event: the client comes back with its cursor.
func Example() {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch r.Header.Get("Last-Event-ID") {
		case "":
			fmt.Fprint(w, "retry: 1\nevent: greeting\ndata: hello\nid: 1\n\n")
		case "1":
			fmt.Fprint(w, "event: greeting\ndata: hello again\nid: 2\n\n")
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer srv.Close()

	client, err := upstream.New(upstream.Config{
		URL:    srv.URL,
		Jitter: func(window time.Duration) time.Duration { return 0 }, // only so that the example is quick
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = client.Run(context.Background(), func(_ context.Context, ev upstream.Event) error {
		fmt.Printf("%s %s: %s\n", ev.ID, ev.Type, ev.Data)
		return nil
	})
	fmt.Println(errors.Is(err, upstream.ErrNoContent), client.LastEventID())
	// Output:
	// 1 greeting: hello
	// 2 greeting: hello again
	// true 2
}
