package cascade_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/birth"
	"capri/cascade"
	"capri/internal/testenv"
	"capri/internal/workload"
)

// What a preview stores of a rerun on real pipelines is what the obvious search finds: of an hour, a day and a month, each
// batch once, after all that it waits for.
func TestAStored_preview_on_real_pipelines_is_what_the_obvious_search_finds(t *testing.T) {
	dir := testenv.Workloads(t)
	type span struct{ name, from, to string }
	spans := []span{{"a day", "2026-06-10", "2026-06-10"}, {"an hour", "2026-06-10 05:00:00", "2026-06-10 06:00:00"}, {"a month", "2026-06-01", "2026-06-30"}}
	for load, every := range map[string][]int{"wikimedia-refinery": {12, 7, 60}, "montage-dss10": {400}} { // of each span some roots
		t.Run(load, func(t *testing.T) {
			w := actiontest.SQLite(t)
			recorded, err := workload.Load(dir, load)
			require.NoError(t, err)
			specs := recorded.Specs(workload.Options{})
			tasks := w.Tasks(t, len(specs), func(i int, s *capri.Spec) {
				owner := s.Owner
				*s = specs[i]
				s.Owner, s.Valid = owner, capri.Validity{}
			})
			c := w.Actions.Calendar()
			at := func(text string) capri.Instant {
				v, err := c.ParseTime(text)
				require.NoError(t, err)
				return v
			}
			now := at("2026-07-02")
			w.Clock.Set(now)
			_, err = w.Store.DB().ExecContext(w.Ctx, fmt.Sprintf("UPDATE task SET first_mark = %d", at("2026-06-01")))
			require.NoError(t, err)
			refs, err := w.Store.ParentRefs(w.Ctx)
			require.NoError(t, err)
			obvious, err := cascade.SearchObviously(c, tasks, birth.Refs(refs), now)
			require.NoError(t, err)

			for i, n := range every {
				reached := 0
				for k := 0; k < len(tasks); k += n {
					p, err := w.Actions.Rerun(w.Ctx, actiontest.Who, action.RerunRequest{Task: tasks[k].Name, From: spans[i].from, To: spans[i].to, ByData: true, Cascade: "both", Preview: true})
					require.NoError(t, err)
					rows, err := w.Store.CampaignItems(w.Ctx, p.ID, nil, -1, 100_000)
					require.NoError(t, err)
					place := make(map[string]int, len(rows))
					var asked []capri.BatchNo
					for _, r := range rows {
						if r.Via < 0 {
							asked = append(asked, r.BatchNo)
						}
						place[r.TaskName+" "+string(r.BatchNo)] = r.Seq
						require.Equal(t, capri.ItemNew, r.Action)
					}
					require.Len(t, place, len(rows), "each is there once")
					what := spans[i].name + " of " + tasks[k].Name
					want := obvious.Reach(tasks[k].Name, asked, cascade.Both)
					require.Len(t, rows, len(want), what)
					for b, waits := range want {
						seq, in := place[b]
						require.True(t, in, "%s: %s is missing", what, b)
						for _, parent := range waits {
							require.Less(t, place[parent], seq, "%s: %s waits for %s", what, b, parent)
						}
					}
					reached += len(rows)
				}
				require.Greater(t, reached, 10, spans[i].name)
			}
		})
	}
}
