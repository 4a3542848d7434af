package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"gapless/feed"
)

// storeCollector reads what the store says about itself when it is scraped.
// Every store has every series: an alert then sees the first change.
type storeCollector struct {
	feed         *feed.Feed
	watch        *storeWatch
	notFinalized *prometheus.Desc
	sealed       *prometheus.Desc
	outboxMoved  *prometheus.Desc
	outboxParked *prometheus.Desc
}

func newStoreCollector(f *feed.Feed, watch *storeWatch) *storeCollector {
	return &storeCollector{
		feed:         f,
		watch:        watch,
		notFinalized: feedDesc("store_restore_not_finalized", "1 while the store's guard keeps it shut until an operator says what happened to it, else 0."),
		sealed:       feedDesc("store_sealed", "1 where a final backup has sealed the store, so that it takes no events, else 0."),
		outboxMoved:  feedDesc("store_outbox_moved_total", "Rows of the transactional outbox that became events, or were repeats of one."),
		outboxParked: feedDesc("store_outbox_parked_total", "Rows of the transactional outbox that can never become an event, and were put aside."),
	}
}

// Describe implements [prometheus.Collector].
func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.notFinalized, c.sealed, c.outboxMoved, c.outboxParked} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, on bool) {
		value := 0.0
		if on {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	gauge(c.notFinalized, shut(c.feed))
	gauge(c.sealed, c.watch.look(context.Background()).Sealed)
	outbox := c.watch.outbox()
	ch <- prometheus.MustNewConstMetric(c.outboxMoved, prometheus.CounterValue, float64(outbox.Moved))
	ch <- prometheus.MustNewConstMetric(c.outboxParked, prometheus.CounterValue, float64(outbox.Parked))
}
