package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"capri"
	"capri/calendar"
	"capri/files"
	"capri/worker/job/runner"
)

// Process is what is to be started.
type Process struct {
	Argv []string
	Env  []string // complete: the job sees nothing else
}

// Maker makes processes. It is safe for concurrent use.
type Maker struct {
	calendar  calendar.Calendar
	base      []string // of every job's environment
	path      string
	server    string
	caCert    string
	clients   Clients
	program   string
	httpAllow []string

	mu    sync.Mutex
	cache map[version]*compiled
}

// MakerOptions say what all jobs of a worker have in common.
type MakerOptions struct {
	Calendar calendar.Calendar
	Path     string   // PATH after the job's own directory
	PassEnv  []string // "NAME=value" of the worker's environment that jobs see
	Server   string   // where the API is: CAPRI_SERVER
	CACert   string   // the file by which its certificate is checked: CAPRI_CACERT

	Clients   Clients
	Program   string   // capri, whose `capri job` runs jobs of some types; default: beside this program
	HTTPAllow []string // networks that jobs of type http may call although they are refused otherwise
}

// programName is what capri is called beside the programs that start jobs.
const programName = "capri"

// NewMaker makes one.
func NewMaker(o MakerOptions) *Maker {
	if o.Program == "" {
		if self, err := os.Executable(); err == nil {
			o.Program = filepath.Join(filepath.Dir(self), programName)
		}
	}
	path := o.Path
	if dir := filepath.Dir(o.Program); o.Program != "" && !strings.Contains(dir, ":") && open(dir) {
		path += ":" + dir // last: jobs call capri report-code, and nothing there comes before the machine's own
	}
	return &Maker{calendar: o.Calendar, base: o.PassEnv, path: path, server: o.Server, caCert: o.CACert, clients: o.Clients, program: o.Program,
		httpAllow: o.HTTPAllow, cache: map[version]*compiled{}}
}

