package cascade

import (
	"fmt"
	"testing"

	"capri"
	"capri/internal/testenv"
	"capri/internal/workload"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// On real pipelines a rerun of an hour, a day and a month of any root reaches exactly what the obvious search finds.
func TestReach_on_real_pipelines_is_what_the_obvious_search_finds(t *testing.T) {
	dir := testenv.Workloads(t)
	for _, load := range []string{"wikimedia-refinery", "montage-dss10", "genome-2ch"} {
		recorded, err := workload.Load(dir, load)
		require.NoError(t, err)
		specs := recorded.Specs(workload.Options{})
		for i := range specs {
			specs[i].Valid = capri.Validity{}
		}
		for _, span := range []struct{ name, from, to, now, first string }{
			{"an hour", "2026-06-10 05:00", "2026-06-10 06:00", "2026-07-12", "2026-05-25"},
			{"a day", "2026-06-10", "2026-06-11", "2026-07-12", "2026-05-25"},
			{"a month", "2026-06-01", "2026-07-01", "2026-07-12", "2026-05-25"},
		} {
			if load != "wikimedia-refinery" && span.name != "a day" {
				continue // these have days alone
			}
			w, err := newWorld("UTC", 0, specs...)
			require.NoError(t, err)
			for id, ref := range w.refs {
				ref.First = at(t, w.c, span.first)
				w.refs[id] = ref
			}
			from, to, now := at(t, w.c, span.from), at(t, w.c, span.to), at(t, w.c, span.now)
			all, err := w.batches(now)
			require.NoError(t, err)
			rows := edgesOf(all)
			g := w.graph()
			require.Empty(t, g.Broken())

			asked := 0
			for n, task := range w.tasks {
				if load == "montage-dss10" && n%24 != 0 || span.name == "a month" && n%5 != 0 {
					continue // some of many that are alike
				}
				var roots []name
				root := Root{Task: task.ID}
				for _, iv := range w.intervals(task, from, now) {
					if iv.Start >= from && iv.End <= to {
						root.Intervals = append(root.Intervals, iv)
						roots = append(roots, name{task.Name, iv.BatchNo})
					}
				}
				if len(roots) == 0 {
					continue
				}
				asked++
				for _, by := range []By{Logic, Data, Both} {
					items, err := g.Reach([]Root{root}, by, now, 100_000)
					require.NoError(t, err, "%s %s %s by %s", load, task.Name, span.name, by)
					assert.NoError(t, compare(items, rows.reach(roots, by)), "%s: %s of %s by %s", load, span.name, task.Name, by)
				}
			}
			assert.Greater(t, asked, 3, fmt.Sprintf("%s, %s", load, span.name))
		}
	}
}

// What the benchmarks measure is right: all that depends on one root, by day, week and month.
func TestReach_of_many_descendants_is_what_the_obvious_search_finds(t *testing.T) {
	w, err := newWorld("Europe/Berlin", 0, workload.Descendants(1500)...)
	require.NoError(t, err)
	now := at(t, w.c, "2026-11-20 09:00")
	for id, ref := range w.refs {
		ref.First = at(t, w.c, "2026-09-30")
		w.refs[id] = ref
	}
	all, err := w.batches(now)
	require.NoError(t, err)
	rows := edgesOf(all)
	root := Root{w.task("root").ID, []capri.Interval{w.c.EndedBy(capri.Day, at(t, w.c, "2026-10-05"))}}
	for _, by := range []By{Logic, Data, Both} {
		items, err := w.graph().Reach([]Root{root}, by, now, 100_000)
		require.NoError(t, err)
		if by == Both {
			require.Equal(t, 1501, len(items))
		}
		require.NoError(t, compare(items, rows.reach([]name{{"root", root.Intervals[0].BatchNo}}, by)), by.String())
	}
}
