package action_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/action/actiontest"
	"capri/birth"
	"capri/calendar"
	"capri/internal/testenv"
	"capri/sql/store"
)

// Seed 000 §2.4: whatever is edited, a batch that still waits waits for what a batch made anew would wait for; what has
// left waiting, and the snapshot of every batch, stay as they were. In between people execute, rerun, start cold, cancel
// and kill. What they make of a parent is waited for from then on: a child that waits already follows with the next edit
// that concerns it.
func TestEdits_leave_waiting_batches_as_if_they_were_made_anew(t *testing.T) {
	seed := testenv.Seed(t)
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		x := &edits{World: w, t: t, rng: rand.New(rand.NewPCG(seed, 7)), early: map[capri.BatchID]bool{}, was: map[capri.BatchID]made{}}
		w.Apply(x.file())
		for range 20 {
			x.act()
			x.compare(false)
		}
		for range 12 {
			for range x.rng.IntN(3) {
				x.act()
				x.compare(false)
			}
			w.Apply(x.file())
			x.compare(true)
		}
		t.Logf("%d comparisons, %v", x.compared, x.did)
		require.Positive(t, x.compared)
	})
}

// made is what a batch has from its making.
type made struct {
	version    int
	conditions []string
}

type edits struct {
	*actiontest.World
	t        *testing.T
	rng      *rand.Rand
	first    map[capri.TaskID]capri.Instant // the first marks, when they were looked at
	early    map[capri.BatchID]bool         // made before its parent had a batch as early as it has now
	was      map[capri.BatchID]made
	compared int
	did      []string
}

func (x *edits) pick(texts ...string) string { return texts[x.rng.IntN(len(texts))] }

func (x *edits) task(name, period, parents string) string {
	return fmt.Sprintf("- {name: %s, owner: alice, group: g, %s, priority: %d, job: {command: %s}, valid: {from: %q, to: %q}, inputs: [%s], outputs: [%s], third_party: [%s], parents: [%s]}\n",
		name, period, x.rng.IntN(10), x.pick("a", "b"), x.pick("", "", "2026-11-17 12:00:00", "2026-11-18 12:00:00", "2026-11-19 00:00:00", "2027-01-01 00:00:00"), x.pick("", "2028-01-01 00:00:00"),
		x.pick("", `{path: "/in/${yyyyMMdd}"}`, `{path: "/in/${yyyyMMddHH}", unit: hour, from: -2, to: 0}`), x.pick("", `{path: "/`+name+`/${yyyyMMddHH}"}`),
		x.pick("", "{code: closed}"), parents)
}

func (x *edits) file() string {
	window := func() string {
		return x.pick("", ", from: -1, to: 0", ", policy: ANYONE, from: -2, to: 0", ", policy: LASTONE")
	}
	hour := x.task("hour", "period: hour", x.pick("", "{task: hour, from: -1, to: -1}"))
	tick := x.task("tick", `cron: "`+x.pick("0 0/20 * * * ?", "0 0 0/2 * * ?")+`"`, x.pick("", "{task: hour}"))
	day := x.task("day", "period: "+x.pick("day", "day", "week"), x.pick("", "{task: hour}", "{task: tick}", "{task: hour}, {task: tick"+window()+"}"))
	last := x.task("last", "period: day", x.pick("{task: day"+window()+"}", "{task: day}, {task: tick}", "{task: last, from: -1, to: -1}", ""))
	return "tasks:\n" + hour + tick + day + last
}

// act does something that makes or ends batches; a refusal is an answer, too.
func (x *edits) act() {
	nos := map[string][]string{
		"hour": {"2026111800", "2026111801", "2026111913", "2026111923"}, "tick": {"20261118000000", "20261119140000", "20261119160000"},
		"day": {"20261117", "20261118", "20261119", "2026W46"}, "last": {"20261118", "20261119"},
	}
	task := x.pick("hour", "tick", "day", "last")
	from, to := x.pick("2026-11-17 00:00", "2026-11-19 00:00"), x.pick("2026-11-19 12:00", "2026-11-20 00:30")
	if task == "hour" || task == "tick" { // not too many
		from = "2026-11-19 10:00"
	}
	what, err := "", error(nil)
	switch n := x.rng.IntN(20); {
	case n < 11:
		no := x.pick(nos[task]...)
		what = "execute " + task + " " + no
		_, err = x.Actions.Execute(x.Ctx, actiontest.Who, action.ExecuteRequest{Task: task, Interval: no})
	case n < 13:
		what = "rerun " + task + " from " + from
		_, err = x.Actions.Rerun(x.Ctx, actiontest.Who, action.RerunRequest{Task: task, From: from, To: to, Cascade: x.pick("none", "logic", "both"), OnRunning: "skip", Pace: action.Pace{Limit: x.rng.IntN(3)}})
	case n < 15:
		period := map[string]capri.Period{"hour": capri.Hour, "tick": capri.Cron, "day": capri.Day, "last": capri.Day}[task]
		what = "cold start of " + task + " from " + from
		_, err = x.Actions.ColdStart(x.Ctx, actiontest.Who, action.ColdStartRequest{Periods: []capri.Period{period}, Tasks: []string{task}, From: from, To: to, Only: x.pick("missing", "all"), Pace: action.Pace{Limit: x.rng.IntN(3)}})
	case n < 16:
		all, e := x.Store.Campaigns(x.Ctx, store.CampaignFilter{Limit: 1})
		require.NoError(x.t, e)
		if len(all) > 0 {
			what = "cancel"
			_, err = x.Actions.CancelCampaign(x.Ctx, actiontest.Who, all[0].ID, false, "")
		}
	default:
		waiting, e := x.Store.Batches(x.Ctx, store.BatchFilter{States: []capri.State{capri.Waiting}, Limit: 10_000})
		require.NoError(x.t, e)
		if len(waiting) == 0 {
			return
		}
		id := waiting[x.rng.IntN(len(waiting))].ID
		switch n {
		case 16, 17:
			what = fmt.Sprint("kill ", id)
			_, err = x.Actions.Kill(x.Ctx, actiontest.Who, []capri.BatchID{id}, "")
		case 18:
			what = fmt.Sprint("run now ", id)
			_, err = x.Actions.RunNow(x.Ctx, actiontest.Who, []capri.BatchID{id}, "urgent")
		default: // one leaves waiting: it is to keep what it was made with
			what = fmt.Sprint("start ", id)
			_, err = x.Actions.RunNow(x.Ctx, actiontest.Who, []capri.BatchID{id}, "urgent")
			if b := x.Batch(id); b.Unmet == 0 && b.RunNow {
				x.Start(id)
			}
		}
	}
	if err == nil && what != "" {
		x.did = append(x.did, what)
	}
	x.Campaigns()
}

