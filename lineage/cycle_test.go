package lineage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"capri"
	"capri/calendar"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// pipeline reads tasks, one a line: "name period < parent, parent[from to], …". An expression stands in quotes.
func pipeline(t testing.TB, text string) []*capri.Task {
	t.Helper()
	var tasks []*capri.Task
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		head, parents, _ := strings.Cut(strings.TrimSpace(line), "<")
		name, p, _ := strings.Cut(strings.TrimSpace(head), " ")
		task := &capri.Task{ID: capri.TaskID(i + 1), Spec: capri.Spec{Name: name}}
		task.Period, _, task.Cron = period(t, strings.Trim(p, `"`))
		for _, dep := range strings.Split(parents, ",") {
			if dep = strings.TrimSpace(dep); dep == "" {
				continue
			}
			parent, window, windowed := strings.Cut(strings.TrimSuffix(dep, "]"), "[")
			d := capri.Parent{Task: parent}
			if windowed {
				from, to, _ := strings.Cut(window, " ")
				d.From, d.To = offset(t, from), offset(t, to)
			}
			task.Parents = append(task.Parents, d)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

func TestCycle(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tasks string
		want  string // part of the refusal; "" for fine
	}{
		{"a chain", "a day\nb day < a\nc day < b", ""},
		{"a diamond", "a day\nb day < a\nc day < a\nd day < b, c", ""},
		{"two tasks on one another", "a day < b\nb day < a", "a → b (same) → a (same)"},
		{"a task on itself", "a day < a", "a → a (same)"},
		{"a task on its interval before", "a day < a[-1 -1]", ""},
		{"on several before", "a hour < a[-24 -1]", ""},
		{"on its interval before and itself", "a day < a[-1 0]", "a → a (-1…0)"},
		{"on its next", "a day < a[1 1]", "a → a (1)"},
		{"on its newest ended, which is itself", "a day < a[end end]", "a → a (end)"},
		{"on the one before the newest ended", "a day < a[end-1 end-1]", ""},
		{"a longer ring", "a day < c\nb day < a\nc day < b", "a → c (same) → b (same) → a (same)"},
		{"a ring with one step back", "a day < c[-1 -1]\nb day < a\nc day < b", ""},
		{"a step back and one forward", "a day < b[-1 -1]\nb day < a[1 1]", "a → b (-1) → a (1)"},
		{"two back and one forward", "a day < b[-2 -2]\nb day < a[1 1]", ""},
		{"two rings, one of them bad", "a day < b[-1 -1]\nb day < a, c\nc day < b", "b → c (same) → b (same)"},
		{"ANYONE counts as ALL", "a day < b\nb day < a, x\nx day", "a → b"},

		{"day on its hours, hours on the day before", "d day < h\nh hour < d[-1 -1]", ""},
		{"hours on the newest ended day: the last hour of a day waits for that day", "d day < h\nh hour < d", "d → h (finer) → d (coarser)"},
		{"hours on the day before the newest", "d day < h\nh hour < d[end-1 end-1]", ""},
		{"hours on their own day", "d day < h\nh hour < d[0 0]", "d → h (finer) → d (0)"},
		{"day on its first hour, that on the newest ended day", "d day < h[0 0]\nh hour < d", ""},
		{"day on the hour before it, that on its own day", "d day < h[-1 -1]\nh hour < d[0 0]", ""},
		{"day on a late hour, which waits for the day before", "d day < h[end+3 end+3]\nh hour < d[-1 -1]", "d → h (end+3) → d (-1)"},
		{"day on a late hour, which waits for two days before", "d day < h[end+3 end+3]\nh hour < d[-2 -2]", ""},
		{"month on its weeks, weeks on the newest month", "m month < w\nw week < m", "m → w (finer) → m (coarser)"},
		{"month on its weeks, weeks on the month before the one that holds their start", "m month < w\nw week < m[-1 -1]", ""},
		{"week on the newest month, month on a day of the week after", "w week < m\nm month < d[end+7 end+7]\nd day < w", "w → m (coarser) → d (end+7) → w (coarser)"},
		{"month on a far hour, which waits for the month before", "m month < h[end+240 end+240]\nh hour < m[-1 -1]", "m → h (end+240) → m (-1)"},
		{"month on a far hour, which waits two months back", "m month < h[end+240 end+240]\nh hour < m[-2 -2]", ""},
		{"a month forward by days and one back, short months decide", "m month < d[end+30 end+30]\nd day < m[-2 -2]", "m → d (end+30) → m (-2)"},
		{"the same with one day less in hand", "m month < d[end+28 end+28]\nd day < m[-2 -2]", ""},

		{"an expression on itself", `c "0 30 2 * * ?" < c`, "c → c (cron)"},
		{"on its fire before", `c "0 30 2 * * ?" < c[-1 -1]`, ""},
		{"nightly on the day, the day on the fires in it", "c \"0 30 2 * * ?\" < d\nd day < c", ""},
		{"midnight on the day, the day on the fires in it", "c \"0 0 0 * * ?\" < d\nd day < c", "c → d (cron) → c (cron)"},
		{"two expressions, never at one time", "a \"0 30 2 * * ?\" < b\nb \"0 30 3 * * ?\" < a", ""},
		{"two expressions, at one time in February only", "a \"0 0 3 * * ?\" < b\nb \"0 0 3 29 2 ?\" < a", "a → b (cron) → a (cron)"},
		{"every second and every other", "a \"* * * * * ?\" < b\nb \"0/2 * * * * ?\" < a", "a → b (cron) → a (cron)"},
		{"too fine to walk through", "a \"1/2 * * * * ?\" < b\nb \"0/2 * * * * ?\" < a", "too many intervals"},

		{"a manual task ends a chain", "a day < m\nm manual < a", ""},
		{"a parent that is not in the list", "a day < elsewhere", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			started := time.Now()
			err := Cycle(in(t, "America/New_York"), pipeline(t, tt.tasks))
			if tt.want == "" {
				assert.NoError(t, err)
			} else {
				require.ErrorIs(t, err, capri.ErrInvalid)
				assert.Contains(t, err.Error(), tt.want)
			}
			if d := time.Since(started); d > 300*time.Millisecond {
				t.Log("took", d)
			}
		})
	}
}

