package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/action/actiontest"
	"capri/api/wire"
)

const dutyYAML = `
rotas:
  - primary: {people: [alice], start: 2026-11-16}
  - department: dw
    timezone: Asia/Shanghai
    hand_over: 10:00
    primary:
      people: [bob, carol]
      days: 14
      start: 2026-11-16
    secondary:
      weeks:
        - {from: 2026-11-16, user: carol}
        - {from: 2026-11-30, user: bob}
`

func dutyCluster(t *testing.T, w *actiontest.World) *cluster {
	t.Helper()
	c := newCluster(t, w)
	c.Apply(tasks)
	for _, line := range []string{"department set dw", "user set bob --department dw --phone 1", "user set carol --department dw --phone 2", "user set alice --phone 3"} {
		require.Zero(t, c.capri(strings.Fields(line)...).code, line)
	}
	return c
}

func TestDuty_set_list_and_export(t *testing.T) {
	c := dutyCluster(t, actiontest.SQLite(t))
	file := write(t, "duty.yaml", dutyYAML)
	r := c.capri("duty", "list")
	assert.Zero(t, r.code)
	assert.Contains(t, r.out, "no duty rotas")

	r = c.capri("duty", "set", file, "--dry-run")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "nothing was changed")
	assert.Contains(t, c.capri("duty", "list").out, "no duty rotas")
	r = c.capri("duty", "set", file)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "2 rotas are set")

	r = c.capri("duty", "list", "--from", "2026-11-16", "--to", "2026-12-10")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "(system)")
	assert.Contains(t, r.out, "2026-11-30 02:00:00", "10:00 in Shanghai, in business time")
	assert.Contains(t, r.out, "nobody is on duty")
	for _, line := range strings.Split(r.out, "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 110, line)
		assert.Equal(t, strings.TrimRight(line, " "), line)
	}
	var list struct {
		Now   []wire.DutyNow
		Plans []wire.DutyPlan
	}
	c.json(&list, "duty", "list", "--department", "dw", "--from", "2026-11-16", "--to", "2026-12-10")
	require.Len(t, list.Now, 1)
	require.Len(t, list.Plans, 1)
	assert.Equal(t, "bob", list.Now[0].Primary)
	var holes []string
	for _, h := range list.Plans[0].Holes {
		holes = append(holes, strings.TrimSpace(h.Place+" "+h.User+" "+h.Why))
	}
	assert.Equal(t, []string{"primary  is on duty", "secondary  is on duty", "secondary  is on duty", "secondary  is on duty"}, holes, "before the start, and between and after the weeks")
	c.json(&list, "duty", "list", "--system")
	require.Len(t, list.Now, 1)
	assert.Equal(t, "alice", list.Now[0].Primary)

	exported := c.capri("duty", "export")
	require.Zero(t, exported.code, exported.err)
	assert.Contains(t, exported.out, "people: [bob, carol]")
	again := capriIn(t, c.env, exported.out, "duty", "set", "-")
	require.Zero(t, again.code, again.err)
	assert.Equal(t, exported.out, c.capri("duty", "export").out, "it sets back to no change")
	var doc struct{ Rotas []wire.Rota }
	c.json(&doc, "duty", "export", "--department", "dw")
	require.Len(t, doc.Rotas, 1)
	assert.Equal(t, &wire.Rotation{People: []string{"bob", "carol"}, Days: 14, Start: "2026-11-16"}, doc.Rotas[0].Primary)

	assert.Equal(t, exitUsage, c.capri("duty", "delete", "--system").code, "it asks")
	require.Zero(t, c.capri("duty", "delete", "--system", "--yes").code)
	assert.Equal(t, exitNotFound, c.capri("duty", "delete", "--system", "--yes").code)
	assert.Equal(t, exitNotFound, c.capri("duty", "list", "--system").code)
}

