package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/alerting/duty"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

const (
	dutyAhead = 28 * 24 * time.Hour  // what is shown of a rota where no range is asked for
	dutyMost  = 400 * 24 * time.Hour // what may be asked for
)

func (s *server) dutyOperations() {
	gone := status(http.StatusNoContent)
	register(s, auth.DutyRead, http.MethodGet, "/duty", "list-duty", "Duty rotas by department, the system's first", s.rotas)
	register(s, auth.DutyEdit, http.MethodPut, "/duty", "set-duty", "Make or replace the duty rotas of some departments: all or none", s.setDuty)
	register(s, auth.DutyRead, http.MethodGet, "/duty/now", "duty-now", "Who is on duty now", s.dutyNow)
	register(s, auth.DutyRead, http.MethodGet, "/duty/shifts", "duty-shifts", "Who is on duty when, and the holes", s.dutyShifts)
	register(s, auth.DutyRead, http.MethodGet, "/duty/overrides", "list-duty-overrides", "Who is on duty instead, by when it begins", s.dutyOverrides)
	register(s, auth.DutyEdit, http.MethodPost, "/duty/overrides", "add-duty-override", "Put somebody else on duty for a while", s.addDutyOverride, status(http.StatusCreated))
	register(s, auth.DutyEdit, http.MethodDelete, "/duty/overrides/{id}", "delete-duty-override", "Take an override back", s.deleteDutyOverride, gone)
	register(s, auth.DutyRead, http.MethodGet, "/duty/{department}", "show-duty", "A department's duty rota; "+wire.SystemDuty+" is the system's", s.rota)
	register(s, auth.DutyEdit, http.MethodPut, "/duty/{department}", "set-department-duty", "Make or replace a department's duty rota", s.setDepartmentDuty)
	register(s, auth.DutyEdit, http.MethodDelete, "/duty/{department}", "delete-duty", "Forget a department's duty rota and its overrides", s.deleteDuty, gone)
	register(s, auth.AlertGrant, http.MethodPut, "/tasks/{name}/alert-grants/{user}", "grant-alert", "Let a user be told of a task's alerts", s.grantAlert, gone)
	register(s, auth.AlertGrant, http.MethodDelete, "/tasks/{name}/alert-grants/{user}", "revoke-alert", "Take a user's alert rights of a task back", s.revokeAlert, gone)
}

// reserved are names of departments that a path below /duty would take for something else.
var reserved = []string{"now", "shifts", "overrides"}

// mayDuty decides whether the caller may change the rotas of some departments.
func mayDuty(ctx context.Context, departments ...string) error {
	for _, d := range departments {
		o := auth.Object{What: "the duty rota of the system"}
		if d != "" {
			o = auth.Object{What: "the duty rota of department " + d, Department: d}
		}
		if err := auth.From(ctx).May(auth.DutyEdit, o); err != nil {
			return err
		}
	}
	return nil
}

type departmentFilter struct {
	Department string `query:"department" doc:"left out: all; ~: the system"`
}

// wants tells whether a filter lets a department's rota through.
func (f departmentFilter) wants(department string) bool {
	return f.Department == "" || department == departmentOf(f.Department)
}

// departmentOf reads a department of a path or a query.
func departmentOf(name string) string {
	if name == wire.SystemDuty {
		return ""
	}
	return name
}

// chosen reads the rotas that a filter lets through; one that names a single department must find it.
func (s *server) chosen(ctx context.Context, f departmentFilter) ([]duty.Rota, error) {
	rotas, err := s.Store.Rotas(ctx)
	if err != nil {
		return nil, err
	}
	rotas = slices.DeleteFunc(rotas, func(r duty.Rota) bool { return !f.wants(r.Department) })
	if f.Department != "" && len(rotas) == 0 {
		return nil, store.NoRota(departmentOf(f.Department))
	}
	return rotas, nil
}

func (s *server) rotas(ctx context.Context, in *departmentFilter) (*body[[]wire.Rota], error) {
	rotas, err := s.chosen(ctx, *in)
	return listOf(rotas, err, wireRota)
}

type departmentPath struct {
	Department string `path:"department" maxLength:"400"`
}

func (s *server) rota(ctx context.Context, in *departmentPath) (*body[wire.Rota], error) {
	rotas, err := s.chosen(ctx, departmentFilter(*in))
	if err != nil {
		return nil, err
	}
	return answer(wireRota(rotas[0])), nil
}

func wireRota(r duty.Rota) wire.Rota {
	if r.Broken != "" {
		return wire.Rota{Department: r.Department, Broken: r.Broken}
	}
	spec := r.Spec()
	return wire.Rota{Department: spec.Department, Timezone: spec.Timezone, HandOver: spec.HandOver, Primary: wireRotation(spec.Primary), Secondary: wireRotation(spec.Secondary)}
}

