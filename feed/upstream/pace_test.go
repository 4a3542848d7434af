package upstream

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// whole is a jitter that always picks the end of the window, so that waits show the windows.
func whole(window time.Duration) time.Duration { return window }

func none(time.Duration) time.Duration { return 0 }

// wantWaits runs a client with the defaults of time against answers, then 204, in a bubble with a clock of its own.
func wantWaits(t *testing.T, cfg Config, answers []answer, want ...time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem := &memTransport{answers: answers}
		cfg.URL, cfg.Transport = "http://stream.test/", mem
		err := newClient(t, cfg).Run(t.Context(), func(context.Context, Event) error { return nil })
		if !errors.Is(err, ErrNoContent) {
			t.Fatalf("Run returned %v", err)
		}
		if got := mem.waits(); !reflect.DeepEqual(got, want) {
			t.Fatalf("waits %v, want %v", got, want)
		}
	})
}

const second = time.Second

func TestWindowDoublesUpToItsBound(t *testing.T) {
	wantWaits(t, Config{Jitter: whole}, []answer{refused, status(503), stream("data: a\n\n"), stream(""), refused, refused},
		2*second, 4*second, 8*second, 16*second, 30*second, 30*second)
	wantWaits(t, Config{Jitter: whole, ReconnectDelay: time.Minute}, []answer{refused, refused}, time.Minute, time.Minute)
}

func TestJitterStaysInsideTheWindow(t *testing.T) {
	wild := func(time.Duration) time.Duration { return math.MaxInt64 }
	wantWaits(t, Config{Jitter: wild}, []answer{refused, refused}, 2*second, 4*second)
	negative := func(time.Duration) time.Duration { return -second }
	wantWaits(t, Config{Jitter: negative}, []answer{refused, refused}, 0, 0)

	b := backoff{base: second, limit: second, maxFloor: second, stable: second, jitter: mustDefaults(t).Jitter}
	picked := map[time.Duration]bool{}
	for range 1000 {
		d := b.next(outcome{retry: unset})
		if d < 0 || d >= second {
			t.Fatalf("jitter picked %v from a window of 1 s", d)
		}
		picked[d/(second/10)] = true
	}
	if len(picked) != 10 {
		t.Errorf("1,000 picks fell into only %d tenths of the window", len(picked))
	}
}

