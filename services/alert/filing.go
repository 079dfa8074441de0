package alert

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"capri"
	"capri/alerting"
	"capri/alerting/route"
	"capri/internal/failpoint"
	"capri/services"
	"capri/sql/store"
)

// Filing puts alerts into incidents and decides who is told, first and again.
type Filing struct {
	Store *store.Store
	// People reads who there is, who is on duty at an instant, and who has a right to the alerts of tasks.
	People   func(ctx context.Context, at capri.Instant, tasks []capri.TaskID) (route.People, error)
	Webhooks []string // the channels that are told of every incident

	closeAt capri.Instant // when open incidents are looked at next
	after   int64         // the one that was looked at last
}

const (
	aTurn      = 500         // alerts in one transaction
	lookOver   = time.Minute // how often open incidents are looked at whether they are over
	overATurn  = 1000
	mostOthers = 10
)

// Run files what is new, tells again what is due, and closes what is over. Where there is nothing to do that costs two
// walks on an index.
func (f *Filing) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	res := services.Result{Counts: map[string]int{}}
	count := func(what string, n int) {
		if n > 0 {
			res.Counts[what] += n
		}
	}
	alerts, err := f.Store.NewAlerts(ctx, aTurn)
	if err != nil {
		return res, err
	}
	due, err := f.Store.DueIncidents(ctx, t.Now, aTurn)
	if err != nil {
		return res, err
	}
	look := f.after != 0 || t.Now >= f.closeAt || f.closeAt.Sub(t.Now) > lookOver // else the clock was set back
	if len(alerts) == 0 && len(due) == 0 && !look {
		return res, nil
	}
	s, err := readSettings(ctx, f.Store)
	if err != nil {
		return res, err
	}
	if err := failpoint.Cut(failpoint.AlertTaken); err != nil {
		return res, err
	}
	told, again, closed, more := 0, 0, 0, false
	if len(alerts) > 0 {
		told, err = f.file(ctx, t, s, alerts)
		count("alerts", len(alerts))
		count("messages", told)
	}
	if err == nil && len(due) > 0 {
		if len(alerts) > 0 { // what was filed has changed what is due
			due, err = f.Store.DueIncidents(ctx, t.Now, aTurn)
		}
		if err == nil {
			again, err = f.again(ctx, t, s, due)
			count("messages", again)
		}
	}
	if err == nil && look {
		closed, more, err = f.close(ctx, t, s)
		count("closed", closed)
	}
	if err == nil {
		err = failpoint.Cut(failpoint.AlertFiled)
	}
	res.Again = len(alerts) == aTurn || len(due) == aTurn || more
	if told+again+closed > 0 {
		res.Wake = []string{TopicMessages}
	}
	return res, err
}

// file deals with new alerts.
func (f *Filing) file(ctx context.Context, t services.Turn, s settings, alerts []store.AlertRow) (told int, err error) {
	d, err := f.desk(ctx, t, s, alerts)
	if err != nil {
		return 0, err
	}
	for i := range alerts {
		d.take(&alerts[i], d.causes[i])
	}
	for _, g := range d.order {
		told += len(g.Deliveries)
	}
	return told, f.Store.File(ctx, t.Lease, d.was, d.filings())
}

// desk is what is known while alerts are filed.
type desk struct {
	f        *Filing
	now      capri.Instant
	s        settings
	causes   []cause
	tasks    map[capri.TaskID]*capri.Task // newest versions
	batches  map[capri.BatchID]store.BatchRow
	versions map[store.VersionKey]*capri.Task
	people   route.People
	silences []store.Silence
	was      map[int64]store.Incident
	open     map[string]*filing
	order    []*filing
}

// filing is one incident on the desk, with the addresses that know of it.
type filing struct {
	store.Filing
	knows map[string]bool
}

func address(channel, to, person string) string { return channel + " " + to + " " + person }

