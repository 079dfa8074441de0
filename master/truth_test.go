package master_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action"
	"capri/calendar"
	"capri/conf"
	"capri/internal/testenv"
	"capri/master"
	"capri/services"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

// The tables of docs/services.md are what people read to learn who changes what, so they are held against what happens:
//
//	docs/services.md ──▶ rows  ──every row is seen at least once──▶ ┐
//	                                                                ├ the same
//	scenes on a real database ──▶ steps ──every step is in a row──▶ ┘
//
// A scene makes services, workers and people act, one at a time. What batch_event says is taken step by step; columns that
// it does not hold are compared before and after.

// step is one change of a field by a section of the document. from and to are kept of fields with names for their values.
type step struct{ section, field, from, to string }

func (s step) String() string {
	if s.from == "" && s.to == "" {
		return fmt.Sprintf("## %s: `%s` changes", s.section, s.field)
	}
	return fmt.Sprintf("## %s: `%s` | %s → %s", s.section, s.field, s.from, s.to)
}

// named are the fields of which each value has a meaning.
var named = []string{"state", "finish_state", "held", "kill_request", "latest", "quality_state", "origin", "task_work_archive.latest",
	"task_data.state", "tthird_data.state", "tparent_data.state", "capri_schedul_cluster.lost", "capri_schedul_cluster.is_stop"}

// watched are the tables whose rows are compared: their keys, and the columns that are looked at (none: all). Of tables in
// goes, rows that are deleted count as well.
var watched = map[string]struct{ key, columns []string }{
	"task_work":             {[]string{"id"}, nil},
	"task_work_archive":     {[]string{"id"}, []string{"latest"}},
	"task_data":             {[]string{"batch_id", "type", "seq"}, []string{"state"}},
	"tthird_data":           {[]string{"batch_id", "seq"}, []string{"state"}},
	"tparent_data":          {[]string{"batch_id", "seq"}, []string{"state"}},
	"batch_deadline":        {[]string{"due", "batch_id", "kind"}, []string{"kind"}},
	"batch_event":           {[]string{"id"}, []string{"id"}},
	"alert":                 {[]string{"id"}, []string{"id"}},
	"idempotency_key":       {[]string{"id"}, []string{"id"}},
	"task":                  {[]string{"id"}, []string{"expected_minutes"}},
	"capri_schedul_cluster": {[]string{"host"}, []string{"lost", "lost_at", "is_stop", "stop_time"}},
}

// inEvents are the columns of task_work that batch_event repeats.
var inEvents = []string{"state", "finish_state", "attempt", "node", "held", "kill_request", "latest"}

func TestServices_change_what_their_document_says_and_nothing_else(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs/services.md"))
	require.NoError(t, err)
	sections, rows := documented(t, string(text))
	for kind, open := range map[string]func(testing.TB) *sqltest.DB{"sqlite": sqltest.SQLite, "mysql": sqltest.MySQL} {
		t.Run(kind, func(t *testing.T) {
			if kind == "mysql" {
				testenv.MySQL(t) // without a server there is nothing to be seen
			}
			seen := map[step]string{} // where first
			for _, name := range slices.Sorted(maps.Keys(scenes)) {
				t.Run(name, func(t *testing.T) {
					w := newWorld(t, open(t), name, seen)
					require.Equal(t, w.names, sections[:len(w.names)], "the sections of docs/services.md are the timetable's rows")
					scenes[name](w)
				})
			}
			if t.Failed() {
				return
			}
			var missing []string
			for s, where := range seen {
				if !slices.ContainsFunc(rows, func(r step) bool { return r.covers(s) }) {
					missing = append(missing, fmt.Sprintf("docs/services.md does not say: %s (scene %q)", s, where))
				}
			}
			for _, r := range rows {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), r.covers) {
					missing = append(missing, fmt.Sprintf("docs/services.md says, and nothing does: %s", r))
				}
			}
			slices.Sort(missing)
			if len(missing) > 0 {
				t.Error(strings.Join(missing, "\n"))
			}
		})
	}
}

// covers tells whether a documented row speaks of a step. A row without a from speaks of any.
func (s step) covers(o step) bool {
	return s.section == o.section && s.field == o.field && (s.from == "" || s.from == o.from) && (s.to == "" || s.to == o.to)
}

