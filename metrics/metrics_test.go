package metrics_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capri/metrics"
)

// What we write, Prometheus' own parser reads back.
func TestTheText_is_what_Prometheus_reads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value, help := rapid.String().Draw(t, "label"), rapid.StringMatching(`[^\x00-\x09\x0b-\x1f]*`).Draw(t, "help")
		n := rapid.Float64().Draw(t, "value")
		var d metrics.Durations
		d.Add(30*time.Millisecond, "route", value)
		d.Add(time.Hour, "route", value)
		var out bytes.Buffer
		require.NoError(t, metrics.Write(&out, []metrics.Family{
			{Name: "capri_a", Type: metrics.Gauge, Help: help, Samples: []metrics.Sample{metrics.Of(n, "x", value, "y", "1"), metrics.Of(2, "x", "", "y", "2")}},
			{Name: "capri_none", Type: metrics.Counter, Help: "x"},
			{Name: "capri_took_seconds", Type: metrics.Histogram, Help: "x", Samples: d.Samples()},
		}))
		var parser expfmt.TextParser
		got, err := parser.TextToMetricFamilies(&out)
		require.NoError(t, err)
		a := got["capri_a"].GetMetric()[0]
		assert.Equal(t, strings.ToValidUTF8(value, "?"), a.GetLabel()[0].GetValue())
		if !math.IsNaN(n) {
			assert.InDelta(t, n, a.GetGauge().GetValue(), 0)
		}
		h := got["capri_took_seconds"].GetMetric()[0].GetHistogram()
		assert.Equal(t, uint64(2), h.GetSampleCount())
		assert.InDelta(t, 3600.03, h.GetSampleSum(), 1e-9)
		for _, b := range h.GetBucket() {
			want := map[bool]uint64{true: 1}[b.GetUpperBound() >= 0.05]
			if math.IsInf(b.GetUpperBound(), 1) {
				want = 2
			}
			assert.Equal(t, want, b.GetCumulativeCount(), b.GetUpperBound())
		}
	})
}