func (f *Filing) desk(ctx context.Context, t services.Turn, s settings, alerts []store.AlertRow) (*desk, error) {
	d := &desk{f: f, now: t.Now, s: s, was: map[int64]store.Incident{}, open: map[string]*filing{}}
	var ids []capri.BatchID
	tasks := map[capri.TaskID]bool{}
	for _, a := range alerts {
		tasks[a.Task] = true
		if a.Batch != 0 {
			ids = append(ids, a.Batch)
		}
	}
	delete(tasks, 0)
	if err := d.know(ctx, ids, slices.Collect(maps.Keys(tasks))); err != nil {
		return nil, err
	}
	var err error
	if d.causes, err = causesOf(ctx, f.Store, alerts, d.side); err != nil {
		return nil, err
	}
	names := make([]string, len(alerts))
	for i := range alerts {
		names[i] = d.causes[i].name
	}
	if d.silences, err = f.Store.Silences(ctx, t.Now); err != nil {
		return nil, err
	}
	open, err := f.Store.OpenIncidents(ctx, names)
	if err != nil {
		return nil, err
	}
	var incidents []int64
	for _, i := range open {
		incidents = append(incidents, i.ID)
	}
	told, err := f.Store.Told(ctx, incidents)
	if err != nil {
		return nil, err
	}
	for name, i := range open {
		d.was[i.ID] = i
		g := &filing{Filing: store.Filing{Incident: i}, knows: map[string]bool{}}
		for _, m := range told[i.ID] {
			g.knows[address(m.Channel, m.Address, m.Person)] = true
		}
		d.open[name] = g
	}
	return d, nil
}

// know reads batches, tasks and people.
func (d *desk) know(ctx context.Context, ids []capri.BatchID, tasks []capri.TaskID) (err error) {
	st := d.f.Store
	if d.batches, err = st.BatchesByID(ctx, ids); err != nil {
		return err
	}
	var keys []store.VersionKey
	for _, b := range d.batches {
		keys = append(keys, store.VersionKey{ID: b.TaskID, Version: b.TaskVersion})
	}
	if d.versions, err = st.TaskVersions(ctx, keys); err != nil {
		return err
	}
	if d.tasks, err = st.TasksByID(ctx, tasks); err != nil {
		return err
	}
	d.people, err = d.f.People(ctx, d.now, tasks)
	return err
}

// taskOf is the task whose rules hold for an alert: as the batch was made with, else as it is now. A task that nobody can
// read has no rules, and the system's people are told.
func (d *desk) taskOf(a *store.AlertRow) *capri.Task {
	if b, ok := d.batches[a.Batch]; ok && a.Batch != 0 {
		if t := d.versions[store.VersionKey{ID: b.TaskID, Version: b.TaskVersion}]; t != nil && t.Broken == "" {
			return t
		}
	}
	if t := d.tasks[a.Task]; t != nil && t.Broken == "" {
		return t
	}
	return nil
}

// side is the department that a task's alert is of, or its owner who has none.
func (d *desk) side(a *store.AlertRow) string {
	t := d.taskOf(a)
	if t == nil {
		return ""
	}
	return cmp.Or(d.people.Persons[t.Owner].Department, t.Owner)
}

// take files one alert.
func (d *desk) take(a *store.AlertRow, c cause) {
	g := d.open[c.name]
	task := d.taskOf(a)
	hush := silence(d.silences, a, task)
	if g == nil {
		g = &filing{knows: map[string]bool{}}
		g.Incident = store.Incident{Cause: c.name, Level: a.Level, Kind: a.Kind, Task: c.task, Batch: c.batch, Title: a.Title, OpenedAt: a.CreatedAt, Tellings: 1}
		if hush != nil {
			g.Incident.Silenced, g.Incident.NextAt = hush.Reason, hush.Until
		} else {
			g.Incident.NextAt = d.s.next(g.Incident, d.now)
		}
		d.open[c.name] = g
	}
	if len(g.Alerts) == 0 {
		d.order = append(d.order, g)
	}
	i := &g.Incident
	g.Alerts = append(g.Alerts, a.ID)
	i.Alerts++
	i.LastAt = max(i.LastAt, a.CreatedAt)
	if a.Level > i.Level { // it has become worse: whoever knew is told so
		i.Level = a.Level
		i.Tellings++
		clear(g.knows)
		if i.AckedAt == 0 && i.Silenced == "" {
			i.NextAt = d.s.next(*i, d.now)
		}
	}
	// The silence of an incident covers its own alerts and no others. Once it is over, again tells of all of them.
	if i.Silenced != "" && (hush != nil || i.NextAt != 0 && i.NextAt <= d.now) {
		return
	}
	stage := alerting.New
	if store.IsNotice(a.Kind) {
		stage = alerting.Notice
	}
	d.tell(g, stage, a.Level, a.CreatedAt, d.receivers(a, task))
}

