package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"capri/test/checker"
)

// figures are some durations, in milliseconds.
type figures struct {
	Times int   `json:"times"`
	P50   int64 `json:"p50_ms"`
	P99   int64 `json:"p99_ms"`
	Max   int64 `json:"max_ms"`
}

func figuresOf(all []int64) figures {
	if len(all) == 0 {
		return figures{}
	}
	all = sorted(all)
	at := func(p int) int64 { return all[(len(all)*p+99)/100-1] } // the nearest rank
	return figures{len(all), at(50), at(99), all[len(all)-1]}
}

func (f figures) String() string {
	if f.Times == 0 {
		return "none"
	}
	return fmt.Sprintf("p50 %s  p99 %s  max %s  (%d times)", ms(f.P50), ms(f.P99), ms(f.Max), f.Times)
}

func ms(n int64) string {
	return (time.Duration(n) * time.Millisecond).Round(10 * time.Millisecond).String()
}

func sorted(all []int64) []int64 {
	all = slices.Clone(all)
	slices.Sort(all)
	return all
}

// report is what a run comes to.
type report struct {
	OK       bool           `json:"ok"`
	Wrong    []string       `json:"wrong,omitempty"` // why not
	Seed     uint64         `json:"seed"`
	Minutes  float64        `json:"minutes"`
	Speed    int64          `json:"speed"`
	Tasks    int            `json:"tasks"`
	Faults   map[string]int `json:"faults"`
	Batches  map[string]int `json:"batches"` // by how they ended, or wait
	Attempts int            `json:"attempts"`
	Jobs     int            `json:"jobs_witnessed"`
	Network  string         `json:"network"`

	Duplicates int `json:"duplicates"`
	Losses     int `json:"losses"`
	Overlaps   int `json:"overlaps"`

	Fenced    int                `json:"fenced_turns"` // a stale master's turn that was rejected
	Takeover  map[string]figures `json:"takeover"`     // by service: its leader gone → the next completed turn
	Recovery  map[string]figures `json:"recovery"`     // by kind of fault: healed → both services and all nodes at work
	NotBack   int                `json:"not_recovered"`
	RedisGap  map[string]figures `json:"longest_gap_without_redis"`
	Gap       map[string]figures `json:"gaps_between_turns"`
	Elsewhere figures            `json:"lost_workers_batches_elsewhere"`
	Closest   *int64             `json:"closest_successor_ms"` // after the end of a job on a hurt worker
	Succeed   int                `json:"successors"`
	Lost      int                `json:"nodes_called_lost"`
	Long      longFaults         `json:"faults_beyond_lost_after"`

	AlertsDue    int            `json:"alerts_checked"`
	AlertsWrong  int            `json:"alerts_wrong"`
	Alerts       map[string]int `json:"alerts_raised"`
	Telling      telling        `json:"alerts_told"`
	Repairs      int            `json:"recount_repairs"`
	Settled      int64          `json:"settled_ms"`
	DatabaseAway int64          `json:"database_away_ms"`

	People *people         `json:"people"`
	Check  *checker.Report `json:"checker"`
}

// longFaults are those of workers that outlast what makes a node lost.
type longFaults struct {
	Times   int `json:"times"`
	Steady  int `json:"leader_of_attempts_stayed"`
	Decided int `json:"called_lost_meanwhile"` // of the steady ones: the batches went elsewhere while the worker was hurt
}

func (r *report) wrong(format string, args ...any) {
	r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
}