func mustDefaults(t *testing.T) Config {
	t.Helper()
	cfg, err := Config{URL: "http://stream.test/"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestWindowStartsAnewAfterAStableStream(t *testing.T) {
	lasting := func(d time.Duration) answer {
		return streamOf(func(req *http.Request) io.Reader { return until(req, d) })
	}
	wantWaits(t, Config{Jitter: whole}, []answer{
		refused, refused, lasting(10 * second), refused, lasting(10*second - 1), refused},
		2*second, 4*second, 12*second, 4*second, 18*second-1, 16*second)
}

// TestSettledConnectionForgetsFailures: what the caller calls settled is followed by the floor and at most half of it
// again, and the next failure is the first one.
func TestSettledConnectionForgetsFailures(t *testing.T) {
	settled := func(ev Event) bool { return ev.Type == "hello" }
	hello := func(retry string) answer { return stream("retry: " + retry + "\nevent: hello\ndata: a\n\n") }
	wantWaits(t, Config{Jitter: whole, Settled: settled}, []answer{
		refused, refused, refused, hello("1000"), hello("1000"), refused, refused, stream("data: a\n\n")},
		2*second, 4*second, 8*second, 1500*time.Millisecond, 1500*time.Millisecond, 3*second, 5*second, 9*second)
	// It need not be the last event of the stream.
	wantWaits(t, Config{Jitter: whole, Settled: settled}, []answer{
		refused, stream("retry: 600\nevent: hello\ndata: a\n\ndata: b\n\n")}, 2*second, 900*time.Millisecond)
	// No floor, and one that paces nothing.
	wantWaits(t, Config{Jitter: whole, Settled: settled}, []answer{
		refused, refused, stream("event: hello\ndata: a\n\n"), hello("0"), hello("249"), hello("250")},
		2*second, 4*second, 2*second, 2*second, 2249*time.Millisecond, 375*time.Millisecond)
	// Without it, events say nothing about the server.
	wantWaits(t, Config{Jitter: whole}, []answer{hello("1000"), hello("1000")}, 3*second, 5*second)
}

func TestWaitsAreToldWithTheirCause(t *testing.T) {
	type wait struct {
		cause error
		delay time.Duration
	}
	var got []wait
	wantWaits(t, Config{Jitter: whole, OnWait: func(cause error, delay time.Duration) { got = append(got, wait{cause, delay}) }},
		[]answer{refused, stream("data: a\n\n")}, 2*second, 4*second)
	if want := []wait{{errRefused, 2 * second}, {nil, 4 * second}}; !reflect.DeepEqual(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

func TestRetryFieldIsTheFloor(t *testing.T) {
	// It outlives connections, and the jitter comes on top.
	wantWaits(t, Config{Jitter: whole}, []answer{stream("retry: 5000\n\n"), refused, stream("retry: 0\ndata: a\n\n")},
		7*second, 9*second, 8*second)
	// A complete line counts without its block, an incomplete one never.
	wantWaits(t, Config{Jitter: none}, []answer{stream("retry: 700\n"), stream("retry: 9000")},
		700*time.Millisecond, 700*time.Millisecond)
	// An absurd one is cut.
	wantWaits(t, Config{Jitter: none}, []answer{stream("retry: 99999999999999999999999\n\n")}, time.Hour)
	wantWaits(t, Config{Jitter: none, MaxFloor: time.Minute}, []answer{stream("retry: 61000\n\n")}, time.Minute)
}

func TestRetryAfterIsTheFloorOfOneWait(t *testing.T) {
	for _, code := range []int{429, 503} {
		wantWaits(t, Config{Jitter: whole}, []answer{
			status(code, "Retry-After", "7"), refused, status(code, "Retry-After", "86400")},
			9*second, 4*second, time.Hour+8*second)
	}
	// The larger of both floors counts.
	wantWaits(t, Config{Jitter: none}, []answer{
		stream("retry: 5000\n\n"), status(503, "Retry-After", "3"), status(503, "Retry-After", "8"),
		status(503, "Retry-After", "soon"), status(503, "Retry-After", "-1")},
		5*second, 5*second, 8*second, 5*second, 5*second)
	wantWaits(t, Config{Jitter: none}, []answer{
		func(req *http.Request) (*http.Response, error) {
			return status(503, "Retry-After", time.Now().Add(20*second).UTC().Format(http.TimeFormat))(req)
		},
		status(503, "Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"),
	}, 20*second, 0)
}

func TestRunNeverGivesUp(t *testing.T) {
	var answers []answer
	for range 200 {
		answers = append(answers, refused)
	}
	synctest.Test(t, func(t *testing.T) {
		mem := &memTransport{answers: answers}
		start := time.Now()
		wantUnlimited(t, Config{URL: "http://stream.test/", Transport: mem, Jitter: whole})
		if passed := time.Since(start); passed < time.Hour || len(mem.requests) != 201 {
			t.Errorf("%d requests in %v", len(mem.requests), passed)
		}
	})
}

func wantUnlimited(t *testing.T, cfg Config) {
	t.Helper()
	err := newClient(t, cfg).Run(t.Context(), func(context.Context, Event) error { return nil })
	if !errors.Is(err, ErrNoContent) {
		t.Fatal(err)
	}
}

// TestCancelEndsEveryStateAtOnce: in a bubble, at once means that the clock has not moved.
func TestCancelEndsEveryStateAtOnce(t *testing.T) {
	hang := func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	silent := streamOf(func(req *http.Request) io.Reader { return until(req, 0) })
	slowProblem := func(req *http.Request) (*http.Response, error) {
		resp, err := status(400, "Content-Type", "application/problem+json")(req)
		resp.Body = io.NopCloser(until(req, 0))
		return resp, err
	}
	for _, tt := range []struct {
		name   string
		answer answer
		state  State
	}{
		{"connecting", hang, StateConnecting}, {"open", silent, StateOpen}, {"waiting", refused, StateWaiting},
		{"reading a refusal", slowProblem, StateConnecting},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var states []State
				last := func() State { return states[len(states)-1] }
				client := newClient(t, Config{
					URL: "http://stream.test/", Transport: &memTransport{answers: []answer{tt.answer}},
					Jitter: whole, OnState: func(s State) { states = append(states, s) },
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- client.Run(ctx, func(context.Context, Event) error { return nil }) }()
				synctest.Wait()
				if last() != tt.state {
					t.Fatalf("state is %v, want %v", last(), tt.state)
				}
				start, n := time.Now(), len(states)
				cancel()
				err := <-done
				if passed := time.Since(start); passed != 0 {
					t.Errorf("Run returned %v after the cancel", passed)
				}
				var refusal *ResponseError
				if !errors.Is(err, context.Canceled) && !errors.As(err, &refusal) || last() != StateEnded || len(states) != n+1 {
					t.Errorf("Run returned %v after states %v", err, states)
				}
			})
		})
	}
}

func TestDeadlineIsReturnedAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := &memTransport{answers: []answer{streamOf(func(req *http.Request) io.Reader { return until(req, 0) })}}
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		err := newClient(t, quick(Config{Transport: mem})).Run(ctx, func(context.Context, Event) error { return nil })
		if err != context.DeadlineExceeded {
			t.Fatalf("Run returned %v", err)
		}
	})
}

func TestRefusalsBodyIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := &memTransport{answers: []answer{func(req *http.Request) (*http.Response, error) {
			resp, err := status(403, "Content-Type", "application/problem+json")(req)
			resp.Body = io.NopCloser(until(req, 0))
			return resp, err
		}}}
		start := time.Now()
		_, err := collect(t, newClient(t, quick(Config{Transport: mem})))
		if !errors.Is(err, ErrForbidden) || time.Since(start) != problemWait {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
	})
}

func TestIdleConnectionIsMadeAgain(t *testing.T) {
	silent := streamOf(func(req *http.Request) io.Reader {
		return io.MultiReader(strings.NewReader("data: a\nid: 1\n\n"), until(req, 0))
	})
	noHead := func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	wantWaits(t, Config{Jitter: none, IdleTimeout: 45 * second}, []answer{silent, noHead, silent}, 45*second, 45*second, 45*second)
}

func TestAnyByteOrASlowHandlerIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beating := streamOf(func(req *http.Request) io.Reader {
			var parts []io.Reader
			for range 5 {
				parts = append(parts, readerFunc(func([]byte) (int, error) {
					time.Sleep(30 * second)
					return 0, io.EOF
				}), strings.NewReader(":\n"))
			}
			return io.MultiReader(append(parts,
				strings.NewReader("data: a\n\ndata: b\n\ndata: c\n\ndata: d\n\n"))...)
		})
		mem := &memTransport{answers: []answer{beating}}
		client := newClient(t, quick(Config{Transport: mem, IdleTimeout: 45 * second}))
		n := 0
		err := client.Run(t.Context(), func(context.Context, Event) error {
			n++
			time.Sleep(time.Minute)
			return nil
		})
		if !errors.Is(err, ErrNoContent) || n != 4 || len(mem.requests) != 2 {
			t.Fatalf("%v, %d events, %d requests", err, n, len(mem.requests))
		}
	})
}
