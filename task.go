package capri

import (
	"strconv"
	"strings"
)

// TaskID identifies a task for as long as the database lives; a deleted and re-created name keeps its id.
type TaskID int64

// Task is a definition as it is stored: what people wrote (Spec) and what the store adds. One (ID, Version)
// never changes, which makes the version row the snapshot that a batch runs and is judged by.
type Task struct {
	ID      TaskID
	Version int
	Spec
	ExpectedMinutes int // kept by bigtask; not part of a version
	App, Submitter  string
	CreatedAt       Instant // when the name was first applied
	UpdatedAt       Instant // when this version was made
	DeletedAt       Instant // 0 while it lives

	// Broken says why the stored definition cannot be read, where somebody has written into the table by hand; of Spec
	// there are then only Name, Group, Owner, Period and Enabled. Such a task has no batches and costs the others nothing.
	Broken string
}

// Spec is a task as written in a task file (docs: task file). The tags are the file's names.
// Zero values of a decoded Spec mean what they say: defaults are filled in by package definition.
type Spec struct {
	Name        string       `yaml:"name" json:"name"`
	Title       string       `yaml:"title,omitempty" json:"title,omitempty"`
	Group       string       `yaml:"group,omitempty" json:"group,omitempty"`
	Owner       string       `yaml:"owner,omitempty" json:"owner,omitempty"`
	Period      Period       `yaml:"period,omitempty" json:"period,omitempty"`
	Cron        string       `yaml:"cron,omitempty" json:"cron,omitempty"`
	Priority    int          `yaml:"priority" json:"priority"` // 0 first … 9
	Job         Job          `yaml:"job" json:"job"`
	Inputs      []Input      `yaml:"inputs,omitempty" json:"inputs,omitempty"`
	Outputs     []Output     `yaml:"outputs,omitempty" json:"outputs,omitempty"`
	ThirdParty  []ThirdParty `yaml:"third_party,omitempty" json:"third_party,omitempty"`
	Parents     []Parent     `yaml:"parents,omitempty" json:"parents,omitempty"`
	Worker      Placement    `yaml:"worker,omitempty" json:"worker"`
	Limits      Limits       `yaml:"limits,omitempty" json:"limits"`
	Retry       Retry        `yaml:"retry,omitempty" json:"retry"`
	Check       Check        `yaml:"check,omitempty" json:"check"`
	QualityGate bool         `yaml:"quality_gate,omitempty" json:"quality_gate,omitempty"`
	Cascade     bool         `yaml:"cascade" json:"cascade"` // false: no cascade ever reaches it
	Alert       AlertRules   `yaml:"alert,omitempty" json:"alert"`
	Valid       Validity     `yaml:"valid,omitempty" json:"valid"`
	Enabled     bool         `yaml:"enabled" json:"enabled"`
}

// Job is what a batch of the task runs.
type Job struct {
	Type      string            `yaml:"type" json:"type"` // one of JobTypes
	Command   string            `yaml:"command" json:"command"`
	MainClass string            `yaml:"main_class,omitempty" json:"main_class,omitempty"` // java, spark, mapreduce
	Options   []string          `yaml:"options,omitempty" json:"options,omitempty"`       // of the program that runs the command: -Xmx2g, --server
	HTTP      HTTP              `yaml:"http,omitempty" json:"http,omitzero"`              // of type http, whose address is the command
	Account   string            `yaml:"account,omitempty" json:"account,omitempty"`       // empty: the worker's own, never root
	Files     []string          `yaml:"files,omitempty" json:"files,omitempty"`
	Env       map[string]string `yaml:"env,omitempty" json:"env,omitempty"`
	Params    map[string]string `yaml:"params,omitempty" json:"params,omitempty"` // reach the job as PARAM_<KEY>
}

// JobTypes are the types of jobs, and JobTypeAliases other names for them.
var (
	JobTypes       = []string{"shell", "python", "java", "http", "hive", "spark", "trino", "mapreduce"}
	JobTypeAliases = map[string]string{"command": "shell", "presto": "trino"}
)

// JobClients are the programs that a node needs for jobs of a type, by the names of worker.clients.
var JobClients = map[string]string{"python": "python", "java": "java", "hive": "hive", "spark": "spark", "trino": "trino", "mapreduce": "hadoop"}

// Input is a path the batch waits for; with Unit it is a window of them.
type Input struct {
	Path string  `yaml:"path" json:"path"`                     // template of the interval's (in a window: the instance's) start
	Flag string  `yaml:"flag,omitempty" json:"flag,omitempty"` // done-flag inside the path; "none": the path itself
	Unit Period  `yaml:"unit,omitempty" json:"unit,omitempty"`
	From *Offset `yaml:"from,omitempty" json:"from,omitempty"`
	To   *Offset `yaml:"to,omitempty" json:"to,omitempty"`
}

// Output is a path the batch produces.
type Output struct {
	Path string `yaml:"path" json:"path"`
	Flag string `yaml:"flag,omitempty" json:"flag,omitempty"`
}

// FlagNone is the flag's name for "the path itself is the datum".
const FlagNone = "none"

// ThirdParty is a datum that somebody outside reports ready, by code and interval.
type ThirdParty struct {
	Code string `yaml:"code" json:"code"`
}