// documented reads the sections and the rows of their tables "field | from → to | when". A cell of fields with the same
// step names several; alternatives on each side of the arrow are parted by commas and begin with their value.
func documented(t *testing.T, text string) (sections []string, rows []step) {
	inTable := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, name)
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case strings.TrimSpace(cells[0]) == "field":
			inTable = true
		case inTable && !strings.HasPrefix(line, "| -"):
			require.Len(t, cells, 3, line)
			left, right, ok := strings.Cut(cells[1], "→")
			require.True(t, ok, "no arrow: %s", line)
			for _, field := range strings.Split(cells[0], ",") {
				name := strings.Trim(field, " `")
				require.NotEmpty(t, name, line)
				if !slices.Contains(named, name) {
					rows = append(rows, step{section: sections[len(sections)-1], field: name})
					continue
				}
				for _, from := range strings.Split(left, ",") {
					for _, to := range strings.Split(right, ",") {
						first, _, _ := strings.Cut(strings.TrimSpace(from), " ")
						last, _, _ := strings.Cut(strings.TrimSpace(to), " ")
						require.NotEmpty(t, last, line)
						rows = append(rows, step{sections[len(sections)-1], name, first, last})
					}
				}
			}
		}
	}
	return sections, rows
}

// world is a database with a timetable, a node and people.
type world struct {
	*sqltest.DB
	t      *testing.T
	ctx    context.Context
	scene  string
	names  []string // the timetable's services, in its order
	rows   map[string][]services.Row
	leases map[string]capri.Lease
	people *action.Actions
	mono   time.Time
	there  map[string]bool // paths
	seen   map[step]string
	days   int
}

func newWorld(t *testing.T, db *sqltest.DB, scene string, seen map[step]string) *world {
	w := &world{DB: db, t: t, ctx: t.Context(), scene: scene, seen: seen, rows: map[string][]services.Row{}, leases: map[string]capri.Lease{}, there: map[string]bool{}, mono: time.Unix(0, 0)}
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); api.Close() })
	utc, log := calendar.New(time.UTC), slog.New(slog.DiscardHandler)
	m := master.New(master.Options{Store: db.Store, Calendar: utc, Waker: wake.NewLocal(), Files: w, Name: "m", LostAfter: 180 * time.Second,
		Monotonic: func() time.Time { return w.mono }, Quality: conf.Quality{URL: api.URL, Timeout: 5 * time.Second}, Random: rand.New(rand.NewPCG(1, 1)), Log: log})
	for _, r := range m.Timetable() {
		if w.rows[r.Name] == nil {
			w.names = append(w.names, r.Name)
		}
		w.rows[r.Name] = append(w.rows[r.Name], r)
		if _, ok := w.leases[r.Lease]; !ok {
			w.leases[r.Lease] = db.Lease(t, r.Lease)
		}
	}
	w.people = action.New(db.Store, utc, wake.NewLocal(), log)
	w.boot("n1", "boot-1")
	return w
}

// There answers for paths as the scene says.
func (w *world) There(_ context.Context, paths []capri.PathCondition) ([]bool, error) {
	out := make([]bool, len(paths))
	for i, p := range paths {
		out[i] = w.there[p.Path]
	}
	return out, nil
}

// row is what a table's row holds.
type row map[string]string

// snapshot reads the watched tables: table, key, column.
func (w *world) snapshot() map[string]map[string]row {
	out := map[string]map[string]row{}
	for table, what := range watched {
		out[table] = map[string]row{}
		columns := "*"
		if what.columns != nil {
			columns = strings.Join(slices.Concat(what.key, what.columns), ", ")
		}
		for _, r := range w.query("SELECT " + columns + " FROM " + table) {
			var key []string
			for _, k := range what.key {
				key = append(key, r[k])
			}
			out[table][strings.Join(key, ".")] = r
		}
	}
	return out
}

