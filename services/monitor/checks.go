package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"capri"
	"capri/alerting/duty"
	"capri/sql/store"
)

// finding is something that is wrong. episode tells one occurrence from the next: it is made of when it began where that
// is known, else of the hour, so that what goes on is said again each hour.
type finding struct {
	episode string
	level   capri.Level
	title   string
	text    string
}

// checks is everything that is looked at: THE table. A check reads facts alone, so that a test needs no database.
var checks = []struct {
	kind string
	find func(*facts) []finding
}{
	{"generate_slow", slow("generate", store.GenerateImportant, store.GenerateSevere, "Generation", "Batches appear late; what waits for them does, too.")},
	{"mark_slow", slowMarks},
	{"dependency_slow", slow("dependency", store.DependencyImportant, store.DependencySevere, "Dependency checking", "Batches start late although what they wait for is there.")},
	{"service_overdue", overdue},
	{"batches_missing", missingBatches},
	{"ready_waits", readyWaits},
	{"recount_repaired", recountRepaired},
	{"masters_few", fewMasters},
	{"workers_few", fewWorkers},
	{"node_load", nodeLoad},
	{"clock_off", clocks},
	{"duty_hole", dutyHoles},
}

// limitNames are the settings that the checks read; 0 turns a limit off.
var limitNames = []string{store.GenerateImportant, store.GenerateSevere, store.DependencyImportant, store.DependencySevere, store.TimeoutAge, store.ServiceAge, store.ReadyImportant,
	store.MastersImportant, store.MastersSevere, store.WorkersImportant, store.WorkersSevere, store.NodeCPUPercent, store.NodeMemoryPercent, store.NodeDiskFreeMB, store.ClockOffsetMS, store.DutyHoleDays}

// at writes a time for people.
func (f *facts) at(i capri.Instant) string { return i.In(f.zone).Format(time.DateTime) }

// hour is the episode of what has no beginning that one could see.
func (f *facts) hour() string { return f.now.In(time.UTC).Format("2006010215") }

func (f *facts) minutes(setting string) time.Duration {
	return time.Duration(f.limits[setting]) * time.Minute
}

// longer is the level of a length of time by its two limits; 0: within both.
func (f *facts) longer(d time.Duration, important, severe string) capri.Level {
	switch {
	case f.limits[severe] > 0 && d > f.minutes(severe):
		return capri.Severe
	case f.limits[important] > 0 && d > f.minutes(important):
		return capri.Important
	}
	return 0
}

// fewer is the level of a number by its two limits.
func (f *facts) fewer(n int, important, severe string) capri.Level {
	switch {
	case n < f.limits[severe]:
		return capri.Severe
	case n < f.limits[important]:
		return capri.Important
	}
	return 0
}

// slow judges the newest turn of each rhythm of a service: how long it has been running, or how long it took.
func slow(service, important, severe, title, so string) func(*facts) []finding {
	return func(f *facts) (found []finding) {
		for _, r := range f.rows {
			st, known := f.states[r.String()]
			if r.Name != service || !known {
				continue
			}
			took, is := st.Duration, "took"
			if st.StartedAt > st.CompletedAt {
				took, is = f.now.Sub(st.StartedAt), "has been going on for"
			}
			if level := f.longer(took, important, severe); level != 0 {
				found = append(found, finding{fmt.Sprintf("%s:%d", r, st.StartedAt), level, fmt.Sprintf("%s is slow: a turn of %s %s %s", title, r, is, took.Round(time.Second)),
					fmt.Sprintf("The turn of %s that began at %s (leader %s) %s %s. %s", r, f.at(st.StartedAt), st.Holder, is, took.Round(time.Second), so)})
			}
		}
		return found
	}
}

// slowMarks judges generation per period (seed 002 §1.6.3.5).
func slowMarks(f *facts) (found []finding) {
	for _, m := range f.marks {
		took := m.CompletedAt.Sub(m.StartedAt)
		if level := f.longer(took, store.GenerateImportant, store.GenerateSevere); level != 0 {
			found = append(found, finding{fmt.Sprintf("%d:%d", m.Period, m.Mark), level, fmt.Sprintf("Generation of the %s mark %s took %s", m.Period, f.at(m.Mark), took.Round(time.Second)),
				fmt.Sprintf("It began at %s and was complete at %s: %d batches were made, %d failed.", f.at(m.StartedAt), f.at(m.CompletedAt), m.Made, m.Failed)})
		}
	}
	return found
}

