package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
)

func TestDemoTellsABelievableStory(t *testing.T) {
	for seed := range uint64(5) {
		shop := newShop(rand.New(rand.NewPCG(seed, 1)))
		follows := map[string][]string{
			"":              {"order.created"},
			"order.created": {"order.paid", "order.cancelled"},
			"order.paid":    {"order.packed"},
			"order.packed":  {"order.shipped"},
			"order.shipped": {"order.delivered", "order.returned"},
		}
		last, paid := map[int]string{}, map[int]int{}
		types := map[string]int{}
		for range 2000 {
			drafts := shop.step()
			if len(drafts) == 0 {
				t.Fatalf("seed %d: a step without an event", seed)
			}
			for _, d := range drafts {
				types[d.Type]++
				if err := errors.Join(d.Normalize(), d.Reserved()); err != nil {
					t.Fatalf("seed %d: %+v: %v", seed, d, err)
				}
				var data struct {
					Order       int
					AmountCents int `json:"amount_cents"`
					TotalCents  int `json:"total_cents"`
					Level       int
				}
				if err := json.Unmarshal(d.Data, &data); err != nil {
					t.Fatal(err)
				}
				switch kind, _, _ := strings.Cut(d.Type, "."); kind {
				case "order":
					if !slices.Contains(follows[last[data.Order]], d.Type) {
						t.Fatalf("seed %d: order %d: %s after %q", seed, data.Order, d.Type, last[data.Order])
					}
					if d.Type == "order.paid" && paid[data.Order] != data.TotalCents {
						t.Fatalf("seed %d: order %d is paid with %d of %d cents", seed, data.Order, paid[data.Order], data.TotalCents)
					}
					last[data.Order] = d.Type
				case "payment":
					if d.Type == "payment.captured" {
						paid[data.Order] = data.AmountCents
					}
				case "stock":
					if data.Level < 0 {
						t.Fatalf("seed %d: %s below zero", seed, d.Topic)
					}
				}
			}
		}
		for _, typ := range []string{"order.delivered", "order.returned", "order.cancelled", "payment.declined",
			"payment.refunded", "stock.low", "stock.refilled"} {
			if types[typ] == 0 {
				t.Errorf("seed %d: no %s in 2,000 steps", seed, typ)
			}
		}
	}
}

func TestDemoPublishesAFewASecondUntilItIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var steps atomic.Int64
		d := newDemo(func(context.Context, []feed.Draft) (feed.Receipt, error) {
			steps.Add(1)
			return feed.Receipt{}, nil
		}, zerolog.Nop())
		done := make(chan struct{})
		go func() { defer close(done); d.run(ctx) }()
		synctest.Wait()
		atOnce := steps.Load()
		if atOnce < 10 {
			t.Errorf("%d steps at once, want 10 or more", atOnce)
		}
		time.Sleep(time.Minute)
		if n := steps.Load() - atOnce; n < 60 || n > 600 {
			t.Errorf("%d steps a minute, want 1 to 10 a second", n)
		}
		stop()
		<-done
		atEnd := steps.Load()
		time.Sleep(time.Minute)
		if steps.Load() != atEnd {
			t.Error("the demo goes on after its end")
		}
	})
}
