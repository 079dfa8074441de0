package api

import (
	"context"
	"net/http"

	"capri"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/store"
)

func (s *server) peopleOperations() {
	gone := status(http.StatusNoContent)
	register(s, auth.UserRead, http.MethodGet, "/users", "list-users", "People by name", s.users)
	register(s, auth.UserEdit, http.MethodPut, "/users/{name}", "set-user", "Make or change a user", s.setUser, gone)
	register(s, auth.UserEdit, http.MethodDelete, "/users/{name}", "delete-user", "Forget a user who owns no task", s.named(s.Actions.DeleteUser), gone)
	register(s, auth.UserRead, http.MethodGet, "/departments", "list-departments", "Departments by name", s.departments)
	register(s, auth.UserEdit, http.MethodPut, "/departments/{name}", "set-department", "Make or change a department", s.setDepartment, gone)
	register(s, auth.UserEdit, http.MethodDelete, "/departments/{name}", "delete-department", "Forget a department without people", s.named(s.Actions.DeleteDepartment), gone)
	register(s, auth.UserRead, http.MethodGet, "/account-grants", "list-account-grants", "Who may run jobs as which system account", s.grants)
	register(s, auth.AccountEdit, http.MethodPut, "/account-grants", "grant-account", "Let a user or a department run jobs as a system account", s.grant, gone)
	register(s, auth.AccountEdit, http.MethodDelete, "/account-grants", "revoke-account", "Take a grant back", s.revoke, gone)
	register(s, auth.UserEdit, http.MethodPost, "/users/{name}:enable", "enable-user", "Let a user in again", s.named(s.Actions.EnableUser), gone)
	register(s, auth.UserEdit, http.MethodPost, "/users/{name}:disable", "disable-user", "Keep a user out; sessions and tokens end at once", s.named(s.Actions.DisableUser), gone)
	register(s, auth.UserEdit, http.MethodPost, "/users/{name}:reset-password", "reset-password", "Give a user a one-time password; sessions and tokens end at once", s.resetPassword)
	s.identityOperations()
}

func (s *server) users(ctx context.Context, _ *none) (*body[[]wire.User], error) {
	rows, err := s.Store.Users(ctx)
	return listOf(rows, err, func(u store.User) wire.User {
		return wire.User{Name: u.Name, Department: u.Department, Mail: u.Mail, Phone: u.Phone, Enabled: &u.Enabled, Admin: u.Admin, Role: u.Role, Password: u.Password, CreatedAt: wire.At(u.CreatedAt, s.Zone)}
	})
}

// sameName refuses a body that speaks of somebody else than the path.
func sameName(path, body string) error {
	if body != "" && body != path {
		return capri.Invalid("name", body, path+", as in the path")
	}
	return nil
}

type userInput struct {
	Name string `path:"name" maxLength:"400"`
	Body wire.User
}

func (s *server) setUser(ctx context.Context, in *userInput) (*none, error) {
	u := in.Body
	if err := sameName(in.Name, u.Name); err != nil {
		return nil, err
	}
	enabled := u.Enabled == nil || *u.Enabled
	return nil, s.Actions.SaveUser(ctx, who(ctx), store.User{Name: in.Name, Department: u.Department, Mail: u.Mail, Phone: u.Phone, Enabled: enabled, Admin: u.Admin, Role: u.Role})
}

func (s *server) departments(ctx context.Context, _ *none) (*body[[]wire.Department], error) {
	rows, err := s.Store.Departments(ctx)
	return listOf(rows, err, func(d store.Department) wire.Department {
		return wire.Department{Name: d.Name, Title: d.Title, CreatedAt: wire.At(d.CreatedAt, s.Zone)}
	})
}

type departmentInput struct {
	Name string `path:"name" maxLength:"400"`
	Body wire.Department
}

func (s *server) setDepartment(ctx context.Context, in *departmentInput) (*none, error) {
	if err := sameName(in.Name, in.Body.Name); err != nil {
		return nil, err
	}
	return nil, s.Actions.SaveDepartment(ctx, who(ctx), store.Department{Name: in.Name, Title: in.Body.Title})
}

func (s *server) grants(ctx context.Context, _ *none) (*body[[]wire.AccountGrant], error) {
	rows, err := s.Store.AccountGrants(ctx)
	return listOf(rows, err, func(g store.AccountGrant) wire.AccountGrant {
		return wire.AccountGrant{Account: g.Account, Kind: g.Kind, Name: g.Name, CreatedAt: wire.At(g.CreatedAt, s.Zone)}
	})
}

func (s *server) grant(ctx context.Context, in *struct{ Body wire.AccountGrant }) (*none, error) {
	return nil, s.Actions.GrantAccount(ctx, who(ctx), store.AccountGrant{Account: in.Body.Account, Kind: in.Body.Kind, Name: in.Body.Name})
}

type revokeInput struct {
	Account string `query:"account" required:"true"`
	Kind    string `query:"kind" required:"true" enum:"user,department"`
	Name    string `query:"name" required:"true"`
}

func (s *server) revoke(ctx context.Context, in *revokeInput) (*none, error) {
	return nil, s.Actions.RevokeAccount(ctx, who(ctx), store.AccountGrant{Account: in.Account, Kind: in.Kind, Name: in.Name})
}