func (d *desk) receivers(a *store.AlertRow, task *capri.Task) []route.Receiver {
	if store.IsNotice(a.Kind) {
		if task == nil {
			return nil
		}
		return route.Owner(task, d.people)
	}
	list := route.Of(route.Alert{Level: a.Level, Task: task}, d.people)
	for _, name := range d.f.Webhooks {
		list = append(list, route.Receiver{Channel: name, Why: "every incident"})
	}
	return list
}

// tell adds messages to those who do not know yet. What is too old to be news goes out to nobody, and into the account.
func (d *desk) tell(g *filing, stage alerting.Stage, level capri.Level, raised capri.Instant, to []route.Receiver) {
	for _, r := range to {
		key := address(r.Channel, r.Address, r.Name)
		if g.knows[key] {
			continue
		}
		g.knows[key] = true
		m := store.Delivery{Telling: g.Incident.Tellings, Stage: string(stage), Channel: r.Channel, Address: r.Address, Person: r.Name, Why: r.Why, Level: level, NextAt: d.now}
		switch age := d.now.Sub(raised); {
		case r.Missing != "":
			m.State, m.Error = store.GivenUp, r.Missing
		case age > d.s.expires:
			m.State, m.Error = store.Expired, fmt.Sprintf("it was %s old when it could have been sent", age.Round(time.Minute))
		}
		g.Deliveries = append(g.Deliveries, m)
	}
}

func (d *desk) filings() []store.Filing {
	list := make([]store.Filing, len(d.order))
	for i, g := range d.order {
		list[i] = g.Filing
	}
	return list
}

// silence finds one that covers an alert.
func silence(all []store.Silence, a *store.AlertRow, task *capri.Task) *store.Silence {
	for i, x := range all {
		if x.Kind != "" && x.Kind != a.Kind {
			continue
		}
		if x.Task+x.Group != "" && task == nil || x.Task != "" && !matches(x.Task, task.Name) || x.Group != "" && !matches(x.Group, task.Group) {
			continue
		}
		return &all[i]
	}
	return nil
}

