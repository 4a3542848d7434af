package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

type statusCommand struct {
	clientFlags
	JSON bool `help:"Print the gateway's own JSON. Without a terminal that is the default."`
}

// Help implements [kong.HelpProvider].
func (*statusCommand) Help() string {
	return `Exit code 0: the gateway serves; 3: it cannot be reached, or starts or drains.

Examples:
  gapless status
  gapless status --url http://10.0.0.7:8080 --json | jq .head_seq`
}

// statusPage is the answer of /api/v1/status, as far as the table needs it.
type statusPage struct {
	Version, Node, Status, Reason, Store, Epoch string

	Sealed  bool
	Restore *struct{ Guard string }

	OldestSeq      uint64 `json:"oldest_seq"`
	HeadSeq        uint64 `json:"head_seq"`
	RetainedEvents uint64 `json:"retained_events"`
	RetainedBytes  int64  `json:"retained_bytes"`
	Retention      struct {
		Events     uint64
		Bytes      int64
		AgeSeconds float64 `json:"age_seconds"`
	}
	UptimeSeconds float64 `json:"uptime_seconds"`
	Connections   struct{ Total, Replaying, Live, Lagging int }

	PublishedTotal uint64 `json:"published_total"`
	DeliveredTotal uint64 `json:"delivered_total"`
	Resyncs        map[string]uint64
	LastResync     *struct {
		Time   time.Time
		Reason string
	} `json:"last_resync"`
}

// Run prints the status.
func (c *statusCommand) Run(ctx context.Context, con *console) error {
	cl, err := c.newClient()
	if err != nil {
		return err
	}
	defer cl.close()
	var raw json.RawMessage
	if err := cl.getJSON(ctx, "/api/v1/status", &raw); err != nil {
		return err
	}
	var page statusPage
	if err := json.Unmarshal(raw, &page); err != nil || page.Status == "" {
		return fmt.Errorf("%s answered with something that is no gapless status", cl.base)
	}
	if c.JSON || !con.outTerminal {
		_, err = fmt.Fprintf(con.out, "%s\n", strings.TrimSpace(string(raw)))
	} else {
		err = page.table(con)
	}
	if err == nil && page.Status != "ready" {
		return &exitError{exitUnavailable, fmt.Errorf("the gateway does not serve: %s %s", printable(page.Status), printable(page.Reason))}
	}
	return err
}

func (p *statusPage) table(con *console) error {
	out := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	row("status", "%s %s", p.Status, p.Reason)
	row("node", "%s, gapless %s, up %v", p.Node, p.Version, time.Duration(p.UptimeSeconds)*time.Second)
	row("store", "%s", p.store())
	row("log", "%d to %d: %d events, %s", p.OldestSeq, p.HeadSeq, p.RetainedEvents, readableSize(p.RetainedBytes))
	row("keeps", "%s", p.keeps())
	row("connections", "%d: %d live, %d replaying, %d lagging",
		p.Connections.Total, p.Connections.Live, p.Connections.Replaying, p.Connections.Lagging)
	row("published", "%d events since the start", p.PublishedTotal)
	row("delivered", "%d events since the start", p.DeliveredTotal)
	row("resyncs", "%s", p.resyncs())
	return out.Flush()
}

func (p *statusPage) store() string {
	text := fmt.Sprintf("%s, epoch %s", p.Store, p.Epoch)
	if p.Restore != nil && p.Restore.Guard != "" {
		text += ", guard " + p.Restore.Guard
	}
	if p.Sealed {
		text += ", sealed by a final backup: it takes no events"
	}
	return text
}

func (p *statusPage) keeps() string {
	var bounds []string
	if p.Retention.Events > 0 {
		bounds = append(bounds, fmt.Sprintf("%d events", p.Retention.Events))
	}
	if p.Retention.Bytes > 0 {
		bounds = append(bounds, readableSize(p.Retention.Bytes))
	}
	if p.Retention.AgeSeconds > 0 {
		bounds = append(bounds, shortDuration(time.Duration(p.Retention.AgeSeconds*float64(time.Second))))
	}
	return "at most " + strings.Join(bounds, ", ")
}

func (p *statusPage) resyncs() string {
	var reasons []string
	for reason, n := range p.Resyncs {
		if n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
		}
	}
	if len(reasons) == 0 {
		return "none"
	}
	slices.Sort(reasons)
	text := strings.Join(reasons, ", ")
	if p.LastResync != nil {
		text += fmt.Sprintf("; last %s at %s", p.LastResync.Reason, p.LastResync.Time.Local().Format(time.DateTime))
	}
	return text
}

// readableSize rounds to three digits; [size.String] is exact.
func readableSize(n int64) string {
	for _, u := range sizeUnits() {
		if n >= u.bytes && u.bytes > 1 {
			return fmt.Sprintf("%.3g %s", float64(n)/float64(u.bytes), u.suffix)
		}
	}
	return fmt.Sprintf("%d B", n)
}
