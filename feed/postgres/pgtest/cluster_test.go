//go:build linux && e2e

package pgtest

import "testing"

func TestAClusterSurvivesBeingKilled(t *testing.T) {
	c := New(t)
	url := c.Database(t)
	c.Exec(t, "test_1", "create table kept (n int)")
	c.Exec(t, "test_1", "insert into kept values (42)")
	c.Kill(t)
	c.Start(t)
	if got := c.Run(t, Binary(t, "psql"), "-Atc", "select n from kept", url); got != "42\n" {
		t.Errorf("%q came back", got)
	}
	c.Restart(t)
	if got := c.Run(t, Binary(t, "psql"), "-Atc", "select n from kept", url); got != "42\n" {
		t.Errorf("%q came back", got)
	}
}
