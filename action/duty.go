package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/alerting/duty"
	"capri/sql/store"
)

// SetDuty makes or replaces the rotas of some departments, all or none; other rotas, and overrides, stay. It gives back
// the rotas as they are now, or with dryRun as they would be. Everything that is wrong with all of them is said at once.
func (a *Actions) SetDuty(ctx context.Context, who string, specs []duty.Spec, dryRun bool) ([]duty.Rota, error) {
	if len(specs) == 0 {
		return nil, capri.Invalid("rotas", "", "at least one rota")
	}
	users, err := a.store.Users(ctx)
	if err != nil {
		return nil, err
	}
	departments, err := a.store.Departments(ctx)
	if err != nil {
		return nil, err
	}
	overrides, err := a.store.DutyOverrides(ctx)
	if err != nil {
		return nil, err
	}
	var all capri.FieldErrors
	var rotas []duty.Rota
	for i, s := range specs {
		r, wrong := duty.Parse(s, a.calendar.Zone())
		say := func(field, value, want string) {
			wrong = append(wrong, &capri.FieldError{Field: field, Value: value, Want: want})
		}
		said := func(value string) bool { // once is enough
			return slices.ContainsFunc(wrong, func(w *capri.FieldError) bool { return w.Value == value })
		}
		if s.Department != "" && !said(s.Department) && !slices.ContainsFunc(departments, func(d store.Department) bool { return d.Name == s.Department }) {
			say("department", s.Department, "a department that exists (capri department set), or nothing for the system")
		}
		for _, u := range r.Users() {
			if !isUser(users, u.User) && !said(u.User) {
				say(u.Field, u.User, "a user that exists (capri user set)")
			}
		}
		if slices.ContainsFunc(specs[:i], func(x duty.Spec) bool { return x.Department == s.Department }) {
			say("department", s.Department, "each department once")
		}
		for _, w := range wrong {
			w.Where = "rota of " + dutyOf(s.Department)
		}
		all = append(all, wrong...)
		for _, o := range overrides {
			if o.Department == s.Department {
				r.Overrides = append(r.Overrides, o)
			}
		}
		rotas = append(rotas, r)
	}
	if err := all.OrNil(); err != nil || dryRun {
		return rotas, err
	}
	err = a.store.Write(ctx, "save duty rotas", who, func(tx *store.Tx) error {
		for _, r := range rotas {
			if err := tx.SaveRota(r); err != nil {
				return err
			}
			if err := tx.LogChanges(store.Change{Action: "duty_set", Target: dutyOf(r.Department), Detail: describe(r.Spec()), Department: r.Department}); err != nil {
				return err
			}
		}
		return nil
	})
	return rotas, err
}

// DeleteDuty forgets a department's rota, and its overrides.
func (a *Actions) DeleteDuty(ctx context.Context, who, department string) error {
	return a.change(ctx, who, store.Change{Action: "duty_delete", Target: dutyOf(department), Department: department}, func(tx *store.Tx) error { return tx.DeleteRota(department) })
}

// AddDutyOverride puts somebody else on duty for a while.
func (a *Actions) AddDutyOverride(ctx context.Context, who string, o duty.Override) (duty.Override, error) {
	users, err := a.store.Users(ctx)
	if err != nil {
		return o, err
	}
	wrong := o.Check()
	if !isUser(users, o.User) {
		wrong = append(wrong, &capri.FieldError{Field: "user", Value: o.User, Want: "a user that exists (capri user set)"})
	}
	if err := wrong.OrNil(); err != nil {
		return o, err
	}
	detail := a.describeOverride(o)
	err = a.change(ctx, who, store.Change{Action: "duty_override_add", Target: dutyOf(o.Department), Detail: detail, Department: o.Department}, func(tx *store.Tx) error {
		o, err = tx.AddOverride(o)
		return err
	})
	return o, err
}

// DeleteDutyOverride takes an override back. Whether the caller may is asked of the one that is found.
func (a *Actions) DeleteDutyOverride(ctx context.Context, who string, id int64, may func(department string) error) error {
	return a.store.Write(ctx, "delete a duty override", who, func(tx *store.Tx) error {
		o, err := tx.DeleteOverride(id)
		if err != nil {
			return err
		}
		if err := may(o.Department); err != nil {
			return err
		}
		return tx.LogChanges(store.Change{Action: "duty_override_delete", Target: dutyOf(o.Department), Detail: a.describeOverride(o), Department: o.Department})
	})
}

// GrantAlert lets a user be told of a task's alerts, by the channels that g names and no other.
func (a *Actions) GrantAlert(ctx context.Context, who, task string, g store.AlertGrant) error {
	t, err := a.store.TaskByName(ctx, task)
	if err != nil {
		return err
	}
	users, err := a.store.Users(ctx)
	if err != nil {
		return err
	}
	if !isUser(users, g.User) {
		return capri.NotFound("there is no user %q", g.User)
	}
	g.TaskID = t.ID
	detail := fmt.Sprintf("%s: sms %t, mail %t", g.User, g.SMS, g.Mail)
	return a.change(ctx, who, store.Change{Action: "alert_grant", Target: task, Detail: detail, Task: t.ID}, func(tx *store.Tx) error { return tx.GrantAlert(g) })
}

// RevokeAlert takes a user's alert rights of a task back.
func (a *Actions) RevokeAlert(ctx context.Context, who, task, user string) error {
	t, err := a.store.TaskByName(ctx, task)
	if err != nil {
		return err
	}
	return a.change(ctx, who, store.Change{Action: "alert_revoke", Target: task, Detail: user, Task: t.ID}, func(tx *store.Tx) error { return tx.RevokeAlert(t.ID, task, user) })
}

func isUser(users []store.User, name string) bool {
	return slices.ContainsFunc(users, func(u store.User) bool { return u.Name == name })
}

// dutyOf names whose rota it is.
func dutyOf(department string) string {
	if department == "" {
		return "the system"
	}
	return "department " + department
}

// describe writes a rota in one line, for the log of actions.
func describe(s duty.Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "hand-over at %s %s", s.HandOver, s.Timezone)
	for _, p := range []struct {
		place duty.Place
		duty.SpecRotation
	}{{duty.Primary, s.Primary}, {duty.Secondary, s.Secondary}} {
		if len(p.People) > 0 {
			fmt.Fprintf(&b, "; %s: %s, %d days each from %s on", p.place, strings.Join(p.People, ", "), p.Days, p.Start)
		}
		for i, w := range p.Weeks {
			if i == 0 {
				fmt.Fprintf(&b, "; %s:", p.place)
			}
			fmt.Fprintf(&b, " %s %s", w.From, w.User)
		}
	}
	return b.String()
}

func (a *Actions) describeOverride(o duty.Override) string {
	at := func(i capri.Instant) string { return i.In(a.calendar.Zone()).Format(time.DateTime) }
	return fmt.Sprintf("%s: %s from %s to %s: %s", o.Place, o.User, at(o.From), at(o.To), o.Reason)
}
