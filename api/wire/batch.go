package wire

import (
	"time"

	"capri"
)

// Batch is a row of task_work.
type Batch struct {
	ID           capri.BatchID `json:"id"`
	Task         string        `json:"task"`
	TaskID       capri.TaskID  `json:"task_id"`
	TaskVersion  int           `json:"task_version"`
	Period       capri.Period  `json:"period"`
	BatchNo      capri.BatchNo `json:"batch_no"`
	RunNo        int           `json:"run_no"`
	Latest       bool          `json:"latest"`
	Origin       string        `json:"origin" enum:"mark,catch_up,execute,rerun,cold_start"`
	ScheduleTime *time.Time    `json:"schedule_time"`
	DataStart    *time.Time    `json:"data_start"`
	DataEnd      *time.Time    `json:"data_end"`
	CreateTime   *time.Time    `json:"create_time"`

	State       string     `json:"state" enum:"waiting,assigned,running,finished"`
	FinishState string     `json:"finish_state" enum:"none,success,failed,killed,dependency_timeout,output_timeout,skipped"`
	Unmet       int        `json:"unmet"`
	Held        bool       `json:"held"`
	KillRequest bool       `json:"kill_request"`
	RunNow      bool       `json:"run_now" doc:"somebody let it start without its conditions"`
	Node        string     `json:"node"`
	Attempt     int        `json:"attempt"`
	AssignTime  *time.Time `json:"assign_time"`
	StartTime   *time.Time `json:"start_time"`
	FinishTime  *time.Time `json:"finish_time"`
	NotBefore   *time.Time `json:"not_before"`
	SkipAt      *time.Time `json:"skip_at"`

	Priority     int               `json:"priority"`
	Slots        int               `json:"slots"`
	MemoryMB     int               `json:"memory_mb"`
	Pool         string            `json:"pool"`
	Account      string            `json:"account"`
	Params       map[string]string `json:"params,omitempty" doc:"of this run alone, besides the task's"`
	QualityState int               `json:"quality_state" doc:"0 no gate, 1 to be asked, 2 asked, 3 runnable, 4 blocked"`
	QualityAsk   int               `json:"quality_ask" doc:"the number of the newest question to the quality API"`
	Failures     int               `json:"failures"`
	Rejections   int               `json:"rejections"`
	Losses       int               `json:"losses"`

	DependencyTimeoutAt *time.Time `json:"dependency_timeout_at"`
	OutputTimeoutAt     *time.Time `json:"output_timeout_at"`
	NotifiedAt          *time.Time `json:"notified_at"`
	ActualMemoryMB      int        `json:"actual_memory_mb"`
	ActualProcesses     int        `json:"actual_processes"`
	Progress            int        `json:"progress"`
	ApplicationID       string     `json:"application_id"`
	Message             string     `json:"message"`
	Archived            bool       `json:"archived"`
}

// BatchOf writes a stored batch.
func BatchOf(b *capri.Batch, task string, zone *time.Location) Batch {
	return Batch{
		ID: b.ID, Task: task, TaskID: b.TaskID, TaskVersion: b.TaskVersion, Period: b.Period, BatchNo: b.BatchNo,
		RunNo: b.RunNo, Latest: b.Latest, Origin: b.Origin.String(), ScheduleTime: At(b.ScheduleTime, zone),
		DataStart: At(b.DataStart, zone), DataEnd: At(b.DataEnd, zone), CreateTime: At(b.CreateTime, zone),
		State: b.State.String(), FinishState: b.FinishState.String(), Unmet: b.Unmet, Held: b.Held, KillRequest: b.KillRequest, RunNow: b.RunNow,
		Node: b.Node, Attempt: b.Attempt, AssignTime: At(b.AssignTime, zone), StartTime: At(b.StartTime, zone),
		FinishTime: At(b.FinishTime, zone), NotBefore: At(b.NotBefore, zone), SkipAt: At(b.SkipAt, zone),
		Priority: b.Priority, Slots: b.Slots, MemoryMB: b.MemoryMB, Pool: b.Pool, Account: b.Account, Params: b.Params,
		QualityState: b.QualityState, QualityAsk: b.QualityAsk, Failures: b.Failures, Rejections: b.Rejections, Losses: b.Losses,
		DependencyTimeoutAt: At(b.DependencyTimeoutAt, zone), OutputTimeoutAt: At(b.OutputTimeoutAt, zone),
		NotifiedAt: At(b.NotifiedAt, zone), ActualMemoryMB: b.ActualMemoryMB, ActualProcesses: b.ActualProcesses,
		Progress: b.Progress, ApplicationID: b.ApplicationID, Message: b.Message, Archived: b.Archived,
	}
}