// open tells whether every account can enter a directory. For one that it cannot enter in its PATH a shell says "permission
// denied" of each program that it does not find.
func open(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || os.Geteuid() == 0 && info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

type version struct {
	task    capri.TaskID
	version int
}

// compiled is what all batches of one version of a task have in common.
type compiled struct {
	kind    Type
	command *calendar.Template
	ahead   []string // options that come before the task's own, which may say otherwise
	options []*calendar.Template
	http    *capri.HTTP          // nil: of another type
	texts   []*calendar.Template // of httpTexts
	params  map[string]string
	main    string
	files   []string
	env     []string // without what depends on the batch
	path    string
}

// ordinaryPriority is that of tasks which say nothing; engines then hear nothing either.
const ordinaryPriority = 5

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
	c = &compiled{kind: kind, path: m.path, params: t.Job.Params, main: t.Job.MainClass}
	if c.command, err = calendar.ParseTemplate(t.Job.Command, calendar.CommandTemplate); err != nil {
		return nil, err
	}
	if c.options, err = templates(t.Job.Options); err != nil {
		return nil, err
	}
	if kind.priority != nil && t.Priority != ordinaryPriority {
		c.ahead = kind.priority(10 - t.Priority)
	}
	if kind.argv == nil {
		c.http = &t.Job.HTTP
		if c.texts, err = templates(httpTexts(c.http)); err != nil {
			return nil, err
		}
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
	for _, e := range kind.env {
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
	env.set("CAPRI_PRIORITY", strconv.Itoa(t.Priority))
	if m.server != "" {
		env.set("CAPRI_SERVER", m.server)
	}
	if m.caCert != "" {
		env.set("CAPRI_CACERT", m.caCert)
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
	const dynamic = 14
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
	for k, v := range b.Params { // of this run alone, before the task's
		env.instead("PARAM_"+strings.ToUpper(k), v)
	}
	argv, told, err := m.argv(c, b)
	if err != nil {
		return Process{}, err
	}
	if told != "" {
		env.own(runner.Variable, told)
	}
	return Process{Argv: argv, Env: env.list}, nil
}

// withOwn puts the parameters of one run in place of its task's, whose names differ in no more than capitals.
func withOwn(params, own map[string]string) map[string]string {
	if len(own) == 0 {
		return params
	}
	out := maps.Clone(own)
	for k, v := range params {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(own)), func(o string) bool { return strings.EqualFold(o, k) }) {
			out[k] = v
		}
	}
	return out
}

// argv gives the command line of a batch, and what the runner is told where that is the runner's.
func (m *Maker) argv(c *compiled, b *capri.Batch) (argv []string, told string, err error) {
	expand := func(list ...*calendar.Template) []string {
		texts := make([]string, len(list))
		for i, t := range list {
			texts[i] = t.Expand(m.calendar, b.DataStart, b.ScheduleTime)
		}
		return texts
	}
	text := expand(c.command)[0]
	params := withOwn(c.params, b.Params)
	var spec runner.Spec
	if c.http != nil {
		spec.HTTP = &runner.Call{URL: strings.TrimSpace(text), HTTP: withHTTPTexts(*c.http, expand(c.texts...)), Params: params, Allow: m.httpAllow}
	} else {
		own := expand(c.options...)
		cmd := &command{text: text, files: c.files, options: slices.Concat(c.ahead, own), mainClass: c.main, params: params}
		if c.kind.client != "" {
			if cmd.client, err = m.clients.Find(c.kind.client); err != nil {
				return nil, "", err
			}
		}
		argv = c.kind.argv(cmd)
		if c.kind.remote == "" {
			return argv, "", nil
		}
		spec.Client = &runner.Client{Argv: argv, Remote: c.kind.remote, Former: b.ApplicationID}
		if c.kind.kill != nil {
			cmd.options = own
			spec.Client.Kill = c.kind.kill(cmd)
		} else if yarn, err := m.clients.Find("yarn"); err == nil { // its absence is no reason not to run
			spec.Client.Kill = []string{yarn, "application", "-kill", runner.RemoteID}
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // <, > and & would take six bytes each
	if err := enc.Encode(spec); err != nil {
		return nil, "", fmt.Errorf("write down what the job's runner is to do: %w", err)
	}
	if out.Len() > mostVariable {
		return nil, "", capri.Invalid("job.command", fmt.Sprintf("%d KB with options and parameters", out.Len()>>10), fmt.Sprintf("at most %d KB; put more into a file (job.files)", mostVariable>>10))
	}
	return []string{m.program, "job"}, strings.TrimSuffix(out.String(), "\n"), nil
}

// mostVariable is what Linux lets one variable have (MAX_ARG_STRLEN), less a page for its name.
const mostVariable = 124 << 10

func templates(texts []string) ([]*calendar.Template, error) {
	list := make([]*calendar.Template, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = calendar.ParseTemplate(text, calendar.CommandTemplate); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// httpTexts are the texts of a call in which times may stand: the body, the poll's address, the headers' values by name.
func httpTexts(h *capri.HTTP) []string {
	texts := []string{h.Body, h.Poll.URL}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		texts = append(texts, h.Headers[name])
	}
	return texts
}

// withHTTPTexts puts what httpTexts gave, expanded, into a copy.
func withHTTPTexts(h capri.HTTP, texts []string) capri.HTTP {
	h.Body, h.Poll.URL = texts[0], texts[1]
	headers := make(map[string]string, len(h.Headers))
	for i, name := range slices.Sorted(maps.Keys(h.Headers)) {
		headers[name] = texts[2+i]
	}
	h.Headers = headers
	return h
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

// instead sets a name whether or not it is set already.
func (e *environ) instead(name, value string) {
	e.list = slices.DeleteFunc(e.list, func(have string) bool { return strings.HasPrefix(have, name+"=") })
	e.own(name, value)
}

// other adds a name unless the task has set it.
func (e *environ) other(name, value string) {
	for _, have := range e.list {
		if strings.HasPrefix(have, name) && len(have) > len(name) && have[len(name)] == '=' {
			return
		}
	}
	e.own(name, value)
}
