package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
	"capri/alerting/duty"
)

// Rotas reads every rota with its overrides, by department; the system's comes first. One that somebody broke by hand is
// there, too, and says why it cannot be read: only its overrides count.
func (s *Store) Rotas(ctx context.Context) ([]duty.Rota, error) {
	specs := map[string]*duty.Spec{}
	broken := map[string]string{}
	q := sq.Select("department", "place", "timezone", "hand_over", "days", "start_date", "people", "weeks").From("duty")
	err := query(ctx, s.read, q, func(r *sql.Rows) error {
		var department, place, timezone, handOver, people, weeks string
		var x duty.SpecRotation
		if err := r.Scan(&department, &place, &timezone, &handOver, &x.Days, &x.Start, &people, &weeks); err != nil {
			return err
		}
		x.People, x.Weeks = splitNames(people), splitWeeks(weeks)
		spec := specs[department]
		if spec == nil {
			spec = &duty.Spec{Department: department}
			specs[department] = spec
		}
		spec.Timezone, spec.HandOver = timezone, handOver // the same in both rows
		switch duty.Place(place) {
		case duty.Primary:
			spec.Primary = x
		case duty.Secondary:
			spec.Secondary = x
		default:
			broken[department] = "the table duty has a row of a place " + place
		}
		return nil
	})
	if err != nil {
		return nil, s.fault("read rotas", err)
	}
	overrides, err := s.DutyOverrides(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]duty.Rota, 0, len(specs))
	for _, department := range slices.Sorted(maps.Keys(specs)) {
		r, wrong := duty.Parse(*specs[department], time.UTC)
		if r.Broken = broken[department]; len(wrong) > 0 {
			r.Broken = wrong.Error()
		}
		r.Department = department
		for _, o := range overrides {
			if o.Department == department {
				r.Overrides = append(r.Overrides, o)
			}
		}
		all = append(all, r)
	}
	return all, nil
}