func wireRotation(s duty.SpecRotation) *wire.Rotation {
	if len(s.People) == 0 && len(s.Weeks) == 0 {
		return nil
	}
	out := &wire.Rotation{People: s.People, Days: s.Days, Start: s.Start}
	for _, w := range s.Weeks {
		out.Weeks = append(out.Weeks, wire.DutyWeek{From: w.From, User: w.User})
	}
	return out
}

func specOf(r wire.Rota) (duty.Spec, *capri.FieldError) {
	if r.Broken != "" {
		return duty.Spec{}, &capri.FieldError{Field: "broken", Value: r.Broken, Want: "nothing: it is what the server says of a rota that it cannot read"}
	}
	if slices.Contains(reserved, r.Department) {
		return duty.Spec{}, &capri.FieldError{Field: "department", Value: r.Department, Want: "another name: a path of the API has this one"}
	}
	return duty.Spec{Department: r.Department, Timezone: r.Timezone, HandOver: r.HandOver, Primary: specRotation(r.Primary), Secondary: specRotation(r.Secondary)}, nil
}

func specRotation(r *wire.Rotation) duty.SpecRotation {
	if r == nil {
		return duty.SpecRotation{}
	}
	out := duty.SpecRotation{People: r.People, Days: r.Days, Start: r.Start}
	for _, w := range r.Weeks {
		out.Weeks = append(out.Weeks, duty.SpecWeek{From: w.From, User: w.User})
	}
	return out
}

func (s *server) setDuty(ctx context.Context, in *struct{ Body wire.SetDuty }) (*body[[]wire.DutyPlan], error) {
	specs := make([]duty.Spec, len(in.Body.Rotas))
	departments := make([]string, len(specs))
	var wrong capri.FieldErrors
	for i, r := range in.Body.Rotas {
		spec, w := specOf(r)
		if w != nil {
			wrong = append(wrong, w)
		}
		specs[i], departments[i] = spec, spec.Department
	}
	if err := wrong.OrNil(); err != nil {
		return nil, err
	}
	if err := mayDuty(ctx, departments...); err != nil {
		return nil, err
	}
	rotas, err := s.Actions.SetDuty(ctx, who(ctx), specs, in.Body.DryRun)
	if err != nil {
		return nil, err
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	return s.plans(ctx, rotas, now, now.Add(dutyAhead))
}

type departmentDuty struct {
	Department string `path:"department" maxLength:"400"`
	Body       wire.Rota
}

func (s *server) setDepartmentDuty(ctx context.Context, in *departmentDuty) (*body[wire.DutyPlan], error) {
	r := in.Body
	department := departmentOf(in.Department)
	if r.Department != "" && r.Department != department {
		return nil, capri.Invalid("department", r.Department, in.Department+", as in the path")
	}
	r.Department = department
	out, err := s.setDuty(ctx, &struct{ Body wire.SetDuty }{wire.SetDuty{Rotas: []wire.Rota{r}}})
	if err != nil {
		return nil, err
	}
	return answer(out.Body[0]), nil
}

func (s *server) deleteDuty(ctx context.Context, in *departmentPath) (*none, error) {
	department := departmentOf(in.Department)
	if err := mayDuty(ctx, department); err != nil {
		return nil, err
	}
	return nil, s.Actions.DeleteDuty(ctx, who(ctx), department)
}

func (s *server) dutyNow(ctx context.Context, in *departmentFilter) (*body[[]wire.DutyNow], error) {
	rotas, err := s.chosen(ctx, *in)
	if err != nil {
		return nil, err
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]wire.DutyNow, len(rotas))
	for i, r := range rotas {
		d := duty.At(r, now)
		out[i] = wire.DutyNow{Department: r.Department, Primary: d.Primary, Secondary: d.Secondary, NextHandOver: wire.At(duty.HandOverAfter(r, now), s.Zone), Broken: r.Broken}
	}
	return list(out), nil
}

type shiftsInput struct {
	Department string `query:"department" doc:"left out: all; ~: the system"`
	From       string `query:"from" doc:"left out: now"`
	To         string `query:"to" doc:"excluded, a bare date is the end of that day; left out: 28 days after from"`
}

func (s *server) dutyShifts(ctx context.Context, in *shiftsInput) (*body[[]wire.DutyPlan], error) {
	from, err := s.Store.Now(ctx)
	if err == nil && in.From != "" {
		from, err = s.instant("from", in.From)
	}
	if err != nil {
		return nil, err
	}
	to := from.Add(dutyAhead)
	if in.To != "" {
		if to, err = s.rangeEnd("to", in.To); err != nil {
			return nil, err
		}
	}
	if to <= from || to.Sub(from) > dutyMost {
		return nil, capri.Invalid("to", in.To, "a time after from, by at most 400 days")
	}
	rotas, err := s.chosen(ctx, departmentFilter{in.Department})
	if err != nil {
		return nil, err
	}
	return s.plans(ctx, rotas, from, to)
}

