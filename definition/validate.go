package definition

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"capri"
	"capri/calendar"
	"capri/cron"
	"capri/definition/nearest"
	"capri/lineage"
)

// Known is what exists already, as far as definitions speak of it. What is not in it does not exist: an empty
// Known knows no owner and no account.
type Known struct {
	Calendar calendar.Calendar
	Now      capri.Instant // for warnings alone: about the next time that the clock goes back

	Tasks  map[string]*capri.Task // those that live, by name
	Owners map[string]string      // user → department, "" for none
	Grants map[Grant]bool

	Nodes []capri.Node // that are registered: what none of them can run is warned of

	WithoutHDFS bool // no name-node is configured: hdfs:// paths are warned of
}

// Grant lets a user, or everybody of a department, run jobs as an account. One of the two is empty.
type Grant struct{ Account, User, Department string }

// Allowed tells whether a task of this owner may run as the account.
func (k *Known) Allowed(account, owner string) bool {
	department := k.Owners[owner]
	return k.Grants[Grant{Account: account, User: owner}] ||
		department != "" && k.Grants[Grant{Account: account, Department: department}]
}

// validate checks everything that can be said of the items together with what exists. It changes nothing. What is wrong is
// all there is to say; warnings do not stand in the way of applying.
func validate(items []Item, known Known) (wrong capri.FieldErrors, warnings []string) {
	v := validator{known: known, byName: make(map[string]*Item, len(items))}
	for i := range items {
		it := &items[i]
		v.item = it
		if first, twice := v.byName[it.Name]; twice && it.Name != "" {
			v.fail("name", it.Name, "a name that is used once; "+cmp.Or(first.Where, "another task of this request")+" has it, too")
			continue
		}
		v.byName[it.Name] = it
	}
	for i := range items {
		v.item = &items[i]
		v.spec(&items[i].Spec)
	}
	v.orphans()
	v.cycles(items)
	return v.wrong, v.warnings
}

// validator gathers what is wrong. item is the one that is being looked at.
type validator struct {
	known    Known
	byName   map[string]*Item
	item     *Item
	wrong    capri.FieldErrors
	warnings []string

	names   []string // of all tasks, made when the first is missed
	guesses int
}

// fail notes a mistake, unless Parse has complained about the field, or one that it is in, already.
func (v *validator) fail(field, value, want string) {
	for f := field; f != ""; {
		if v.item.broken[f] {
			return
		}
		f = f[:max(0, strings.LastIndexAny(f, ".["))]
	}
	v.wrong = append(v.wrong, &capri.FieldError{Field: field, Value: value, Want: want, Where: v.where(field)})
}

func (v *validator) warn(field, format string, a ...any) {
	v.warnings = append(v.warnings, v.where(field)+": "+field+": "+fmt.Sprintf(format, a...))
}

func (v *validator) where(field string) string {
	place := v.item.Where
	if line := v.item.line(field); line > 0 {
		place = v.item.name + ":" + strconv.Itoa(line)
	}
	return where(place, v.item.Name)
}

// Bounds of lists and texts. They are far above what anybody writes by hand, and keep one definition from
// filling the memory of a master.
const (
	maxCommand    = 64 << 10
	maxParents    = 5_000
	maxItems      = 1_000 // of any other list
	maxMinutes    = 366 * 24 * 60
	maxRetries    = 100
	maxIntervalS  = 24 * 60 * 60
	maxSlots      = 10_000
	maxMemoryMB   = 64 << 20 // 64 TB
	maxTitle      = 512
	maxGuesses    = 50 // did-you-mean for this many unknown parents; more would only slow the answer down
	maxConcurrent = 10_000
)

