package lineage

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"capri"
	"capri/calendar"
)

// Compiled is a task with its templates and windows read once, because a mark makes conditions for 100,000
// batches. It never changes and may be shared.
type Compiled struct {
	name    string
	period  capri.Period
	inputs  []path
	outputs []path
	third   []string // codes, each once
	parents []capri.Parent
	fields  []string // "parents[2] ods_users", for notes and errors
}

type path struct {
	field    string // "inputs[0].path"
	template *calendar.Template
	flag     string // "" when the path itself is the datum
	windowed bool
	unit     capri.Period
	window   window
}

// defaultFlag is the file that says a path is complete where the task names no other.
const defaultFlag = "_SUCCESS"

// maxWindow bounds the instances that a window can name, so that one slip of the pen (-100000 for -10) does
// not make as many conditions per batch. The widest that we know of is 889 (five weeks of hours).
const maxWindow = 10_000

// Compile reads a task's paths, codes and parents. The error lists everything that is wrong, by field.
func Compile(t *capri.Task) (*Compiled, error) {
	c := &Compiled{name: t.Name, period: t.Period}
	var bad capri.FieldErrors
	report := func(field string, err error) bool {
		if err == nil {
			return false
		}
		var fe *capri.FieldError
		if !errors.As(err, &fe) {
			fe = &capri.FieldError{Want: err.Error()}
		}
		bad = append(bad, &capri.FieldError{Field: field, Value: fe.Value, Want: fe.Want})
		return true
	}

	for i, in := range t.Inputs {
		field := fmt.Sprintf("inputs[%d]", i)
		p, err := compilePath(field+".path", in.Path, in.Flag)
		if report(field+".path", err) {
			continue
		}
		if in.Unit != 0 || in.From != nil || in.To != nil {
			p.windowed, p.unit = true, in.Unit
			if p.unit == 0 {
				p.unit = t.Period
			}
			if !p.unit.Calendar() {
				report(field+".unit", capri.Invalid("", p.unit.String(), "hour, day, week or month"))
				continue
			}
			p.window = windowOf(in.From, in.To, t.Period, p.unit)
			report(field+".from", checkWindow(p.window))
		}
		c.inputs = append(c.inputs, p)
	}
	for i, out := range t.Outputs {
		field := fmt.Sprintf("outputs[%d].path", i)
		p, err := compilePath(field, out.Path, out.Flag)
		if !report(field, err) {
			c.outputs = append(c.outputs, p)
		}
	}
	for i, tp := range t.ThirdParty {
		if tp.Code == "" {
			report(fmt.Sprintf("third_party[%d].code", i), capri.Invalid("", "", "a code such as payments_closed"))
		} else if !slices.Contains(c.third, tp.Code) {
			c.third = append(c.third, tp.Code)
		}
	}
	for i, dep := range t.Parents {
		field := fmt.Sprintf("parents[%d]", i)
		switch dep.Policy {
		case "", capri.All, capri.Anyone, capri.LastOne:
		default:
			report(field+".policy", capri.Invalid("", string(dep.Policy), "ALL, ANYONE or LASTONE"))
		}
		if dep.From != nil || dep.To != nil {
			// The parent's period is not known here; as of the same one, both left out cannot be.
			report(field+".from", checkWindow(windowOf(dep.From, dep.To, t.Period, t.Period)))
		}
		c.parents = append(c.parents, dep)
		c.fields = append(c.fields, field+" "+dep.Task)
	}
	if err := bad.OrNil(); err != nil {
		return nil, err
	}
	return c, nil
}

func compilePath(field, text, flag string) (path, error) {
	template, err := calendar.ParseTemplate(text, calendar.PathTemplate)
	if err != nil {
		return path{}, err
	}
	// What the times expand to has neither dots alone nor slashes at its ends, so a path that is good now
	// (with its ${…} in place) is good for every interval.
	if _, err := CanonicalPath(text); err != nil {
		return path{}, err
	}
	switch flag {
	case "":
		flag = defaultFlag
	case capri.FlagNone:
		flag = ""
	}
	return path{field: field, template: template, flag: flag}, nil
}

func checkWindow(w window) error {
	wide := w.to.N - w.from.N
	if w.from.End == w.to.End && wide < 0 {
		return capri.Invalid("", w.String(), "a window that does not end before it begins")
	}
	if wide > maxWindow {
		return capri.Invalid("", w.String(), fmt.Sprintf("a window of at most %d instances", maxWindow))
	}
	return nil
}

// CheckParent refuses a dependency that can never be met: on a manual task. Its batches stand for the moments
// at which people asked, so which one a child should wait for cannot be said when the child is made.
func CheckParent(parent Ref, dep capri.Parent) error {
	if parent.Period == capri.Manual {
		return capri.Invalid("task", dep.Task, "a parent with a period or a cron expression: a manual task has no interval that a batch could wait for")
	}
	return nil
}