// BatchDetail is a batch with all that is known of it.
type BatchDetail struct {
	Batch
	Conditions []Condition `json:"conditions"`
	Events     []Event     `json:"events" doc:"oldest first; the birth is the row itself"`
	Attempts   []Attempt   `json:"attempts"`
}

// Condition is one thing a batch waits for, or a path that it is to produce.
type Condition struct {
	Kind        string        `json:"kind" enum:"input,output,third_party,parent"`
	State       string        `json:"state" enum:"met,unmet,derived" doc:"derived: of an archived batch, whose conditions follow from its definition"`
	Path        string        `json:"path,omitempty"`
	Flag        string        `json:"flag,omitempty"`
	Code        string        `json:"code,omitempty"`
	Period      capri.Period  `json:"period,omitempty"`
	Parent      string        `json:"parent,omitempty"`
	BatchNo     capri.BatchNo `json:"batch_no,omitempty" doc:"of the parent, or of the third party's interval"`
	Group       int           `json:"group,omitempty" doc:"conditions on a parent of one group belong to one dependency"`
	Policy      string        `json:"policy,omitempty"`
	BatchID     capri.BatchID `json:"batch_id,omitempty" doc:"the parent's latest run, where there is one"`
	BatchState  string        `json:"batch_state,omitempty"`
	FinishState string        `json:"batch_finish_state,omitempty"`
}

// Event is one change of a batch.
type Event struct {
	At          time.Time `json:"at"`
	State       string    `json:"state"`
	FinishState string    `json:"finish_state"`
	Attempt     int       `json:"attempt"`
	Node        string    `json:"node"`
	Held        bool      `json:"held"`
	KillRequest bool      `json:"kill_request"`
	Latest      bool      `json:"latest"`
	Who         string    `json:"who"`
	Why         string    `json:"why"`
}

// Attempt is one assignment of a batch to a node, read out of its events.
type Attempt struct {
	Attempt     int        `json:"attempt"`
	Node        string     `json:"node"`
	Assigned    *time.Time `json:"assigned"`
	Started     *time.Time `json:"started"`
	Ended       *time.Time `json:"ended"`
	FinishState string     `json:"finish_state"`
	Why         string     `json:"why"`
}

// Batches asks for a list. Times are business time or RFC 3339.
type Batches struct {
	Task        string // a name, or a pattern with *
	State       string // states, or finish states, separated by commas
	FinishState string // finish states beside states
	Period      string
	Group       string
	Owner       string
	Department  string
	Node        string
	Campaign    capri.CampaignID // what runs for it
	From, To    string
	ByData      bool // range and order are of the data's interval
	Oldest      bool // first
	Late        bool
	AllRuns     bool
	Archived    bool // the archive's too, whatever the range
	Limit       int
}

// Execute asks for one run of a task out of its schedule.
type Execute struct {
	Interval string            `json:"interval,omitempty" maxLength:"100" doc:"a batch_no, or FROM..TO with the bounds of one interval of the task's period; empty: the newest that has ended"`
	Params   map[string]string `json:"params,omitempty" doc:"of this run alone: the job sees PARAM_<KEY>. They are shown with the batch: no place for secrets"`
	Reason   string            `json:"reason,omitempty" maxLength:"1000"`
}

// Names are tasks to enable or disable.
type Names struct {
	Names  []string `json:"names" minItems:"1" maxItems:"10000"`
	Reason string   `json:"reason,omitempty" maxLength:"1000"`
}

// NameResult is what became of one of them.
type NameResult struct {
	Task   string `json:"task"`
	Result string `json:"result" enum:"done,unchanged"`
}

// IDs names batches for kill, hold and the like.
type IDs struct {
	IDs    []capri.BatchID `json:"ids" minItems:"1" maxItems:"10000"`
	Reason string          `json:"reason,omitempty" maxLength:"1000"`
}

// IDResult is what became of one of them.
type IDResult struct {
	ID     capri.BatchID `json:"id"`
	Result string        `json:"result" enum:"done,asked,unchanged,refused"`
	Detail string        `json:"detail"`
}