func (w *world) query(text string) (all []row) {
	w.t.Helper()
	rows, err := w.Store.DB().QueryContext(w.ctx, text)
	require.NoError(w.t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(w.t, err)
	for rows.Next() {
		values, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		require.NoError(w.t, rows.Scan(to...))
		r := row{}
		for i, c := range columns {
			if r[c] = "NULL"; values[i].Valid {
				r[c] = word(c, values[i].String)
			}
		}
		all = append(all, r)
	}
	require.NoError(w.t, rows.Err())
	return all
}

// word is a state by its name.
func word(column, value string) string {
	n := 0
	if _, err := fmt.Sscan(value, &n); err != nil {
		return value
	}
	switch column {
	case "finish_state":
		return capri.FinishState(n).String()
	case "origin":
		return capri.Origin(n).String()
	}
	return value
}

// saw notes a change.
func (w *world) saw(section, table, column, from, to string) {
	s := step{section: section, field: column}
	if table != "task_work" {
		s.field = table + "." + column
	}
	if slices.Contains(named, s.field) {
		s.from, s.to = from, to
		if s.field == "state" {
			s.from, s.to = stateWord(from), stateWord(to)
		}
	}
	if _, ok := w.seen[s]; !ok {
		w.seen[s] = w.scene
	}
}

// stateWord is for task_work alone: the conditions' state is another.
func stateWord(v string) string {
	n := 0
	if _, err := fmt.Sscan(v, &n); err != nil {
		return v
	}
	return capri.State(n).String()
}

// by lets somebody act, and notes under a section what that changes. Events must be by who.
func (w *world) by(section, who string, act func()) {
	w.t.Helper()
	var last int64
	for _, r := range w.query("SELECT COALESCE(MAX(id), 0) AS id FROM batch_event") {
		_, err := fmt.Sscan(r["id"], &last)
		require.NoError(w.t, err)
	}
	before := w.snapshot()
	act()
	after := w.snapshot()

	now := map[string]row{} // each batch as its newest event says
	for _, e := range w.query(fmt.Sprintf("SELECT * FROM batch_event WHERE id > %d ORDER BY id", last)) {
		require.Equal(w.t, who, e["who"], "%v", e)
		was := now[e["batch_id"]]
		for _, table := range []string{"task_work_archive", "task_work"} {
			if r, ok := before[table][e["batch_id"]]; ok && was == nil {
				was = r
			}
		}
		_, archived := before["task_work_archive"][e["batch_id"]]
		for _, c := range inEvents {
			if was != nil && was[c] != e[c] && !archived {
				w.saw(section, "task_work", c, was[c], e[c])
			}
		}
		now[e["batch_id"]] = e
	}
	for table := range watched {
		for key, was := range before[table] {
			is, ok := after[table][key]
			if !ok {
				w.saw(section, "task_work", table, "", "")
				continue
			}
			for column := range was {
				if was[column] == is[column] {
					continue
				}
				if table == "task_work" && slices.Contains(inEvents, column) {
					require.NotNil(w.t, now[key], "%s of batch %s went from %s to %s without an event", column, key, was[column], is[column])
					require.Equal(w.t, is[column], now[key][column], "%s of batch %s is not what its events say", column, key)
					continue
				}
				w.saw(section, table, column, was[column], is[column])
			}
		}
	}
	for key, is := range after["task_work"] {
		if _, ok := before["task_work"][key]; !ok {
			for _, c := range []string{"state", "finish_state", "origin"} {
				w.saw(section, "task_work", c, "new", is[c])
			}
		}
	}
}

// turn is a turn of each row of a service.
func (w *world) turn(name string) {
	w.t.Helper()
	require.NotEmpty(w.t, w.rows[name])
	for _, r := range w.rows[name] {
		w.by(name, r.Lease, func() {
			_, err := r.Service.Run(w.ctx, services.Turn{Now: w.Clock.Now(), Lease: w.leases[r.Lease]})
			require.NoError(w.t, err)
		})
	}
}

func (w *world) worker(act func() error) {
	w.t.Helper()
	w.by("worker", "n1", func() { require.NoError(w.t, act()) })
}

func (w *world) person(act func() error) {
	w.t.Helper()
	w.by("people", "alice", func() { require.NoError(w.t, act()) })
}

func (w *world) boot(node, boot string) {
	w.t.Helper()
	w.by("worker", node, func() {
		require.NoError(w.t, w.Store.RegisterNode(w.ctx, capri.Node{Name: node, BootID: boot, Pool: "default", Slots: 100, CheckInterval: 5, KillAfter: 150 * time.Second, KillGrace: 10 * time.Second}, "dir-"+node))
	})
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	_, err := w.Store.DB().ExecContext(w.ctx, text, args...)
	require.NoError(w.t, err)
}

func (w *world) get(id capri.BatchID) capri.Batch {
	w.t.Helper()
	b, err := w.Store.Batch(w.ctx, id)
	require.NoError(w.t, err)
	return b.Batch
}

// batch inserts a batch of a task of its own. It stands for what generate makes, in scenes that are not about that.
func (w *world) batch(spec func(*capri.Spec), change func(*capri.NewBatch)) *capri.NewBatch {
	w.t.Helper()
	task := w.Task(w.t, spec)
	now := w.Clock.Now()
	w.days++
	b := &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: task.Version, Period: capri.Day, BatchNo: capri.BatchNo(fmt.Sprintf("202607%02d", w.days)), Latest: true,
		ScheduleTime: now, DataStart: now, DataEnd: now, Priority: 5, Slots: 1, Concurrency: 1000, Pool: "default", Strategy: capri.LeastLoaded}}
	if change != nil {
		change(b)
	}
	_, err := w.Store.InsertBatches(w.ctx, store.ByPerson("test"), []*capri.NewBatch{b}, nil)
	require.NoError(w.t, err)
	return b
}