// compare holds every batch against one that is made anew, and against what it was.
func (x *edits) compare(edited bool) {
	t := x.t
	refs, err := x.Store.ParentRefs(x.Ctx)
	require.NoError(t, err)
	maker := makerOf(t, x.World)
	tasks, err := x.Store.Tasks(x.Ctx, store.TaskFilter{})
	require.NoError(t, err)
	batches, err := x.Store.Batches(x.Ctx, store.BatchFilter{Limit: 10_000})
	require.NoError(t, err)
	for _, def := range tasks { // design §3: its first valid mark, or its earliest batch that exists
		first, err := x.Actions.Calendar().ParseTime(cmp.Or(def.Valid.From, def.CreatedAt.In(time.UTC).Format(time.RFC3339Nano)))
		require.NoError(t, err)
		low, high := first, first // of a batch's interval anything after the mark before it will do
		for _, b := range batches {
			if b.TaskID == def.ID {
				low, high = min(low, b.DataEnd), min(high, maker.IntervalOf(b.Batch).Mark)
			}
		}
		require.True(t, low <= refs[def.ID].FirstMark && refs[def.ID].FirstMark <= high, "the first mark of %s is %s and not in %s to %s after %v, edited: %t",
			def.Name, refs[def.ID].FirstMark, low, high, x.did, edited)
	}
	lowered := map[capri.TaskID]bool{}
	for id, r := range refs {
		lowered[id] = !edited && r.FirstMark < x.first[id]
	}
	x.first = map[capri.TaskID]capri.Instant{}
	for id, r := range refs {
		x.first[id] = r.FirstMark
	}
	for _, b := range batches {
		name := fmt.Sprintf("batch %d of %s %s, after %v, edited: %t", b.ID, b.Task, b.BatchNo, x.did, edited)
		def := tasks[slices.IndexFunc(tasks, func(d *capri.Task) bool { return d.ID == b.TaskID })]
		is := made{b.TaskVersion, conditionsOf(t, x.World, b.ID)}
		was, known := x.was[b.ID]
		x.was[b.ID] = is
		if known {
			require.Equal(t, was.version, is.version, "%s runs by the version it was made from", name)
			if !edited || b.State != capri.Waiting || def.Period != b.Period {
				require.Equal(t, was.conditions, is.conditions, name)
			}
			if slices.ContainsFunc(def.Parents, func(p capri.Parent) bool { return lowered[p.TaskID] }) {
				x.early[b.ID] = true
			}
		} else if edited {
			require.Fail(t, "an edit makes no batch", name)
		}
		if b.State != capri.Waiting || def.Period != b.Period {
			continue
		}
		compiled, err := birth.Compile(def)
		require.NoError(t, err)
		anew, err := maker.Conditions(compiled, maker.IntervalOf(b.Batch))
		require.NoError(t, err)
		text := textsOf(anew)
		if x.early[b.ID] {
			if !slices.Equal(text, is.conditions) {
				require.Equal(t, was.conditions, is.conditions, name)
				continue
			}
			delete(x.early, b.ID)
		}
		require.Equal(t, text, is.conditions, name)
		if !b.RunNow {
			require.Equal(t, anew.Groups(), b.Unmet-heldBack(t, x.World, b.ID), name)
		}
		x.compared++
	}
}

// heldBack is 1 where a campaign holds a batch back.
func heldBack(t *testing.T, w *actiontest.World, id capri.BatchID) int {
	t.Helper()
	holding, err := w.Store.HoldingCampaigns(w.Ctx, []capri.BatchID{id})
	require.NoError(t, err)
	return len(holding)
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
