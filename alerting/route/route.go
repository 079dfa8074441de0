// Package route decides who is told of an alert, by which channel, and by which rule (seed 002 §1.10.3). It is a pure
// function of the alert, its task and the people there are:
//
//	alert without a task ─▶ admins, by level        severe: phone, SMS, mail   important: SMS, mail   attention: mail
//	alert of a task ──────▶ owner_only?  ─▶ the owner, SMS by priority
//	                        else default_rules: the owner's department and those with a right to the task's alerts
//	                           + phone_to, sms_to, mail_to
//
// It promises that an alert reaches somebody: what no rule gives a receiver goes to the admins, and says why. A person
// whom a rule names, but who has no address for the channel, comes out too, with what is missing: that is part of the account.
package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"capri"
	"capri/alerting"
)

// Person is somebody who can be told.
type Person struct {
	Name, Department, Mail, Phone string
	Enabled, Admin                bool
}

// Duty is who is on duty at the moment.
type Duty struct{ Primary, Secondary string }

// Grant is somebody's right to a task's alerts.
type Grant struct {
	Person    string
	SMS, Mail bool
}

// People is everybody, as of one moment.
type People struct {
	Persons map[string]Person
	Duty    map[string]Duty // by department; "" is the system's
	Grants  map[capri.TaskID][]Grant
}

// Alert is what the rules look at.
type Alert struct {
	Level capri.Level
	Task  *capri.Task // nil: it concerns the system
}

// Receiver is one address that is told.
type Receiver struct {
	Channel string
	Name    string // of the person; empty where the task names a bare address
	Address string
	Why     string // the rule
	Missing string // why it cannot be reached; empty: it can
}

// MostUrgent is the least urgent priority whose task's alerts go out by SMS, too (seed 002 §1.10.3: 0–4).
const MostUrgent = 4

// Of gives the receivers of an alert: each address of a channel once, under the first rule that names it, in the order of
// the rules.
func Of(a Alert, p People) []Receiver {
	r := &receivers{people: p}
	if a.Task == nil {
		r.admins(a.Level, a.Level.String())
		return r.all
	}
	rules := a.Task.Alert
	if rules.OwnerOnly {
		r.owner(a.Task)
	} else {
		if rules.DefaultRules {
			r.standard(a.Task)
		}
		if rules.Phone {
			r.named(alerting.Phone, rules.PhoneTo, "alert.phone_to of the task")
		}
		r.named(alerting.SMS, rules.SMSTo, "alert.sms_to of the task")
		r.named(alerting.Mail, rules.MailTo, "alert.mail_to of the task")
	}
	if !slices.ContainsFunc(r.all, func(x Receiver) bool { return x.Missing == "" }) {
		r.admins(capri.Attention, fmt.Sprintf("nobody else can be told of %s, whose owner is %q", a.Task.Name, a.Task.Owner))
	}
	return r.all
}

// Owner gives the owner of a task by mail alone: of a batch's end, where alert.notify_on asks for it (seed 001).
func Owner(t *capri.Task, p People) []Receiver {
	r := &receivers{people: p}
	r.person(alerting.Mail, t.Owner, "alert.notify_on of the task: its owner")
	return r.all
}

// OnDuty gives who is on duty for the system as primary or secondary, by phone and SMS: a step of an escalation.
func OnDuty(rank string, p People) []Receiver {
	r := &receivers{people: p}
	person := p.Duty[""].Primary
	if rank == "secondary" {
		person = p.Duty[""].Secondary
	}
	if person != "" {
		r.person(alerting.Phone, person, "escalation: "+rank+" duty")
		r.person(alerting.SMS, person, "escalation: "+rank+" duty")
	}
	return r.all
}

// EveryAdmin gives all admins by every channel: the last step of an escalation.
func EveryAdmin(p People) []Receiver {
	r := &receivers{people: p}
	for _, channel := range []string{alerting.Phone, alerting.SMS, alerting.Mail} {
		for _, x := range r.sorted(func(x Person) bool { return x.Admin }) {
			r.person(channel, x.Name, "escalation: all admins")
		}
	}
	return r.all
}

type receivers struct {
	people People
	all    []Receiver
}

