package auth_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/auth"
)

func TestEachAct_has_a_rule_that_somebody_meets(t *testing.T) {
	for _, r := range auth.Policy {
		assert.NotEmpty(t, r.Does, r.Act)
		assert.True(t, r.Public || r.Role != "" || r.Worker || r.Job, "%s: nobody may", r.Act)
		if r.Role == "" {
			assert.Empty(t, r.Own, "%s: whose it is counts for roles alone", r.Act)
			continue
		}
		assert.Contains(t, auth.Roles, r.Role, r.Act)
		assert.Contains(t, auth.Scopes, r.Scope, r.Act)
		assert.NotEqual(t, auth.ScopeAll, r.Scope, "%s: a key that is made for one thing shall be enough", r.Act)
		if r.Own == auth.Owned || r.Own == auth.Asked {
			assert.NotEqual(t, auth.ReadOnly, r.Role, "%s: read-only changes nothing", r.Act)
		}
	}
}

func TestWho_may_do_what_on_what(t *testing.T) {
	open := auth.Settings{TaskEdit: "department", TaskRead: "all"}
	strict := auth.Settings{TaskEdit: "owner", TaskRead: "department"}
	broken := auth.Settings{TaskEdit: "dept", TaskRead: "everything"}
	user := func(name string, role auth.Role, department string, s auth.Settings) auth.Principal {
		return auth.Principal{Kind: auth.User, Name: name, Role: role, Department: department, Settings: s}
	}
	app := func(name string, role auth.Role, department string, scopes ...auth.Scope) auth.Principal {
		return auth.Principal{Kind: auth.App, Name: name, Role: role, Department: department, Scopes: scopes, Settings: open}
	}
	task := auth.Object{What: "task t", Owner: "alice", Department: "dw"}
	nobodys := auth.Object{What: "task n"}
	for _, c := range []struct {
		who  string
		p    auth.Principal
		act  auth.Act
		o    auth.Object
		want error
	}{
		{"the owner", user("alice", auth.Member, "dw", open), auth.TaskEdit, task, nil},
		{"the owner, who has changed the department", user("alice", auth.Member, "bi", strict), auth.TaskEdit, task, nil},
		{"a colleague", user("bob", auth.Member, "dw", open), auth.TaskEdit, task, nil},
		{"a colleague, where owners alone may", user("bob", auth.Member, "dw", strict), auth.TaskEdit, task, capri.ErrForbidden},
		{"a colleague, where the setting is misspelt", user("bob", auth.Member, "dw", broken), auth.TaskEdit, task, capri.ErrForbidden},
		{"a stranger", user("carol", auth.Member, "bi", open), auth.TaskEdit, task, capri.ErrForbidden},
		{"a stranger who may not see it", user("carol", auth.Member, "bi", strict), auth.TaskEdit, task, capri.ErrNotFound},
		{"a stranger, where the setting is misspelt", user("carol", auth.Member, "bi", broken), auth.BatchRead, task, capri.ErrNotFound},
		{"a member without a department, of nobody's task", user("dave", auth.Member, "", open), auth.TaskEdit, nobodys, capri.ErrForbidden},
		{"an admin, of nobody's task", user("ops", auth.Admin, "", strict), auth.TaskEdit, nobodys, nil},
		{"who looks", user("eve", auth.ReadOnly, "bi", open), auth.BatchRead, task, nil},
		{"who looks, at another department's", user("eve", auth.ReadOnly, "bi", strict), auth.BatchRead, task, capri.ErrNotFound},
		{"who looks, at the log of another department's", user("eve", auth.ReadOnly, "bi", strict), auth.LogRead, task, capri.ErrNotFound},
		{"who looks, at one's own department's", user("eve", auth.ReadOnly, "dw", strict), auth.LogRead, task, nil},
		{"who looks changes nothing, not even what is his", user("alice", auth.ReadOnly, "dw", open), auth.BatchKill, task, capri.ErrForbidden},
		{"a role that does not exist", user("alice", "king", "dw", open), auth.BatchRead, task, capri.ErrForbidden},
		{"nothing in particular is not everything", user("alice", auth.Member, "dw", open), auth.TaskEdit, auth.Object{}, capri.ErrForbidden},

		{"a token for something else", auth.Principal{Kind: auth.User, Name: "alice", Role: auth.Member, Scopes: []auth.Scope{auth.ScopeRead}, Settings: open}, auth.TaskEdit, task, capri.ErrForbidden},
		{"an app of the department", app("loader", auth.Member, "dw", auth.ScopeTasks), auth.TaskEdit, task, nil},
		{"an app without the scope", app("loader", auth.Member, "dw", auth.ScopeRead), auth.TaskEdit, task, capri.ErrForbidden},
		{"an app without scopes", app("loader", auth.SuperAdmin, "dw"), auth.BatchRead, task, capri.ErrForbidden},
		{"an app for everything reaches as far as its role", app("loader", auth.Member, "dw", auth.ScopeAll), auth.NodeEdit, auth.Object{}, capri.ErrForbidden},
		{"an app with what it made for nobody", app("loader", auth.Member, "", auth.ScopeTasks), auth.TaskEdit, auth.Object{What: "task n", App: "loader"}, nil},
		{"an app with what it made for somebody else", app("loader", auth.Member, "", auth.ScopeTasks), auth.TaskEdit, auth.Object{What: "task n", App: "loader", Owner: "carol"}, capri.ErrForbidden},
		{"a user who bears an app's name", user("loader", auth.Member, "", open), auth.TaskEdit, auth.Object{What: "task n", App: "loader"}, capri.ErrForbidden},
		{"the quality API", app("dq", auth.Member, "", auth.ScopeThirdParty), auth.QualityAnswer, task, nil},
		{"a stranger who guesses the question", user("carol", auth.Member, "bi", open), auth.QualityAnswer, task, capri.ErrForbidden},

		{"a job that looks around", auth.Principal{Kind: auth.Job, Name: "attempt 1.1"}, auth.BatchRead, task, capri.ErrForbidden},
		{"a job that calls itself an admin", auth.Principal{Kind: auth.Job, Name: "attempt 1.1", Role: auth.SuperAdmin}, auth.BatchKill, task, capri.ErrForbidden},
		{"a job of itself", auth.Principal{Kind: auth.Job, Name: "attempt 1.1"}, auth.AttemptReport, auth.Object{}, nil},
		{"an admin for a job", user("ops", auth.SuperAdmin, "", open), auth.AttemptReport, auth.Object{}, capri.ErrForbidden},
		{"a worker that looks around", auth.Principal{Kind: auth.Worker, Name: "worker n", Node: "n"}, auth.TaskRead, task, capri.ErrForbidden},

		{"an admin who makes a super admin", user("ops", auth.Admin, "", open), auth.UserEdit, auth.Object{What: "user x", Role: auth.SuperAdmin}, capri.ErrForbidden},
		{"an admin who makes an admin", user("ops", auth.Admin, "", open), auth.UserEdit, auth.Object{What: "user x", Role: auth.Admin}, nil},
		{"an unknown role", user("ops", auth.Admin, "", open), auth.UserEdit, auth.Object{What: "user x", Role: "king"}, capri.ErrForbidden},
		{"a member, for the rota of the department", user("alice", auth.Member, "dw", open), auth.DutyEdit, auth.Object{What: "rota", Department: "dw"}, nil},
		{"a member, for the rota of the system", user("alice", auth.Member, "", open), auth.DutyEdit, auth.Object{What: "rota"}, capri.ErrForbidden},
		{"an act that nobody has thought of", user("root", auth.SuperAdmin, "", open), "universe.end", task, capri.ErrForbidden},
	} {
		err := c.p.May(c.act, c.o)
		if c.want == nil {
			assert.NoError(t, err, "%s: %s", c.who, c.act)
			continue
		}
		assert.ErrorIs(t, err, c.want, "%s: %s", c.who, c.act)
	}
}

