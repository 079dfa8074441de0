package capri

import "fmt"

// BatchID identifies one run of one batch_no.
type BatchID int64

// State is where a batch is on its way.
type State int

const (
	Waiting  State = 0
	Assigned State = 1
	Running  State = 2 // preparing while StartTime is not set
	Finished State = 3
)

// FinishState is how a batch ended. DependencyTimeout and OutputTimeout may stand on a batch that has not
// finished: it is late, and was alerted; what it ends as replaces them.
type FinishState int

const (
	None              FinishState = 0
	Success           FinishState = 1
	Failed            FinishState = 2
	Killed            FinishState = 3
	DependencyTimeout FinishState = 4
	OutputTimeout     FinishState = 5
	Skipped           FinishState = 6
)

var (
	stateNames  = []string{"waiting", "assigned", "running", "finished"}
	finishNames = []string{"none", "success", "failed", "killed", "dependency_timeout", "output_timeout", "skipped"}
	originNames = []string{"mark", "catch_up", "execute", "rerun", "cold_start"}
)

func (s State) String() string       { return name(stateNames, int(s)) }
func (f FinishState) String() string { return name(finishNames, int(f)) }
func (o Origin) String() string      { return name(originNames, int(o)) }

func name(names []string, i int) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

// ParseStates reads the name of a state or of a finish state; ok tells which it was.
func ParseState(s string) (st State, isState bool, fin FinishState, isFinish bool) {
	for i, n := range stateNames {
		if n == s {
			return State(i), true, 0, false
		}
	}
	for i, n := range finishNames {
		if n == s {
			return 0, false, FinishState(i), true
		}
	}
	return 0, false, 0, false
}

// Origin says why a batch was made. Time-outs count from schedule_time for OriginMark, else from creation.
type Origin int

const (
	OriginMark Origin = iota
	OriginCatchUp
	OriginExecute
	OriginRerun
	OriginColdStart
)

// Batch is one run of a task for one data interval: a row of task_work.
type Batch struct {
	ID           BatchID
	TaskID       TaskID
	TaskVersion  int
	Period       Period
	BatchNo      BatchNo
	RunNo        int
	Latest       bool
	Origin       Origin
	ScheduleTime Instant
	DataStart    Instant
	DataEnd      Instant
	CreateTime   Instant

	State       State
	FinishState FinishState
	Unmet       int // groups of conditions still unmet
	Held        bool
	KillRequest bool
	RunNow      bool // somebody let it start without its conditions

	Node       string
	Attempt    int // the number of the run's newest assignment
	AvoidNode  string
	AssignTime Instant
	StartTime  Instant
	FinishTime Instant
	NotBefore  Instant // earliest start, and the pause before a retry
	SkipAt     Instant // not started by then: skipped; 0 never

	Priority    int
	Slots       int
	MemoryMB    int
	Concurrency int
	Pool        string
	Strategy    string
	Nodes       []string // empty: any of the pool
	Account     string
	Params      map[string]string // of this run alone, besides the task's; nil: none

	QualityState int // 0 no gate, 1 to be asked, 2 asked, 3 runnable, 4 blocked
	QualityAsk   int // the number of the newest question; a verdict names the one it answers
	Failures     int
	Rejections   int
	Losses       int

	DependencyTimeoutAt Instant
	OutputTimeoutAt     Instant
	NotifiedAt          Instant

	ActualMemoryMB  int
	ActualProcesses int
	Progress        int
	ApplicationID   string
	Message         string

	Archived bool // it is in the archive: what it waited for is derived again when somebody asks
}

// Attempt names one assignment of one run; reports that name an older one change nothing.
type Attempt struct {
	Batch  BatchID
	Number int
}

func (a Attempt) String() string { return fmt.Sprintf("%d.%d", a.Batch, a.Number) }

// DeadlineKind says what is asked when a deadline has come.
type DeadlineKind int

const (
	DependencyDeadline DeadlineKind = 1 // does it still wait? then: dependency timeout
	OutputDeadline     DeadlineKind = 2 // has it not succeeded? then: output timeout
	DayEndDeadline     DeadlineKind = 3 // has it not started? then it fails (limits.expire_at_day_end)
)

// Deadline is an instant at which something is asked about a batch.
type Deadline struct {
	Kind DeadlineKind
	Due  Instant
}

// NewBatch is a batch about to be inserted, with its conditions and its deadlines.
type NewBatch struct {
	Batch
	Conditions
	Deadlines []Deadline
	Notifies  bool            // its owner wants to hear of its end (alert.notify_on)
	HeldBack  bool            // by a campaign, which releases it: one more condition that is unmet
	Former    []PathCondition // output paths of the run it takes the place of, where that one is archived and its rows are gone
}
