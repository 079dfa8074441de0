package cron_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"capri/cron"
)

// FuzzParse looks for text that breaks the parser, or that it takes and the search then stumbles over.
func FuzzParse(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.expression)
	}
	f.Add("0 0 0 L-3W NOV-FEB ? 2026-2028/2")
	f.Add("0 0 0 ? * MON,3-5,FRI 1970/229")
	f.Add("59 59 23 31W 12 ? 2199")
	zones := []*time.Location{time.UTC, zone(f, "America/New_York"), zone(f, "Australia/Lord_Howe"), zone(f, "Pacific/Apia")}
	starts := []time.Time{{}, instant(f, "2011-12-29T12:00:00Z"), instant(f, "2026-10-31T18:00:00Z"), instant(f, "2199-12-30T00:00:00Z")}

	f.Fuzz(func(t *testing.T, text string) {
		e, err := cron.Parse(text)
		if err != nil {
			var refusal *cron.Error
			if !errors.As(err, &refusal) || refusal.Field == "" || refusal.Want == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		again := parse(t, e.String())
		assert.Equal(t, e, again)
		for _, z := range zones {
			for _, at := range starts {
				for range 5 {
					next, ok := e.Next(at, z)
					if !ok {
						break
					}
					if !next.After(at) || next.Nanosecond() != 0 || next.In(z).Year() < 1970 || next.In(z).Year() > 2199 {
						t.Fatalf("%q: %v after %v", e, next, at)
					}
					if prev, ok := e.Prev(next, z); ok && prev.After(at) {
						t.Fatalf("%q: %v is between %v and its next %v", e, prev, at, next)
					}
					at = next
				}
			}
		}
	})
}
