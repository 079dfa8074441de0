// Package metrics writes what Prometheus reads: its text format, and a histogram of requests. It is a hundred lines because
// the usual library costs an idle standalone some 2 MB, which is more than the promise of 40 MB leaves (docs/decisions/0039).
//
//	Family ─ one metric: name, what it is, its samples
//	Write  ─ families as text, version 0.0.4
package metrics

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Types of a family.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Family is one metric.
type Family struct {
	Name, Type, Help string
	Samples          []Sample
}

// Sample is one line: labels as pairs name, value, and the figure. Suffix is _bucket, _sum or _count of a histogram.
type Sample struct {
	Suffix string
	Labels []string
	Value  float64
}

// Of makes a sample.
func Of(value float64, labels ...string) Sample { return Sample{Labels: labels, Value: value} }

var (
	helpText   = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Write writes families in their order. One without samples still says that it exists.
func Write(w io.Writer, families []Family) error {
	b := bufio.NewWriter(w)
	for _, f := range families {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", f.Name, helpText.Replace(f.Help), f.Name, f.Type)
		for _, s := range f.Samples {
			_, _ = b.WriteString(f.Name + s.Suffix) // Flush tells
			for i := 0; i+1 < len(s.Labels); i += 2 {
				open := ","
				if i == 0 {
					open = "{"
				}
				_, _ = b.WriteString(open + s.Labels[i] + `="` + labelValue.Replace(strings.ToValidUTF8(s.Labels[i+1], "?")) + `"`)
			}
			if len(s.Labels) > 1 {
				_ = b.WriteByte('}')
			}
			_, _ = b.WriteString(" " + number(s.Value) + "\n")
		}
	}
	return b.Flush()
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// buckets are the upper bounds of a duration, in seconds.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30}

// Durations counts what took how long, by labels. The zero value is ready; it is safe for concurrent use.
type Durations struct {
	mu sync.Mutex
	by map[string]*durations
}

type durations struct {
	labels []string
	counts []uint64 // of each bucket alone, and of all above
	sum    float64
}

// Add counts one that took so long. Labels are pairs name, value; their values come from a list that is bounded.
func (d *Durations) Add(took time.Duration, labels ...string) {
	key := strings.Join(labels, "\x00")
	at, _ := slices.BinarySearch(buckets, took.Seconds())
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.by[key]
	if x == nil {
		if d.by == nil {
			d.by = map[string]*durations{}
		}
		x = &durations{labels: slices.Clone(labels), counts: make([]uint64, len(buckets)+1)}
		d.by[key] = x
	}
	x.counts[at]++
	x.sum += took.Seconds()
}

// Samples are those of a histogram family.
func (d *Durations) Samples() []Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]string, 0, len(d.by))
	for k := range d.by {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []Sample
	for _, k := range keys {
		x, n := d.by[k], uint64(0)
		for i, c := range x.counts {
			n += c
			bound := math.Inf(1)
			if i < len(buckets) {
				bound = buckets[i]
			}
			out = append(out, Sample{"_bucket", append(slices.Clone(x.labels), "le", number(bound)), float64(n)})
		}
		out = append(out, Sample{"_sum", x.labels, x.sum}, Sample{"_count", x.labels, float64(n)})
	}
	return out
}
