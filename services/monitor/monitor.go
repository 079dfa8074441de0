// Package monitor looks each minute whether the cluster does what it should, and alerts admins (seed 002 §1.6).
//
//	service_state, capri_master, nodes, marks, ready batches, settings ──▶ facts ──▶ checks, a table ──▶ findings ──▶ alerts
//	   a handful of queries, whatever the size of the cluster                         (checks.go)       one per episode
//
// Probes are its second rhythm: commands, addresses and tasks that operators named (probes.go). Nodes that fall silent
// are the business of lost-nodes, the monitor itself is that of capri watch.
package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"capri"
	"capri/alerting/duty"
	"capri/calendar"
	"capri/placement"
	worldfacts "capri/placement/facts"
	"capri/services"
	"capri/sql/store"
)

// Service monitors. Make it with New. What it keeps from turn to turn is what it saw move, and which alerts it has
// written: a new leader begins anew, and says at most once more what goes on.
type Service struct {
	store    *store.Store
	calendar calendar.Calendar
	log      *slog.Logger
	rows     []services.Row

	epoch    capri.Epoch
	began    capri.Instant // of this leadership
	seen     sighting
	alive    map[string]bool                 // of masters and nodes, as judged last; nil: not judged yet
	waiting  map[capri.BatchID]capri.Instant // ready batches that had a free node, since when
	audited  map[auditKey]bool
	repaired capri.Instant // recounts up to here are told
	told     map[string]bool
}

// New makes the service.
func New(s *store.Store, c calendar.Calendar, log *slog.Logger) *Service {
	return &Service{store: s, calendar: c, log: log}
}

// Watch tells it the timetable, of which each row must complete its turns.
func (s *Service) Watch(rows []services.Row) { s.rows = rows }

// sighting is what beat where at some time.
type sighting struct {
	at    capri.Instant
	beats map[string]int64
}

type auditKey struct {
	period capri.Period
	mark   capri.Instant
}

// facts are what the checks judge.
type facts struct {
	now, began capri.Instant
	zone       *time.Location
	limits     map[string]int
	rows       []services.Row
	states     map[string]store.ServiceState
	masters    []store.Master // that live
	nodes      []capri.Node   // that live
	judged     bool           // it is known which live
	marks      []store.Mark   // completed within the last day
	missing    []missing
	stuck      []stuck // longest first
	repairs    []store.Repair
	rotas      []duty.Rota
	people     map[string]duty.Person // who may stand on a rota
}

// missing are tasks without the batch of a mark.
type missing struct {
	store.Mark
	tasks []string
	more  bool
}

// stuck is a ready batch that had a free node since.
type stuck struct {
	store.Ready
	since capri.Instant
}

const (
	auditFor      = 24 * time.Hour   // marks completed within it are audited
	auditAtOnce   = 10               // marks in a turn
	auditNames    = 20               // tasks that an alert names
	newestMarks   = 100              // of each period that are looked at
	readyAtOnce   = 1000             // ready batches that are looked at, in the order of dispatch
	repairsBefore = time.Hour        // a new leader looks back so far
	judgeAfter    = 15 * time.Second // beats come each five seconds; within less, standing still says nothing
	toldMost      = 10_000
)