func TestCycleOfManyTasksIsNamedInPart(t *testing.T) {
	var tasks []*capri.Task
	for i := range 40 {
		tasks = append(tasks, &capri.Task{Spec: capri.Spec{Name: fmt.Sprintf("t%02d", i), Period: capri.Day,
			Parents: []capri.Parent{{Task: fmt.Sprintf("t%02d", (i+1)%40)}}}})
	}
	err := Cycle(in(t, "UTC"), tasks)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "t00 → t01 (same)")
	assert.Contains(t, err.Error(), "t10 (same) → … 29 more … → t00 (same)")
}

// The oracle looks among the batches of some weeks for one that waits for itself, or for a way that leads out
// of these weeks at their late end: with windows this small only going round and round gets there.
func TestCycleAgreesWithTheBatchesThemselves(t *testing.T) {
	c := in(t, "America/New_York")
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(t, "tasks")
		var tasks []*capri.Task
		for i := range n {
			task := &capri.Task{ID: capri.TaskID(i), Spec: capri.Spec{Name: fmt.Sprint("t", i)}}
			task.Period = rapid.SampledFrom([]capri.Period{capri.Hour, capri.Day, capri.Day, capri.Week}).Draw(t, "period")
			for range rapid.IntRange(0, 2).Draw(t, "parents") {
				dep := capri.Parent{Task: fmt.Sprint("t", rapid.IntRange(0, n-1).Draw(t, "parent"))}
				if rapid.Bool().Draw(t, "window") {
					dep.From = &capri.Offset{End: rapid.Bool().Draw(t, "end"), N: rapid.IntRange(-3, 2).Draw(t, "from")}
					dep.To = &capri.Offset{End: dep.From.End, N: dep.From.N + rapid.IntRange(0, 1).Draw(t, "width")}
				}
				task.Parents = append(task.Parents, dep)
			}
			tasks = append(tasks, task)
		}
		err := Cycle(c, tasks)
		require.Equal(t, deadlock(t, c, tasks), err != nil, "%v", err)
	})
}

type batch struct {
	task int
	no   capri.BatchNo
}

func deadlock(t *rapid.T, c calendar.Calendar, tasks []*capri.Task) bool {
	start, err := c.ParseTime("2026-10-01")
	require.NoError(t, err)
	end := start + 50*86_400_000
	byName := map[string]int{}
	for i, task := range tasks {
		byName[task.Name] = i
	}
	type node struct {
		task int
		iv   capri.Interval
	}
	const open, done = 1, 2
	state := map[batch]int{}
	var visit func(n node) bool
	visit = func(n node) bool {
		if n.iv.Start > end {
			return true // this far ahead only going round leads
		}
		if n.iv.End < start-20*86_400_000 {
			return false
		}
		key := batch{n.task, n.iv.BatchNo}
		switch state[key] {
		case open:
			return true
		case done:
			return false
		}
		state[key] = open
		task := tasks[n.task]
		for _, dep := range task.Parents {
			p := byName[dep.Task]
			for _, iv := range parentsOf(c, Ref{Period: task.Period}, n.iv, Ref{Period: tasks[p].Period}, dep) {
				if visit(node{p, iv}) {
					return true
				}
			}
		}
		state[key] = done
		return false
	}
	for i, task := range tasks {
		iv := c.Containing(task.Period, start)
		for iv.End < start+20*86_400_000 {
			if visit(node{i, iv}) {
				return true
			}
			iv = c.Shift(task.Period, iv, 1)
		}
	}
	return false
}

func TestCycleIsQuickOnManyTasks(t *testing.T) {
	c := in(t, "America/New_York")
	for _, tt := range []struct {
		name  string
		tasks []*capri.Task
	}{
		{"a wide chain with feedback in one period", feedback(20_000, func(int) capri.Period { return capri.Day })},
		{"hours, days and months with feedback", feedback(20_000, func(i int) capri.Period {
			return []capri.Period{capri.Hour, capri.Day, capri.Day, capri.Month}[i*4/20_000]
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			started := time.Now()
			require.NoError(t, Cycle(c, tt.tasks))
			took := time.Since(started)
			t.Log(took)
			assert.Less(t, took, 3*time.Second)
		})
	}
}

// feedback chains tasks, each on the one before and one further back; each hundredth waits for the interval
// before of the one a hundred ahead, which ties all of them into one component.
func feedback(n int, periodOf func(int) capri.Period) []*capri.Task {
	back := capri.Offset{N: -1}
	tasks := make([]*capri.Task, n)
	for i := range tasks {
		tasks[i] = &capri.Task{ID: capri.TaskID(i), Spec: capri.Spec{Name: fmt.Sprint("t", i), Period: periodOf(i)}}
		if i > 0 {
			tasks[i].Parents = append(tasks[i].Parents, capri.Parent{Task: fmt.Sprint("t", i-1)}, capri.Parent{Task: fmt.Sprint("t", i/2)})
		}
		if i%100 == 0 && i+100 < n {
			tasks[i].Parents = append(tasks[i].Parents, capri.Parent{Task: fmt.Sprint("t", i+100), From: &back, To: &back})
		}
	}
	return tasks
}
