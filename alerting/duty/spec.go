package duty

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"capri"
)

// Spec is a rota as people write it; Parse makes a Rota of it, and Rota.Spec writes it again with nothing left out.
type Spec struct {
	Department string // empty: the system's
	Timezone   string // empty: the one that Parse is given
	HandOver   string // empty: 09:00
	Primary    SpecRotation
	Secondary  SpecRotation // empty: nobody is wanted there
}

// SpecRotation has People, Days (0: 7) and Start; or Weeks.
type SpecRotation struct {
	People []string
	Days   int
	Start  string
	Weeks  []SpecWeek
}

// SpecWeek is a Week.
type SpecWeek struct{ From, User string }

const (
	handOver   = "09:00" // where a rota names none
	weekDays   = 7
	mostDays   = 366
	mostPeople = 200
	mostWeeks  = 600
)

func isName(s string) bool { return capri.IsName(s, "_.@-") }

// Parse reads a rota and says everything that is wrong with it. One without a time zone has the zone otherwise.
func Parse(s Spec, otherwise *time.Location) (Rota, capri.FieldErrors) {
	var wrong capri.FieldErrors
	say := func(field, value, want string) {
		wrong = append(wrong, &capri.FieldError{Field: field, Value: value, Want: want})
	}
	r := Rota{Department: s.Department, Zone: otherwise}
	if s.Department != "" && !isName(s.Department) {
		say("department", s.Department, "the name of a department, or nothing for the system")
	}
	if s.Timezone != "" {
		zone, err := time.LoadLocation(s.Timezone)
		if err != nil || s.Timezone == "Local" {
			say("timezone", s.Timezone, "a time zone such as Asia/Shanghai or UTC")
			zone = otherwise
		}
		r.Zone = zone
	}
	if s.HandOver == "" {
		s.HandOver = handOver
	}
	clock, err := time.Parse("15:04", s.HandOver)
	if err != nil || len(s.HandOver) != len("15:04") {
		say("hand_over", s.HandOver, "a time of day from 00:00 to 23:59, such as 09:00")
	}
	r.HandOver = clock.Hour()*60 + clock.Minute()
	if len(s.Primary.People) == 0 && len(s.Primary.Weeks) == 0 {
		say("primary", "", "people in their order, or weeks")
	}
	r.Primary = parseRotation(s.Primary, "primary.", say)
	r.Secondary = parseRotation(s.Secondary, "secondary.", say)
	return r, wrong
}

func parseRotation(s SpecRotation, prefix string, say func(field, value, want string)) Rotation {
	date := func(field, text string) Date {
		d, err := ParseDate(text)
		if err != nil {
			say(prefix+field, text, "a date such as 2026-11-16")
		}
		return d
	}
	user := func(field, name string) string {
		if !isName(name) {
			say(prefix+field, name, "the name of a user")
		}
		return name
	}
	switch {
	case len(s.People) > 0 && len(s.Weeks) > 0:
		say(prefix+"weeks", strconv.Itoa(len(s.Weeks)), "either people who take turns, or weeks, and not both")
		return Rotation{}
	case len(s.People) > mostPeople:
		say(prefix+"people", strconv.Itoa(len(s.People)), fmt.Sprintf("at most %d people", mostPeople))
		return Rotation{}
	case len(s.Weeks) > mostWeeks:
		say(prefix+"weeks", strconv.Itoa(len(s.Weeks)), fmt.Sprintf("at most %d weeks", mostWeeks))
		return Rotation{}
	case len(s.People) > 0:
		return parsePeople(s, prefix, say, date, user)
	}
	if s.Days != 0 {
		say(prefix+"days", strconv.Itoa(s.Days), "people who take turns; a week has seven days")
	}
	if s.Start != "" {
		say(prefix+"start", s.Start, "people who take turns; a week says itself when it begins")
	}
	var x Rotation
	for i, w := range s.Weeks {
		field := fmt.Sprintf("weeks[%d].", i)
		x.Weeks = append(x.Weeks, Week{From: date(field+"from", w.From), User: user(field+"user", w.User)})
	}
	slices.SortStableFunc(x.Weeks, func(a, b Week) int { return int(a.From - b.From) })
	for i := 1; i < len(x.Weeks); i++ {
		if before := x.Weeks[i-1]; x.Weeks[i].From < before.From+weekDays && before.From != 0 {
			say(prefix+"weeks", x.Weeks[i].From.String(), fmt.Sprintf("a week that begins when the one of %s has ended, on %s or later", before.From, before.From+weekDays))
		}
	}
	return x
}

func parsePeople(s SpecRotation, prefix string, say func(field, value, want string), date func(field, text string) Date, user func(field, name string) string) Rotation {
	x := Rotation{Days: s.Days, Start: date("start", s.Start)}
	if s.Days == 0 {
		x.Days = weekDays
	}
	if x.Days < 1 || x.Days > mostDays {
		say(prefix+"days", strconv.Itoa(s.Days), fmt.Sprintf("1 to %d days", mostDays))
	}
	for i, name := range s.People {
		x.People = append(x.People, user(fmt.Sprintf("people[%d]", i), name))
	}
	return x
}

// Spec writes a rota as people do.
func (r Rota) Spec() Spec {
	return Spec{Department: r.Department, Timezone: r.Zone.String(), HandOver: fmt.Sprintf("%02d:%02d", r.HandOver/60, r.HandOver%60),
		Primary: r.Primary.spec(), Secondary: r.Secondary.spec()}
}

func (x Rotation) spec() SpecRotation {
	var s SpecRotation
	if len(x.People) > 0 {
		s.People, s.Days, s.Start = x.People, x.Days, x.Start.String()
	}
	for _, w := range x.Weeks {
		s.Weeks = append(s.Weeks, SpecWeek{From: w.From.String(), User: w.User})
	}
	return s
}

// Users lists everybody whom a rota names, with the field that names him. Overrides are not part of it.
func (r Rota) Users() []NamedUser {
	var out []NamedUser
	for _, p := range places {
		x := r.rotation(p)
		for i, name := range x.People {
			out = append(out, NamedUser{fmt.Sprintf("%s.people[%d]", p, i), name})
		}
		for _, w := range x.Weeks {
			out = append(out, NamedUser{fmt.Sprintf("%s.weeks (%s)", p, w.From), w.User})
		}
	}
	return out
}

// NamedUser is a user as a field names him.
type NamedUser struct{ Field, User string }

// Check says what is wrong with an override by itself.
func (o Override) Check() capri.FieldErrors {
	const longest = 366 * daySeconds * 1000
	var wrong capri.FieldErrors
	say := func(field, value, want string) {
		wrong = append(wrong, &capri.FieldError{Field: field, Value: value, Want: want})
	}
	if o.Place != Primary && o.Place != Secondary {
		say("place", string(o.Place), "primary or secondary")
	}
	if !isName(o.User) {
		say("user", o.User, "the name of a user")
	}
	switch {
	case o.From <= 0:
		say("from", o.From.String(), "a time after 1970")
	case o.To <= o.From:
		say("to", o.To.String(), "a time after from")
	case o.To-o.From > longest:
		say("to", o.To.String(), "at most a year after from")
	}
	return wrong
}