// overdue judges every row of the timetable by its last complete run. A new leader of the monitor gives each a full
// interval first: after an outage of all masters nothing has run for hours, and all is about to.
func overdue(f *facts) (found []finding) {
	for _, r := range f.rows {
		if r.Name == "monitor" && r.Part == "" {
			continue // it is running
		}
		limit := f.minutes(store.ServiceAge)
		if r.Name == "timeout" {
			limit = f.minutes(store.TimeoutAge)
		}
		done := f.states[r.String()].CompletedAt
		var due capri.Instant
		switch {
		case r.Fires == nil:
			due = max(done, f.began).Add(r.Every)
		case done == 0:
			due = r.Fires(f.began)
		default:
			due = r.Fires(done)
		}
		if limit == 0 || due == 0 || f.now <= max(due, f.began).Add(limit) {
			continue
		}
		last := "it has never completed a run"
		if done != 0 {
			last = "its last complete run was at " + f.at(done)
		}
		level := capri.Important
		// A check that nobody makes delays batches as one that is slow does (seed 002 §1.2.2).
		if r.Name == "dependency" && f.longer(f.now.Sub(max(due, f.began)), "", store.DependencySevere) == capri.Severe {
			level = capri.Severe
		}
		found = append(found, finding{fmt.Sprintf("%s:%d", r, max(done, f.began)), level, fmt.Sprintf("Service %s is overdue", r),
			fmt.Sprintf("It was due at %s: %s. See capri service list for its leader and its error.", f.at(due), last)})
	}
	return found
}

func missingBatches(f *facts) (found []finding) {
	for _, m := range f.missing {
		if len(m.tasks) == 0 {
			continue
		}
		names := strings.Join(m.tasks, ", ")
		if m.more {
			names += " and more"
		}
		found = append(found, finding{fmt.Sprintf("%d:%d", m.Period, m.Mark.Mark), capri.Important, fmt.Sprintf("Batches of the %s mark %s are missing", m.Period, f.at(m.Mark.Mark)),
			fmt.Sprintf("These tasks took part in the mark, which is complete, and have neither a batch nor a failure: %s. Make them with capri cold-start --period %s; this is a fault of Capri, please report it.", names, m.Period)})
	}
	return found
}

func readyWaits(f *facts) []finding {
	limit := f.minutes(store.ReadyImportant)
	long := slices.IndexFunc(f.stuck, func(s stuck) bool { return f.now.Sub(s.since) <= limit })
	if long < 0 {
		long = len(f.stuck)
	}
	if limit == 0 || long == 0 {
		return nil
	}
	first := f.stuck[0]
	return []finding{{fmt.Sprint(first.since), capri.Important, fmt.Sprintf("%d ready batches wait although a node is free", long),
		fmt.Sprintf("Batch %d could have been placed since %s at the latest. Dispatch does not place it: see capri service list, and capri why %d.", first.ID, f.at(first.since), first.ID)}}
}

func recountRepaired(f *facts) (found []finding) {
	for _, r := range f.repairs {
		found = append(found, finding{r.At.String(), capri.Severe, fmt.Sprintf("A recount found %d batches whose unmet conditions were counted wrongly", r.Repaired),
			fmt.Sprintf("The recount at %s has repaired them. It must never find any: batches may have started too early, or waited for nothing, before it. This is a fault of Capri, please report it.", f.at(r.At))})
	}
	return found
}

func fewMasters(f *facts) []finding {
	names := make([]string, len(f.masters))
	for i, m := range f.masters {
		names[i] = m.Name
	}
	return f.few("masters", names, store.MastersImportant, store.MastersSevere)
}

func fewWorkers(f *facts) []finding {
	names := make([]string, len(f.nodes))
	for i, n := range f.nodes {
		names[i] = n.Name
	}
	return f.few("workers", names, store.WorkersImportant, store.WorkersSevere)
}

func (f *facts) few(what string, names []string, important, severe string) []finding {
	level := f.fewer(len(names), important, severe)
	if !f.judged || level == 0 {
		return nil
	}
	return []finding{{f.hour(), level, fmt.Sprintf("Only %d %s live", len(names), what),
		fmt.Sprintf("%d %s beat: %s. Settings %s and %s say how many are expected.", len(names), what, some(names), important, severe)}}
}

