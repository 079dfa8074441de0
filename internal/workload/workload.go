// Package workload reads recorded pipelines of real installations (the folder testenv.Workloads names) and says what
// a correct run of them must show.
//
//	NAME.json ──Load──▶ *Workload ──Specs──▶ definitions ──▶ the scheduler, as anybody's
//	                                  └─In──▶ Window: every batch and edge of a day, what is outside of it, its figures
//
// A Window is worked out from the definitions by birth and lineage, as the scheduler does; its figures are held against
// NAME.stats.json, which another program made from the recordings. So a mistake in either shows before a job runs.
//
// The recordings are data of others and not part of this module.
package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"capri"
)

// Workload is one recording.
type Workload struct {
	Name  string
	Tasks []Task
	Stats Stats // of the one day that is to be run

	// Day is a day to run it for. Every day has the same figures, so any that is over will do.
	Day time.Time
}

// Task is one task as it was recorded.
type Task struct {
	Name        string       `json:"name"`
	Period      capri.Period `json:"period"`
	Parents     []Parent     `json:"parents"`
	RuntimeS    float64      `json:"runtime_s"`
	Inputs      []Path       `json:"inputs"`
	Outputs     []Path       `json:"outputs"`
	Concurrency int          `json:"concurrency"`
	SLAS        int          `json:"sla_s"`
	MemoryBytes int64        `json:"memory_bytes"`
}

// Parent is a task to wait for. Rule is same, finer, coarser (with Offset) or range (From, To).
type Parent struct {
	Task   string `json:"task"`
	Rule   string `json:"rule"`
	Offset int    `json:"offset"`
	From   *Edge  `json:"from"`
	To     *Edge  `json:"to"`
}

// Path is an input or an output; a plain text is a path that is its own flag.
type Path struct {
	Path string       `json:"path"`
	Flag string       `json:"flag"`
	Unit capri.Period `json:"unit"`
	From *Edge        `json:"from"`
	To   *Edge        `json:"to"`
}

// UnmarshalJSON reads both forms.
func (p *Path) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		p.Flag = capri.FlagNone
		return json.Unmarshal(b, &p.Path)
	}
	type plain Path
	return json.Unmarshal(b, (*plain)(p))
}

// Edge is a window's edge: a number, or a text such as "end+3".
type Edge struct{ capri.Offset }

// UnmarshalJSON reads both forms.
func (e *Edge) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(b) > 0 && b[0] == '"' {
		var err error
		if text, err = strconv.Unquote(text); err != nil {
			return err
		}
	}
	var err error
	e.Offset, err = capri.ParseOffset(text)
	return err
}

func (e *Edge) offset() *capri.Offset {
	if e == nil {
		return nil
	}
	o := e.Offset
	return &o
}

// Figures describe a graph of batches.
type Figures struct {
	Nodes         int     `json:"nodes"`
	Edges         int     `json:"edges"` // distinct pairs of a batch and a parent's batch
	Roots         int     `json:"roots"`
	Leaves        int     `json:"leaves"`
	Depth         int     `json:"depth"`        // batches on the longest chain
	WidestLevel   int     `json:"widest_level"` // a batch's level is the longest chain that leads to it
	MaxParents    int     `json:"max_parents"`
	MaxChildren   int     `json:"max_children"`
	TotalS        float64 `json:"total_s"`
	CriticalPathS float64 `json:"critical_path_s"`
}

// Stats are what a correct run must show.
type Stats struct {
	Figures
	ByPeriod map[string]int     `json:"batches_by_period"`
	Outside  int                `json:"parent_conditions_outside_window"`
	AtLeastS map[string]float64 `json:"makespan_at_least_s"`              // by number of slots
	AtMostS  map[string]float64 `json:"makespan_at_most_s_if_never_idle"` // the same: Graham's bound
}

// Bounds are the makespan's with so many slots, in recorded seconds, for a scheduler that costs nothing.
func (s *Stats) Bounds(slots int) (atLeast, atMost time.Duration, err error) {
	k := strconv.Itoa(slots)
	low, ok := s.AtLeastS[k]
	high, ok2 := s.AtMostS[k]
	if !ok || !ok2 {
		return 0, 0, fmt.Errorf("the recording has no bounds for %d slots", slots)
	}
	return seconds(low), seconds(high), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Load reads NAME.json and NAME.stats.json.
func Load(dir, name string) (*Workload, error) {
	var w struct {
		Workload string `json:"workload"`
		Format   int    `json:"format"`
		Tasks    []Task `json:"tasks"`
	}
	if err := read(filepath.Join(dir, name+".json"), &w); err != nil {
		return nil, err
	}
	if w.Format != 1 || len(w.Tasks) == 0 {
		return nil, fmt.Errorf("workload %s: format %d with %d tasks, want format 1", name, w.Format, len(w.Tasks))
	}
	var s struct {
		Stats
		OneDay *Stats `json:"one_day"`
	}
	if err := read(filepath.Join(dir, name+".stats.json"), &s); err != nil {
		return nil, err
	}
	out := &Workload{Name: w.Workload, Tasks: w.Tasks, Stats: s.Stats, Day: day(time.Now())}
	if s.OneDay != nil {
		out.Stats = *s.OneDay
	} else {
		out.Stats.ByPeriod = map[string]int{"day": out.Stats.Nodes}
	}
	return out, nil
}

// day is the one that the recordings' figures were made for, or the same weekday a year before while that is not over.
func day(now time.Time) time.Time {
	d := time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)
	for !now.After(d.AddDate(0, 0, 2)) {
		d = d.AddDate(0, 0, -364)
	}
	return d
}

func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no recording %s", path)
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
