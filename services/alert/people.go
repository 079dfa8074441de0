package alert

import (
	"context"

	"capri"
	"capri/alerting/duty"
	"capri/alerting/route"
	"capri/sql/store"
)

// PeopleOf reads who there is from the database.
func PeopleOf(s *store.Store) func(context.Context, capri.Instant, []capri.TaskID) (route.People, error) {
	return func(ctx context.Context, at capri.Instant, tasks []capri.TaskID) (route.People, error) {
		p := route.People{Persons: map[string]route.Person{}, Duty: map[string]route.Duty{}, Grants: map[capri.TaskID][]route.Grant{}}
		users, err := s.Users(ctx)
		if err != nil {
			return p, err
		}
		for _, u := range users {
			p.Persons[u.Name] = route.Person{Name: u.Name, Department: u.Department, Mail: u.Mail, Phone: u.Phone, Enabled: u.Enabled, Admin: u.Admin}
		}
		rotas, err := s.Rotas(ctx)
		if err != nil {
			return p, err
		}
		for _, r := range rotas {
			p.Duty[r.Department] = route.Duty(duty.At(r, at))
		}
		if len(tasks) == 0 {
			return p, nil
		}
		grants, err := s.AlertGrants(ctx, tasks...)
		for _, g := range grants {
			p.Grants[g.TaskID] = append(p.Grants[g.TaskID], route.Grant{Person: g.User, SMS: g.SMS, Mail: g.Mail})
		}
		return p, err
	}
}
