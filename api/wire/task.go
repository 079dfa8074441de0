package wire

import (
	"time"

	"capri"
)

// Task is a definition: the fields of its file, and what the store adds.
type Task struct {
	ID        capri.TaskID `json:"id"`
	Version   int          `json:"version"`
	UpdatedAt *time.Time   `json:"updated_at"`
	Broken    string       `json:"broken,omitempty" doc:"why the stored definition cannot be read; the fields of the file are then not known"`
	capri.Spec
	AlertGrants []AlertGrant `json:"alert_grants,omitempty" doc:"who is told of its alerts beside its owner's department; only of one task that is shown"`
}

// TaskOf makes a Task of a stored one.
func TaskOf(t *capri.Task, zone *time.Location) Task {
	return Task{ID: t.ID, Version: t.Version, UpdatedAt: At(t.UpdatedAt, zone), Broken: t.Broken, Spec: t.Spec}
}

// Change is one field that differs between two versions.
type Change struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// TaskVersion is a line of a task's history.
type TaskVersion struct {
	Version int        `json:"version"`
	At      *time.Time `json:"at"`
	By      string     `json:"by"`
	Enabled bool       `json:"enabled"`
	Deleted bool       `json:"deleted"`
	Changes []Change   `json:"changes" doc:"against the version before"`
}

// Source is one task file.
type Source struct {
	Name string `json:"name" maxLength:"512" doc:"its path, for messages"`
	Data string `json:"data" doc:"its YAML"`
}

// Apply asks to make the tasks of some files what the store holds: all or nothing.
type Apply struct {
	Sources      []Source `json:"sources"`
	DryRun       bool     `json:"dry_run,omitempty"`
	Prune        bool     `json:"prune,omitempty" doc:"delete tasks that the files no longer have, in groups that occur in the files"`
	ConfirmPrune []string `json:"confirm_prune,omitempty" doc:"the names that may be deleted, as a dry run listed them"`
}

// Applied is what Apply did, or would do.
type Applied struct {
	Created   []string     `json:"created"`
	Changed   []TaskChange `json:"changed"`
	Unchanged []string     `json:"unchanged"`
	Deleted   []string     `json:"deleted"`
	Warnings  []string     `json:"warnings"`
	DryRun    bool         `json:"dry_run"`
}

// TaskChange is one task with what changes in it.
type TaskChange struct {
	Task    string   `json:"task"`
	Changes []Change `json:"changes"`
}

// PlanRow is one batch that would be generated at a mark. Task is null where no task was named.
type PlanRow struct {
	Task      *string       `json:"task"`
	Period    capri.Period  `json:"period"`
	Mark      time.Time     `json:"mark"`
	DataStart time.Time     `json:"data_start"`
	DataEnd   time.Time     `json:"data_end"`
	BatchNo   capri.BatchNo `json:"batch_no"`
}

// PlanRowOf makes a row of an interval.
func PlanRowOf(task *string, p capri.Period, iv capri.Interval, zone *time.Location) PlanRow {
	return PlanRow{Task: task, Period: p, Mark: iv.Mark.In(zone), DataStart: iv.Start.In(zone), DataEnd: iv.End.In(zone), BatchNo: iv.BatchNo}
}

// PlanLimit is how many rows a plan has where nobody says.
const PlanLimit = 1000