// QualityVerdict is what the quality API, or a person, says of a batch that waits at its quality gate.
type QualityVerdict struct {
	Ask     int    `json:"ask,omitempty" minimum:"0" doc:"the question it answers; 0 or left out, for admins: the newest, whether or not anybody was asked"`
	Verdict string `json:"verdict" enum:"runnable,blocked"`
	Reason  string `json:"reason,omitempty" maxLength:"1000"`
}

// UserCode is what a job says of how it went.
type UserCode struct {
	Code    int64  `json:"code" doc:"0 is success"`
	Message string `json:"message,omitempty" maxLength:"1000"`
}

// Progress is how far a job has come.
type Progress struct {
	Percent int `json:"percent" minimum:"0" maximum:"100"`
}

// Application is what a job has started elsewhere.
type Application struct {
	ID string `json:"id" minLength:"1" maxLength:"190" pattern:"^[A-Za-z0-9][A-Za-z0-9_.:-]*$" doc:"an application on YARN, or a query"`
}

// Why is the answer to "why is it not running?".
type Why struct {
	Batch      Batch      `json:"batch"`
	Ready      bool       `json:"ready" doc:"nothing but a free node is missing"`
	Summary    string     `json:"summary"`
	Causes     []Cause    `json:"causes"`
	MayStartAt *time.Time `json:"may_start_at" doc:"an estimate; null: it depends on something that has no time"`
}

// Cause is one thing that holds a batch up, with where it begins.
type Cause struct {
	Kind   string     `json:"kind"`
	Detail string     `json:"detail"`
	Root   Root       `json:"root"`
	Owner  string     `json:"owner" doc:"of the root"`
	OnDuty []string   `json:"on_duty" doc:"primary and secondary, of the owner's department or of the system"`
	Since  *time.Time `json:"since"`
	Until  *time.Time `json:"until" doc:"an estimate; null: nobody can know"`
	Chain  []Link     `json:"chain" doc:"the batches that wait between this one and the root"`
}

// Link is a batch on the way to a root.
type Link struct {
	BatchID capri.BatchID `json:"batch_id"`
	Name    string        `json:"name" doc:"task and batch_no"`
}

// Root is what one would have to look after for the batch to run.
type Root struct {
	Kind    string        `json:"kind"`
	Name    string        `json:"name"`
	BatchID capri.BatchID `json:"batch_id"`
}

// ColdStart asks for a range of batches to be made.
type ColdStart struct {
	Period  capri.Period   `json:"period,omitempty" doc:"or periods"`
	Periods []capri.Period `json:"periods,omitempty" maxItems:"10" doc:"several at once: what is of one waits for what is of another"`
	From    string         `json:"from"`
	To      string         `json:"to"`
	Group   string         `json:"group,omitempty"`
	Tasks   []string       `json:"tasks,omitempty"`
	Only    string         `json:"only,omitempty" enum:"missing,all,failed" default:"missing"`
	ByData  bool           `json:"by_data,omitempty"`
	Limit   int            `json:"limit,omitempty" minimum:"0" maximum:"1000000" doc:"how many batches at once; 0: no limit"`
	Order   string         `json:"order,omitempty" enum:"oldest,newest" default:"oldest" doc:"which marks go first, where both may"`
	Reason  string         `json:"reason,omitempty" maxLength:"1000"`
	Preview bool           `json:"preview,omitempty" doc:"store what would happen, to be looked at and run later (/campaigns)"`
}

// Rerun asks for a task's batches of a range to run again.
type Rerun struct {
	From      string          `json:"from"`
	To        string          `json:"to"`
	ByData    bool            `json:"by_data,omitempty"`
	Only      string          `json:"only,omitempty" enum:"all,missing,failed" default:"all"`
	OnRunning string          `json:"on_running,omitempty" enum:"fail,skip,kill" default:"fail" doc:"what happens to batches that run"`
	Cascade   string          `json:"cascade,omitempty" enum:"none,data,logic,both" default:"none" doc:"what rests on it runs again too: by paths, by parents, or both"`
	BatchNos  []capri.BatchNo `json:"batch_nos,omitempty" maxItems:"100000" doc:"of the range only these"`
	Limit     int             `json:"limit,omitempty" minimum:"0" maximum:"1000000" doc:"how many batches at once; 0: no limit"`
	Order     string          `json:"order,omitempty" enum:"oldest,newest" default:"oldest" doc:"which marks go first, where both may"`
	Reason    string          `json:"reason,omitempty" maxLength:"1000"`
	Preview   bool            `json:"preview,omitempty" doc:"store what would happen, to be looked at and run later (/campaigns)"`
}
