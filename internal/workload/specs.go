package workload

import (
	"fmt"
	"path"
	"strings"

	"capri"
)

// Options say how a recording becomes definitions.
type Options struct {
	// Scale divides the runtimes; 0 is 1. Every figure in seconds scales with it.
	Scale float64

	// Root goes before every path; the jobs' account must be able to write in it.
	Root string

	// Unlimited leaves out what the recorded limit of batches of one task at once is. The recorded makespans know no
	// such limit.
	Unlimited bool

	// Journal is a file to which each job appends a line when it begins and one when it ends (see ReadJournal):
	// what really ran, whatever the scheduler believes. Empty: none.
	Journal string

	// Group of the tasks; default: the recording's name.
	Group string
}

// firstDay is since when the pipelines are said to run: long before any day that is replayed, so that what lies before
// that day is waited for, as it was in reality.
const firstDay = "2020-01-01 00:00:00"

// Specs are the recording's tasks as definitions. Nobody generates marks for them: they are valid until the replayed
// day's marks are over, so that a test that runs at an hour's first minute makes no more batches than it wants.
func (w *Workload) Specs(o Options) []capri.Spec {
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.Group == "" {
		o.Group = w.Name
	}
	specs := make([]capri.Spec, len(w.Tasks))
	for i := range w.Tasks {
		specs[i] = w.spec(&w.Tasks[i], o)
	}
	return specs
}

func (w *Workload) spec(t *Task, o Options) capri.Spec {
	s := capri.Spec{
		Name: t.Name, Group: o.Group, Period: t.Period, Priority: 5,
		Job:     capri.Job{Type: "shell", Command: command(t, o)},
		Worker:  capri.Placement{Pool: "default", Strategy: capri.LeastLoaded, Slots: 1, MemoryMB: int(t.MemoryBytes >> 20)},
		Limits:  capri.Limits{Concurrency: max(t.Concurrency, 1), BeginMinutes: -1, OutputTimeoutMinutes: (t.SLAS + 59) / 60},
		Retry:   capri.Retry{FailedIntervalS: 3, Rejected: -1, RejectedIntervalS: 3},
		Check:   capri.CheckExitCode,
		Alert:   capri.AlertRules{DefaultRules: true},
		Cascade: true, Enabled: true,
		Valid: capri.Validity{From: firstDay, To: w.Day.AddDate(0, 0, 1).Format("2006-01-02") + " 23:59:59"},
	}
	if o.Unlimited {
		s.Limits.Concurrency = 1000
	}
	for _, p := range t.Inputs {
		s.Inputs = append(s.Inputs, capri.Input{Path: o.Root + p.Path, Flag: p.Flag, Unit: p.Unit, From: p.From.offset(), To: p.To.offset()})
	}
	for _, p := range t.Outputs {
		s.Outputs = append(s.Outputs, capri.Output{Path: o.Root + p.Path, Flag: p.Flag})
	}
	for _, p := range t.Parents {
		s.Parents = append(s.Parents, parent(p))
	}
	return s
}

// parent says a recorded rule in the words of a task file.
func parent(p Parent) capri.Parent {
	out := capri.Parent{Task: p.Task, Policy: capri.All}
	switch {
	case p.Rule == "range":
		out.From, out.To = p.From.offset(), p.To.offset()
	case p.Rule == "coarser" && p.Offset != 0: // counted from the newest that has ended by the child's end
		at := capri.Offset{End: true, N: p.Offset}
		out.From, out.To = &at, &at
	}
	return out
}

// command sleeps as long as the recorded process took and makes its outputs. Quotes keep the shell from the paths; the
// times in them are expanded before it sees them.
func command(t *Task, o Options) string {
	var b strings.Builder
	b.WriteString("set -e\n")
	if o.Journal != "" {
		fmt.Fprintf(&b, "echo \"begin $CAPRI_ATTEMPT\" >>'%s'\n", o.Journal)
	}
	fmt.Fprintf(&b, "sleep %.3f\n", t.RuntimeS/o.Scale)
	var dirs, flags []string
	seen := map[string]bool{}
	for _, p := range t.Outputs {
		flag := o.Root + p.Path
		switch p.Flag {
		case capri.FlagNone:
		case "":
			flag += "/_SUCCESS"
		default:
			flag += "/" + p.Flag
		}
		if dir := path.Dir(flag); !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, "'"+dir+"'")
		}
		flags = append(flags, "'"+flag+"'")
	}
	if len(flags) > 0 {
		fmt.Fprintf(&b, "mkdir -p %s\ntouch %s\n", strings.Join(dirs, " "), strings.Join(flags, " "))
	}
	if o.Journal != "" {
		fmt.Fprintf(&b, "echo \"end $CAPRI_ATTEMPT\" >>'%s'\n", o.Journal)
	}
	return b.String()
}