func TestNobody_may_only_what_is_public(t *testing.T) {
	for _, r := range auth.Policy {
		err := auth.Principal{Name: "somebody", Role: auth.SuperAdmin, Scopes: []auth.Scope{auth.ScopeAll}}.May(r.Act, auth.Object{Owner: "somebody"})
		if r.Public {
			assert.NoError(t, err, r.Act)
		} else {
			assert.True(t, auth.IsNobody(err), r.Act)
		}
	}
}

// A role that includes another may all that the other may, on whatever it is.
func TestAMightierRole_may_no_less(t *testing.T) {
	for _, r := range auth.Policy {
		for _, settings := range []auth.Settings{{}, {TaskEdit: "department", TaskRead: "all"}} {
			for _, o := range []auth.Object{{}, {What: "x", Owner: "a", Department: "d"}, {What: "x", Owner: "b"}, {What: "x", Department: "e"}} {
				may := true
				for _, role := range auth.Roles {
					err := auth.Principal{Kind: auth.User, Name: "a", Department: "d", Role: role, Settings: settings}.May(r.Act, o)
					require.False(t, err == nil && !may, "%s may %s on %+v, and a mightier role may not", role, r.Act, o)
					may = err == nil
				}
			}
		}
	}
}

func TestScopes_are_read_by_name(t *testing.T) {
	for _, s := range auth.Scopes {
		got, err := auth.ParseScope(string(s))
		require.NoError(t, err)
		assert.Equal(t, s, got)
		if s != auth.ScopeAll {
			assert.True(t, slices.ContainsFunc(auth.Policy, func(r auth.Rule) bool { return r.Scope == s }), "%s is good for something", s)
		}
	}
	_, err := auth.ParseScope("everything")
	var field *capri.FieldError
	require.True(t, errors.As(err, &field))
	assert.Contains(t, field.Want, "third-party")
}