func (w *world) attempt(b *capri.NewBatch) capri.Attempt {
	return capri.Attempt{Batch: b.ID, Number: w.get(b.ID).Attempt}
}

// claim and start bring what is ready to its node and further.
func (w *world) claim() {
	w.t.Helper()
	w.turn("dispatch")
	w.worker(func() error { _, err := w.Store.Claim(w.ctx, "n1", w.bootID(), 100); return err })
}

func (w *world) start(all ...*capri.NewBatch) {
	w.t.Helper()
	w.claim()
	var attempts []capri.Attempt
	for _, b := range all {
		require.Equal(w.t, capri.Running, w.get(b.ID).State)
		attempts = append(attempts, w.attempt(b))
	}
	w.worker(func() error { _, err := w.Store.Start(w.ctx, "n1", w.bootID(), attempts); return err })
}

func (w *world) bootID() string {
	return w.query("SELECT boot_id FROM capri_schedul_cluster WHERE host = 'n1'")[0]["boot_id"]
}

func (w *world) end(b *capri.NewBatch, how store.Outcome, retries int) {
	w.t.Helper()
	w.worker(func() error {
		_, err := w.Store.FinishAttempts(w.ctx, "n1", []store.Result{{Attempt: w.attempt(b), Outcome: how, Message: "it ended", Usage: store.Usage{MemoryMB: 7, Processes: 2}, Retries: retries, RetryInterval: time.Second}})
		return err
	})
}

func (w *world) kill(b *capri.NewBatch) {
	w.t.Helper()
	w.person(func() error { _, err := w.people.Kill(w.ctx, "alice", []capri.BatchID{b.ID}, "not needed"); return err })
}

func (w *world) verdict(b *capri.NewBatch, word string) {
	w.t.Helper()
	w.person(func() error { return w.people.QualityVerdict(w.ctx, "alice", b.ID, 0, word, "") })
}

func (w *world) third(said string) {
	w.t.Helper()
	w.person(func() error {
		return w.people.ReportThirdParty(w.ctx, "alice", "closed", capri.Day, "20261119", said, "")
	})
}

func (w *world) again(b *capri.NewBatch) {
	w.t.Helper()
	w.person(func() error {
		next := *b
		next.RunNo, next.Origin = b.RunNo+1, capri.OriginRerun
		first, err := w.Store.ReserveBatchIDs(w.ctx, 1)
		if err != nil {
			return err
		}
		next.ID = first
		return w.Store.Write(w.ctx, "run again", "alice", func(tx *store.Tx) error { return tx.NewRun(b.ID, &next) })
	})
}

// silent lets the node's beat stand still for so long.
func (w *world) silent() {
	w.t.Helper()
	for range 20 {
		w.turn("lost-nodes")
		w.mono = w.mono.Add(10 * time.Second)
		w.Clock.Advance(10 * time.Second)
	}
	w.turn("lost-nodes")
}

// zombies lets the node report twice that it holds nothing.
func (w *world) zombies() {
	w.t.Helper()
	w.Clock.Advance(11 * time.Minute)
	for range 2 {
		w.Clock.Advance(time.Minute)
		w.worker(func() error { return w.Store.ReportInventory(w.ctx, "n1", w.bootID(), nil) })
		w.turn("zombie")
	}
}

