package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
)

func people() People {
	all := map[string]Person{}
	for _, p := range []Person{
		{Name: "ann", Department: "dw", Mail: "ann@x", Phone: "1", Enabled: true},
		{Name: "bob", Department: "dw", Mail: "bob@x", Phone: "2", Enabled: true},
		{Name: "cat", Department: "dw", Mail: "cat@x", Phone: "3"}, // has left
		{Name: "dan", Department: "bi", Mail: "dan@x", Phone: "4", Enabled: true},
		{Name: "eve", Department: "bi", Mail: "eve@x", Enabled: true},
		{Name: "fay", Mail: "fay@x", Phone: "6", Enabled: true},
		{Name: "ops", Department: "ops", Mail: "ops@x", Phone: "7", Enabled: true, Admin: true},
		{Name: "pat", Department: "ops", Mail: "pat@x", Phone: "8", Enabled: true, Admin: true},
		{Name: "quinn", Department: "ops", Mail: "quinn@x", Phone: "9", Admin: true},
	} {
		all[p.Name] = p
	}
	return People{Persons: all, Duty: map[string]Duty{"": {"ops", "pat"}, "dw": {"bob", "ann"}},
		Grants: map[capri.TaskID][]Grant{7: {{Person: "dan", SMS: true}, {Person: "eve", Mail: true}}}}
}

// said writes receivers as "phone:1 mail:ann@x", those that cannot be reached as "sms:?eve".
func said(list []Receiver) string {
	var texts []string
	for _, r := range list {
		to := r.Address
		if r.Missing != "" {
			to = "?" + r.Name
		}
		texts = append(texts, r.Channel+":"+to)
	}
	return strings.Join(texts, " ")
}

// Each line is a sentence of seed 002 §1.10.3.
func TestThe_rules_of_the_seed(t *testing.T) {
	task := func(owner string, priority int, rules capri.AlertRules) *capri.Task {
		return &capri.Task{ID: 7, Spec: capri.Spec{Name: "orders", Owner: owner, Priority: priority, Alert: rules}}
	}
	standard := capri.AlertRules{DefaultRules: true}
	for _, row := range []struct {
		what  string
		level capri.Level
		task  *capri.Task
		want  string
	}{
		{"severe, of the system", capri.Severe, nil, "phone:7 phone:8 sms:7 sms:8 mail:ops@x mail:pat@x"},
		{"important, of the system", capri.Important, nil, "sms:7 sms:8 mail:ops@x mail:pat@x"},
		{"attention, of the system", capri.Attention, nil, "mail:ops@x mail:pat@x"},
		{"priority 0–4", capri.Important, task("ann", 4, standard), "sms:2 sms:4 mail:ann@x mail:bob@x mail:dan@x mail:eve@x"},
		{"priority 5–9: mail alone, and no mail by the right to SMS", capri.Severe, task("ann", 5, standard), "mail:ann@x mail:bob@x mail:eve@x"},
		{"phone, where the task asks for it and names receivers", capri.Important, task("ann", 5, capri.AlertRules{DefaultRules: true, Phone: true, PhoneTo: []string{"dan", "+86 10-1"}}),
			"mail:ann@x mail:bob@x mail:eve@x phone:4 phone:+86 10-1"},
		{"phone receivers without alert.phone", capri.Important, task("ann", 5, capri.AlertRules{DefaultRules: true, PhoneTo: []string{"dan"}}), "mail:ann@x mail:bob@x mail:eve@x"},
		{"extra receivers besides the default rules, each once", capri.Important, task("ann", 3, capri.AlertRules{DefaultRules: true, SMSTo: []string{"bob", "fay"}, MailTo: []string{"team@x", "ann"}}),
			"sms:2 sms:4 mail:ann@x mail:bob@x mail:dan@x mail:eve@x sms:6 mail:team@x"},
		{"extra receivers alone", capri.Important, task("ann", 3, capri.AlertRules{SMSTo: []string{"fay"}, MailTo: []string{"team@x"}}), "sms:6 mail:team@x"},
		{"the owner alone, urgent", capri.Important, task("ann", 0, capri.AlertRules{DefaultRules: true, OwnerOnly: true, Phone: true, PhoneTo: []string{"dan"}, MailTo: []string{"team@x"}}), "sms:1 mail:ann@x"},
		{"the owner alone, not urgent", capri.Important, task("ann", 9, capri.AlertRules{OwnerOnly: true}), "mail:ann@x"},
		{"an owner in no department", capri.Important, task("fay", 9, standard), "mail:fay@x mail:eve@x"},
		{"an owner nobody knows, with rights of others", capri.Important, task("gone", 2, standard), "sms:4 mail:dan@x mail:eve@x"},
		{"nobody at all", capri.Important, task("gone", 2, capri.AlertRules{}), "mail:ops@x mail:pat@x"},
		{"an owner who has left", capri.Severe, task("cat", 2, capri.AlertRules{OwnerOnly: true}), "mail:ops@x mail:pat@x"},
		{"who cannot be reached is in the account", capri.Important, task("ann", 2, capri.AlertRules{SMSTo: []string{"eve", "nobody@x"}}), "sms:?eve sms:?nobody@x mail:ops@x mail:pat@x"},
	} {
		got := Of(Alert{Level: row.level, Task: row.task}, people())
		if s := said(got); s != row.want {
			t.Errorf("%s:\n got  %s\n want %s", row.what, s, row.want)
		}
		for _, r := range got {
			require.NotEmpty(t, r.Why, "%s: %+v", row.what, r)
		}
	}
}

func TestNobody_stands_in_a_list_twice_and_everything_reaches_somebody(t *testing.T) {
	p := people()
	names := []string{"ann", "bob", "cat", "dan", "eve", "fay", "gone", "team@x", "+1", "odd one"}
	for i := range 4096 {
		pick := func(shift int) []string {
			var list []string
			for j, n := range names {
				if (i*31+shift*7+j*i)%5 == 0 {
					list = append(list, n, n)
				}
			}
			return list
		}
		rules := capri.AlertRules{Phone: i&1 > 0, DefaultRules: i&2 > 0, OwnerOnly: i&4 > 0, PhoneTo: pick(1), SMSTo: pick(2), MailTo: pick(3)}
		task := &capri.Task{ID: capri.TaskID(i % 9), Spec: capri.Spec{Owner: names[i%len(names)], Priority: i % 10, Alert: rules}}
		seen, reached := map[string]bool{}, 0
		for _, r := range Of(Alert{Level: capri.Important, Task: task}, p) {
			key := fmt.Sprint(r.Channel, r.Address, r.Missing != "" && r.Name != "", r.Name)
			if r.Missing == "" {
				key = r.Channel + r.Address
				reached++
			}
			require.False(t, seen[key], "%+v twice for %+v", r, rules)
			seen[key] = true
			if who, known := p.Persons[r.Name]; known {
				require.True(t, who.Enabled, "%+v has left", r)
			}
		}
		require.Positive(t, reached, "%+v", rules)
	}
}

func TestThe_steps_of_an_escalation(t *testing.T) {
	p := people()
	require.Equal(t, "phone:7 sms:7", said(OnDuty("primary", p)))
	require.Equal(t, "phone:8 sms:8", said(OnDuty("secondary", p)))
	require.Equal(t, "phone:7 phone:8 sms:7 sms:8 mail:ops@x mail:pat@x", said(EveryAdmin(p)))
	p.Duty = nil
	require.Empty(t, OnDuty("primary", p))
	require.Equal(t, "mail:ops@x mail:pat@x", said(Of(Alert{Level: capri.Severe}, p)), "nobody is on duty")
}
