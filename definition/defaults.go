package definition

import (
	"strings"
	"time"

	"capri"
)

// DefaultFlag is the done-flag of a path that names none.
const DefaultFlag = "_SUCCESS"

// Default is a task of which nothing is said.
func Default() capri.Spec {
	return capri.Spec{
		Priority: 5,
		Job:      capri.Job{Type: "shell"},
		Worker:   capri.Placement{Pool: "default", Strategy: capri.LeastLoaded, Slots: 1},
		Limits:   capri.Limits{Concurrency: 1, BeginMinutes: -1},
		Retry:    capri.Retry{FailedIntervalS: 3, Rejected: -1, RejectedIntervalS: 3},
		Check:    capri.CheckExitCode,
		Cascade:  true,
		Alert:    capri.AlertRules{DefaultRules: true},
		Enabled:  true,
	}
}

// The defaults of list items.
var (
	defaultInput  = capri.Input{Flag: DefaultFlag}
	defaultOutput = capri.Output{Flag: DefaultFlag}
	defaultParent = capri.Parent{Policy: capri.All}
)

// normalize writes out what a definition leaves to be understood and brings equal meanings to one spelling, so
// that nobody after this package has to know the short forms.
func normalize(s *capri.Spec) {
	if s.Period == 0 && s.Cron != "" {
		s.Period = capri.Cron
	}
	if of, ok := capri.JobTypeAliases[s.Job.Type]; ok {
		s.Job.Type = of
	}
	if s.Job.Type == "http" {
		fillHTTP(&s.Job.HTTP)
	}
	s.Cron = strings.Join(strings.Fields(s.Cron), " ")
	s.Valid.From = normalTime(s.Valid.From, "00:00:00")
	s.Valid.To = normalTime(s.Valid.To, "23:59:59") // a bare date as an end means the end of that day (design §11)
}

// timeLayout is how validity times are kept. As text they then sort as on the clock.
const timeLayout = "2006-01-02 15:04:05"

// normalTime fills up a bare date or minute; what it cannot read stays as it is, for validation to refuse.
func normalTime(s, timeOfDay string) string {
	if _, err := time.Parse(time.DateOnly, s); err == nil {
		return s + " " + timeOfDay
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.Format(timeLayout)
		}
	}
	return s
}
