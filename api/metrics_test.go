package api_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/api"
	"capri/auth"
	"capri/internal/testenv"
	"capri/metrics"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestDocsMetrics_lists_exactly_the_metrics_there_are(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs/metrics.md"))
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllSubmatch(text, -1) {
		listed = append(listed, string(m[1]))
	}
	assert.Equal(t, api.MetricNames(), listed)
	_, alertRules, found := bytes.Cut(text, []byte("## Alert rules"))
	require.True(t, found)
	for _, m := range regexp.MustCompile(`capri_[a-z_]+`).FindAllString(string(alertRules), -1) {
		assert.True(t, slices.ContainsFunc(listed, func(n string) bool { return m == n || m == n+"_bucket" || m == n+"_count" }), "a rule asks for %s", m)
	}
}

func TestMetrics_say_how_the_work_stands_and_ask_the_database_once_in_fifteen_seconds(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		clock := time.Unix(0, 0)
		turns := &metrics.Durations{}
		turns.Add(time.Second, "service", "dispatch", "outcome", "done")
		h := api.New(api.Options{Store: w.Store, Actions: w.Actions, Version: "v1", Turns: turns, Clock: func() time.Time { return clock }, Channels: api.Channels{Names: []string{"mail"}}})
		key, err := w.Actions.CreateApp(w.Ctx, actiontest.Who, store.App{Name: "prometheus", Role: string(auth.ReadOnly)}, store.Credential{})
		require.NoError(t, err)
		scrape := func() func(name string, labels ...string) float64 {
			t.Helper()
			req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			req.Header.Set("Authorization", "Bearer "+key)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())
			var parser expfmt.TextParser
			all, err := parser.TextToMetricFamilies(rec.Body)
			require.NoError(t, err)
			return func(name string, labels ...string) float64 {
				t.Helper()
				for _, m := range all[name].GetMetric() {
					fits := true
					for i := 0; i < len(labels); i += 2 {
						fits = fits && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] })
					}
					if fits {
						return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
					}
				}
				t.Fatalf("no %s %v", name, labels)
				return 0
			}
		}
		coldStart := func(day string) {
			t.Helper()
			w.ColdStart(action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: day, To: day, ByData: true})
		}
		w.Apply(`tasks:
- {name: free, owner: alice, period: day, job: {command: x}, valid: {from: "2020-01-01"}}
- {name: stuck, owner: alice, period: day, job: {command: x}, inputs: [{path: /nowhere}], valid: {from: "2020-01-01"}}
`)
		coldStart("2026-11-19")
		lease := w.DB.Lease(t, "generate")
		require.NoError(t, w.Store.StartMarkLog(w.Ctx, lease, capri.Day, sqltest.Start.Add(-48*time.Hour)))
		require.NoError(t, w.Store.SaveServiceState(w.Ctx, store.ServiceState{Service: "dispatch", Holder: "x", Epoch: 1, StartedAt: w.Clock.Now().Add(-time.Minute),
			CompletedAt: w.Clock.Now().Add(-time.Minute), Duration: 2 * time.Second}))
		w.Clock.Advance(10 * time.Second)
		m := scrape()
		assert.InDelta(t, 1, m("capri_build_info", "version", "v1"), 0)
		assert.InDelta(t, 1, m("capri_database_up"), 0)
		assert.InDelta(t, 1, m("capri_batches", "state", "ready"), 0)
		assert.InDelta(t, 1, m("capri_batches", "state", "blocked"), 0)
		assert.InDelta(t, 10, m("capri_ready_oldest_age_seconds"), 1)
		assert.InDelta(t, 1, m("capri_lease_held", "lease", "generate", "leader", "test"), 0)
		assert.InDelta(t, 70, m("capri_service_completed_age_seconds", "service", "dispatch"), 1)
		assert.InDelta(t, 2, m("capri_service_duration_seconds", "service", "dispatch"), 0)
		assert.InDelta(t, 1, m("capri_service_turn_seconds", "service", "dispatch"), 0)
		assert.Greater(t, m("capri_generation_lag_seconds", "period", "day"), 3600.0)
		assert.InDelta(t, 0, m("capri_generation_lag_seconds", "period", "hour"), 0, "its log has not begun")
		assert.InDelta(t, 0, m("capri_messages_waiting", "channel", "mail"), 0)
		assert.Greater(t, m("process_resident_memory_bytes"), 1e6)

		coldStart("2026-11-18")
		assert.InDelta(t, 1, scrape()("capri_batches", "state", "ready"), 0, "not asked again so soon")
		clock = clock.Add(15 * time.Second)
		m = scrape()
		assert.InDelta(t, 2, m("capri_batches", "state", "ready"), 0)
		assert.InDelta(t, 2, m("capri_http_request_seconds", "route", "/metrics", "code", "200"), 0)

		clock = clock.Add(15 * time.Second)
		for range 3 {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/made/up", nil))
		}
		assert.InDelta(t, 3, scrape()("capri_http_request_seconds", "route", "other", "code", "404"), 0, "what callers make up is no label")
	})
}

func TestMetrics_are_refused_without_a_key_and_to_a_key_that_is_not_made_for_them(t *testing.T) {
	r := newRig(t, actiontest.SQLite(t))
	assert.Equal(t, http.StatusUnauthorized, r.ask("", "GET", "/metrics", "").Code)
	rule, known := auth.RuleOf(auth.MetricsRead)
	require.True(t, known)
	assert.False(t, rule.Public)
	assert.Equal(t, auth.ScopeMetrics, rule.Scope)
	p := auth.Principal{Kind: auth.App, Name: "p", Role: auth.ReadOnly, Scopes: []auth.Scope{auth.ScopeRead}}
	require.ErrorIs(t, p.Reaches(auth.MetricsRead), capri.ErrForbidden)
	p.Scopes = []auth.Scope{auth.ScopeMetrics}
	require.NoError(t, p.Reaches(auth.MetricsRead))
	require.ErrorIs(t, p.Reaches(auth.BatchRead), capri.ErrForbidden)
	assert.Equal(t, http.StatusOK, r.ask(auth.ReadOnly, "GET", "/openapi.json", "").Code)
}
