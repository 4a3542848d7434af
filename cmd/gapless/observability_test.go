package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"gopkg.in/yaml.v3"

	"gapless/feed"
)

// deployDir holds what operators load into other programs.
const deployDir = "../../docs/deploy/"

// liveMetrics serves a few requests and returns the series of /metrics: the
// labels of each name.
func liveMetrics(t *testing.T) map[string][]string {
	t.Helper()
	con := &console{out: io.Discard, err: io.Discard}
	parsed, err := newParser(t.Context(), con, "test").Parse([]string{"config"})
	if err != nil {
		t.Fatal(err)
	}
	f := parsed.Selected().Target.Addr().Interface().(*configCommand).serveFlags
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	log, err := openStore(t.Context(), f.store, f.storeOptions(zerolog.Nop()))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	gw, err := newGateway(&f, log, zerolog.Nop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(gw.server.Handler())
	defer hs.Close()
	get := func(path string) string {
		res, err := http.Get(hs.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	get("/healthz") // the request series exist from the first request on
	series := make(map[string][]string)
	sample := regexp.MustCompile(`^([a-z_]+)(?:{(.*)})? `)
	label := regexp.MustCompile(`([a-z_]+)="`)
	for line := range strings.Lines(get("/metrics")) {
		if m := sample.FindStringSubmatch(line); m != nil {
			labels := []string{}
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				labels = append(labels, l[1])
			}
			series[m[1]] = labels
		}
	}
	return series
}

// checkExpression looks at every metric that an expression names and at the
// labels that it selects or groups by.
func checkExpression(t *testing.T, series map[string][]string, where, expr string) {
	t.Helper()
	names := regexp.MustCompile(`\b((?:gapless|process|go)_[a-z_]+)\b({[^}]*})?`)
	matcher := regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	// Prometheus adds these to what it scrapes.
	allowed := []string{"job", "instance"}
	for _, m := range names.FindAllStringSubmatch(expr, -1) {
		labels, ok := series[m[1]]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, m[1])
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) && l[1] != "job" && l[1] != "instance" {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
		allowed = append(allowed, labels...)
	}
	for _, by := range regexp.MustCompile(`by \(([a-z_, ]*)\)`).FindAllStringSubmatch(expr, -1) {
		for name := range strings.SplitSeq(by[1], ",") {
			if name = strings.TrimSpace(name); !slices.Contains(allowed, name) {
				t.Errorf("%s: nothing has the label %s", where, name)
			}
		}
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
		t.Errorf("%s: unbalanced: %s", where, expr)
	}
}

func TestDashboardUsesMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile(deployDir + "grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	type panel struct {
		ID      int
		Type    string
		Title   string
		Targets []struct{ Expr string }
		GridPos struct{ H, W, X, Y int }
	}
	var dashboard struct {
		UID, Title string
		Panels     []panel
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	series := liveMetrics(t)
	used := string(text)
	ids := make(map[int]bool)
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: its id, title or place is wrong", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			checkExpression(t, series, "panel "+p.Title, target.Expr)
		}
	}
	if dashboard.UID == "" || len(dashboard.Templating.List) != 3 {
		t.Errorf("uid %q, %d variables", dashboard.UID, len(dashboard.Templating.List))
	}
	for name := range series {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "gapless_") && !strings.Contains(used, base) && base != "gapless_last_resync_timestamp_seconds" {
			t.Errorf("%s is on no panel", base)
		}
	}
}

func TestAlertsUseMetricsThatExistAndHaveARunbookEntry(t *testing.T) {
	text, err := os.ReadFile(deployDir + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile(deployDir + "runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	series := liveMetrics(t)
	entries := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^## (\S+)$`).FindAllStringSubmatch(string(runbook), -1) {
		entries[m[1]] = false
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			checkExpression(t, series, rule.Alert, rule.Expr)
			if rule.For != "" {
				if _, err := time.ParseDuration(rule.For); err != nil {
					t.Errorf("%s: for: %v", rule.Alert, err)
				}
			}
			if !slices.Contains([]string{"critical", "warning"}, rule.Labels["severity"]) || rule.Annotations["summary"] == "" {
				t.Errorf("%s: no severity or no summary", rule.Alert)
			}
			if want := "docs/deploy/runbook.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook"] != want {
				t.Errorf("%s: runbook %q, want %q", rule.Alert, rule.Annotations["runbook"], want)
			}
			if _, ok := entries[rule.Alert]; !ok {
				t.Errorf("%s: no entry in the runbook", rule.Alert)
			}
			entries[rule.Alert] = true
		}
	}
	for name, used := range entries {
		if !used {
			t.Errorf("the runbook's %s is no alert", name)
		}
	}
	if len(entries) == 0 {
		t.Error("no alerts")
	}
	for _, reason := range regexp.MustCompile(`reason=~"([a-z_|]+)"`).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(reason[1], "|") {
			if !slices.Contains(feed.Reasons(), feed.Reason(name)) {
				t.Errorf("there is no resync reason %q", name)
			}
		}
	}
}

func TestRunbookNamesPanelsAndFlagsThatExist(t *testing.T) {
	runbook, err := os.ReadFile(deployDir + "runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	dashboard, err := os.ReadFile(deployDir + "grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`[^*]\*([A-Z][^*]+)\*[^*]`).FindAllStringSubmatch(string(runbook), -1) {
		if !strings.Contains(string(dashboard), `"title": "`+m[1]+`"`) {
			t.Errorf("there is no panel %q", m[1])
		}
	}
	flags := flagNames(t)
	for _, m := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(string(runbook), -1) {
		if !slices.Contains(flags, m[1]) {
			t.Errorf("there is no flag --%s", m[1])
		}
	}
}
