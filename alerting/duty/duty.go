// Package duty says who is on duty.
//
//	rota of a department, or of the system (department "")
//	  primary:   a rotation, or a list of weeks ─┐
//	  secondary: the same, or nobody            ─┼─▶ At: who stands there now
//	  overrides: from, to, user, why            ─┘   Shifts: who stands there when, for calendars
//	                                                 Holes: when nobody does whom an alert could reach
//
// Shifts change hands at a time of day by the clock of a zone. Where that time does not exist on a day, it is the first
// instant after the gap; where it comes twice, the first. Shifts are half open, so each instant belongs to exactly one
// shift of each place. Of overrides that overlap the one that was made last counts.
//
// It does no I/O and knows no time: who asks says when.
package duty

import (
	"cmp"
	"math"
	"slices"
	"time"

	"capri"
)

// Place is one of the two that a rota fills.
type Place string

const (
	Primary   Place = "primary"
	Secondary Place = "secondary"
)

var places = []Place{Primary, Secondary}

// Rota is who is on duty for a department. Make it with Parse.
type Rota struct {
	Department string         // "": the system's
	Zone       *time.Location // by whose clock shifts change hands
	HandOver   int            // minutes after midnight
	Primary    Rotation
	Secondary  Rotation // without people and weeks: nobody is wanted there
	Overrides  []Override
	Broken     string // why the stored rota cannot be read: only its overrides count then
}

// Rotation fills a place: People by turns, or Weeks one by one.
type Rotation struct {
	People []string // in their order
	Days   int      // of a shift
	Start  Date     // on which the first of People begins
	Weeks  []Week   // instead of People, ascending and without overlap
}

// Week is seven days from the hand-over of a date on.
type Week struct {
	From Date
	User string
}

// Override puts somebody else on duty for a while: holidays, swaps.
type Override struct {
	ID         int64
	Department string
	Place      Place
	From, To   capri.Instant // To is excluded
	User       string
	Reason     string
	By         string // who made it
	CreatedAt  capri.Instant
}

// Duty is who is on duty; an empty name is nobody.
type Duty struct{ Primary, Secondary string }

// Shift is a time in which one person, or nobody, fills a place. It is whole, also where it began before the range that
// was asked for or ends after it.
type Shift struct {
	Place    Place
	User     string        // "": nobody
	From, To capri.Instant // To is excluded; 0: it has no beginning, or no end
	Override int64         // the override that makes it so; 0: the rota
	Reason   string        // of the override
}

// Person is what decides whether somebody on duty can be reached.
type Person struct {
	Enabled bool
	Phone   string
}

// Hole is a time in which an alert would reach nobody, or fewer people than it should.
type Hole struct {
	Place    Place  // "": both
	User     string // "": nobody
	Why      string // completes "alice …" or "nobody …"
	From, To capri.Instant
}

// Within the package a shift without a beginning or an end has these, so that comparisons need no special case.
const (
	ever  capri.Instant = math.MinInt64
	never capri.Instant = math.MaxInt64
)

// At tells who is on duty at t.
func At(r Rota, t capri.Instant) Duty {
	return Duty{Primary: r.at(Primary, t), Secondary: r.at(Secondary, t)}
}

func (r *Rota) at(p Place, t capri.Instant) string {
	if o := r.override(p, t); o != nil {
		return o.User
	}
	return r.base(p, t).User
}

// Shifts lists the shifts that have a part in [from,to): first the primary ones, then the secondary ones, each ascending
// and without a gap. A place that nobody is wanted for has shifts only where an override fills it.
func Shifts(r Rota, from, to capri.Instant) []Shift {
	out := r.shifts(from, to)
	for i := range out {
		out[i].From, out[i].To = open(out[i].From, out[i].To)
	}
	return out
}

// HandOverAfter is when somebody else takes a place next; 0: never.
func HandOverAfter(r Rota, t capri.Instant) capri.Instant {
	next := never
	for _, s := range r.shifts(t, t+1) {
		next = min(next, s.To)
	}
	_, next = open(ever, next)
	return next
}

