package checker

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	_ "github.com/go-sql-driver/mysql" // the driver of a DSN
	_ "modernc.org/sqlite"             // the driver of a file

	"capri/test/checker/oracle"
)

// State and finish_state as the tables number them.
const (
	waiting  = 0
	assigned = 1
	running  = 2
	finished = 3

	success    = 1
	failed     = 2
	killed     = 3
	depTimeout = 4
	outTimeout = 5
	skipped    = 6
)

// Origins of batches that no person asked for.
const (
	originMark    = 0
	originCatchUp = 1
	originExecute = 2
)

// History is all that a run left behind, in memory.
type History struct {
	Run     Run
	Witness []Witness // nil: there is no witness log
	Faults  []Fault

	tasks    map[int64]*task
	byName   map[string]*task
	batches  []*batch // by id
	byID     map[int64]*batch
	events   []event // by id
	parents  map[int64][]parentCondition
	thirds   map[int64][]thirdCondition
	paths    map[int64][]path
	said     map[string]bool // third parties whose newest word is ready, by thirdKey
	alerts   []alert
	leases   map[string]lease
	turns    []turn
	marks    []mark
	failures map[failureKey]string
	nodes    map[string]node
	actions  []action
	latest   string // the setting latest_schedule_time

	expected *expected

	campaigns map[int64]bool // batches that a living campaign holds back

	runs map[key][]*batch // see runsOf
	made map[int64][]key  // see makers
}

type task struct {
	id       int64
	name     string
	group    string    // as it is now
	versions []version // by number
}

type version struct {
	number             int
	period             oracle.Period
	enabled, deleted   bool
	validFrom, validTo int64
	changedAt          int64
	cron               string
}

type batch struct {
	id, task                       int64
	version                        int
	period                         oracle.Period
	no                             string
	run                            int
	origin                         int
	schedule, start, end, create   int64
	unmet, kinds                   int
	now                            status // what the row says
	startTime, finishTime          int64
	notBefore                      int64
	slots, memory, concurrency     int
	pool, nodes                    string
	quality                        int
	dependencyLateAt, outputLateAt int64
	archived, runNow               bool
	events                         []event // its own, in order
}

// status is what both a row and an event say of a batch.
type status struct {
	state, finish int
	attempt       int
	node          string
	held, kill    bool
	latest        bool
}

type event struct {
	id, batch, at int64
	status
	epoch    int64
	who, why string
}

type parentCondition struct {
	group int
	any   bool
	met   bool
	task  int64
	no    string
}

type thirdCondition struct {
	met bool
	key string // thirdKey
}

type path struct {
	output     bool
	met        bool
	hash       int64
	path, flag string
}

type alert struct {
	key, kind   string
	task, batch int64
	at          int64
}

type lease struct {
	epoch, acquiredAt int64
	paused            bool
	pausedUntil       int64
	maxRunning        int
}

type turn struct {
	service           string
	epoch             int64
	startedAt, tookMS int64
	failed            bool
}

type mark struct {
	period                                   oracle.Period
	mark                                     int64
	expected, made, present, skipped, failed int
	complete                                 bool
	startedAt, completedAt                   int64
}

type failureKey struct {
	period oracle.Period
	mark   int64
	task   int64
}

type node struct {
	pool          string
	slots, memory int
	lost, stopped bool
	holds         map[string]bool // its inventory; nil: it never gave one
}

type action struct {
	at                     int64
	action, target, detail string
}

// key is what only one attempt at a time may run for.
type key struct {
	task int64
	no   string
}

func (b *batch) key() key { return key{b.task, b.no} }

// OpenDatabase opens a MySQL or MariaDB DSN, or else a SQLite file, for reading.
func OpenDatabase(dsn string) (*sql.DB, error) {
	if strings.Contains(dsn, "@") {
		return sql.Open("mysql", dsn)
	}
	return sql.Open("sqlite", "file:"+dsn+"?mode=ro")
}

// Load reads the tables of a run that has stopped: what changes while it reads may look like a violation.
func Load(ctx context.Context, db *sql.DB, run Run) (*History, error) {
	h := &History{Run: run, tasks: map[int64]*task{}, byName: map[string]*task{}, byID: map[int64]*batch{}, parents: map[int64][]parentCondition{}, thirds: map[int64][]thirdCondition{},
		paths: map[int64][]path{}, said: map[string]bool{}, leases: map[string]lease{}, failures: map[failureKey]string{}, nodes: map[string]node{}}
	for _, t := range []struct {
		what string
		read func(*reader) error
	}{
		{"tasks", h.readTasks}, {"batches", h.readBatches}, {"campaigns", h.readCampaigns}, {"events", h.readEvents}, {"conditions", h.readConditions}, {"alerts", h.readAlerts},
		{"services", h.readServices}, {"the ledger", h.readLedger}, {"nodes", h.readNodes}, {"actions", h.readActions},
	} {
		if err := t.read(&reader{ctx, db}); err != nil {
			return nil, fmt.Errorf("read %s: %w", t.what, err)
		}
	}
	return h, nil
}