var (
	phoneNumber = regexp.MustCompile(`^\+?[0-9](?:[ ()/-]?[0-9])*$`)
	hasScheme   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:/`)
)

func isTaskName(s string) bool { return capri.IsWord(s, "_.-") }

func isGroupName(s string) bool { return capri.IsName(s, "_.-") }

// IsCode tells whether a text can be a third party's code.
func IsCode(s string) bool { return capri.IsName(s, "_.:/-") }

func isEnvName(s string) bool { return capri.IsWord(s, "_") && (s[0] < '0' || s[0] > '9') }

// isPhoneNumber wants 3 to 20 digits.
func isPhoneNumber(s string) bool {
	digits := 0
	for _, r := range s {
		if '0' <= r && r <= '9' {
			digits++
		}
	}
	return 3 <= digits && digits <= 20 && phoneNumber.MatchString(s)
}

const (
	taskNameRule  = "1 to 128 letters, digits, _ . -"
	groupNameRule = "1 to 128 letters of any script, digits, _ . -"
)

func (v *validator) spec(s *capri.Spec) {
	v.match("name", s.Name, isTaskName, taskNameRule)
	if utf8.RuneCountInString(s.Title) > maxTitle {
		v.fail("title", s.Title, fmt.Sprintf("at most %d characters", maxTitle))
	}
	if s.Group != "" {
		v.match("group", s.Group, isGroupName, groupNameRule)
	}
	if _, ok := v.known.Owners[s.Owner]; !ok && s.Owner != "" {
		v.fail("owner", s.Owner, "a user that exists"+didYouMean(s.Owner, slices.Sorted(maps.Keys(v.known.Owners))))
	}
	v.period(s)
	v.between("priority", s.Priority, 0, 9)
	v.job(s)
	v.data(s)
	v.parents(s)
	v.worker(&s.Worker)
	v.limits(s)
	switch s.Check {
	case capri.CheckExitCode, capri.CheckUserCode:
	case capri.CheckOutputPath:
		if len(s.Outputs) == 0 {
			v.fail("outputs", "", "at least one path, since check is output_path")
		}
	default:
		v.fail("check", string(s.Check), "exit_code, output_path or user_code")
	}
	v.alert(&s.Alert)
	v.valid(&s.Valid)
	v.notYet(s)
	v.clients(s)
}

// notYet warns of what a definition may say already and this version cannot do: nothing waits or fails without a word.
func (v *validator) notYet(s *capri.Spec) {
	if !v.known.WithoutHDFS {
		return
	}
	isHDFS := func(path string) bool { return strings.HasPrefix(strings.ToLower(path), "hdfs:") }
	for i, f := range s.Job.Files {
		if isHDFS(f) {
			v.warn(fmt.Sprintf("job.files[%d]", i), "no HDFS is configured here (hdfs.name_nodes): where workers have none either, batches of this task will fail")
		}
	}
	for i, in := range s.Inputs {
		if isHDFS(in.Path) {
			v.warn(fmt.Sprintf("inputs[%d].path", i), "no HDFS is configured here (hdfs.name_nodes): batches of this task will wait")
		}
	}
}

func (v *validator) period(s *capri.Spec) {
	switch {
	case s.Period == 0:
		v.fail("period", "", "hour, day, week, month or manual, or a cron expression in the field cron")
	case s.Period == capri.Cron && s.Cron == "":
		v.fail("cron", "", `a Quartz expression, such as "0 30 2 * * ?", since period is cron`)
	case s.Period != capri.Cron && s.Cron != "":
		v.fail("cron", s.Cron, "to be left out, or period to be cron; period is "+s.Period.String())
	}
	if s.Cron != "" {
		_, err := cron.Parse(s.Cron)
		var wrong *cron.Error
		switch {
		case errors.As(err, &wrong) && wrong.Value == s.Cron:
			v.fail("cron", s.Cron, wrong.Want)
		case wrong != nil:
			v.fail("cron", s.Cron, fmt.Sprintf("%s: %s, not %q", wrong.Field, wrong.Want, wrong.Value))
		case err != nil:
			v.fail("cron", s.Cron, err.Error())
		}
	}
}

func (v *validator) job(s *capri.Spec) {
	j := &s.Job
	v.jobType(j)
	if strings.TrimSpace(j.Command) == "" {
		v.fail("job.command", j.Command, "the command to run")
	} else {
		v.text("job.command", j.Command)
		if j.Type != "http" { // an address is no command: see jobType
			_, err := calendar.ParseTemplate(j.Command, calendar.CommandTemplate)
			v.failWith("job.command", j.Command, err)
		}
	}
	v.account(s)

	v.count("job.files", len(j.Files), maxItems)
	named := map[string]int{}
	for i, f := range j.Files {
		field := fmt.Sprintf("job.files[%d]", i)
		if _, err := lineage.CanonicalPath(f); err != nil || !absolute(f) {
			v.fail(field, f, "an absolute path, such as hdfs:///apps/clean.sh or /opt/jobs/clean.sh")
			continue
		}
		if strings.Contains(f, "${") {
			v.fail(field, f, "a path without ${…}; only paths of data and commands stand for times")
		}
		// All files lie side by side in the attempt's directory.
		base := path.Base(f)
		if at, twice := named[base]; twice {
			v.fail(field, f, fmt.Sprintf("files of different names; job.files[%d] is called %s, too", at, base))
		}
		named[base] = i
	}

	v.count("job.env", len(j.Env), maxItems)
	for _, k := range slices.Sorted(maps.Keys(j.Env)) {
		field := "job.env." + k
		switch {
		case !isEnvName(k):
			v.fail(field, "", "a name of letters, digits and _ that does not begin with a digit")
		case strings.HasPrefix(k, "CAPRI_") || strings.HasPrefix(k, "PARAM_"):
			v.fail(field, "", "another name; CAPRI_ and PARAM_ are set by Capri (parameters go into job.params)")
		case k == "LD_PRELOAD" || k == "LD_AUDIT":
			// They act on every program of the job, the ones that Capri starts it with included.
			v.fail(field, "", "another way; "+k+" would change the programs that start the job")
		}
		v.text(field, j.Env[k])
	}
	v.params("job.params", j.Params)
}

func (v *validator) params(list string, params map[string]string) {
	v.count(list, len(params), maxItems)
	upper := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(params)) {
		field := list + "." + k
		if !capri.IsWord(k, "_") {
			v.fail(field, "", "a name of letters, digits and _; the job sees it as PARAM_ and the name in capitals")
		}
		if other, twice := upper[strings.ToUpper(k)]; twice {
			v.fail(field, "", "names that differ in more than capitals; "+other+" becomes PARAM_"+strings.ToUpper(k)+", too")
		}
		upper[strings.ToUpper(k)] = k
		v.text(field, params[k])
	}
}

// CheckParams says what is wrong with the parameters of one run: the rules of job.params, and that the batch can keep them.
func CheckParams(params map[string]string) error {
	v := &validator{item: &Item{}}
	v.params("params", params)
	size := 0
	for k, value := range params {
		size += len(k) + len(value)
	}
	const most = 16 << 10 // as JSON, with each character escaped, they still fit the column
	if size > most {
		v.fail("params", fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d bytes in all; put more into a file", most))
	}
	return v.wrong.OrNil()
}

func (v *validator) account(s *capri.Spec) {
	account := s.Job.Account
	switch {
	case account == "":
	case account == "root":
		v.fail("job.account", account, "any account but root; Capri never runs a job as root")
	case !capri.IsAccount(account):
		v.fail("job.account", account, "the name of an account of the workers' machines")
	case s.Owner == "":
		v.fail("owner", "", "the user whom account "+account+" is granted to")
	case v.known.Allowed(account, s.Owner):
	default:
		if _, ok := v.known.Owners[s.Owner]; !ok {
			return // said already
		}
		want := "an account that is granted to " + s.Owner
		if d := v.known.Owners[s.Owner]; d != "" {
			want += " or to department " + d
		}
		granted := []string{}
		for g := range v.known.Grants {
			if v.known.Allowed(g.Account, s.Owner) && !slices.Contains(granted, g.Account) {
				granted = append(granted, g.Account)
			}
		}
		slices.Sort(granted)
		if len(granted) > 0 {
			want += ": " + few(granted)
		}
		v.fail("job.account", account, want)
	}
}

// data checks inputs, outputs and third-party codes. The templates, paths and windows themselves are read by
// the package that will expand them.
func (v *validator) data(s *capri.Spec) {
	v.count("inputs", len(s.Inputs), maxItems)
	v.count("outputs", len(s.Outputs), maxItems)
	v.count("third_party", len(s.ThirdParty), maxItems)
	compiled, err := lineage.Compile(&capri.Task{Spec: *s})
	var several capri.FieldErrors
	if errors.As(err, &several) {
		for _, e := range several {
			v.fail(e.Field, e.Value, e.Want)
		}
	} else if err != nil {
		v.fail("inputs", "", err.Error())
	} else if v.known.Now != 0 {
		for _, w := range compiled.Warnings(v.known.Calendar, v.known.Now) {
			field, _, _ := strings.Cut(w, ":")
			v.warnings = append(v.warnings, v.where(field)+": "+w)
		}
	}

	made := map[[2]string]bool{}
	for i, out := range s.Outputs {
		field := fmt.Sprintf("outputs[%d]", i)
		v.path(field, out.Path, out.Flag)
		canonical, err := lineage.CanonicalPath(out.Path)
		key := [2]string{canonical, out.Flag}
		if err == nil && made[key] {
			v.fail(field+".path", out.Path, "each output once")
		}
		made[key] = true
	}
	for i, in := range s.Inputs {
		field := fmt.Sprintf("inputs[%d]", i)
		v.path(field, in.Path, in.Flag)
		v.halfWindow(field, in.From, in.To)
		unit := in.Unit
		if unit == 0 && in.From != nil {
			unit = s.Period
		}
		// Waiting for what the batch itself will make is waiting for ever. Its earlier output is another matter.
		earlier := in.To != nil && unit == s.Period && in.To.N < 0
		if canonical, err := lineage.CanonicalPath(in.Path); err == nil && made[[2]string{canonical, in.Flag}] && !earlier {
			v.fail(field+".path", in.Path, "a path that the task does not make itself (it is one of its outputs); its output of an earlier interval is a window with to: -1")
		}
	}
	codes := map[string]bool{}
	for i, tp := range s.ThirdParty {
		field := fmt.Sprintf("third_party[%d].code", i)
		if tp.Code != "" { // an empty one was reported above
			v.match(field, tp.Code, IsCode, "1 to 128 letters, digits, _ . : / -")
		}
		if codes[tp.Code] {
			v.fail(field, tp.Code, "each code once")
		}
		codes[tp.Code] = true
	}
}

func (v *validator) path(field, p, flag string) {
	if p != "" && !absolute(p) {
		v.fail(field+".path", p, "an absolute path, such as /warehouse/orders/${yyyyMMdd} or hdfs://cluster/orders/${yyyyMMdd}")
	}
	if flag == "" || flag == "." || flag == ".." || strings.ContainsAny(flag, "/\x00") || len(flag) > 255 {
		v.fail(field+".flag", flag, "the name of a file inside the path, such as "+DefaultFlag+", or none for the path itself")
	} else if strings.Contains(flag, "${") {
		v.fail(field+".flag", flag, "a name without ${…}; only the path stands for times")
	}
}

func (v *validator) halfWindow(field string, from, to *capri.Offset) {
	switch {
	case from != nil && to == nil:
		v.fail(field+".to", "", "the window's last instance; from and to stand together")
	case from == nil && to != nil:
		v.fail(field+".from", "", "the window's first instance; from and to stand together")
	}
}

func (v *validator) parents(s *capri.Spec) {
	v.count("parents", len(s.Parents), maxParents)
	type same struct {
		task     string
		from, to capri.Offset
		windowed bool
	}
	seen := map[same]int{}
	for i, p := range s.Parents {
		field := fmt.Sprintf("parents[%d]", i)
		if p.Task == "" {
			v.fail(field+".task", "", "the name of the task to wait for")
			continue
		}
		v.halfWindow(field, p.From, p.To)
		// One parent may stand there with several windows: a day's hours, and the first of the next day.
		key := same{task: p.Task}
		if p.From != nil && p.To != nil {
			key.from, key.to, key.windowed = *p.From, *p.To, true
		}
		if at, twice := seen[key]; twice {
			v.fail(field+".task", p.Task, fmt.Sprintf("each parent once; parents[%d] is the same", at))
			continue
		}
		seen[key] = i

		parent := v.task(p.Task)
		switch {
		case parent == nil:
			v.fail(field+".task", p.Task, "a task that exists"+v.guess(p.Task))
		case parent.Period == capri.Manual:
			v.failWith(field+".task", p.Task, lineage.CheckParent(lineage.Ref{Period: capri.Manual}, p))
		case p.Task == s.Name && (p.From == nil || p.To == nil):
			v.fail(field, "", "a window before itself, such as from: -1, to: -1, since a batch cannot wait for itself")
		case p.Task == s.Name && p.To.N >= 0:
			v.fail(field+".to", p.To.String(), "-1 or less, since a batch cannot wait for itself or for one after it")
		case !parent.Enabled && s.Enabled:
			v.warn(field+".task", "%s is disabled: as long as it is, this task waits for batches that nobody makes", p.Task)
		}
	}
}

// task finds a task as it will be when the items are applied.
func (v *validator) task(name string) *capri.Spec {
	if it, ok := v.byName[name]; ok {
		return &it.Spec
	}
	if t, ok := v.known.Tasks[name]; ok {
		return &t.Spec
	}
	return nil
}

// guess offers the task that was probably meant.
func (v *validator) guess(name string) string {
	if v.guesses++; v.guesses > maxGuesses {
		return ""
	}
	if v.names == nil {
		for n := range v.byName {
			v.names = append(v.names, n)
		}
		for n := range v.known.Tasks {
			v.names = append(v.names, n)
		}
		slices.Sort(v.names)
	}
	return didYouMean(name, v.names)
}

func (v *validator) worker(w *capri.Placement) {
	v.match("worker.pool", w.Pool, isTaskName, taskNameRule)
	v.list("worker.nodes", w.Nodes, isTaskName, taskNameRule)
	if w.Strategy != capri.RoundRobin && w.Strategy != capri.Random && w.Strategy != capri.LeastLoaded {
		v.fail("worker.strategy", w.Strategy, "round_robin, random or least_loaded")
	}
	v.between("worker.memory_mb", w.MemoryMB, 0, maxMemoryMB)
	v.between("worker.slots", w.Slots, 1, maxSlots)
}

func (v *validator) limits(s *capri.Spec) {
	l, r := &s.Limits, &s.Retry
	v.between("limits.concurrency", l.Concurrency, 1, maxConcurrent)
	v.between("limits.begin_minutes", l.BeginMinutes, -1, maxMinutes)
	v.between("limits.dependency_timeout_minutes", l.DependencyTimeoutMinutes, 0, maxMinutes)
	v.between("limits.output_timeout_minutes", l.OutputTimeoutMinutes, 0, maxMinutes)
	v.between("limits.run_timeout_minutes", l.RunTimeoutMinutes, 0, maxMinutes)
	v.between("limits.skip_after_minutes", l.SkipAfterMinutes, 0, maxMinutes)
	if l.SkipAfterMinutes > 0 && l.BeginMinutes >= l.SkipAfterMinutes {
		v.fail("limits.skip_after_minutes", strconv.Itoa(l.SkipAfterMinutes),
			fmt.Sprintf("more than begin_minutes (%d), or every batch would be skipped before it may start", l.BeginMinutes))
	}
	v.between("retry.failed", r.Failed, 0, maxRetries)
	v.between("retry.failed_interval_s", r.FailedIntervalS, 0, maxIntervalS)
	v.between("retry.rejected", r.Rejected, -1, maxRetries)
	v.between("retry.rejected_interval_s", r.RejectedIntervalS, 0, maxIntervalS)
}

func (v *validator) alert(a *capri.AlertRules) {
	v.list("alert.phone_to", a.PhoneTo, isPhoneNumber, "a phone number, such as +86 138 0013 8000")
	v.list("alert.sms_to", a.SMSTo, isPhoneNumber, "a phone number, such as +86 138 0013 8000")
	v.list("alert.mail_to", a.MailTo, func(s string) bool {
		address, err := mail.ParseAddress(s)
		return err == nil && address.Address == s // nothing but the address: no name, no second one
	}, "a mail address, such as alice@example.com")
	v.list("alert.notify_on", a.NotifyOn, func(s string) bool {
		return slices.Contains([]string{"success", "failed", "killed", "skipped"}, s)
	}, "success, failed, killed or skipped")
	switch {
	case a.Phone && len(a.PhoneTo) == 0:
		v.warn("alert.phone", "phone is true, but phone_to is empty: nobody will be called")
	case !a.Phone && len(a.PhoneTo) > 0:
		v.warn("alert.phone_to", "phone is false: nobody of phone_to will be called")
	}
}

func (v *validator) valid(w *capri.Validity) {
	read := func(field, s string) bool {
		if s == "" {
			return false
		}
		// By this one layout only, so that the texts compare as times.
		if _, err := time.Parse(timeLayout, s); err != nil || len(s) != len(timeLayout) {
			v.fail(field, s, `business time, such as "2026-01-01 00:00:00" or "2026-01-01"`)
			return false
		}
		return true
	}
	from, to := read("valid.from", w.From), read("valid.to", w.To)
	if from && to && w.From >= w.To {
		v.fail("valid.to", w.To, "a time after valid.from ("+w.From+")")
	}
}

// orphans finds tasks that are not in the request and whose parent becomes manual by it.
func (v *validator) orphans() {
	for _, name := range slices.Sorted(maps.Keys(v.known.Tasks)) {
		if _, edited := v.byName[name]; edited {
			continue
		}
		for _, p := range v.known.Tasks[name].Parents {
			if it, ok := v.byName[p.Task]; ok && it.Period == capri.Manual {
				v.item = it
				v.fail("period", "manual", "another period as long as task "+name+" waits for this one")
			}
		}
	}
}

// cycles looks at all tasks as they will be.
func (v *validator) cycles(items []Item) {
	all := make([]*capri.Task, 0, len(items)+len(v.known.Tasks))
	ids := make(map[string]capri.TaskID, cap(all))
	for name, t := range v.known.Tasks {
		ids[name] = t.ID
	}
	for i := range items {
		it := &items[i]
		if v.byName[it.Name] != it || it.Period == 0 { // a second of one name, or one that nobody can place
			continue
		}
		id, known := ids[it.Name]
		if !known {
			id = -capri.TaskID(i + 1) // the store has not given one yet; its own are positive
		}
		ids[it.Name] = id
		all = append(all, &capri.Task{ID: id, Spec: it.Spec})
	}
	for _, name := range slices.Sorted(maps.Keys(v.known.Tasks)) {
		if _, edited := v.byName[name]; !edited {
			all = append(all, v.known.Tasks[name])
		}
	}
	for i, t := range all {
		if _, edited := v.byName[t.Name]; !edited && !slices.ContainsFunc(t.Parents, func(p capri.Parent) bool { return p.TaskID == 0 }) {
			continue // as the store keeps it
		}
		// A copy with the ids filled in, and without what was refused above and would only confuse here.
		copied := *t
		copied.Parents = make([]capri.Parent, 0, len(t.Parents))
		for _, p := range t.Parents {
			id, ok := ids[p.Task]
			parent := v.task(p.Task)
			selfLoop := p.Task == t.Name && (p.To == nil || p.From == nil || p.To.N >= 0)
			if !ok || parent == nil || parent.Period == capri.Manual || selfLoop || (p.From == nil) != (p.To == nil) {
				continue
			}
			p.TaskID = id
			copied.Parents = append(copied.Parents, p)
		}
		all[i] = &copied
	}
	err := lineage.Cycle(v.known.Calendar, all)
	if err == nil {
		return
	}
	v.item = &Item{} // a cycle belongs to several tasks; the message names them
	var several capri.FieldErrors
	var one *capri.FieldError
	switch {
	case errors.As(err, &several):
		for _, e := range several {
			v.fail(e.Field, e.Value, e.Want)
		}
	case errors.As(err, &one):
		v.fail(one.Field, one.Value, one.Want)
	default:
		v.fail("parents", "", err.Error())
	}
}

// The small checks.

func (v *validator) match(field, s string, is func(string) bool, want string) {
	if !is(s) {
		v.fail(field, s, want)
	}
}

func (v *validator) between(field string, n, least, most int) {
	if n < least || n > most {
		v.fail(field, strconv.Itoa(n), fmt.Sprintf("%d … %d", least, most))
	}
}

func (v *validator) count(field string, n, most int) {
	if n > most {
		v.fail(field, strconv.Itoa(n)+" items", fmt.Sprintf("at most %d", most))
	}
}

// list checks each item, and that none is there twice.
func (v *validator) list(field string, items []string, ok func(string) bool, want string) {
	v.count(field, len(items), maxItems)
	for i, s := range items {
		if !ok(s) {
			v.fail(fmt.Sprintf("%s[%d]", field, i), s, want)
		} else if slices.Index(items, s) < i {
			v.fail(fmt.Sprintf("%s[%d]", field, i), s, "each once")
		}
	}
}

// text checks what will be handed to a process.
func (v *validator) text(field, s string) {
	switch {
	case len(s) > maxCommand:
		v.fail(field, fmt.Sprintf("%d KB", len(s)>>10), fmt.Sprintf("at most %d KB; put more into a file (job.files)", maxCommand>>10))
	case strings.ContainsRune(s, 0):
		v.fail(field, s, "a text without NUL, which no process can be given")
	case !utf8.ValidString(s):
		v.fail(field, s, "text in UTF-8")
	}
}

// failWith takes value and cure from an error of the package that read the field.
func (v *validator) failWith(field, value string, err error) {
	if err == nil {
		return
	}
	var fe *capri.FieldError
	if !errors.As(err, &fe) {
		v.fail(field, value, err.Error())
		return
	}
	if fe.Value != "" {
		value = fe.Value
	}
	v.fail(field, value, fe.Want)
}

func absolute(p string) bool { return strings.HasPrefix(p, "/") || hasScheme.MatchString(p) }

func didYouMean(word string, choices []string) string {
	if near := nearest.Word(word, choices); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// few lists the first of many.
func few(names []string) string {
	if len(names) > 10 {
		return strings.Join(names[:10], ", ") + fmt.Sprintf(" and %d more", len(names)-10)
	}
	return strings.Join(names, ", ")
}