// rested is a batch that rests on one thing of each kind, all of which have come true, with a gate that is open. doubt takes
// all of them back.
type rested struct {
	w                *world
	b                *capri.NewBatch
	parent, producer *capri.NewBatch
}

func (w *world) rested(spec func(*capri.Spec)) *rested {
	w.t.Helper()
	r := &rested{w: w}
	path := fmt.Sprintf("/q%d", w.days)
	out := []capri.PathCondition{{Path: path, Flag: "_SUCCESS"}}
	r.parent = w.batch(nil, nil)
	r.producer = w.batch(nil, func(b *capri.NewBatch) { b.Outputs = out })
	w.start(r.parent, r.producer)
	w.end(r.parent, store.Succeeded, 0)
	w.end(r.producer, store.Succeeded, 0)
	r.b = w.batch(spec, func(b *capri.NewBatch) {
		b.QualityState = 1
		b.Inputs = out
		b.ThirdParty = []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: "20261119"}}
		b.Parents = []capri.ParentCondition{{TaskID: r.parent.TaskID, BatchNo: r.parent.BatchNo}}
	})
	w.there[path] = true
	w.third("ready")
	w.turn("dependency")
	require.Zero(w.t, w.get(r.b.ID).Unmet)
	w.turn("quality")
	w.verdict(r.b, "runnable")
	return r
}

func (r *rested) doubt() {
	r.w.t.Helper()
	r.w.again(r.parent)
	r.w.again(r.producer)
	r.w.third("withdraw")
}

// unmet keeps a batch waiting.
func unmet(b *capri.NewBatch) {
	b.ThirdParty = []capri.ThirdPartyCondition{{Code: "never", Period: capri.Day, BatchNo: "20261119"}}
}

func due(kinds ...capri.DeadlineKind) func(*capri.NewBatch) {
	return func(b *capri.NewBatch) {
		for i, k := range kinds {
			b.Deadlines = append(b.Deadlines, capri.Deadline{Kind: k, Due: b.ScheduleTime.Add(time.Duration(i) * time.Second)})
		}
	}
}