func (s *server) rangeEnd(field, text string) (capri.Instant, error) {
	at, err := s.Actions.Calendar().ParseRangeEnd(text, false)
	if err != nil {
		return 0, rename(field, err)
	}
	return at, nil
}

// plans writes who is on duty when by some rotas.
func (s *server) plans(ctx context.Context, rotas []duty.Rota, from, to capri.Instant) (*body[[]wire.DutyPlan], error) {
	people, err := s.Store.DutyPeople(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]wire.DutyPlan, len(rotas))
	for i, r := range rotas {
		p := wire.DutyPlan{Department: r.Department, Shifts: []wire.DutyShift{}, Holes: []wire.DutyHole{}}
		holes := duty.Holes(r, people, from, to)
		for _, x := range duty.Shifts(r, from, to) {
			p.Shifts = append(p.Shifts, wire.DutyShift{Place: string(x.Place), User: x.User, From: wire.At(x.From, s.Zone), To: wire.At(x.To, s.Zone),
				Override: x.Override, Reason: x.Reason, Hole: holesOf(x, holes)})
		}
		for _, h := range holes {
			p.Holes = append(p.Holes, wire.DutyHole{Place: string(h.Place), User: h.User, Why: h.Why, From: wire.At(h.From, s.Zone), To: wire.At(h.To, s.Zone)})
		}
		out[i] = p
	}
	return list(out), nil
}

// holesOf says what is wrong with a shift.
func holesOf(x duty.Shift, holes []duty.Hole) string {
	var out []string
	for _, h := range holes {
		who := h.User
		if who == "" {
			who = "nobody"
		}
		if x.Has(h) && !slices.Contains(out, who+" "+h.Why) {
			out = append(out, who+" "+h.Why)
		}
	}
	return strings.Join(out, "; ")
}

func (s *server) dutyOverrides(ctx context.Context, in *departmentFilter) (*body[[]wire.DutyOverride], error) {
	all, err := s.Store.DutyOverrides(ctx)
	if err != nil {
		return nil, err
	}
	var out []wire.DutyOverride
	for _, o := range all {
		if in.wants(o.Department) {
			out = append(out, s.wireOverride(o))
		}
	}
	return list(out), nil
}

func (s *server) wireOverride(o duty.Override) wire.DutyOverride {
	return wire.DutyOverride{ID: o.ID, Department: o.Department, Place: string(o.Place), User: o.User, From: wire.At(o.From, s.Zone), To: wire.At(o.To, s.Zone),
		Reason: o.Reason, CreatedBy: o.By, CreatedAt: wire.At(o.CreatedAt, s.Zone)}
}

func (s *server) addDutyOverride(ctx context.Context, in *struct{ Body wire.NewDutyOverride }) (*body[wire.DutyOverride], error) {
	if err := mayDuty(ctx, in.Body.Department); err != nil {
		return nil, err
	}
	from, err := s.instant("from", in.Body.From)
	if err != nil {
		return nil, err
	}
	to, err := s.rangeEnd("to", in.Body.To)
	if err != nil {
		return nil, err
	}
	o, err := s.Actions.AddDutyOverride(ctx, who(ctx), duty.Override{Department: in.Body.Department, Place: duty.Place(in.Body.Place), User: in.Body.User, From: from, To: to, Reason: in.Body.Reason})
	if err != nil {
		return nil, err
	}
	return answer(s.wireOverride(o)), nil
}

func (s *server) deleteDutyOverride(ctx context.Context, in *struct {
	ID int64 `path:"id"`
}) (*none, error) {
	return nil, s.Actions.DeleteDutyOverride(ctx, who(ctx), in.ID, func(department string) error { return mayDuty(ctx, department) })
}

type alertGrantInput struct {
	Name string `path:"name" maxLength:"200"`
	User string `path:"user" maxLength:"400"`
	Body wire.AlertGrant
}

func (s *server) grantAlert(ctx context.Context, in *alertGrantInput) (*none, error) {
	if err := s.mayTasks(ctx, auth.AlertGrant, in.Name); err != nil {
		return nil, err
	}
	if err := sameName(in.User, in.Body.User); err != nil {
		return nil, err
	}
	return nil, s.Actions.GrantAlert(ctx, who(ctx), in.Name, store.AlertGrant{User: in.User, SMS: in.Body.SMS, Mail: in.Body.Mail})
}

func (s *server) revokeAlert(ctx context.Context, in *struct {
	Name string `path:"name" maxLength:"200"`
	User string `path:"user" maxLength:"400"`
}) (*none, error) {
	if err := s.mayTasks(ctx, auth.AlertGrant, in.Name); err != nil {
		return nil, err
	}
	return nil, s.Actions.RevokeAlert(ctx, who(ctx), in.Name, in.User)
}