// Holes lists the holes that have a part in [from,to), ascending. Like shifts they are whole, so a hole has the same
// beginning whenever it is looked for.
func Holes(r Rota, people map[string]Person, from, to capri.Instant) []Hole {
	var out []Hole
	shifts := r.shifts(from, to)
	for _, s := range shifts {
		if why := unfit(s.User, people); why != "" {
			out = append(out, Hole{Place: s.Place, User: s.User, Why: why, From: s.From, To: s.To})
		}
	}
	for _, s := range shifts {
		for _, o := range shifts {
			begin, end := max(s.From, o.From), min(s.To, o.To)
			together := s.Place == Primary && o.Place == Secondary && s.User == o.User && begin < end
			if together && unfit(s.User, people) == "" {
				out = append(out, Hole{User: s.User, Why: "is primary and secondary", From: begin, To: end})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Hole) int { return cmp.Compare(a.From, b.From) })
	for i := range out {
		out[i].From, out[i].To = open(out[i].From, out[i].To)
	}
	return out
}

// unfit says why an alert would not reach somebody.
func unfit(user string, people map[string]Person) string {
	p, known := people[user]
	switch {
	case user == "":
		return "is on duty"
	case !known:
		return "is not known"
	case !p.Enabled:
		return "is disabled"
	case p.Phone == "":
		return "has no phone number"
	}
	return ""
}

func open(from, to capri.Instant) (capri.Instant, capri.Instant) {
	if from == ever {
		from = 0
	}
	if to == never {
		to = 0
	}
	return from, to
}

func (r *Rota) rotation(p Place) Rotation {
	switch {
	case r.Broken != "":
		return Rotation{}
	case p == Primary:
		return r.Primary
	}
	return r.Secondary
}

// wants tells whether it is a hole when nobody fills the place.
func (r *Rota) wants(p Place) bool {
	x := r.rotation(p)
	return p == Primary || len(x.People) > 0 || len(x.Weeks) > 0
}

// override is the one that counts at t, or nil.
func (r *Rota) override(p Place, t capri.Instant) *Override {
	var last *Override
	for i := range r.Overrides {
		o := &r.Overrides[i]
		if o.Place == p && o.From <= t && t < o.To && (last == nil || o.ID > last.ID) {
			last = o
		}
	}
	return last
}

// base is the shift that holds t where there are no overrides.
func (r *Rota) base(p Place, t capri.Instant) Shift {
	x := r.rotation(p)
	begin := func(d Date) capri.Instant { return reach(r.Zone, d, r.HandOver) }
	switch {
	case len(x.Weeks) > 0:
		return base(p, x.Weeks, t, begin)
	case len(x.People) == 0:
		return Shift{Place: p, From: ever, To: never}
	}
	nth := func(n int) capri.Instant { return begin(x.Start + Date(n*x.Days)) }
	n := int(dateOf(r.Zone, t)-x.Start) / x.Days // near it: rounded, before the hand-over of its date, or the date came twice
	for nth(n) > t {
		n--
	}
	for nth(n+1) <= t {
		n++
	}
	if n < 0 {
		return Shift{Place: p, From: ever, To: nth(0)}
	}
	return Shift{Place: p, User: x.People[n%len(x.People)], From: nth(n), To: nth(n + 1)}
}

// base finds t in a list of weeks, or between two of them.
func base(p Place, weeks []Week, t capri.Instant, begin func(Date) capri.Instant) Shift {
	gap := Shift{Place: p, From: ever, To: never}
	for _, w := range weeks {
		from, to := begin(w.From), begin(w.From+7)
		switch {
		case t < from:
			gap.To = from
			return gap
		case t < to:
			return Shift{Place: p, User: w.User, From: from, To: to}
		}
		gap.From = to
	}
	return gap
}

// shifts is Shifts with ever and never.
func (r *Rota) shifts(from, to capri.Instant) []Shift {
	var out []Shift
	for _, p := range places {
		for _, s := range r.overlaid(p, from, to) {
			if s.From < to && from < s.To && (s.User != "" || r.wants(p)) {
				out = append(out, s)
			}
		}
	}
	return out
}

// overlaid lists the shifts of a place with its overrides laid over them; some lie outside [from,to).
func (r *Rota) overlaid(p Place, from, to capri.Instant) []Shift {
	// An override may cover many shifts. It comes out whole if the range is widened to it, and to those that it meets.
	for widened := from < to; widened; {
		widened = false
		for _, o := range r.Overrides {
			if o.Place == p && o.From < to && from < o.To && (o.From < from || to < o.To) {
				from, to, widened = min(from, o.From), max(to, o.To), true
			}
		}
	}
	var out []Shift
	for at := from; at < to; {
		b := r.base(p, at)
		for _, s := range r.cut(b) {
			if last := len(out) - 1; last >= 0 && s.Override != 0 && out[last].Override == s.Override {
				out[last].To = s.To
				continue
			}
			out = append(out, s)
		}
		at = b.To
	}
	return out
}

// cut divides a shift where overrides begin and end.
func (r *Rota) cut(b Shift) []Shift {
	edges := []capri.Instant{b.From, b.To}
	for _, o := range r.Overrides {
		for _, e := range []capri.Instant{o.From, o.To} {
			if o.Place == b.Place && b.From < e && e < b.To {
				edges = append(edges, e)
			}
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	var out []Shift
	for i, e := range edges[:len(edges)-1] {
		s := b
		s.From, s.To = e, edges[i+1]
		if o := r.override(b.Place, e); o != nil {
			s.User, s.Override, s.Reason = o.User, o.ID, o.Reason
		}
		if last := len(out) - 1; last >= 0 && out[last].Override == s.Override {
			out[last].To = s.To
			continue
		}
		out = append(out, s)
	}
	return out
}

// Has tells whether a hole concerns a shift.
func (s Shift) Has(h Hole) bool {
	before := func(from, to capri.Instant) bool { return to == 0 || from < to } // open ones never end, or always were
	return (h.Place == "" || h.Place == s.Place) && before(s.From, h.To) && before(h.From, s.To)
}