// gather reads from the database what it can tell.
func (r *report) gather(ctx context.Context, c *cluster) error {
	r.Batches, r.Alerts = map[string]int{}, map[string]int{}
	count := func(into map[string]int, text string) error {
		rows, err := c.db.QueryContext(ctx, text)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var n int
			if err := rows.Scan(&name, &n); err != nil {
				return err
			}
			into[name] += n
		}
		return rows.Err()
	}
	if err := count(r.Batches, `SELECT CASE WHEN state = 3 THEN ELT(finish_state + 1, 'none', 'success', 'failed', 'killed', 'dependency_timeout', 'output_timeout', 'skipped')
		ELSE ELT(state + 1, 'waiting', 'assigned', 'running') END, COUNT(*) FROM task_work GROUP BY 1`); err != nil {
		return err
	}
	if err := count(r.Alerts, "SELECT kind, COUNT(*) FROM alert GROUP BY kind"); err != nil {
		return err
	}
	if err := c.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(attempt), 0) FROM task_work").Scan(&r.Attempts); err != nil {
		return err
	}
	runs, err := c.column(ctx, "SELECT counts FROM service_run WHERE service = 'dependency' AND counts LIKE '%repaired%'")
	if err != nil {
		return err
	}
	for _, text := range runs {
		var counts map[string]int
		if err := json.Unmarshal([]byte(text), &counts); err != nil {
			return fmt.Errorf("counts of a run: %w", err)
		}
		r.Repairs += counts["repaired"]
	}
	return nil
}

// tookAway are the faults that can cost a master its leases; whether they did is seen from the grants.
var tookAway = map[string]bool{"master_kill": true, "master_freeze": true, "master_freeze_in_turn": true, "master_freeze_before_write": true, "master_blind": true, "master_cut": true, "master_silent": true}

// leadership measures what the watcher saw of takeovers, recovery and gaps.
func (r *report) leadership(w *watcher, faults []checker.Fault) {
	takeover, recovery, withoutRedis, gaps := map[string][]int64{}, map[string][]int64{}, map[string][]int64{}, map[string][]int64{}
	r.Faults = map[string]int{}
	for _, f := range faults {
		r.Faults[f.Kind]++
		if tookAway[f.Kind] {
			for service, epoch := range w.leads(f.Target, f.At) {
				if service != "dispatch" && service != "dependency" || !w.taken(service, epoch, f) {
					continue
				}
				if done := w.completed(service, f.At, epoch); len(done) > 0 {
					name := service
					if databaseKilled(faults, f.At, done[0]) { // nobody can take over from a database that is away
						name += ", database away too"
					}
					takeover[name] = append(takeover[name], done[0]-f.At)
				}
			}
		}
		hurt := map[string]bool{} // by another fault, still
		for _, o := range faults {
			if o.At < f.Healed+5000 && o.Healed > f.Healed {
				hurt[o.Target] = true
			}
		}
		if back := w.recovered(f.Healed, hurt); back != 0 {
			recovery[f.Kind] = append(recovery[f.Kind], back-f.Healed)
		} else {
			r.NotBack++
		}
		if f.Kind == "redis_kill" && !overlaps(f, faults) {
			for _, service := range []string{"dispatch", "dependency"} {
				withoutRedis[service] = append(withoutRedis[service], longest(w.completed(service, f.At-10_000, 0), f.At, f.Healed))
			}
		}
	}
	for _, service := range []string{"dispatch", "dependency"} {
		all := w.completed(service, 0, 0)
		for i := 1; i < len(all); i++ {
			gaps[service] = append(gaps[service], all[i]-all[i-1])
		}
	}
	each := func(of map[string][]int64) map[string]figures {
		out := map[string]figures{}
		for name, all := range of {
			out[name] = figuresOf(all)
		}
		return out
	}
	r.Takeover, r.Recovery, r.RedisGap, r.Gap = each(takeover), each(recovery), each(withoutRedis), each(gaps)
	for _, d := range w.down {
		r.DatabaseAway += d.to - d.from
	}
	for _, node := range w.nodes {
		for i, s := range node {
			if s.lost && (i == 0 || !node[i-1].lost) {
				r.Lost++
			}
		}
	}
}

