package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"gapless/feed"
)

// demo publishes what a small shop with three regions might: orders that are
// paid or fail to be, packed, shipped, delivered and now and then returned,
// their payments, and the stock they come from. Each step is one batch, so
// that an order and its payment never part.
type demo struct {
	publish func(context.Context, []feed.Draft) (feed.Receipt, error)
	logger  zerolog.Logger
	shop    *shop
}

func newDemo(publish func(context.Context, []feed.Draft) (feed.Receipt, error), logger zerolog.Logger) *demo {
	return &demo{publish: publish, logger: logger, shop: newShop(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))}
}

// run publishes a few steps at once, and then a few a second, until ctx ends.
func (d *demo) run(ctx context.Context) {
	const atOnce = 12
	for n := 0; ; n++ {
		if _, err := d.publish(ctx, d.shop.step()); err != nil && ctx.Err() == nil {
			d.logger.Warn().Err(err).Msg("a step of the demo was not published")
		}
		pause := 150*time.Millisecond + rand.N(450*time.Millisecond)
		if n < atOnce {
			pause = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// stage is where an order is.
type stage string

const (
	stageCreated   stage = "created"
	stagePaid      stage = "paid"
	stagePacked    stage = "packed"
	stageShipped   stage = "shipped"
	stageDelivered stage = "delivered"
	stageReturned  stage = "returned"
	stageCancelled stage = "cancelled"
)

type order struct {
	id       int
	region   string
	shop     int
	product  *product
	quantity int
	stage    stage
}

type product struct {
	sku   string
	cents int
	stock int
}

// What a product's stock is filled up to, and below what it counts as low.
const (
	stockFull = 40
	stockLow  = 10
)

// shop is the state behind the demo. It is used by one goroutine.
type shop struct {
	rand     *rand.Rand
	lastID   int
	open     []*order
	products []*product
}

func newShop(r *rand.Rand) *shop {
	return &shop{
		rand:   r,
		lastID: 4000 + r.IntN(1000),
		products: []*product{
			{"mug-blue", 1290, stockFull}, {"mug-red", 1290, stockFull}, {"tea-oolong", 845, stockFull},
			{"kettle-12", 5900, stockFull}, {"filter-100", 399, stockFull}, {"beans-1kg", 2450, stockFull},
		},
	}
}

// step moves the shop on and returns what happened, at least one event.
func (s *shop) step() []feed.Draft {
	const mostOpen = 14
	for _, p := range s.products {
		if p.stock < stockLow/2 {
			p.stock = stockFull
			return []feed.Draft{stockDraft("stock.refilled", p)}
		}
	}
	if len(s.open) < 3 || len(s.open) < mostOpen && s.rand.IntN(4) == 0 {
		return s.create()
	}
	return s.advance(s.open[s.rand.IntN(len(s.open))])
}

func (s *shop) create() []feed.Draft {
	s.lastID++
	o := &order{
		id:       s.lastID,
		region:   []string{"eu", "us", "ap"}[s.rand.IntN(3)],
		shop:     1 + s.rand.IntN(9),
		product:  s.products[s.rand.IntN(len(s.products))],
		quantity: 1 + s.rand.IntN(3),
		stage:    stageCreated,
	}
	s.open = append(s.open, o)
	return []feed.Draft{o.draft()}
}

// advance takes an order to its next stage.
func (s *shop) advance(o *order) []feed.Draft {
	switch o.stage {
	case stageCreated:
		if s.rand.IntN(10) == 0 {
			s.close(o, stageCancelled)
			return []feed.Draft{o.payment("payment.declined"), o.draft()}
		}
		o.stage = stagePaid
		return []feed.Draft{o.payment("payment.captured"), o.draft()}
	case stagePaid:
		if o.product.stock < o.quantity {
			o.product.stock = stockFull
			return []feed.Draft{stockDraft("stock.refilled", o.product)}
		}
		o.stage = stagePacked
		o.product.stock -= o.quantity
		kind := "stock.changed"
		if o.product.stock < stockLow {
			kind = "stock.low"
		}
		return []feed.Draft{o.draft(), stockDraft(kind, o.product)}
	case stagePacked:
		o.stage = stageShipped
	case stageShipped:
		if s.rand.IntN(8) > 0 {
			s.close(o, stageDelivered)
			break
		}
		s.close(o, stageReturned)
		o.product.stock += o.quantity
		return []feed.Draft{o.draft(), o.payment("payment.refunded"), stockDraft("stock.changed", o.product)}
	}
	return []feed.Draft{o.draft()}
}

// close ends an order's life.
func (s *shop) close(o *order, last stage) {
	o.stage = last
	s.open = slices.DeleteFunc(s.open, func(other *order) bool { return other == o })
}

func (o *order) cents() int { return o.quantity * o.product.cents }

func (o *order) draft() feed.Draft {
	return feed.Draft{
		Type:  "order." + string(o.stage),
		Topic: fmt.Sprintf("demo.orders.%s.%d", o.region, o.shop),
		Data: fmt.Appendf(nil, `{"order":%d,"sku":%q,"quantity":%d,"total_cents":%d,"status":%q}`,
			o.id, o.product.sku, o.quantity, o.cents(), o.stage),
	}
}

func (o *order) payment(kind string) feed.Draft {
	return feed.Draft{
		Type:  kind,
		Topic: "demo.payments." + o.region,
		Data:  fmt.Appendf(nil, `{"order":%d,"amount_cents":%d}`, o.id, o.cents()),
	}
}

func stockDraft(kind string, p *product) feed.Draft {
	return feed.Draft{
		Type:  kind,
		Topic: "demo.stock." + p.sku,
		Data:  fmt.Appendf(nil, `{"sku":%q,"level":%d}`, p.sku, p.stock),
	}
}