// admins is the seed's table of levels: phone and SMS go to duty, mail to all admins.
func (r *receivers) admins(level capri.Level, why string) {
	duty := r.people.Duty[""]
	for _, row := range []struct {
		channel string
		from    capri.Level
	}{{alerting.Phone, capri.Severe}, {alerting.SMS, capri.Important}} {
		if level < row.from {
			continue
		}
		for _, x := range []struct{ rank, person string }{{"primary", duty.Primary}, {"secondary", duty.Secondary}} {
			if x.person != "" {
				r.person(row.channel, x.person, why+": "+x.rank+" duty of the system")
			}
		}
	}
	for _, x := range r.sorted(func(x Person) bool { return x.Admin }) {
		r.person(alerting.Mail, x.Name, why+": all admins")
	}
}

func (r *receivers) owner(t *capri.Task) {
	why := fmt.Sprintf("alert.owner_only of the task, priority %d: its owner", t.Priority)
	if t.Priority <= MostUrgent {
		r.person(alerting.SMS, t.Owner, why)
	}
	r.person(alerting.Mail, t.Owner, why)
}

// standard is the default rules: SMS to whoever of the owner's department is on duty and to holders of the right to SMS,
// mail to the department and to holders of a right. Priorities 5–9 get mail alone.
func (r *receivers) standard(t *capri.Task) {
	urgent := t.Priority <= MostUrgent
	rule := fmt.Sprintf("default rules, priority %d: ", t.Priority)
	owner, known := r.people.Persons[t.Owner]
	grants := r.people.Grants[t.ID]
	if urgent {
		if d := r.people.Duty[owner.Department]; known && owner.Department != "" {
			if on := cmp.Or(d.Primary, d.Secondary); on != "" {
				r.person(alerting.SMS, on, rule+"on duty for "+owner.Department)
			}
		}
		for _, g := range grants {
			if g.SMS {
				r.person(alerting.SMS, g.Person, rule+"has the right to SMS of this task")
			}
		}
	}
	switch {
	case !known:
	case owner.Department == "": // then he is all the department there is
		r.person(alerting.Mail, t.Owner, rule+"its owner, who is in no department")
	default:
		for _, x := range r.sorted(func(x Person) bool { return x.Department == owner.Department }) {
			r.person(alerting.Mail, x.Name, rule+"department "+owner.Department)
		}
	}
	for _, g := range grants {
		// Of an urgent task either right brings the mail, too.
		if g.Mail || urgent && g.SMS {
			r.person(alerting.Mail, g.Person, rule+"has a right to alerts of this task")
		}
	}
}

// named are people or bare addresses that the task itself names.
func (r *receivers) named(channel string, names []string, why string) {
	for _, name := range names {
		if _, known := r.people.Persons[name]; known {
			r.person(channel, name, why)
			continue
		}
		x := Receiver{Channel: channel, Address: name, Why: why}
		if isMail := strings.Contains(name, "@"); isMail != (channel == alerting.Mail) || !isMail && strings.Trim(name, "+0123456789- ") != "" {
			x.Name, x.Address, x.Missing = name, "", fmt.Sprintf("%q is neither a user nor an address", name)
		}
		r.add(x)
	}
}

// person adds somebody by name. Who is disabled is left out: he has left, and is no receiver any more.
func (r *receivers) person(channel, name, why string) {
	x := Receiver{Channel: channel, Name: name, Why: why}
	p, known := r.people.Persons[name]
	switch {
	case !known:
		x.Missing = fmt.Sprintf("there is no user %q", name)
	case !p.Enabled:
		return
	case channel == alerting.Mail:
		x.Address = p.Mail
	default:
		x.Address = p.Phone
	}
	if x.Address == "" && x.Missing == "" {
		what := "phone number"
		if channel == alerting.Mail {
			what = "mail address"
		}
		x.Missing = "user " + name + " has no " + what
	}
	r.add(x)
}

func (r *receivers) add(x Receiver) {
	twice := func(o Receiver) bool {
		return o.Channel == x.Channel && o.Address == x.Address && (x.Address != "" || o.Name == x.Name)
	}
	if !slices.ContainsFunc(r.all, twice) {
		r.all = append(r.all, x)
	}
}

// sorted gives enabled people by name.
func (r *receivers) sorted(is func(Person) bool) []Person {
	var list []Person
	for _, p := range r.people.Persons {
		if p.Enabled && is(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Person) int { return strings.Compare(a.Name, b.Name) })
	return list
}
