package action_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/birth"
	"capri/calendar"
	"capri/sql/store"
)

// Seed 000 §2.4: whatever is edited, a batch that still waits waits for what a batch made anew would wait for; what has
// left waiting, and the snapshot of every batch, stay as they were.
func TestEdits_leave_waiting_batches_as_if_they_were_made_anew(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("CAPRI_TEST_SEED"), 10, 64); err == nil {
		seed = s
	}
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		t.Logf("CAPRI_TEST_SEED=%d", seed)
		rng := rand.New(rand.NewPCG(seed, 7))
		pick := func(texts ...string) string { return texts[rng.IntN(len(texts))] }
		valid, periods := []string{""}, []string{"day"} // an edited valid.from asks for the earliest schedule_time, which of an execution is now
		task := func(name, period, parents string) string {
			return fmt.Sprintf("- {name: %s, owner: alice, group: g, %s, priority: %d, job: {command: %s}, valid: {from: %q}, inputs: [%s], outputs: [%s], third_party: [%s], parents: [%s]}\n",
				name, period, rng.IntN(10), pick("a", "b"), pick(valid...),
				pick("", `{path: "/in/${yyyyMMdd}"}`, `{path: "/in/${yyyyMMddHH}", unit: hour, from: -2, to: 0}`), pick("", `{path: "/`+name+`/${yyyyMMddHH}"}`),
				pick("", "{code: closed}"), parents)
		}
		file := func() string {
			window := func() string {
				return pick("", ", from: -1, to: 0", ", policy: ANYONE, from: -2, to: 0", ", policy: LASTONE")
			}
			hour := task("hour", "period: hour", pick("", "{task: hour, from: -1, to: -1}"))
			tick := task("tick", `cron: "`+pick("0 0/20 * * * ?", "0 0 0/2 * * ?")+`"`, pick("", "{task: hour}"))
			day := task("day", "period: "+pick(periods...), pick("", "{task: hour}", "{task: tick}", "{task: hour}, {task: tick"+window()+"}"))
			last := task("last", "period: day", pick("{task: day"+window()+"}", "{task: day}, {task: tick}", "{task: last, from: -1, to: -1}", ""))
			return "tasks:\n" + hour + tick + day + last
		}
		w.Apply(file())
		// Parents first, and the oldest: what is made later of a parent is waited for by what is made from then on.
		for _, made := range []struct {
			task string
			nos  []string
		}{
			{"hour", []string{"2026111800", "2026111801", "2026111913"}}, {"tick", []string{"20261118000000", "20261119140000", "20261119160000"}},
			{"day", []string{"20261117", "20261118", "20261119"}}, {"last", []string{"20261118", "20261119"}},
		} {
			for _, no := range made.nos {
				_, err := w.Actions.Execute(w.Ctx, actiontest.Who, action.ExecuteRequest{Task: made.task, Interval: no})
				require.NoError(t, err)
			}
		}
		periods = []string{"day", "day", "week"}
		versions := map[capri.BatchID]int{}
		held := map[capri.BatchID][]string{}
		rederived := 0
		for range 12 {
			before, err := w.Store.Batches(w.Ctx, store.BatchFilter{Limit: 10_000})
			require.NoError(t, err)
			if len(versions) == 0 {
				for _, b := range before {
					versions[b.ID] = b.TaskVersion
				}
				// One leaves waiting: it is to keep what it was made with.
				b := before[rng.IntN(len(before))]
				_, err := w.Actions.RunNow(w.Ctx, actiontest.Who, []capri.BatchID{b.ID}, "urgent")
				require.NoError(t, err)
				w.Start(b.ID)
				held[b.ID] = conditionsOf(t, w, b.ID)
			}
			w.Apply(file())
			maker := makerOf(t, w)
			tasks, err := w.Store.Tasks(w.Ctx, store.TaskFilter{})
			require.NoError(t, err)
			after, err := w.Store.Batches(w.Ctx, store.BatchFilter{Limit: 10_000})
			require.NoError(t, err)
			require.Len(t, after, len(before), "an edit makes and deletes no batch")
			for _, b := range after {
				require.Equal(t, versions[b.ID], b.TaskVersion, "a batch runs by the version it was made from")
				is := conditionsOf(t, w, b.ID)
				if was, ok := held[b.ID]; ok {
					require.Equal(t, was, is, "batch %d had left waiting", b.ID)
					continue
				}
				def := tasks[slices.IndexFunc(tasks, func(x *capri.Task) bool { return x.ID == b.TaskID })]
				if def.Period != b.Period {
					continue // of an interval that the task no longer has
				}
				compiled, err := birth.Compile(def)
				require.NoError(t, err)
				iv := capri.Interval{BatchNo: b.BatchNo, Start: b.DataStart, End: b.DataEnd, Mark: b.ScheduleTime}
				anew, err := maker.Conditions(compiled, iv)
				require.NoError(t, err)
				require.Equal(t, textsOf(anew), is, "batch %d of %s %s", b.ID, b.Task, b.BatchNo)
				require.Equal(t, anew.Groups(), b.Unmet, "batch %d of %s %s", b.ID, b.Task, b.BatchNo)
				rederived++
			}
		}
		t.Logf("%d comparisons", rederived)
		require.Positive(t, rederived)
	})
}

func makerOf(t *testing.T, w *actiontest.World) *birth.Maker {
	t.Helper()
	refs, err := w.Store.ParentRefs(w.Ctx)
	require.NoError(t, err)
	return birth.New(calendar.New(time.UTC), birth.Refs(refs))
}

func textsOf(c capri.Conditions) []string {
	var out []string
	for _, p := range c.Inputs {
		out = append(out, "input "+p.Path+" "+p.Flag)
	}
	for _, p := range c.Outputs {
		out = append(out, "output "+p.Path+" "+p.Flag)
	}
	for _, p := range c.ThirdParty {
		out = append(out, fmt.Sprintf("third_party %s %s %s", p.Code, p.Period, p.BatchNo))
	}
	for _, p := range c.Parents {
		out = append(out, fmt.Sprintf("parent %d %d %s %t", p.Group, p.TaskID, p.BatchNo, p.Any))
	}
	slices.Sort(out)
	return out
}

func conditionsOf(t *testing.T, w *actiontest.World, id capri.BatchID) []string {
	t.Helper()
	rows, err := w.Store.ConditionsOf(w.Ctx, id)
	require.NoError(t, err)
	var out []string
	for _, r := range rows {
		switch r.Kind {
		case "third_party":
			out = append(out, fmt.Sprintf("third_party %s %s %s", r.Code, r.Period, r.BatchNo))
		case "parent":
			out = append(out, fmt.Sprintf("parent %d %d %s %t", r.Group, r.ParentTaskID, r.BatchNo, strings.EqualFold(r.Policy, string(capri.Anyone))))
		default:
			out = append(out, r.Kind+" "+r.Path+" "+r.Flag)
		}
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}
