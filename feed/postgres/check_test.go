//go:build linux && e2e

package postgres

import (
	"strings"
	"testing"

	"gapless/feed"
)

func TestCheckFindsDamage(t *testing.T) {
	for what, damage := range map[string]string{
		"a hole":                  "delete from gapless.events where seq = 5",
		"a missing head":          "delete from gapless.events where seq = 10",
		"a missing oldest":        "delete from gapless.events where seq = 3",
		"an event too many":       "insert into gapless.events select 11, total, time, size, fence, id, type, topic, source, data, ce from gapless.events where seq = 10",
		"a size":                  "update gapless.events set size = size + 1 where seq = 6",
		"a running sum":           "update gapless.events set total = total + 1 where seq = 6",
		"changed data":            "update gapless.events set data = data || ' ' where seq = 6",
		"a fence":                 "update gapless.events set fence = 'lower123' where seq = 6",
		"the head's fence":        "update gapless.instance set head_fence = '00000000'",
		"no head's fence":         "update gapless.instance set head_fence = ''",
		"no trimmed fence":        "update gapless.instance set trimmed_fence = ''",
		"a time that goes back":   "update gapless.events set time = time - interval '1 day' where seq = 6",
		"a time after the head's": "update gapless.instance set last_time = last_time - interval '1 day'",
		"the sum":                 "update gapless.instance set total = total + 1",
		"the trimmed sum":         "update gapless.instance set trimmed_total = trimmed_total - 1",
		"a consumer's epoch":      "update gapless.consumers set epoch = 'x'",
		"a consumer's reset":      "update gapless.consumers set reset_from = 'x'",
	} {
		t.Run(what, func(t *testing.T) {
			url := database(t)
			s := open(t, url, quiet, func(cfg *Config) { cfg.Retention = feed.Retention{Events: 8} })
			at := grow(t, s, 10)
			if err := s.CreateConsumer(t.Context(), feed.Consumer{Name: "c", Cursor: at[9]}); err != nil {
				t.Fatal(err)
			}
			var progress []float64
			if err := s.Check(t.Context(), func(done float64) { progress = append(progress, done) }); err != nil {
				t.Fatal(err)
			}
			if len(progress) < 2 || progress[len(progress)-1] != 1 {
				t.Errorf("the progress was %v", progress)
			}
			exec(t, dial(t, url), damage)
			err := s.Check(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("%v", err)
			} else {
				t.Log(err)
			}
		})
	}
}

func TestCheckLooksAtIndexesWhereItCan(t *testing.T) {
	url := database(t)
	s := open(t, url, quiet)
	grow(t, s, 10)
	conn := dial(t, url)
	if scan[int](t, conn, "select count(*) from pg_available_extensions where name = 'amcheck'") == 0 {
		t.Log("this PostgreSQL has no amcheck")
		return
	}
	exec(t, conn, "create extension amcheck")
	if err := s.Check(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// An index whose order is turned around beneath it.
	exec(t, conn, `
		create function gapless.compare(text, text) returns int language sql immutable as 'select bttextcmp($1, $2)';
		create operator class gapless.turned for type text using btree as
			operator 1 <, operator 2 <=, operator 3 =, operator 4 >=, operator 5 >, function 1 gapless.compare(text, text);
		create index turned on gapless.events (fence gapless.turned);
		create or replace function gapless.compare(text, text) returns int language sql immutable as 'select -bttextcmp($1, $2)'`)
	if err := s.Check(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "turned") {
		t.Errorf("a broken index: %v", err)
	}
}
