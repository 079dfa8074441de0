package checker

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// invariants are what a run is judged by, in the order of the report.
var invariants = []struct {
	name, sentence string
	witness        bool // it can say nothing without a witness log
	check          func(*History, *Result)
}{
	{"generated", "Each enabled task has exactly one run 0 for each mark, and none that no mark named.", false, generated},
	{"one-at-a-time", "No two attempts of one task and batch_no ran at once, and none ran twice.", true, oneAtATime},
	{"nothing-lost", "Each batch has ended, or waits for a cause that has a name.", false, nothingLost},
	{"fold", "Each row is what its events add up to; each event is a legal step; one run of a batch_no is the latest.", false, fold},
	{"fencing", "No service wrote under an epoch after a newer one was granted.", false, fencing},
	{"in-order", "No job started before what it waits for had succeeded.", false, inOrder},
	{"limits", "Concurrency of a task, slots and memory of a node, max_running and a pause were never exceeded.", false, limits},
	{"alerts", "What has to be told was told, once.", false, alerts},
	{"ledger", "For each mark expected is made, present, skipped and failed together, and the rows say the same.", false, ledger},
}

// Result is what became of one invariant.
type Result struct {
	Name       string   `json:"name"`
	Sentence   string   `json:"sentence"`
	Checked    int      `json:"checked"` // how many things were looked at
	Violations int      `json:"violations"`
	Evidence   []string `json:"evidence,omitempty"` // of the first ten
	Notes      []string `json:"notes,omitempty"`    // what is told apart and is no violation
	NotChecked string   `json:"not_checked,omitempty"`
}

const mostEvidence = 10

// violated notes a violation; the text is the evidence.
func (r *Result) violated(format string, args ...any) {
	r.Violations++
	if len(r.Evidence) < mostEvidence {
		r.Evidence = append(r.Evidence, fmt.Sprintf(format, args...))
	}
}

// noted tells something apart.
func (r *Result) noted(format string, args ...any) {
	if len(r.Notes) < mostEvidence {
		r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	}
}

// Report is the verdict on a run.
type Report struct {
	OK         bool     `json:"ok"`
	Seed       uint64   `json:"seed"`
	Batches    int      `json:"batches"`
	Events     int      `json:"events"`
	Witness    int      `json:"witness_lines"`
	Faults     int      `json:"faults"`
	Invariants []Result `json:"invariants"`
}

// Check decides every invariant.
func Check(h *History) Report {
	rep := Report{OK: true, Seed: h.Run.Seed, Batches: len(h.batches), Events: len(h.events), Witness: len(h.Witness), Faults: len(h.Faults)}
	for _, i := range invariants {
		r := Result{Name: i.name, Sentence: i.sentence}
		if i.witness && h.Witness == nil {
			r.NotChecked = "there is no witness log"
		} else {
			i.check(h, &r)
		}
		rep.OK = rep.OK && r.Violations == 0
		rep.Invariants = append(rep.Invariants, r)
	}
	return rep
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) {
	fmt.Fprintf(w, "seed %d: %d batches, %d events, %d witness lines, %d faults\n\n", r.Seed, r.Batches, r.Events, r.Witness, r.Faults)
	for _, i := range r.Invariants {
		verdict := "holds"
		switch {
		case i.NotChecked != "":
			verdict = "NOT CHECKED: " + i.NotChecked
		case i.Violations > 0:
			verdict = fmt.Sprintf("VIOLATED %d times", i.Violations)
		}
		fmt.Fprintf(w, "%-14s %8d checked  %s\n", i.Name, i.Checked, verdict)
		if i.Violations > 0 {
			fmt.Fprintf(w, "    %s\n", i.Sentence)
		}
		for _, e := range i.Evidence {
			fmt.Fprintf(w, "    - %s\n", strings.ReplaceAll(e, "\n", "\n      "))
		}
		if more := i.Violations - len(i.Evidence); more > 0 {
			fmt.Fprintf(w, "    … and %d more\n", more)
		}
		for _, n := range i.Notes {
			fmt.Fprintf(w, "    note: %s\n", n)
		}
	}
	if r.OK {
		fmt.Fprintln(w, "\nno violation")
	} else {
		fmt.Fprintln(w, "\nVIOLATED")
	}
}

// inZone writes an instant as the zone's clock shows it.
func inZone(zone string, ms int64) string {
	z, err := time.LoadLocation(zone)
	if err != nil {
		z = time.UTC
	}
	return time.UnixMilli(ms).In(z).Format("2006-01-02 15:04:05.000-0700")
}
