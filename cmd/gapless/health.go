package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

type healthCommand struct {
	clientFlags
	Live    bool          `help:"Ask only whether the process answers, not whether it serves."`
	Timeout time.Duration `default:"2s" help:"How long the answer may take."`
}

// Help implements [kong.HelpProvider].
func (*healthCommand) Help() string {
	return `For container health checks: 0 if the gateway serves, 1 with the reason on stderr if it starts, drains, fails or cannot be reached. Without a URL it asks the address in GAPLESS_LISTEN, on this machine where that is every address.

Examples:
  gapless health
  gapless health --live --timeout 500ms
  HEALTHCHECK CMD ["/gapless", "health"]`
}

// Run asks once.
func (c *healthCommand) Run(ctx context.Context) error {
	if c.Timeout <= 0 {
		return usageErrorf("--timeout %v: want a duration above 0, such as 2s", c.Timeout)
	}
	cl, err := c.newClient()
	if err != nil {
		return err
	}
	defer cl.close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	path := "/readyz"
	if c.Live {
		path = "/healthz"
	}
	res, err := cl.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return &exitError{exitFailure, fmt.Errorf("unhealthy: %w", err)} // 1, whatever failed
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("unhealthy: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("unhealthy: %w", newAPIError(res, body))
	}
	return nil
}
