package api

import (
	"net/http"

	"capri/auth"
)

// NewWithActs is New, and gives the act of each route, by method and pattern.
func NewWithActs(o Options) (http.Handler, map[string]auth.Act) {
	s := newServer(o)
	return s.router, s.acts
}

// FileOfExamples is the file of examples.
func FileOfExamples() []byte { return examples }

// MetricNames are the names of all metrics.
func MetricNames() []string {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.name
	}
	return names
}