// nodeLoad judges what nodes say of themselves; one that has not measured yet says nothing.
func nodeLoad(f *facts) (found []finding) {
	for _, n := range f.nodes {
		var over []string
		percent := func(name string, share float64, setting string) {
			if most := f.limits[setting]; most > 0 && share*100 > float64(most) {
				over = append(over, fmt.Sprintf("%s %.0f%% (%s is %d)", name, share*100, setting, most))
			}
		}
		percent("CPU load", n.CPULoad, store.NodeCPUPercent)
		percent("memory used", n.MemoryLoad, store.NodeMemoryPercent)
		if least := f.limits[store.NodeDiskFreeMB]; n.MemoryLoad > 0 && n.DiskFreeMB < int64(least) {
			over = append(over, fmt.Sprintf("disk free %d MB (%s is %d)", n.DiskFreeMB, store.NodeDiskFreeMB, least))
		}
		if len(over) > 0 {
			found = append(found, finding{n.Name + ":" + f.hour(), capri.Important, "Node " + n.Name + " is loaded: " + over[0],
				fmt.Sprintf("%s; it runs %d jobs. capri node drain %s keeps new ones away.", strings.Join(over, "; "), n.TaskNum, n.Name)})
		}
	}
	return found
}

// clocks judges those that live against the database's clock. If most of them differ from it they cannot all be wrong.
func clocks(f *facts) []finding {
	most := time.Duration(f.limits[store.ClockOffsetMS]) * time.Millisecond
	if most == 0 {
		return nil
	}
	var off []string
	add := func(who string, by time.Duration) {
		if by.Abs() > most {
			off = append(off, fmt.Sprintf("%s by %s", who, by.Round(time.Millisecond)))
		}
	}
	for _, m := range f.masters {
		add("master "+m.Name, m.ClockOffset)
	}
	for _, n := range f.nodes {
		add("node "+n.Name, n.ClockOffset)
	}
	all := len(f.masters) + len(f.nodes)
	switch {
	case len(off) == 0:
		return nil
	case 2*len(off) > all:
		return []finding{{"database:" + f.hour(), capri.Important, "The database's clock is off",
			fmt.Sprintf("%d of %d masters and nodes differ from it by more than %s, so it is the one that is wrong: %s. Everything goes on by the database's clock; batches come early or late by that much. Let it follow the time servers of the others.", len(off), all, most, some(off))}}
	}
	return []finding{{"processes:" + f.hour(), capri.Important, "Clocks are off: " + off[0],
		fmt.Sprintf("They differ from the database's clock by more than %s: %s. Such a master does not lead generation. Let these machines follow the time servers of the others.", most, some(off))}}
}

// dutyHoles looks for times to come in which an alert would reach nobody, or fewer people than it should. A hole begins at
// the same instant from whenever one looks, so it is told once.
func dutyHoles(f *facts) (found []finding) {
	const most = 366
	days := min(f.limits[store.DutyHoleDays], most)
	if days == 0 {
		return nil
	}
	for _, r := range f.rotas {
		whose := "the system"
		if r.Department != "" {
			whose = "department " + r.Department
		}
		for _, h := range duty.Holes(r, f.people, f.now, f.now.Add(time.Duration(days)*24*time.Hour)) {
			who, place := h.User, string(h.Place)
			if who == "" {
				who = "nobody"
			}
			if place == "" {
				place = "primary and secondary"
			}
			when := "at any time"
			switch {
			case h.From != 0 && h.To != 0:
				when = fmt.Sprintf("from %s to %s", f.at(h.From), f.at(h.To))
			case h.From != 0:
				when = "from " + f.at(h.From) + " on"
			case h.To != 0:
				when = "until " + f.at(h.To)
			}
			text := fmt.Sprintf("As %s of %s %s %s %s. Alerts then reach fewer people than they should, or none.", place, whose, who, h.Why, when)
			if r.Broken != "" {
				text += " The stored rota cannot be read: " + r.Broken + "."
			}
			found = append(found, finding{fmt.Sprintf("%s:%s:%s:%s:%d", r.Department, h.Place, h.User, h.Why, h.From), capri.Important,
				fmt.Sprintf("A hole in the duty rota of %s: %s %s %s", whose, who, h.Why, when),
				text + " Put somebody there with capri duty override add or capri duty set, or mend the user with capri user set; capri duty list shows all holes."})
		}
	}
	return found
}

// some lists at most so many.
func some(list []string) string {
	const most = 20
	if len(list) == 0 {
		return "none"
	}
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}