// beyondLost counts the faults of workers that outlast what makes a node lost, and how many of them could, and did,
// come to a decision: a new leader of attempts counts every silence anew.
func (r *report) beyondLost(w *watcher, faults []checker.Fault) {
	for _, f := range faults {
		if !isLong(f.Kind) {
			continue
		}
		r.Long.Times++
		lost := w.calledLost(f.Target, f.At, f.Healed)
		until := f.Healed
		if lost != 0 {
			until = lost
		}
		if w.changed("attempts", f.At, until) {
			continue
		}
		r.Long.Steady++
		if lost != 0 {
			r.Long.Decided++
		}
	}
}

// isLong says whether a kind outlasts what makes a node lost.
func isLong(name string) bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name && k.long() })
}

// taken says whether a lease went to somebody else because its holder was hurt. One that was killed never renews it
// again; another that comes back in time keeps it, and what happens to it later has another cause.
func (w *watcher) taken(service string, epoch int64, f checker.Fault) bool {
	until := f.Healed + 500
	if f.Kind == "master_kill" {
		until += 15_000
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.grants {
		if g.service == service && g.epoch > epoch && g.at >= f.At && g.at <= until {
			return true
		}
	}
	return false
}

// databaseKilled says whether the database was away at some time between two instants.
func databaseKilled(faults []checker.Fault, from, to int64) bool {
	for _, f := range faults {
		if f.Kind == "database_kill" && f.At < to && f.Healed > from {
			return true
		}
	}
	return false
}

// overlaps says whether anything else that could stop the services was hurt at the same time.
func overlaps(f checker.Fault, all []checker.Fault) bool {
	for _, o := range all {
		if (strings.HasPrefix(o.Kind, "master_") || o.Kind == "commit_cut" || o.Kind == "plan_slow" || strings.HasPrefix(o.Kind, "database")) && o.At < f.Healed+2000 && o.Healed > f.At-2000 {
			return true
		}
	}
	return false
}

// longest is the longest stretch without any of these instants that touches from … to.
func longest(all []int64, from, to int64) int64 {
	before := from
	var most int64
	for _, at := range all {
		if at <= from {
			before = at
			continue
		}
		most = max(most, min(at, to)-before)
		if before = at; at >= to {
			return most
		}
	}
	return max(most, to-before)
}

// jobs reads the witness log: what became of those on workers that were hurt for longer than a node may be silent.
func (r *report) jobs(lines []checker.Witness, faults []checker.Fault) {
	type key struct{ task, no string }
	type run struct {
		start, end int64
		node       string
		attempt    int
		batch      int64
	}
	runs := map[key][]*run{}
	open := map[string]*run{}
	for _, l := range lines {
		id := fmt.Sprintf("%d.%d", l.Batch, l.Attempt)
		switch l.What {
		case checker.Start:
			r.Jobs++
			x := &run{start: l.Real, node: l.Node, attempt: l.Attempt, batch: l.Batch}
			k := key{l.Task, l.BatchNo}
			runs[k], open[id] = append(runs[k], x), x
		case checker.End:
			if x := open[id]; x != nil {
				x.end = l.Real
			}
		}
	}
	var elsewhere []int64
	for _, all := range runs {
		slices.SortFunc(all, func(a, b *run) int { return cmp.Compare(a.start, b.start) })
		for i := 1; i < len(all); i++ {
			was, is := all[i-1], all[i]
			if was.batch != is.batch || was.node == is.node {
				continue
			}
			for _, f := range faults {
				if f.Target != was.node || !strings.HasPrefix(f.Kind, "worker_") && f.Kind != checker.PauseHost || was.start > f.At || was.end != 0 && was.end < f.At || is.start < f.At || is.start > f.Healed+60_000 {
					continue
				}
				r.Succeed++
				if isLong(f.Kind) {
					elsewhere = append(elsewhere, is.start-f.At)
				}
				// A host that slept cannot end its jobs: design §5.2 tells that apart, and so does the checker.
				if was.end != 0 && f.Kind != checker.PauseHost {
					if d := is.start - was.end; r.Closest == nil || d < *r.Closest {
						r.Closest = &d
					}
				}
			}
		}
	}
	r.Elsewhere = figuresOf(elsewhere)
}

// verdict takes over what the checker found.
func (r *report) verdict(check checker.Report) {
	r.Check = &check
	for _, i := range check.Invariants {
		switch i.Name {
		case "generated":
			r.Duplicates = i.Violations
		case "nothing-lost":
			r.Losses = i.Violations
		case "one-at-a-time":
			r.Overlaps = i.Violations
		case "alerts":
			r.AlertsDue, r.AlertsWrong = i.Checked, i.Violations
		}
		if i.Violations > 0 {
			r.wrong("%s: violated %d times", i.Name, i.Violations)
		}
	}
}

// print writes it for people.
func (r *report) print(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w)
	line("seed", "%d, %.1f minutes, business time ×%d, %d tasks", r.Seed, r.Minutes, r.Speed, r.Tasks)
	line("network", "%s", r.Network)
	line("faults", "%s", counts(r.Faults))
	line("batches", "%s", counts(r.Batches))
	line("attempts", "%d assigned, %d jobs ran", r.Attempts, r.Jobs)
	line("marks wrong, lost, overlaps", "%d, %d, %d", r.Duplicates, r.Losses, r.Overlaps)
	line("stale turns rejected", "%d", r.Fenced)
	for _, service := range slices.Sorted(maps.Keys(r.Takeover)) {
		line("takeover of "+service, "%s", r.Takeover[service])
	}
	for _, service := range slices.Sorted(maps.Keys(r.Gap)) {
		line("turns of "+service, "%s apart", r.Gap[service])
	}
	for _, service := range slices.Sorted(maps.Keys(r.RedisGap)) {
		line("without Redis, "+service, "longest gap %s", r.RedisGap[service])
	}
	for _, k := range slices.Sorted(maps.Keys(r.Recovery)) {
		line("recovery after "+k, "%s", r.Recovery[k])
	}
	if r.NotBack > 0 {
		line("not recovered", "%d faults: the run was over first", r.NotBack)
	}
	line("workers called lost", "%d; their batches ran elsewhere: %s", r.Lost, r.Elsewhere)
	line("faults beyond lost_after", "%d; %d of them under one leader of attempts, which called the node lost in %d", r.Long.Times, r.Long.Steady, r.Long.Decided)
	if r.Closest != nil {
		line("closest successor", "%s after the end of the job before it (%d successors)", ms(*r.Closest), r.Succeed)
	}
	line("alerts", "%s; %d checked, %d wrong", counts(r.Alerts), r.AlertsDue, r.AlertsWrong)
	line("timeout alert leaves", "after it is due: %s, and %d of incidents that people knew of", r.Telling.Timeouts, r.Telling.Attached)
	line("alerts told", "%s", r.Telling)
	line("recount repairs", "%d", r.Repairs)
	line("database away", "%s", ms(r.DatabaseAway))
	line("settled", "after %s", ms(r.Settled))
	if r.People != nil {
		codes := map[string]int{}
		for code, n := range r.People.Codes {
			codes[fmt.Sprintf("code %d", code)] = n
		}
		line("people", "%s; %s; longest answer %s", counts(r.People.Calls), counts(codes), r.People.Longest.Round(time.Millisecond))
	}
	if r.Check != nil {
		fmt.Fprintln(w)
		r.Check.Print(w)
	}
	fmt.Fprintln(w)
	for _, s := range r.Wrong {
		fmt.Fprintln(w, "WRONG:", s)
	}
	if r.OK {
		fmt.Fprintf(w, "soak: everything held (seed %d)\n", r.Seed)
	} else {
		fmt.Fprintf(w, "soak: NOT everything held (again with SEED=%d)\n", r.Seed)
	}
}

// counts writes a table of counts on one line, in the order of the names.
func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}