var scenes = map[string]func(w *world){
	"marks come, late ones too": func(w *world) {
		w.Task(w.t, func(s *capri.Spec) { s.Period = capri.Hour })
		w.Task(w.t, func(s *capri.Spec) { s.Period = capri.Hour; s.Limits.SkipAfterMinutes = 60 })
		w.turn("generate")
		w.Clock.Advance(31 * time.Minute)
		w.turn("generate")
		w.Clock.Advance(3 * time.Hour)
		w.turn("generate")
	},
	"conditions come true and a count is wrong": func(w *world) {
		r := w.rested(nil)
		w.exec("UPDATE tthird_data SET state = 0 WHERE batch_id = ?", int64(r.b.ID))
		w.exec("DELETE FROM tthird_item")
		w.turn("dependency")
	},
	"what is ready is placed or ends": func(w *world) {
		w.batch(nil, func(b *capri.NewBatch) { b.Pool = "nobody" })
		w.batch(nil, func(b *capri.NewBatch) { b.Account = "etl" })
		w.batch(nil, func(b *capri.NewBatch) { b.SkipAt = w.Clock.Now() })
		late := w.batch(nil, func(b *capri.NewBatch) { b.SkipAt = w.Clock.Now(); due(capri.OutputDeadline)(b) })
		w.turn("timeout")
		require.Equal(w.t, capri.OutputTimeout, w.get(late.ID).FinishState)
		w.turn("dispatch")
		w.batch(nil, nil)
		w.turn("dispatch")
		w.Clock.Advance(6 * time.Minute)
		w.turn("reschedule")
		w.turn("dispatch")
	},
	"deadlines come": func(w *world) {
		w.batch(nil, func(b *capri.NewBatch) { unmet(b); due(capri.DependencyDeadline, capri.OutputDeadline)(b) })
		w.batch(nil, func(b *capri.NewBatch) { unmet(b); due(capri.OutputDeadline, capri.DependencyDeadline)(b) })
		failed := w.batch(nil, due(capri.OutputDeadline))
		w.batch(nil, func(b *capri.NewBatch) { unmet(b); due(capri.DayEndDeadline)(b) })
		w.start(failed)
		w.end(failed, store.Failed, 0)
		w.batch(nil, due(capri.DayEndDeadline))
		w.turn("dispatch") // not claimed
		w.Clock.Advance(time.Minute)
		w.turn("timeout")
	},
	"a node falls silent and comes back": func(w *world) {
		r := w.rested(nil)
		killed, often, late := w.batch(nil, nil), w.batch(nil, func(b *capri.NewBatch) { b.Losses = 3 }), w.batch(nil, nil)
		w.exec("UPDATE task_work SET losses = 3 WHERE id = ?", int64(often.ID))
		w.start(r.b, killed, often, late)
		w.kill(killed)
		w.batch(nil, nil)
		w.turn("dispatch") // not claimed
		r.doubt()
		w.silent()
		w.boot("n1", "boot-2")
	},
	"attempts have no process any more": func(w *world) {
		byOutput := func(s *capri.Spec) { s.Check = capri.CheckOutputPath }
		good := w.batch(byOutput, func(b *capri.NewBatch) { b.Outputs = []capri.PathCondition{{Path: "/out", Flag: "_SUCCESS"}} })
		r := w.rested(func(s *capri.Spec) { s.Retry.Failed = 1 })
		bad, killed := w.batch(nil, nil), w.batch(nil, nil)
		w.there["/out"] = true
		w.start(good, r.b, bad, killed)
		w.kill(killed)
		r.doubt()
		w.zombies()
		require.Equal(w.t, []capri.FinishState{capri.Success, capri.Failed, capri.Killed}, []capri.FinishState{w.get(good.ID).FinishState, w.get(bad.ID).FinishState, w.get(killed.ID).FinishState})
	},
	"a day's durations": func(w *world) {
		b := w.batch(nil, nil)
		w.start(b)
		w.Clock.Advance(20 * time.Minute)
		w.end(b, store.Succeeded, 0)
		w.Clock.Advance(24 * time.Hour)
		w.turn("monitor")
		w.turn("bigtask")
	},
	"old batches are archived and run again": func(w *world) {
		r := w.rested(nil)
		w.start(r.b)
		w.end(r.b, store.Succeeded, 0)
		w.exec("INSERT INTO batch_deadline (due, batch_id, kind) VALUES (9999999999999, ?, 2)", int64(r.b.ID)) // one that is far off
		w.batch(nil, func(b *capri.NewBatch) { b.Account = "nobody's" })
		w.turn("dispatch") // fails, with an alert
		asked, err := w.Store.BeginRepeatable(w.ctx, store.Repeatable{ID: "sum of a key", Request: "sum of a request"}, time.Minute)
		require.NoError(w.t, err)
		require.Nil(w.t, asked)
		w.Clock.Advance(400 * 24 * time.Hour)
		w.turn("cleanup")
		require.Empty(w.t, w.query("SELECT id FROM task_work"))
		w.again(r.parent)
	},
	"a worker's ways": func(w *world) {
		// Given back: short of memory, too often, killed; a claimed batch that cannot be read.
		back, often, killed := w.batch(nil, nil), w.batch(nil, nil), w.batch(nil, nil)
		w.claim()
		w.kill(killed)
		w.worker(func() error {
			return w.Store.RollBack(w.ctx, "n1", []store.GiveBack{
				{Attempt: w.attempt(back), Why: "no memory", Rejected: true, Limit: -1, Pause: time.Minute},
				{Attempt: w.attempt(often), Why: "no memory", Rejected: true, Limit: 0},
				{Attempt: w.attempt(killed), Why: "no memory"}})
		})
		broken := w.batch(nil, nil)
		w.exec("UPDATE task_history SET definition = '{' WHERE task_id = ?", int64(broken.TaskID))
		w.claim()
		require.Equal(w.t, capri.Failed, w.get(broken.ID).FinishState)
		// Ended, in every way.
		r := w.rested(nil)
		killed, lost, late := w.batch(nil, nil), w.batch(nil, nil), w.batch(nil, due(capri.OutputDeadline))
		w.turn("timeout")
		w.start(r.b, killed, lost, late)
		w.kill(killed)
		w.end(killed, store.Killed, 0)
		w.worker(func() error { return w.Store.ReportProgress(w.ctx, w.attempt(lost), 50) })
		w.end(lost, store.Lost, 0)
		w.end(late, store.Failed, 0)
		r.doubt()
		w.end(r.b, store.Failed, 3)
	},
	"a worker misses a path": func(w *world) {
		mine := w.rested(nil)
		gone := mine.b.Inputs
		other := w.batch(nil, func(b *capri.NewBatch) { b.Inputs = gone })
		w.turn("dependency")
		w.turn("dispatch")
		w.worker(func() error { _, err := w.Store.Claim(w.ctx, "n1", w.bootID(), 1); return err })
		require.Equal(w.t, []capri.State{capri.Running, capri.Assigned}, []capri.State{w.get(mine.b.ID).State, w.get(other.ID).State})
		w.worker(func() error { return w.Store.PathsGone(w.ctx, "n1", gone) })
		w.worker(func() error {
			return w.Store.RollBack(w.ctx, "n1", []store.GiveBack{{Attempt: w.attempt(mine.b), Why: "the path is gone"}})
		})
	},
	"people run tasks": func(w *world) {
		w.Task(w.t, func(s *capri.Spec) { s.Name = "a" })
		w.Task(w.t, func(s *capri.Spec) { s.Name = "b" })
		w.person(func() error { _, err := w.people.Execute(w.ctx, "alice", action.ExecuteRequest{Task: "a"}); return err })
		w.person(func() error {
			_, err := w.people.ColdStart(w.ctx, "alice", action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-19", To: "2026-11-19", ByData: true, Tasks: []string{"b"}})
			return err
		})
		third := w.batch(func(s *capri.Spec) { s.Name = "c"; s.ThirdParty = []capri.ThirdParty{{Code: "never"}} }, unmet)
		w.person(func() error { // an edit of what a batch waits for
			return w.Store.Write(w.ctx, "edit", "alice", func(tx *store.Tx) error {
				_, err := tx.ReplaceConditions(third.ID, capri.Conditions{Parents: []capri.ParentCondition{{TaskID: 1, BatchNo: "1"}, {Group: 1, TaskID: 1, BatchNo: "2"}}, Inputs: []capri.PathCondition{{Path: "/x"}}})
				return err
			})
		})
		w.person(func() error {
			return w.Store.Write(w.ctx, "edit", "alice", func(tx *store.Tx) error {
				_, err := tx.ReplaceConditions(third.ID, capri.Conditions{})
				return err
			})
		})
	},
	"campaigns": func(w *world) {
		out := capri.PathCondition{Path: "/a/20261119", Flag: "_SUCCESS"}
		w.Task(w.t, func(s *capri.Spec) { s.Name = "a"; s.Outputs = []capri.Output{{Path: "/a/${yyyyMMdd}"}} })
		parents := []capri.Parent{{Task: "a", TaskID: 1}}
		for name, change := range map[string]func(*capri.Spec){
			"assigned": func(s *capri.Spec) { s.Parents = parents },
			"gated":    func(s *capri.Spec) { s.Parents, s.QualityGate = parents, true },
			"reader":   func(s *capri.Spec) { s.Inputs = []capri.Input{{Path: "/a/${yyyyMMdd}", Flag: "_SUCCESS"}} },
			"long":     func(s *capri.Spec) {},
		} {
			w.Task(w.t, func(s *capri.Spec) { s.Name = name; change(s) })
		}
		latest := func(task string) *capri.NewBatch {
			t, err := w.Store.TaskByName(w.ctx, task)
			require.NoError(w.t, err)
			runs, err := w.Store.LatestRuns(w.ctx, t.ID, []capri.BatchNo{"20261119"})
			require.NoError(w.t, err)
			return &capri.NewBatch{Batch: runs["20261119"]}
		}
		campaign := func(act func() (*action.Planned, error)) (id capri.CampaignID) {
			w.person(func() error {
				p, err := act()
				if err == nil {
					id = p.ID
				}
				return err
			})
			w.turn("campaign")
			return id
		}
		rerun := func(task, on, cascade string) capri.CampaignID {
			return campaign(func() (*action.Planned, error) {
				return w.people.Rerun(w.ctx, "alice", action.RerunRequest{Task: task, From: "2026-11-19", To: "2026-11-20", ByData: true, OnRunning: on, Cascade: cascade, Pace: action.Pace{Limit: 1}})
			})
		}
		cancel := func(id capri.CampaignID, kill bool) {
			w.person(func() error { _, err := w.people.CancelCampaign(w.ctx, "alice", id, kill, "not needed"); return err })
			w.turn("campaign")
		}
		campaign(func() (*action.Planned, error) {
			return w.people.ColdStart(w.ctx, "alice", action.ColdStartRequest{Periods: []capri.Period{capri.Day}, From: "2026-11-19", To: "2026-11-20", ByData: true})
		})
		w.start(latest("a"), latest("long"))
		w.end(latest("a"), store.Succeeded, 0)
		w.there[out.Path+"/_SUCCESS"] = true
		w.there[out.Path] = true
		w.turn("dependency")
		w.verdict(latest("gated"), "runnable")
		w.person(func() error {
			_, err := w.people.Hold(w.ctx, "alice", []capri.BatchID{latest("gated").ID}, "look first")
			return err
		})
		w.turn("dispatch")
		require.Equal(w.t, capri.Assigned, w.get(latest("assigned").ID).State)
		first := rerun("a", "", "") // what rested on it waits again
		require.Equal(w.t, capri.Waiting, w.get(latest("assigned").ID).State)
		cancel(first, false) // and not any more
		w.turn("dependency")
		w.turn("dispatch")
		require.Equal(w.t, capri.Assigned, w.get(latest("assigned").ID).State)
		cancel(rerun("a", "", "both"), false) // what has not started is held back, and let go
		killing := rerun("long", "kill", "")
		w.end(latest("long"), store.Killed, 0)
		w.turn("campaign")
		w.start(latest("long"))
		cancel(killing, true)
		w.end(latest("long"), store.Killed, 0)
		w.Clock.Advance(100 * 24 * time.Hour)
		old := latest("a")
		moved, err := w.Store.ArchiveBatches(w.ctx, w.leases["cleanup"], w.Clock.Now(), []capri.BatchID{old.ID})
		require.NoError(w.t, err)
		require.Equal(w.t, 1, moved)
		cancel(rerun("a", "", ""), false)
	},
	"people stop things": func(w *world) {
		held, waits, assigned := w.batch(nil, nil), w.batch(nil, unmet), w.batch(nil, nil)
		w.turn("dispatch")
		hold := func(b *capri.NewBatch) {
			w.person(func() error { _, err := w.people.Hold(w.ctx, "alice", []capri.BatchID{b.ID}, "look first"); return err })
		}
		hold(held)
		require.Zero(w.t, w.get(held.ID).AssignTime, "what nobody has is not assigned since then")
		w.kill(waits)
		w.kill(assigned)
		w.person(func() error { _, err := w.people.Release(w.ctx, "alice", []capri.BatchID{held.ID}, ""); return err })
		r := w.rested(nil)
		w.turn("dispatch")
		require.Equal(w.t, capri.Assigned, w.get(r.b.ID).State)
		w.third("fail")
		w.person(func() error { return w.people.DrainNode(w.ctx, "alice", "n1", "") })
		w.person(func() error { return w.people.ResumeNode(w.ctx, "alice", "n1", "") })
		w.Clock.Advance(4 * time.Minute) // as long as a silent node may still run what it has
		w.person(func() error { return w.people.RemoveNode(w.ctx, "alice", "n1") })
	},
	"what rested on a run waits again": func(w *world) {
		r := w.rested(nil)
		w.again(r.parent)
		w.again(r.producer)
	},
	"a gate's verdicts": func(w *world) {
		gate := func() *capri.NewBatch { return w.batch(nil, func(b *capri.NewBatch) { b.QualityState = 1 }) }
		first, second := gate(), gate()
		w.verdict(first, "runnable")
		w.verdict(first, "blocked")
		w.verdict(first, "runnable")
		w.verdict(second, "blocked")
		third, fourth := gate(), gate()
		w.turn("quality")
		w.verdict(third, "blocked")
		w.verdict(fourth, "runnable")
	},
	"gates close when a condition is revoked": func(w *world) {
		for _, verdict := range []string{"", "runnable", "blocked"} {
			b := w.batch(nil, func(b *capri.NewBatch) {
				b.QualityState = 1
				b.ThirdParty = []capri.ThirdPartyCondition{{Code: "closed", Period: capri.Day, BatchNo: "20261119"}}
			})
			w.third("ready")
			w.turn("dependency")
			w.turn("quality")
			if verdict != "" {
				w.verdict(b, verdict)
			}
			w.third("withdraw")
		}
	},
}
