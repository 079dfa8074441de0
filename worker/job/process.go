package job

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/calendar"
	"capri/files"
)

// Process is what is to be started.
type Process struct {
	Argv []string
	Env  []string // complete: the job sees nothing else
}

// Maker makes processes. It is safe for concurrent use.
type Maker struct {
	calendar calendar.Calendar
	base     []string // of every job's environment
	path     string
	server   string

	mu    sync.Mutex
	cache map[version]*compiled
}

// MakerOptions say what all jobs of a worker have in common.
type MakerOptions struct {
	Calendar calendar.Calendar
	Path     string   // PATH after the job's own directory
	PassEnv  []string // "NAME=value" of the worker's environment that jobs see
	Server   string   // where the API is: CAPRI_SERVER
}

// NewMaker makes one.
func NewMaker(o MakerOptions) *Maker {
	return &Maker{calendar: o.Calendar, base: o.PassEnv, path: o.Path, server: o.Server, cache: map[version]*compiled{}}
}

type version struct {
	task    capri.TaskID
	version int
}

// compiled is what all batches of one version of a task have in common.
type compiled struct {
	kind    Type
	command *calendar.Template
	files   []string
	env     []string // without what depends on the batch
	path    string
}

// cacheLimit is some tens of megabytes; a mark of more distinct tasks than that reads their templates anew.
const cacheLimit = 20_000

func (m *Maker) compile(t *capri.Task) (*compiled, error) {
	key := version{t.ID, t.Version}
	m.mu.Lock()
	c := m.cache[key]
	m.mu.Unlock()
	if c != nil {
		return c, nil
	}
	kind, err := TypeOf(t.Job.Type)
	if err != nil {
		return nil, err
	}
	c = &compiled{kind: kind, path: m.path}
	if c.command, err = calendar.ParseTemplate(t.Job.Command, calendar.CommandTemplate); err != nil {
		return nil, err
	}
	for _, url := range t.Job.Files {
		name, err := files.BaseName(url)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, name)
	}
	env := newEnviron()
	for _, e := range m.base {
		env.add(strings.Cut(e, "="))
	}
	for _, e := range kind.Env() {
		env.add(strings.Cut(e, "="))
	}
	for k, v := range t.Job.Env {
		if k == "PATH" { // the job's directory leads it all the same
			c.path = v
			continue
		}
		env.set(k, v)
	}
	for k, v := range t.Job.Params {
		env.set("PARAM_"+strings.ToUpper(k), v)
	}
	env.set("CAPRI_TASK", t.Name)
	if m.server != "" {
		env.set("CAPRI_SERVER", m.server)
	}
	c.env = env.list
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.cache) >= cacheLimit {
		clear(m.cache)
	}
	m.cache[key] = c
	return c, nil
}

// Make gives the process of one attempt of a batch, in its directory, as account (nil: as ourselves).
func (m *Maker) Make(t *capri.Task, b *capri.Batch, dir string, as *Account) (Process, error) {
	c, err := m.compile(t)
	if err != nil {
		return Process{}, err
	}
	zone := m.calendar.Zone()
	at := func(i capri.Instant) string { return i.In(zone).Format(time.RFC3339) }
	const dynamic = 13
	env := environ{list: append(make([]string, 0, len(c.env)+dynamic), c.env...)}
	env.own("PATH", dir+":"+c.path)
	env.other("HOME", dir)
	if as != nil {
		env.other("USER", as.Name)
		env.other("LOGNAME", as.Name)
	}
	env.own("CAPRI_BATCH_ID", strconv.FormatInt(int64(b.ID), 10))
	env.own("CAPRI_BATCH_NO", string(b.BatchNo))
	env.own("CAPRI_RUN_NO", strconv.Itoa(b.RunNo))
	env.own("CAPRI_ATTEMPT", capri.Attempt{Batch: b.ID, Number: b.Attempt}.String())
	env.own("CAPRI_DATA_START", at(b.DataStart))
	env.own("CAPRI_DATA_END", at(b.DataEnd))
	env.own("CAPRI_SCHEDULE_TIME", at(b.ScheduleTime))
	return Process{Argv: c.kind.Argv(c.command.Expand(m.calendar, b.DataStart, b.ScheduleTime), c.files), Env: env.list}, nil
}

// environ is an environment without a name twice: which of two a program sees depends on the program.
type environ struct {
	list []string
	at   map[string]int
}

func newEnviron() *environ { return &environ{at: map[string]int{}} }

func (e *environ) set(name, value string) {
	if i, twice := e.at[name]; twice {
		e.list[i] = name + "=" + value
		return
	}
	e.at[name] = len(e.list)
	e.list = append(e.list, name+"="+value)
}

func (e *environ) add(name, value string, isOne bool) {
	if isOne && name != "" {
		e.set(name, value)
	}
}

// own adds a name that no task can have set.
func (e *environ) own(name, value string) { e.list = append(e.list, name+"="+value) }

// other adds a name unless the task has set it.
func (e *environ) other(name, value string) {
	for _, have := range e.list {
		if strings.HasPrefix(have, name) && len(have) > len(name) && have[len(name)] == '=' {
			return
		}
	}
	e.own(name, value)
}
