package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"capri"
	"capri/definition"
	"capri/internal/cluster"
	"capri/internal/testenv"
	"capri/internal/workload"
	"capri/sql/store"
)

// Recorded pipelines of real installations, each on both databases, their runtimes divided so that one takes some
// twenty seconds. What must come out is in the recordings' own figures.
func TestWorkloads(t *testing.T) {
	dir := testenv.Workloads(t)
	for _, tt := range []struct {
		name  string
		slots int
		scale float64
	}{
		{"montage-dss10", 16, 115},
		{"wikimedia-refinery", 64, 270},
	} {
		t.Run(tt.name, func(t *testing.T) {
			each(t, tt.slots, func(t *testing.T, in *installation) {
				r := newReplay(t, in, dir, tt.name, tt.slots, tt.scale)
				r.begin()
				r.await(5 * time.Minute)
				for _, f := range r.figures(nil) {
					t.Log(f)
				}
				in.stop()
			})
		})
	}
}

// replay is one recorded day in an installation.
type replay struct {
	t        *testing.T
	in       *installation
	load     *workload.Workload
	win      *workload.Window
	options  workload.Options
	slots    int
	made     int
	progress func(format string, a ...any)
}

func newReplay(t *testing.T, in *installation, dir, name string, slots int, scale float64) *replay {
	t.Helper()
	w, err := workload.Load(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	root := cluster.OpenDir(t)
	r := &replay{t: t, in: in, load: w, slots: slots, progress: func(string, ...any) {},
		options: workload.Options{Scale: scale, Root: root, Journal: filepath.Join(root, "journal"), Unlimited: true}}
	if r.win, err = w.In(r.options); err == nil {
		err = r.win.Check(&w.Stats)
	}
	if err == nil {
		err = r.win.MakeInputs()
	}
	if err == nil { // jobs of another account append to it
		err = os.WriteFile(r.options.Journal, nil, 0o600)
	}
	if err == nil {
		err = os.Chmod(r.options.Journal, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// begin defines the tasks, makes the day's batches while dispatch is paused, and lets them go all at once.
func (r *replay) begin() {
	r.t.Helper()
	file, err := definition.Export(r.load.Specs(r.options))
	if err != nil {
		r.t.Fatal(err)
	}
	name := filepath.Join(r.in.home, r.load.Name+".yaml")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		r.t.Fatal(err)
	}
	var applied struct {
		Created []string `json:"created"`
	}
	r.in.capri("task", "apply", "-f", name, "-o", "json").json(&applied)
	if len(applied.Created) != len(r.load.Tasks) {
		r.t.Fatalf("%d tasks were created, there are %d", len(applied.Created), len(r.load.Tasks))
	}
	outside, err := r.win.Prepare(context.Background(), r.in.store())
	if err != nil || outside != len(r.win.Outside) {
		r.t.Fatalf("%d of %d batches outside the day were inserted: %v", outside, len(r.win.Outside), err)
	}
	r.in.capri("pause", "--reason", "the day is being prepared").ok()
	for _, period := range []string{"hour", "day"} {
		if want := r.load.Stats.ByPeriod[period]; want > 0 {
			n := r.in.coldStart(period, r.load.Day.Format(time.DateOnly), "--group", r.load.Name)
			if n != want {
				r.t.Fatalf("%d %s batches were made, want %d", n, period, want)
			}
			r.made += n
		}
	}
	r.in.capri("resume").ok()
}

// await waits for the day's end.
func (r *replay) await(most time.Duration) {
	r.t.Helper()
	began, said := time.Now(), time.Time{}
	wait(r.t, most, func() string {
		var s struct{ Waiting, Ready, Running int }
		r.in.capri("status", "-o", "json").json(&s)
		line := fmt.Sprintf("%s: %d s, %d wait (%d of them ready), %d run, %d of %d have finished", r.load.Name, int(time.Since(began).Seconds()), s.Waiting, s.Ready, s.Running, r.made-s.Waiting-s.Running, r.made)
		if time.Since(said) >= 2*time.Second {
			said = time.Now()
			r.progress("%s", line)
		}
		if s.Waiting+s.Running == 0 {
			return ""
		}
		time.Sleep(200 * time.Millisecond)
		return line
	})
}

// figures checks everything that the recordings say of a correct run, and gives a line for each. again names batches
// that may have taken another attempt.
func (r *replay) figures(again map[capri.BatchID]bool) []string {
	t := r.t
	t.Helper()
	day := r.load.Day.Format(time.DateOnly)
	listed := map[workload.Batch]batch{}
	for _, b := range r.in.batches("--by-data", "--from", day, "--to", day) {
		if key := (workload.Batch{Task: b.Task, No: b.BatchNo}); r.win.Inside[key] != nil {
			listed[key] = b
		}
	}
	h, err := cluster.Read(t.Context(), r.in.store())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(map[string]int{"here": r.slots}); err != nil {
		t.Errorf("the history: %v", err)
	}
	mine := *h
	mine.Batches, mine.Events = map[capri.BatchID]store.BatchRow{}, nil
	for key := range r.win.Inside {
		b, ok := listed[key]
		if !ok {
			t.Errorf("batch %s is not there", key)
			continue
		}
		mine.Batches[b.ID] = h.Batches[b.ID]
	}
	for _, e := range h.Events {
		if _, ok := mine.Batches[e.Batch]; ok {
			mine.Events = append(mine.Events, e)
		}
	}
	if err := mine.OnceEach(again); err != nil {
		t.Errorf("not each once: %v", err)
	}
	started, ended := map[capri.BatchID]cluster.Event{}, map[capri.BatchID]cluster.Event{}
	for _, e := range mine.Events {
		switch e.State {
		case capri.Running:
			started[e.Batch] = e // the last one is "started"; the one before "claimed"
		case capri.Finished:
			ended[e.Batch] = e
		}
	}
	edges := 0
	for key, n := range r.win.Inside {
		child := started[listed[key].ID]
		for _, p := range n.Parents {
			parent := ended[listed[p].ID]
			if child.ID == 0 || parent.ID == 0 || child.ID < parent.ID || child.At < parent.At {
				t.Errorf("%s started (%s) before %s had ended (%s)", key, child, p, parent)
			}
			edges++
		}
	}

	j, err := workload.ReadJournal(r.options.Journal)
	if err != nil {
		t.Fatal(err)
	}
	byID := map[capri.BatchID]workload.Batch{}
	for key, b := range listed {
		byID[b.ID] = key
	}
	if err := j.Check(func(id capri.BatchID) []capri.BatchID {
		var out []capri.BatchID
		for _, p := range r.win.Inside[byID[id]].Parents {
			out = append(out, listed[p].ID)
		}
		return out
	}); err != nil {
		t.Errorf("the jobs' own journal: %v", err)
	}
	begun := j.Begun()
	for id := range byID {
		if begun[id] != 1 && !again[id] {
			t.Errorf("the job of %s began %d times", byID[id], begun[id])
		}
	}
	if j.Most() > r.slots {
		t.Errorf("%d jobs at once, there are %d slots", j.Most(), r.slots)
	}

	low, high, err := r.load.Stats.Bounds(r.slots)
	if err != nil {
		t.Fatal(err)
	}
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / r.options.Scale) }
	low, high = scaled(low), scaled(high)
	took := mine.Makespan()
	if again == nil && took < low-50*time.Millisecond { // sleep's own milliseconds are rounded
		t.Errorf("it took %s, and cannot take less than %s", took, low)
	}
	f, depth := r.win.Figures(), r.load.Stats.Depth
	allowed := high + time.Duration(depth)*100*time.Millisecond
	verdict := "within"
	if took > allowed {
		verdict = "OVER"
	}
	ms := time.Millisecond
	return []string{
		fmt.Sprintf("%-34s %10s %10s", "", "here", "recorded"),
		fmt.Sprintf("%-34s %10d %10d", "batches", len(listed), r.load.Stats.Nodes),
		fmt.Sprintf("%-34s %10d %10d", "edges, each child after its parent", edges, r.load.Stats.Edges),
		fmt.Sprintf("%-34s %10d %10d", "conditions on batches outside", r.win.OutsideConditions, r.load.Stats.Outside),
		fmt.Sprintf("%-34s %10d %10d", "depth", f.Depth, depth),
		fmt.Sprintf("%-34s %10d %10d", "jobs begun", len(begun), r.load.Stats.Nodes),
		fmt.Sprintf("%-34s %10d %10s", "jobs at once", j.Most(), fmt.Sprintf("≤ %d", r.slots)),
		fmt.Sprintf("%-34s %10s %10s", "makespan", took.Round(ms), "≥ "+low.Round(ms).String()),
		fmt.Sprintf("%-34s %10s %10s  %s", "  bound + depth × 100 ms", "", "≤ "+allowed.Round(ms).String(), verdict),
		fmt.Sprintf("%-34s %10s %10s", "  (makespan − at least) / depth", ((took - low) / time.Duration(depth)).Round(ms), ""),
	}
}