type reader struct {
	ctx context.Context
	db  *sql.DB
}

// each runs a query and hands each row to row.
func (r *reader) each(query string, row func(scan func(...any) error) error) error {
	rows, err := r.db.QueryContext(r.ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (h *History) readTasks(r *reader) error {
	err := r.each("SELECT id, name, task_group FROM task", func(scan func(...any) error) error {
		t := &task{}
		err := scan(&t.id, &t.name, &t.group)
		h.tasks[t.id], h.byName[t.name] = t, t
		return err
	})
	if err != nil {
		return err
	}
	return r.each("SELECT task_id, version, output_period, enabled, deleted, valid_from, valid_to, changed_at, definition FROM task_history ORDER BY task_id, version", func(scan func(...any) error) error {
		var id int64
		var v version
		var definition string
		if err := scan(&id, &v.number, &v.period, &v.enabled, &v.deleted, &v.validFrom, &v.validTo, &v.changedAt, &definition); err != nil {
			return err
		}
		var d struct {
			Cron string `json:"cron"`
		}
		if err := json.Unmarshal([]byte(definition), &d); err != nil {
			return fmt.Errorf("task %d version %d: %w", id, v.number, err)
		}
		v.cron = d.Cron
		t := h.tasks[id]
		if t == nil {
			return fmt.Errorf("task_history names task %d, which is not in task", id)
		}
		t.versions = append(t.versions, v)
		return nil
	})
}

func (h *History) readBatches(r *reader) error {
	for _, table := range []string{"task_work", "task_work_archive"} {
		err := r.each(`SELECT id, task_id, task_version, period, batch_no, run_no, origin, schedule_time, data_start, data_end, create_time, unmet, kinds,
			state, finish_state, attempt, node, held, kill_request, latest, COALESCE(start_time, 0), COALESCE(finish_time, 0), not_before,
			slots, memory_mb, concurrency, pool, COALESCE(nodes, ''), quality_state, COALESCE(dependency_timeout_at, 0), COALESCE(output_timeout_at, 0), run_now FROM `+table, func(scan func(...any) error) error {
			b := &batch{archived: table != "task_work"}
			var latest sql.NullInt64
			s := &b.now
			err := scan(&b.id, &b.task, &b.version, &b.period, &b.no, &b.run, &b.origin, &b.schedule, &b.start, &b.end, &b.create, &b.unmet, &b.kinds,
				&s.state, &s.finish, &s.attempt, &s.node, &s.held, &s.kill, &latest, &b.startTime, &b.finishTime, &b.notBefore,
				&b.slots, &b.memory, &b.concurrency, &b.pool, &b.nodes, &b.quality, &b.dependencyLateAt, &b.outputLateAt, &b.runNow)
			if err == nil && h.byID[b.id] != nil {
				err = fmt.Errorf("batch %d is there twice", b.id)
			}
			s.latest = latest.Valid
			h.byID[b.id] = b
			h.batches = append(h.batches, b)
			return err
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(h.batches, func(a, b *batch) int { return cmp.Compare(a.id, b.id) })
	return nil
}

func (h *History) readCampaigns(r *reader) error {
	h.campaigns = map[int64]bool{}
	// One that runs without a limit holds nothing back any more.
	return r.each("SELECT i.batch_id FROM campaign_item i JOIN campaign c ON c.id = i.campaign_id WHERE i.state = 2 AND (c.state IN (2, 4, 5) OR c.state = 3 AND c.batch_limit > 0)", func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		h.campaigns[id] = true
		return err
	})
}

func (h *History) readEvents(r *reader) error {
	for _, table := range []string{"batch_event", "batch_event_archive"} {
		err := r.each("SELECT id, batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why FROM "+table, func(scan func(...any) error) error {
			var e event
			var latest sql.NullInt64
			err := scan(&e.id, &e.batch, &e.at, &e.state, &e.finish, &e.attempt, &e.node, &e.held, &e.kill, &latest, &e.epoch, &e.who, &e.why)
			e.latest = latest.Valid
			h.events = append(h.events, e)
			return err
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(h.events, func(a, b event) int { return cmp.Compare(a.id, b.id) })
	for _, e := range h.events {
		if b := h.byID[e.batch]; b != nil {
			b.events = append(b.events, e)
		}
	}
	return nil
}

func thirdKey(code string, period int, no string) string {
	return fmt.Sprintf("%s %d %s", code, period, no)
}

func (h *History) readConditions(r *reader) error {
	return errors.Join(
		r.each("SELECT batch_id, grp, policy, state, parent_task_id, parent_batch_no FROM tparent_data", func(scan func(...any) error) error {
			var id int64
			var c parentCondition
			err := scan(&id, &c.group, &c.any, &c.met, &c.task, &c.no)
			h.parents[id] = append(h.parents[id], c)
			return err
		}),
		r.each("SELECT batch_id, state, code, period, batch_no FROM tthird_data", func(scan func(...any) error) error {
			var id int64
			var c thirdCondition
			var code, no string
			var period int
			err := scan(&id, &c.met, &code, &period, &no)
			c.key = thirdKey(code, period, no)
			h.thirds[id] = append(h.thirds[id], c)
			return err
		}),
		r.each("SELECT code, period, batch_no, result FROM tthird_item", func(scan func(...any) error) error {
			var code, no string
			var period int
			var ready bool
			err := scan(&code, &period, &no, &ready)
			h.said[thirdKey(code, period, no)] = ready
			return err
		}),
		r.each("SELECT batch_id, type, state, path_hash, path, flag FROM task_data", func(scan func(...any) error) error {
			var id int64
			var p path
			var typ int
			err := scan(&id, &typ, &p.met, &p.hash, &p.path, &p.flag)
			p.output = typ == 2
			h.paths[id] = append(h.paths[id], p)
			return err
		}))
}

func (h *History) readAlerts(r *reader) error {
	return r.each("SELECT alert_key, kind, task_id, batch_id, created_at FROM alert ORDER BY id", func(scan func(...any) error) error {
		var a alert
		err := scan(&a.key, &a.kind, &a.task, &a.batch, &a.at)
		h.alerts = append(h.alerts, a)
		return err
	})
}

func (h *History) readServices(r *reader) error {
	return errors.Join(
		r.each("SELECT service, epoch, acquired_at, paused, COALESCE(paused_until, 0), max_running FROM capri_service_lock", func(scan func(...any) error) error {
			var name string
			var l lease
			err := scan(&name, &l.epoch, &l.acquiredAt, &l.paused, &l.pausedUntil, &l.maxRunning)
			h.leases[name] = l
			return err
		}),
		r.each("SELECT service, epoch, started_at, duration_ms, error FROM service_run ORDER BY id", func(scan func(...any) error) error {
			var t turn
			var text string
			err := scan(&t.service, &t.epoch, &t.startedAt, &t.tookMS, &text)
			t.failed = text != ""
			h.turns = append(h.turns, t)
			return err
		}),
		r.each("SELECT value FROM dic_data WHERE name = 'latest_schedule_time'", func(scan func(...any) error) error { return scan(&h.latest) }))
}

func (h *History) readLedger(r *reader) error {
	return errors.Join(
		r.each("SELECT period, mark, expected, made, present, skipped, failed, complete, started_at, COALESCE(completed_at, 0) FROM generate_mark ORDER BY period, mark", func(scan func(...any) error) error {
			var m mark
			err := scan(&m.period, &m.mark, &m.expected, &m.made, &m.present, &m.skipped, &m.failed, &m.complete, &m.startedAt, &m.completedAt)
			h.marks = append(h.marks, m)
			return err
		}),
		r.each("SELECT period, mark, task_id, error FROM generate_failure", func(scan func(...any) error) error {
			var k failureKey
			var text string
			err := scan(&k.period, &k.mark, &k.task, &text)
			h.failures[k] = text
			return err
		}))
}

func (h *History) readNodes(r *reader) error {
	return errors.Join(
		r.each("SELECT host, pool, slots, memory, lost, is_stop FROM capri_schedul_cluster", func(scan func(...any) error) error {
			var name string
			var n node
			err := scan(&name, &n.pool, &n.slots, &n.memory, &n.lost, &n.stopped)
			h.nodes[name] = n
			return err
		}),
		r.each("SELECT i.host, i.attempts FROM node_inventory i JOIN capri_schedul_cluster c ON c.host = i.host AND c.boot_id = i.boot_id", func(scan func(...any) error) error {
			var name, attempts string
			err := scan(&name, &attempts)
			n := h.nodes[name]
			n.holds = map[string]bool{}
			for a := range strings.FieldsSeq(attempts) {
				n.holds[a] = true
			}
			h.nodes[name] = n
			return err
		}))
}

func (h *History) readActions(r *reader) error {
	return r.each("SELECT at, action, target, detail FROM action_log ORDER BY id", func(scan func(...any) error) error {
		var a action
		err := scan(&a.at, &a.action, &a.target, &a.detail)
		h.actions = append(h.actions, a)
		return err
	})
}

// name is a batch as evidence shows it.
func (h *History) name(b *batch) string {
	name := fmt.Sprintf("task %d", b.task)
	if t := h.tasks[b.task]; t != nil {
		name = t.name
	}
	return fmt.Sprintf("%s %s run %d (batch %d)", name, b.no, b.run, b.id)
}

// when writes business time for people: in the zone, with its offset.
func (h *History) when(ms int64) string { return inZone(h.Run.Zone, ms) }
