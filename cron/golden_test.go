package cron_test

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/cron"
)

// golden is a row of what Quartz's own CronExpression answered.
type golden struct {
	expression, zone, after, verdict, fires, wall, err string
}

// goldens reads the tables of testdata. quartz_sample.csv has all kinds of rows, and in the column wall what the
// plain reading of the clock gives where Quartz differs. quartz_random.csv has random expressions and days around
// clock changes for which Quartz answers plainly.
func goldens(t testing.TB) []golden {
	t.Helper()
	var all []golden
	for _, name := range []string{"testdata/quartz_sample.csv", "testdata/quartz_random.csv"} {
		file, err := os.Open(name)
		require.NoError(t, err)
		rows, err := csv.NewReader(file).ReadAll()
		require.NoError(t, err)
		require.NoError(t, file.Close())
		for _, r := range rows[1:] {
			all = append(all, golden{r[0], r[1], r[2], r[3], r[4], r[5], r[6]})
		}
	}
	return all
}

func TestFiresAgreeWithQuartz(t *testing.T) {
	checked := 0
	for _, g := range goldens(t) {
		if g.verdict == "error" {
			continue
		}
		t.Run(g.expression+" in "+g.zone+" after "+g.after, func(t *testing.T) {
			e, z := parse(t, g.expression), zone(t, g.zone)
			want := strings.Fields(g.fires)
			// The rule for equal hours: fixed hours as Quartz has it, running ones by the clock.
			if g.wall != "" && !e.FixedHours() {
				want = strings.Fields(g.wall)
			}
			last := instant(t, want[len(want)-1])

			var got []time.Time
			at, ok := e.Next(instant(t, g.after), z)
			for ; ok && len(got) < len(want); at, ok = e.Next(at, z) {
				got = append(got, at)
			}
			assert.Equal(t, want, inUTC(got))
			if g.verdict == "end" {
				assert.False(t, ok, "a fire after the last")
			}
			assert.Equal(t, want, inUTC(backwards(e, instant(t, g.after).Add(1), last.Add(1), z)))
		})
		checked += len(strings.Fields(g.fires))
	}
	assert.Greater(t, checked, 2000, "fires")
}

func TestQuartzRefusals(t *testing.T) {
	all := goldens(t)
	all = slices.DeleteFunc(all, func(g golden) bool { return g.verdict != "error" })
	require.Len(t, all, 17)
	for _, g := range all {
		t.Run(g.expression, func(t *testing.T) {
			_, err := cron.Parse(g.expression)
			var refusal *cron.Error
			require.ErrorAs(t, err, &refusal)
			t.Log(err)
		})
	}
}