// matches compares with a pattern in which * stands for anything.
func matches(pattern, name string) bool {
	ok, err := path.Match(strings.NewReplacer(`\`, `\\`, "[", `\[`, "?", `\?`).Replace(pattern), name)
	return ok && err == nil
}

// again tells of incidents that nobody has acknowledged, and of those whose silence is over.
func (f *Filing) again(ctx context.Context, t services.Turn, s settings, due []store.Incident) (told int, err error) {
	ids := make([]int64, len(due))
	for i, x := range due {
		ids[i] = x.ID
	}
	before, err := f.Store.Told(ctx, ids)
	if err != nil {
		return 0, err
	}
	d := &desk{f: f, now: t.Now, s: s, was: map[int64]store.Incident{}}
	kept, err := d.keptBack(ctx, due)
	if err != nil {
		return 0, err
	}
	for _, x := range due {
		d.was[x.ID] = x
		g := &filing{Filing: store.Filing{Incident: x}, knows: map[string]bool{}}
		i := &g.Incident
		if i.Silenced == "" {
			d.repeat(g, before[x.ID])
			i.NextAt = s.next(*i, t.Now)
		} else {
			d.unsilence(g, kept[i.ID])
		}
		d.order = append(d.order, g)
		told += len(g.Deliveries)
	}
	return told, f.Store.File(ctx, t.Lease, d.was, d.filings())
}

// keptBack reads the alerts of incidents whose silence is over, and whoever they concern.
func (d *desk) keptBack(ctx context.Context, due []store.Incident) (map[int64][]store.AlertRow, error) {
	var silenced []int64
	for _, i := range due {
		if i.Silenced != "" {
			silenced = append(silenced, i.ID)
		}
	}
	kept, err := d.f.Store.AlertsOf(ctx, silenced, aTurn)
	if err != nil {
		return nil, err
	}
	if d.silences, err = d.f.Store.Silences(ctx, d.now); err != nil {
		return nil, err
	}
	var ids []capri.BatchID
	tasks := map[capri.TaskID]bool{}
	for _, alerts := range kept {
		for _, a := range alerts {
			if a.Batch != 0 {
				ids = append(ids, a.Batch)
			}
			tasks[a.Task] = true
		}
	}
	delete(tasks, 0)
	return kept, d.know(ctx, ids, slices.Collect(maps.Keys(tasks)))
}

// unsilence tells of an incident as if it were new: its silence is over, and it is not. What another silence covers stays
// kept back: to go on, people make one that lasts longer.
func (d *desk) unsilence(g *filing, alerts []store.AlertRow) {
	i := &g.Incident
	i.Silenced = ""
	i.Tellings++
	var longest *store.Silence
	for n := range alerts {
		a, task := &alerts[n], d.taskOf(&alerts[n])
		if hush := silence(d.silences, a, task); hush == nil {
			d.tell(g, alerting.New, a.Level, d.now, d.receivers(a, task))
		} else if longest == nil || hush.Until > longest.Until {
			longest = hush
		}
	}
	if longest != nil {
		i.Silenced, i.NextAt = longest.Reason, longest.Until
		return
	}
	i.NextAt = d.s.next(*i, d.now)
}

// repeat tells those again who were told of it as new, by mail and SMS; severe ones of the system climb the ladder.
func (d *desk) repeat(g *filing, before []store.Delivery) {
	i := &g.Incident
	i.Step++
	i.Tellings++
	if escalates(*i) && i.Step <= len(d.s.ladder) {
		steps := [][]route.Receiver{route.OnDuty("primary", d.people), route.OnDuty("secondary", d.people), route.EveryAdmin(d.people)}
		// A short ladder ends where a long one does: with everybody.
		to := steps[max(0, len(steps)-len(d.s.ladder)+i.Step-1)]
		if len(to) == 0 { // nobody is on duty
			to = route.EveryAdmin(d.people)
		}
		d.tell(g, alerting.Escalated, i.Level, d.now, to)
		return
	}
	for _, m := range before {
		if m.Stage == string(alerting.New) && m.Channel != alerting.Phone && m.State != store.GivenUp {
			d.tell(g, alerting.Again, i.Level, d.now, []route.Receiver{{Channel: m.Channel, Name: m.Person, Address: m.Address, Why: m.Why}})
		}
	}
}

// escalates: trouble of the system that somebody has to get up for.
func escalates(i store.Incident) bool { return i.Level == capri.Severe && i.Task == 0 }

// close looks at open incidents, some of them each time, and closes those that are over.
func (f *Filing) close(ctx context.Context, t services.Turn, s settings) (closed int, more bool, err error) {
	open, err := f.Store.AllOpen(ctx, f.after, overATurn)
	if err != nil {
		return 0, false, err
	}
	if more = len(open) == overATurn; more {
		f.after = open[len(open)-1].ID
	} else {
		f.after, f.closeAt = 0, t.Now.Add(lookOver)
	}
	var ids []capri.BatchID
	for _, i := range open {
		if i.Batch != 0 {
			ids = append(ids, i.Batch)
		}
	}
	batches, err := f.Store.BatchesByID(ctx, ids)
	if err != nil {
		return 0, false, err
	}
	over := map[int64]string{}
	var tellers []int64
	for _, i := range open {
		if why, good := s.over(i, batches, t.Now); why != "" {
			over[i.ID] = why
			if good && i.Silenced == "" && i.Level > capri.Attention {
				tellers = append(tellers, i.ID)
			}
		}
	}
	if len(over) == 0 {
		return 0, more, nil
	}
	before, err := f.Store.Told(ctx, tellers)
	if err != nil {
		return 0, false, err
	}
	d := &desk{f: f, now: t.Now, s: s, was: map[int64]store.Incident{}}
	for _, i := range open {
		why := over[i.ID]
		if why == "" {
			continue
		}
		d.was[i.ID] = i
		g := &filing{Filing: store.Filing{Incident: i}, knows: map[string]bool{}}
		g.Incident.ClosedAt, g.Incident.Closed, g.Incident.NextAt = t.Now, why, 0
		if len(before[i.ID]) > 0 {
			g.Incident.Tellings++
		}
		for _, m := range before[i.ID] {
			// Nobody is called because something is well again.
			if m.Channel != alerting.Phone && m.State == store.Sent {
				d.tell(g, alerting.Over, i.Level, t.Now, []route.Receiver{{Channel: m.Channel, Name: m.Person, Address: m.Address, Why: m.Why}})
			}
		}
		d.order = append(d.order, g)
	}
	return len(over), more, f.Store.File(ctx, t.Lease, d.was, d.filings())
}

// settings are those of dic_data that alerting follows.
type settings struct {
	repeat  []time.Duration // until an incident that nobody acknowledges is told of again; the last goes on
	ladder  []time.Duration // until each step of an escalation
	expires time.Duration   // what is older is not sent as if it were news
	quiet   time.Duration   // an incident without a batch is over when nothing came for so long
	forget  time.Duration   // and any other
}

func readSettings(ctx context.Context, s *store.Store) (settings, error) {
	var out settings
	minutes := map[string]*[]time.Duration{store.AlertRepeat: &out.repeat, store.AlertEscalation: &out.ladder}
	for name, into := range minutes {
		text, err := s.Setting(ctx, name)
		if err != nil {
			return out, err
		}
		for _, field := range strings.Split(text, ",") {
			// A setting that nobody can read must not stop alerts: what is no number is left out.
			if n, err := strconv.Atoi(strings.TrimSpace(field)); err == nil && n > 0 {
				*into = append(*into, time.Duration(n)*time.Minute)
			}
		}
	}
	for name, into := range map[string]struct {
		d    *time.Duration
		unit time.Duration
	}{store.AlertExpires: {&out.expires, time.Minute}, store.AlertQuiet: {&out.quiet, time.Minute}, store.AlertForget: {&out.forget, 24 * time.Hour}} {
		n, err := s.SettingInt(ctx, name, 1)
		if err != nil {
			return out, err
		}
		*into.d = time.Duration(n) * into.unit
	}
	return out, nil
}

// next is when people are told again; 0: they are not.
func (s settings) next(i store.Incident, now capri.Instant) capri.Instant {
	switch {
	case i.AckedAt != 0, i.Level < capri.Important:
		return 0
	case escalates(i) && i.Step < len(s.ladder):
		return now.Add(s.ladder[i.Step])
	}
	step := i.Step
	if escalates(i) {
		step -= len(s.ladder)
	}
	if len(s.repeat) == 0 {
		return 0
	}
	return now.Add(s.repeat[min(max(0, step), len(s.repeat)-1)])
}

// over says why an incident is over, if it is, and whether that is good news.
func (s settings) over(i store.Incident, batches map[capri.BatchID]store.BatchRow, now capri.Instant) (why string, good bool) {
	quiet := now.Sub(i.LastAt)
	if store.IsNotice(i.Kind) {
		return "it was told", false
	}
	if quiet > s.forget {
		return fmt.Sprintf("nothing came for %d days", int(s.forget/(24*time.Hour))), false
	}
	if i.Batch == 0 {
		if quiet > s.quiet {
			return fmt.Sprintf("nothing came for %s", s.quiet), false
		}
		return "", false
	}
	b, known := batches[i.Batch]
	root := strings.HasPrefix(i.Cause, "batch:")
	switch {
	case !known:
		return "its batch is gone", false
	case !b.Latest:
		return "its batch was run again", false
	case b.State == capri.Finished && b.FinishState == capri.Success:
		return "its batch has succeeded", true
	case b.State == capri.Finished && b.FinishState == capri.Skipped:
		return "its batch was skipped", false
	case !root && b.State != capri.Waiting:
		return "its batch waits no longer", true
	}
	return "", false
}
