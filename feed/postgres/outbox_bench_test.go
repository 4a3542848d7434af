//go:build linux && e2e

package postgres

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BenchmarkOutbox measures from the return of an application's commit to the
// event's being readable.
func BenchmarkOutbox(b *testing.B) {
	url := durable(b)
	for _, poll := range []time.Duration{DefaultOutboxPoll, 10 * time.Millisecond} {
		b.Run("poll="+poll.String(), func(b *testing.B) { measureOutbox(b, url, poll) })
	}
}

func measureOutbox(b *testing.B, url string, poll time.Duration) {
	s := open(b, url, func(cfg *Config) { cfg.OutboxPoll = poll })
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	at := headOf(b, s)
	var took []time.Duration
	for b.Loop() {
		time.Sleep(rand.N(poll)) // so as not to be in step with it
		if _, err := conn.Exec(b.Context(), `select gapless.publish('t', 'x', '{"n":1}')`); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		for next := at; next == at; next = headOf(b, s) {
			if err := s.Wait(b.Context(), at); err != nil {
				b.Fatal(err)
			}
		}
		took = append(took, time.Since(began))
		at = headOf(b, s)
	}
	percentiles(b, took)
}

// BenchmarkOutboxDrain measures how fast a backlog of 512 B rows is moved.
func BenchmarkOutboxDrain(b *testing.B) {
	url := durable(b)
	s := open(b, url, quiet)
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	for b.Loop() {
		b.StopTimer()
		if _, err := conn.Exec(b.Context(), `select gapless.publish('t', 'x', to_json(repeat('x', 512))) from generate_series(1, 10000)`); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for more := true; more; {
			if more, err = s.moveRound(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*10000/b.Elapsed().Seconds(), "events/s")
}