func TestDutyFiles_name_field_value_and_cure_all_at_once(t *testing.T) {
	c := dutyCluster(t, actiontest.SQLite(t))
	set := func(text string) result { return c.capri("duty", "set", write(t, "duty.yaml", text)) }
	r := set("rotas:\n- {department: dw, hand_over: noon, primary: {people: [bob, stranger], days: 400, start: soon}}\n- {department: sales, primary: {people: [bob], start: 2026-11-16}}")
	assert.Equal(t, exitUsage, r.code)
	for _, says := range []string{`rota of department dw: hand_over: "noon": want a time of day`, `primary.start: "soon": want a date`, `primary.days: "400": want 1 to 366`,
		`primary.people[1]: "stranger": want a user that exists`, `rota of department sales: department: "sales": want a department that exists`} {
		assert.Contains(t, r.err, says)
	}
	r = set("rotas:\n- {departmnt: dw}\n- {primary: {persons: [a]}}")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.err, "departmnt")
	assert.Contains(t, r.err, "persons")
	for _, text := range []string{"", "rotas: []", "rotas: [", "rotas: 3"} {
		assert.Equal(t, exitUsage, set(text).code, text)
	}
	assert.Equal(t, exitUsage, c.capri("duty", "set", "/nowhere/at/all").code)
	assert.Contains(t, c.capri("duty", "list").out, "no duty rotas")
}

func TestDutyOverrides_by_command(t *testing.T) {
	c := dutyCluster(t, actiontest.SQLite(t))
	require.Zero(t, c.capri("duty", "set", write(t, "duty.yaml", dutyYAML)).code)
	assert.Contains(t, c.capri("duty", "override", "list").out, "no overrides")
	var made wire.DutyOverride
	c.json(&made, "duty", "override", "add", "--department", "dw", "--user", "carol", "--from", "2026-11-20", "--to", "2026-11-22 12:00", "--reason", "holiday of bob")
	assert.Equal(t, "primary", made.Place)
	r := c.capri("duty", "override", "add", "--system", "--place", "secondary", "--user", "alice", "--from", "2026-11-20", "--to", "2026-11-22")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "alice is secondary of (system) from 2026-11-20 00:00:00 to 2026-11-23 00:00:00")
	r = c.capri("duty", "override", "list", "--department", "dw")
	assert.Contains(t, r.out, "holiday of bob")
	assert.NotContains(t, r.out, "(system)")
	r = c.capri("duty", "list", "--from", "2026-11-20", "--to", "2026-11-22")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "holiday of")
	assert.Contains(t, r.out, "alice is primary and", "one person in both places is marked")
	require.Zero(t, c.capri("duty", "override", "delete", "1").code)
	assert.Equal(t, exitNotFound, c.capri("duty", "override", "delete", "1").code)
	for _, line := range []string{"duty override delete x", "duty override add --department dw --user carol", "duty override add --user carol --from 2026-11-20 --to 2026-11-22",
		"duty override add --system --department dw --user carol --from 2026-11-20 --to 2026-11-22", "duty delete --yes", "duty set", "duty wat",
		"task grant-alert orders", "task grant-alert orders bob", "task revoke-alert orders"} {
		assert.Equal(t, exitUsage, c.capri(strings.Fields(line)...).code, line)
	}
}

func TestAlertRights_by_command(t *testing.T) {
	c := dutyCluster(t, actiontest.SQLite(t))
	r := c.capri("task", "grant-alert", "orders", "bob", "--sms", "--mail")
	require.Zero(t, r.code, r.err)
	require.Zero(t, c.capri("task", "grant-alert", "orders", "carol", "--mail").code)
	r = c.capri("task", "show", "orders")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "# bob is told of its alerts by sms and mail\n# carol is told of its alerts by mail\n")
	var task wire.Task
	c.json(&task, "task", "show", "orders")
	assert.Len(t, task.AlertGrants, 2)
	assert.Equal(t, exitNotFound, c.capri("task", "grant-alert", "orders", "stranger", "--mail").code)
	require.Zero(t, c.capri("task", "revoke-alert", "orders", "bob").code)
	assert.Equal(t, exitNotFound, c.capri("task", "revoke-alert", "orders", "bob").code)
	assert.NotContains(t, c.capri("task", "show", "orders").out, "bob")
}