// Run is one turn.
func (s *Service) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	if s.epoch != t.Lease.Epoch {
		*s = Service{store: s.store, calendar: s.calendar, log: s.log, rows: s.rows, epoch: t.Lease.Epoch, began: t.Now, repaired: t.Now.Add(-repairsBefore),
			waiting: map[capri.BatchID]capri.Instant{}, audited: map[auditKey]bool{}, told: map[string]bool{}}
	}
	f, err := s.gather(ctx, t.Now)
	if err != nil {
		return services.Result{}, err
	}
	var alerts []capri.Alert
	for _, c := range checks {
		for _, x := range c.find(f) {
			a := capri.Alert{Key: fmt.Sprintf("%s:%s:%s", c.kind, x.episode, x.level), Level: x.level, Kind: c.kind, Title: x.title, Text: x.text}
			if !s.told[a.Key] {
				alerts = append(alerts, a)
			}
		}
	}
	if len(alerts) > 0 {
		err := s.store.WriteAs(ctx, "write the monitor's alerts", t.Lease, func(tx *store.Tx) error {
			for _, a := range alerts {
				if err := tx.Alert(a); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return services.Result{}, err
		}
	}
	// From here on it is told: before the write it was not, and after a failed one it is tried again.
	if len(s.told) > toldMost {
		clear(s.told) // the outbox knows them, by their keys
	}
	for _, a := range alerts {
		s.told[a.Key] = true
		s.log.Warn("the monitor raised an alert", "level", a.Level, "kind", a.Kind, "title", a.Title)
	}
	for _, m := range f.missing {
		s.audited[auditKey{m.Period, m.Mark.Mark}] = true
	}
	if n := len(f.repairs); n > 0 {
		s.repaired = f.repairs[n-1].At
	}
	res := services.Result{Counts: map[string]int{}}
	if len(alerts) > 0 {
		res.Counts["alerts"] = len(alerts)
	}
	return res, nil
}

// gather reads the facts.
func (s *Service) gather(ctx context.Context, now capri.Instant) (f *facts, err error) {
	f = &facts{now: now, began: s.began, zone: s.calendar.Zone(), rows: s.rows}
	if f.limits, err = s.store.SettingInts(ctx, limitNames...); err != nil {
		return nil, err
	}
	if f.states, err = s.store.ServiceStates(ctx); err != nil {
		return nil, err
	}
	masters, err := s.store.Masters(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := s.store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	s.judge(now, masters, nodes)
	f.judged = s.alive != nil
	f.masters = slices.DeleteFunc(masters, func(m store.Master) bool { return !s.alive[masterKey(m)] })
	f.nodes = slices.DeleteFunc(slices.Clone(nodes), func(n capri.Node) bool { return !s.alive[nodeKey(n)] })
	if err := s.audit(ctx, f); err != nil {
		return nil, err
	}
	if err := s.ready(ctx, f, nodes); err != nil {
		return nil, err
	}
	if f.repairs, err = s.store.Repairs(ctx, s.repaired); err != nil {
		return nil, err
	}
	if f.rotas, err = s.store.Rotas(ctx); err != nil {
		return nil, err
	}
	f.people, err = s.store.DutyPeople(ctx)
	return f, err
}

func masterKey(m store.Master) string { return "master " + m.Holder() }
func nodeKey(n capri.Node) string     { return "node " + n.Name + " " + n.BootID }

// judge finds out which masters and nodes live: those whose beat has moved since they were last looked at. Two turns
// that follow each other closely, as after a trigger, judge nothing anew.
func (s *Service) judge(now capri.Instant, masters []store.Master, nodes []capri.Node) {
	passed := now.Sub(s.seen.at)
	if s.seen.beats != nil && passed >= 0 && passed < judgeAfter {
		return
	}
	beats, alive := map[string]int64{}, map[string]bool{}
	moved := func(key string, beat int64, interval time.Duration) {
		before, known := s.seen.beats[key]
		beats[key] = beat
		alive[key] = !known || before != beat || passed < 3*interval
	}
	for _, m := range masters {
		if !m.Stopped {
			moved(masterKey(m), m.Beat, 0)
		}
	}
	for _, n := range nodes {
		if !n.Lost {
			moved(nodeKey(n), n.Beat, time.Duration(n.CheckInterval)*time.Second)
		}
	}
	if s.seen.beats != nil { // at the first look nothing has moved yet, and nothing stood still
		s.alive = alive
	}
	s.seen = sighting{at: now, beats: beats}
}

// audit reads the marks of the last day, and looks for missing batches of those that this leader has not audited.
func (s *Service) audit(ctx context.Context, f *facts) error {
	for _, p := range []capri.Period{capri.Month, capri.Week, capri.Day, capri.Hour} {
		marks, err := s.store.Marks(ctx, p, newestMarks)
		if err != nil {
			return err
		}
		for _, m := range marks {
			if !m.Complete || m.CompletedAt == 0 || f.now.Sub(m.CompletedAt) > auditFor {
				continue
			}
			f.marks = append(f.marks, m)
			key := auditKey{p, m.Mark}
			if s.audited[key] || len(f.missing) >= auditAtOnce {
				continue
			}
			x := missing{Mark: m}
			// The row with which a log begins is at no mark, and nobody takes part in it.
			for iv := range s.calendar.Marks(p, m.Mark, m.Mark+1) {
				ids, err := s.store.MissingBatches(ctx, p, m.Mark, iv.BatchNo, auditNames+1)
				if err != nil {
					return err
				}
				names, err := s.store.TaskNames(ctx, ids)
				if err != nil {
					return err
				}
				for _, id := range ids[:min(len(ids), auditNames)] {
					x.tasks = append(x.tasks, names[id])
				}
				x.more = len(ids) > auditNames
			}
			f.missing = append(f.missing, x)
		}
	}
	return nil
}

// ready finds the batches that dispatch could have placed all the while: in each turn since, each was ready and the same
// planner that dispatch asks had a node for it. So a full pool, a limit or a pause is no fault of dispatch.
func (s *Service) ready(ctx context.Context, f *facts, nodes []capri.Node) error {
	still := map[capri.BatchID]capri.Instant{}
	placeable, err := s.placeable(ctx, f.now, nodes)
	if err != nil {
		return err
	}
	for _, b := range placeable {
		since, known := s.waiting[b.ID]
		if !known || since > f.now {
			since = f.now
		}
		still[b.ID] = since
		f.stuck = append(f.stuck, stuck{b, since})
	}
	slices.SortStableFunc(f.stuck, func(a, b stuck) int { return int(a.since - b.since) })
	s.waiting = still
	return nil
}

func (s *Service) placeable(ctx context.Context, now capri.Instant, nodes []capri.Node) ([]store.Ready, error) {
	var latest capri.Instant
	text, err := s.store.Setting(ctx, store.LatestScheduleTime)
	if err != nil {
		return nil, err
	}
	if text != "" {
		if latest, err = s.calendar.ParseTime(text); err != nil {
			return nil, nil //nolint:nilerr // dispatch itself stops at such a setting, and is found overdue
		}
	}
	ready, err := s.store.Ready(ctx, now, latest, store.ReadyAfter{}, readyAtOnce)
	if err != nil || len(ready) == 0 {
		return nil, err
	}
	d, err := s.store.DispatchState(ctx)
	if err != nil || d.PausedAt(now) {
		return nil, err
	}
	running, err := s.store.Running(ctx)
	if err != nil {
		return nil, err
	}
	world := &placement.Facts{Nodes: nodes, Last: map[string]string{}}
	worldfacts.Running(world, running)
	worldfacts.Stops(world, d, now)
	planner := placement.NewPlanner(world, nil)
	var out []store.Ready
	for i := range ready {
		b := &ready[i]
		if planner.Full() {
			break
		}
		// random needs a source of chance, and which node it would be is not asked here.
		d := planner.Place(&placement.Batch{ID: b.ID, Task: b.Task, Group: b.Group, Pool: b.Pool, Nodes: b.Nodes, Strategy: capri.LeastLoaded, Slots: b.Slots, MemoryMB: b.MemoryMB,
			Concurrency: b.Concurrency, Avoid: b.AvoidNode})
		if d.Node != "" {
			out = append(out, *b)
		}
	}
	return out, nil
}