// Conditions makes the conditions of the task's batch for iv. parent gives what must be known of a parent
// task; one that it does not know, or a manual one, is an error (the save should have refused it).
func Conditions(c calendar.Calendar, t *Compiled, iv capri.Interval, parent func(capri.TaskID) (Ref, bool)) (capri.Conditions, error) {
	var out capri.Conditions
	var err error
	if out.Inputs, err = t.paths(c, t.inputs, iv, &out.Notes); err != nil {
		return capri.Conditions{}, err
	}
	if out.Outputs, err = t.paths(c, t.outputs, iv, &out.Notes); err != nil {
		return capri.Conditions{}, err
	}
	if len(t.third) > 0 {
		out.ThirdParty = make([]capri.ThirdPartyCondition, len(t.third))
		for i, code := range t.third {
			out.ThirdParty[i] = capri.ThirdPartyCondition{Code: code, Period: t.period, BatchNo: iv.BatchNo}
		}
	}
	if len(t.parents) > 0 {
		out.Parents = make([]capri.ParentCondition, 0, len(t.parents))
	}
	group := 0
	for i := range t.parents {
		dep := &t.parents[i]
		ref, ok := parent(dep.TaskID)
		if !ok {
			return capri.Conditions{}, capri.NotFound("%s of task %s: there is no such task (id %d)", t.fields[i], t.name, dep.TaskID)
		}
		if ref.Broken != nil {
			return capri.Conditions{}, fmt.Errorf("%s of task %s: %w", t.fields[i], t.name, ref.Broken)
		}
		if err := CheckParent(ref, *dep); err != nil {
			return capri.Conditions{}, fmt.Errorf("%s of task %s: %w", t.fields[i], t.name, err)
		}
		of := ref.series(c)
		before := len(out.Parents)
		s := spanOf(t.period, iv, of, dep)
		var early early
		s.each(of, func(p capri.Interval) {
			if p.Mark < ref.First {
				early.add(p)
				return
			}
			out.Parents = append(out.Parents, capri.ParentCondition{
				Group: group, Any: dep.Policy == capri.Anyone, TaskID: ref.ID, BatchNo: p.BatchNo,
			})
		})
		if len(out.Parents) > before {
			group++
		}
		if early.n > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("%s: not waited for %s, before its first mark %s",
				t.fields[i], early, zoned(c, ref.First)))
		}
		if s.empty {
			out.Notes = append(out.Notes, fmt.Sprintf("%s: nothing to wait for, it has no interval here", t.fields[i]))
		}
	}
	return out, nil
}

// early sums up the intervals before a parent's first mark.
type early struct {
	n           int
	first, last capri.BatchNo
}

func (e *early) add(iv capri.Interval) {
	if e.n == 0 {
		e.first = iv.BatchNo
	}
	e.n, e.last = e.n+1, iv.BatchNo
}

func (e early) String() string {
	if e.n == 1 {
		return string(e.first)
	}
	return fmt.Sprintf("%d intervals, %s to %s", e.n, e.first, e.last)
}

func zoned(c calendar.Calendar, at capri.Instant) string { return at.In(c.Zone()).Format(time.RFC3339) }

// paths expands the templates, each distinct path and flag once.
func (t *Compiled) paths(c calendar.Calendar, from []path, iv capri.Interval, notes *[]string) ([]capri.PathCondition, error) {
	if len(from) == 0 {
		return nil, nil
	}
	set := pathSet{rows: make([]capri.PathCondition, 0, len(from))}
	var fail error
	for i := range from {
		p := &from[i]
		add := func(start capri.Instant) {
			// Only the text can be wrong, and Compile has read it; an error here is a fault of ours.
			canonical, err := CanonicalPath(p.template.Expand(c, start, iv.Mark))
			if err != nil && fail == nil {
				fail = fmt.Errorf("%s of task %s: %w", p.field, t.name, err)
			}
			set.add(capri.PathCondition{Path: canonical, Flag: p.flag})
		}
		if !p.windowed {
			add(iv.Start)
			continue
		}
		of := series{c: c, p: p.unit}
		s := p.window.span(t.period, iv, of)
		s.each(of, func(instance capri.Interval) { add(instance.Start) })
		if s.empty {
			*notes = append(*notes, fmt.Sprintf("%s: the window %s holds no %s here", p.field, p.window, p.unit))
		}
	}
	return set.rows, fail
}

// pathSet keeps each path once, in order. Few rows are compared one by one; a map would cost more.
type pathSet struct {
	rows []capri.PathCondition
	seen map[capri.PathCondition]bool
}

func (s *pathSet) add(row capri.PathCondition) {
	const few = 16
	if len(s.rows) < few {
		if slices.Contains(s.rows, row) {
			return
		}
	} else {
		if s.seen == nil {
			s.seen = make(map[capri.PathCondition]bool, 2*few)
			for _, r := range s.rows {
				s.seen[r] = true
			}
		}
		if s.seen[row] {
			return
		}
		s.seen[row] = true
	}
	s.rows = append(s.rows, row)
}

// Warnings says in sentences what is allowed and probably not meant, for the answer to a save: hourly paths
// that the two equal hours of the next autumn day (after now) would share.
func (t *Compiled) Warnings(c calendar.Calendar, now capri.Instant) []string {
	var out []string
	for _, p := range slices.Concat(t.inputs, t.outputs) {
		hourly := t.period == capri.Hour
		if p.windowed {
			hourly = p.unit == capri.Hour
		}
		if hourly && p.template.AmbiguousInFold(c, now) {
			out = append(out, fmt.Sprintf("%s: %q is the same for both equal hours when the clock goes back; add ${Z} to tell them apart",
				p.field, p.template))
		}
	}
	return out
}