// Parent is a task whose batches this one waits for; From and To make it a window counted in the parent's period.
type Parent struct {
	Task   string  `yaml:"task" json:"task"`
	Policy Policy  `yaml:"policy,omitempty" json:"policy,omitempty"`
	From   *Offset `yaml:"from,omitempty" json:"from,omitempty"`
	To     *Offset `yaml:"to,omitempty" json:"to,omitempty"`
	TaskID TaskID  `yaml:"-" json:"task_id,omitempty"` // filled when saved
}

// Policy says how many of one parent's intervals must have succeeded (seed 000 §1.1.3).
type Policy string

const (
	All     Policy = "ALL"
	Anyone  Policy = "ANYONE"
	LastOne Policy = "LASTONE"
)

// Offset is a window's edge: N instances after the one that holds the batch's data start, or after the
// newest that has ended by the batch's end ("end", "end+3", "end-1").
type Offset struct {
	End bool
	N   int
}

func (o Offset) String() string {
	switch {
	case !o.End:
		return strconv.Itoa(o.N)
	case o.N == 0:
		return "end"
	case o.N > 0:
		return "end+" + strconv.Itoa(o.N)
	}
	return "end" + strconv.Itoa(o.N)
}

// ParseOffset reads what String wrote.
func ParseOffset(s string) (Offset, error) {
	rest, end := strings.CutPrefix(s, "end")
	if end && rest == "" {
		return Offset{End: true}, nil
	}
	bad := Invalid("window", s, `a number of instances such as 0 or -23, or "end", "end+3", "end-1"`)
	if end && rest[0] != '+' && rest[0] != '-' {
		return Offset{}, bad
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n > 100_000 || n < -100_000 {
		return Offset{}, bad
	}
	return Offset{End: end, N: n}, nil
}

func (o Offset) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
func (o *Offset) UnmarshalText(b []byte) error {
	v, err := ParseOffset(string(b))
	if err == nil {
		*o = v
	}
	return err
}

// Placement says where the task's jobs may run and what they take there.
type Placement struct {
	Pool     string   `yaml:"pool,omitempty" json:"pool,omitempty"`
	Nodes    []string `yaml:"nodes,omitempty" json:"nodes,omitempty"` // empty: any of the pool
	Strategy string   `yaml:"strategy,omitempty" json:"strategy,omitempty"`
	MemoryMB int      `yaml:"memory_mb" json:"memory_mb"`
	Slots    int      `yaml:"slots" json:"slots"`
}

// The three strategies of choosing a node.
const (
	RoundRobin  = "round_robin"
	Random      = "random"
	LeastLoaded = "least_loaded"
)

// Limits bound a task's batches in number and time. Minutes; 0 is none (BeginMinutes: -1 is not set).
type Limits struct {
	Concurrency              int  `yaml:"concurrency" json:"concurrency"`
	BeginMinutes             int  `yaml:"begin_minutes" json:"begin_minutes"` // earliest start after the mark, wall clock
	DependencyTimeoutMinutes int  `yaml:"dependency_timeout_minutes" json:"dependency_timeout_minutes"`
	OutputTimeoutMinutes     int  `yaml:"output_timeout_minutes" json:"output_timeout_minutes"`
	RunTimeoutMinutes        int  `yaml:"run_timeout_minutes" json:"run_timeout_minutes"`
	SkipAfterMinutes         int  `yaml:"skip_after_minutes" json:"skip_after_minutes"`
	ExpireAtDayEnd           bool `yaml:"expire_at_day_end" json:"expire_at_day_end"`
}

// Retry says how often a failed or rejected attempt is followed by another. Rejected -1: without limit.
type Retry struct {
	Failed            int `yaml:"failed" json:"failed"`
	FailedIntervalS   int `yaml:"failed_interval_s" json:"failed_interval_s"`
	Rejected          int `yaml:"rejected" json:"rejected"`
	RejectedIntervalS int `yaml:"rejected_interval_s" json:"rejected_interval_s"`
}

// Check says what makes an attempt a success (check_type).
type Check string

const (
	CheckExitCode   Check = "exit_code"
	CheckOutputPath Check = "output_path"
	CheckUserCode   Check = "user_code"
)

// AlertRules say who is told when the task's batches are in trouble (seed 002 §1.10.3).
type AlertRules struct {
	Phone        bool     `yaml:"phone" json:"phone"`
	PhoneTo      []string `yaml:"phone_to,omitempty" json:"phone_to,omitempty"`
	SMSTo        []string `yaml:"sms_to,omitempty" json:"sms_to,omitempty"`
	MailTo       []string `yaml:"mail_to,omitempty" json:"mail_to,omitempty"`
	DefaultRules bool     `yaml:"default_rules" json:"default_rules"`
	OwnerOnly    bool     `yaml:"owner_only" json:"owner_only"`
	NotifyOn     []string `yaml:"notify_on,omitempty" json:"notify_on,omitempty"`
}

// Validity bounds the marks a task takes part in: business time, "2006-01-02 15:04:05"; empty is open.
type Validity struct {
	From string `yaml:"from,omitempty" json:"from,omitempty"`
	To   string `yaml:"to,omitempty" json:"to,omitempty"`
}