func splitNames(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func splitWeeks(text string) (weeks []duty.SpecWeek) {
	for _, w := range splitNames(text) {
		from, user, _ := strings.Cut(w, "=")
		weeks = append(weeks, duty.SpecWeek{From: from, User: user})
	}
	return weeks
}

// SaveRota makes a department's rota, or replaces it; its overrides stay.
func (tx *Tx) SaveRota(r duty.Rota) error {
	if err := tx.noteRota(r.Department); err != nil {
		return err
	}
	spec := r.Spec()
	if _, wrong := duty.Parse(spec, time.UTC); len(wrong) > 0 {
		return wrong // names hold no comma and no =, so that the columns can be read again
	}
	if _, err := tx.exec(sq.Delete("duty").Where(sq.Eq{"department": r.Department})); err != nil {
		return err
	}
	rows := []struct {
		place duty.Place
		duty.SpecRotation
	}{{duty.Primary, spec.Primary}, {duty.Secondary, spec.Secondary}}
	for _, x := range rows {
		weeks := make([]string, len(x.Weeks))
		for i, w := range x.Weeks {
			weeks[i] = w.From + "=" + w.User
		}
		people := strings.Join(x.People, ",")
		if people == "" && len(weeks) == 0 {
			continue
		}
		const most = 16_000 // characters; of four bytes each they still fit the column
		err := firstError(fits("timezone", spec.Timezone, 64), fits(string(x.place)+".people", people, most), fits(string(x.place)+".weeks", strings.Join(weeks, ","), most))
		if err != nil {
			return err
		}
		_, err = tx.exec(sq.Insert("duty").Columns("department", "place", "timezone", "hand_over", "days", "start_date", "people", "weeks", "updated_at").
			Values(r.Department, string(x.place), spec.Timezone, spec.HandOver, x.Days, x.Start, people, strings.Join(weeks, ","), int64(tx.Now)))
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteRota forgets a department's rota and its overrides.
func (tx *Tx) DeleteRota(department string) error {
	if err := tx.noteRota(department); err != nil {
		return err
	}
	n, err := tx.exec(sq.Delete("duty").Where(sq.Eq{"department": department}))
	if err == nil && n == 0 {
		return NoRota(department)
	}
	if err == nil {
		_, err = tx.exec(sq.Delete("duty_override").Where(sq.Eq{"department": department}))
	}
	return err
}

// noteRota notes a rota's rows for the log.
func (tx *Tx) noteRota(department string) error {
	for _, place := range []duty.Place{duty.Primary, duty.Secondary} {
		if err := tx.note("duty", sq.Eq{"department": department, "place": string(place)}); err != nil {
			return err
		}
	}
	return nil
}

// NoRota says that there is none.
func NoRota(department string) error {
	if department == "" {
		return capri.NotFound("the system has no duty rota (capri duty set makes one)")
	}
	return capri.NotFound("department %s has no duty rota (capri duty set makes one)", department)
}

// DutyOverrides lists all overrides, also those that are over, by when they begin.
func (s *Store) DutyOverrides(ctx context.Context) ([]duty.Override, error) {
	all, err := overrides(ctx, s.read, sq.Eq{})
	return all, s.fault("read duty overrides", err)
}

func overrides(ctx context.Context, from querier, where sq.Eq) ([]duty.Override, error) {
	q := sq.Select("id", "department", "place", "from_time", "to_time", "user", "reason", "created_by", "created_at").From("duty_override").Where(where).OrderBy("from_time", "id")
	return collect(ctx, from, q, func(r *sql.Rows, o *duty.Override) error {
		return r.Scan(&o.ID, &o.Department, &o.Place, &o.From, &o.To, &o.User, &o.Reason, &o.By, &o.CreatedAt)
	})
}

// AddOverride makes an override, under the transaction's actor, and gives it back with its id. One that says the same is
// replaced, so that doing it again is harmless, and makes it the last one.
func (tx *Tx) AddOverride(o duty.Override) (duty.Override, error) {
	if wrong := o.Check(); len(wrong) > 0 {
		return o, wrong
	}
	if err := firstError(fits("department", o.Department, 128), fits("reason", o.Reason, 255)); err != nil {
		return o, err
	}
	rota := 0
	if _, err := one(tx.ctx, tx.tx, sq.Select("COUNT(*)").From("duty").Where(sq.Eq{"department": o.Department}).Suffix(tx.s.d.ForShare), &rota); err != nil {
		return o, err
	}
	if rota == 0 {
		return o, NoRota(o.Department)
	}
	same := sq.Eq{"department": o.Department, "place": string(o.Place), "from_time": int64(o.From), "to_time": int64(o.To), "user": o.User}
	if err := tx.note("duty_override", same); err != nil {
		return o, err
	}
	if _, err := tx.exec(sq.Delete("duty_override").Where(same)); err != nil {
		return o, err
	}
	o.By, o.CreatedAt = loggable(tx.who, 190), tx.Now
	_, err := tx.exec(sq.Insert("duty_override").Columns("department", "place", "from_time", "to_time", "user", "reason", "created_by", "created_at").
		Values(o.Department, string(o.Place), int64(o.From), int64(o.To), o.User, o.Reason, o.By, int64(o.CreatedAt)))
	if err == nil {
		_, err = one(tx.ctx, tx.tx, sq.Select("id").From("duty_override").Where(same), &o.ID)
	}
	return o, err
}

// DeleteOverride takes an override back and tells which it was.
func (tx *Tx) DeleteOverride(id int64) (duty.Override, error) {
	if err := tx.note("duty_override", sq.Eq{"id": id}); err != nil {
		return duty.Override{}, err
	}
	found, err := overrides(tx.ctx, tx.tx, sq.Eq{"id": id})
	if err == nil && len(found) == 0 {
		err = capri.NotFound("there is no duty override %d", id)
	}
	if err != nil {
		return duty.Override{}, err
	}
	_, err = tx.exec(sq.Delete("duty_override").Where(sq.Eq{"id": id}))
	return found[0], err
}

// AlertGrant is somebody's right to be told of a task's alerts (seed 002 §1.10.3.2.2).
type AlertGrant struct {
	TaskID    capri.TaskID
	User      string
	SMS       bool
	Mail      bool
	CreatedAt capri.Instant
}

// AlertGrants lists the grants of tasks by task and user; no task: of all.
func (s *Store) AlertGrants(ctx context.Context, tasks ...capri.TaskID) ([]AlertGrant, error) {
	q := sq.Select("task_id", "user", "sms", "mail", "created_at").From("task_alert_grant").OrderBy("task_id", "user")
	if len(tasks) > 0 {
		q = q.Where(idIn("task_id", tasks))
	}
	all, err := collect(ctx, s.read, q, func(r *sql.Rows, g *AlertGrant) error {
		return r.Scan(&g.TaskID, &g.User, &g.SMS, &g.Mail, &g.CreatedAt)
	})
	return all, s.fault("read alert grants", err)
}

// GrantAlert gives a user the rights that g names, and takes from him the other of the two.
func (tx *Tx) GrantAlert(g AlertGrant) error {
	if err := tx.note("task_alert_grant", sq.Eq{"task_id": int64(g.TaskID), "user": g.User}); err != nil {
		return err
	}
	if err := named("user", g.User, 128); err != nil {
		return err
	}
	if !g.SMS && !g.Mail {
		return capri.Invalid("sms", "false", "sms, mail or both; to take a grant back, revoke it")
	}
	_, err := tx.exec(sq.Insert("task_alert_grant").Columns("task_id", "user", "sms", "mail", "created_at").
		Values(int64(g.TaskID), g.User, bit(g.SMS), bit(g.Mail), int64(tx.Now)).Suffix(tx.s.d.Upsert([]string{"task_id", "user"}, "sms", "mail")))
	return err
}

// RevokeAlert takes both rights back. task is the task's name, for the message.
func (tx *Tx) RevokeAlert(id capri.TaskID, task, user string) error {
	if err := tx.note("task_alert_grant", sq.Eq{"task_id": int64(id), "user": user}); err != nil {
		return err
	}
	n, err := tx.exec(sq.Delete("task_alert_grant").Where(sq.Eq{"task_id": int64(id), "user": user}))
	if err == nil && n == 0 {
		err = capri.NotFound("%s has no alert rights of task %s", user, task)
	}
	return err
}

// RevokeAlertsOf takes all alert rights of a user back: who gets the same name later is somebody else.
func (tx *Tx) RevokeAlertsOf(user string) error {
	_, err := tx.exec(sq.Delete("task_alert_grant").Where(sq.Eq{"user": user}))
	return err
}

// DutyPeople gives everybody by name, as far as it matters to a rota.
func (s *Store) DutyPeople(ctx context.Context) (map[string]duty.Person, error) {
	users, err := s.Users(ctx)
	people := make(map[string]duty.Person, len(users))
	for _, u := range users {
		people[u.Name] = duty.Person{Enabled: u.Enabled, Phone: u.Phone}
	}
	return people, err
}
