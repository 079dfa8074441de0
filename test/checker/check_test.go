package checker

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"
)

// world is a run of a few hours over the night in which New York's clocks go back, written by hand: no code of the
// product, and no oracle, had a part in it.
type world struct {
	t     *testing.T
	db    *sql.DB
	run   Run
	event int64
	lines []Witness
	fault []Fault
}

// newWorld copies the one that was written first: two hundred statements for each of eighty tests are most of their time.
func newWorld(t *testing.T) *world {
	t.Helper()
	first := once(t)
	file := filepath.Join(t.TempDir(), "run.db")
	require.NoError(t, os.WriteFile(file, first.file, 0o600))
	w := &world{t: t, db: openWorld(t, file), run: first.run, event: first.event, lines: slices.Clone(first.lines)}
	w.run.Nodes = maps.Clone(w.run.Nodes)
	return w
}

// written is a world at rest.
type written struct {
	file  []byte
	run   Run
	event int64
	lines []Witness
}

var template *written

func once(t *testing.T) *written {
	t.Helper()
	if template != nil {
		return template
	}
	file := filepath.Join(t.TempDir(), "first.db")
	w := &world{t: t, db: openWorld(t, file), run: Run{Zone: "America/New_York", Seed: 7, From: at("2026-10-31T23:30:00-04:00"), To: at("2026-11-01T02:30:00-05:00"), End: at("2026-11-01T02:40:00-05:00"),
		Settled: true, SettledMS: 60_000, Nodes: map[string]Capacity{"n1": {2, 0}, "n2": {8, 1000}}}}
	migrations, err := filepath.Glob("../../sql/schema/migrations/sqlite/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, migrations)
	slices.Sort(migrations)
	for _, m := range migrations {
		text, err := os.ReadFile(m)
		require.NoError(t, err)
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		_, err = w.db.Exec(up)
		require.NoError(t, err, m)
	}
	w.fill()
	require.NoError(t, w.db.Close())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	template = &written{text, w.run, w.event, w.lines}
	return template
}

func openWorld(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=synchronous(off)&_pragma=journal_mode(memory)")
	require.NoError(t, err)
	db.SetMaxOpenConns(1) // a temporary table belongs to its connection
	t.Cleanup(func() { db.Close() })
	return db
}

func at(text string) int64 {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t.UnixMilli()
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(text, args...)
	require.NoError(w.t, err, text)
}

const second, minute, hour = 1000, 60_000, 3_600_000

// The tasks of the run.
const (
	hourly   = 1
	child    = 2 // of hourly, and of what nightly puts out
	nightly  = 3
	monthly  = 4
	quarters = 5 // cron, at :15
)

func (w *world) fill() {
	for id, t := range map[int]struct {
		period int
		cron   string
	}{hourly: {2, ""}, child: {2, ""}, nightly: {3, ""}, monthly: {4, ""}, quarters: {6, "0 15 * * * ?"}} {
		w.exec("INSERT INTO task (id, name, version, task_group, owner, output_period, cron_expression, task_begin_time, check_type, priority, enabled, valid_from, valid_to, first_mark, definition, created_at, updated_at) VALUES (?, ?, 1, '', '', ?, ?, -1, '', 5, 1, 0, 0, 0, '', 0, 0)",
			id, taskName(id), t.period, t.cron)
		w.exec("INSERT INTO task_history (task_id, version, output_period, enabled, deleted, valid_from, valid_to, definition, changed_at, changed_by) VALUES (?, 1, ?, 1, 0, 0, 0, ?, 1000, 'alice')",
			id, t.period, fmt.Sprintf(`{"cron":%q}`, t.cron))
	}
	for _, l := range []string{"generate", "dependency", "dispatch", "campaign", "attempts"} {
		w.exec("INSERT INTO capri_service_lock (service, holder, epoch, renewals, acquired_at) VALUES (?, 'm1', 3, 9, 1000)", l)
	}
	for _, n := range []string{"n1", "n2"} {
		w.exec(`INSERT INTO capri_schedul_cluster (host, ip, port, boot_id, directory_id, pool, slots, last_check_time, check_interval, beat, lost, is_stop, start_time, memory, cpu_load, memory_load, disk_free, task_num)
			VALUES (?, '', 0, 'b', 'd', 'default', 8, 0, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0)`, n)
	}
	for _, p := range []int{2, 3, 4, 5} {
		w.mark(p, w.run.From-1, 0)
	}
	const in, out = 1, 2
	path := func(batch, typ int, path string) {
		w.exec("INSERT INTO task_data (batch_id, type, seq, state, path_hash, path, flag) VALUES (?, ?, 0, 1, 77, ?, '_SUCCESS')", batch, typ, path)
	}

	midnight := at("2026-11-01T00:00:00-04:00")
	w.mark(3, midnight+minute, 1)
	w.batch(30, nightly, 3, "20261031", midnight-24*hour, midnight, midnight+minute)
	path(30, out, "/data/night")
	w.life(30, "n2", midnight+minute+5*second)
	w.mark(4, midnight+5*minute, 1)
	w.batch(31, monthly, 4, "202610", at("2026-10-01T00:00:00-04:00"), midnight, midnight+5*minute)
	w.life(31, "n2", midnight+5*minute+5*second)
	for i, no := range []string{"2026103123", "2026110100", "2026110101-0400", "2026110101-0500"} {
		end := midnight + int64(i)*hour
		w.mark(2, end+minute, 2)
		w.batch(10+i, hourly, 2, no, end-hour, end, end+minute)
		w.batch(20+i, child, 2, no, end-hour, end, end+minute)
		w.exec("INSERT INTO tparent_data (batch_id, seq, grp, policy, state, parent_task_id, parent_batch_no) VALUES (?, 0, 0, 0, 1, ?, ?)", 20+i, hourly, no)
		w.exec("INSERT INTO tthird_data (batch_id, seq, state, code, period, batch_no) VALUES (?, 0, 1, 'closed', 2, ?)", 20+i, no)
		w.exec("INSERT INTO tthird_item (code, period, batch_no, result, said, reported_at, reported_by) VALUES ('closed', 2, ?, 1, 'ready', 0, '')", no)
		if i > 0 {
			path(20+i, in, "/data/night")
		}
		w.life(10+i, "n1", end+minute+5*second)
		w.life(20+i, "n1", end+minute+30*second)
	}
	for i, no := range []string{"20261101001500", "20261101011500-0400", "20261101011500-0500", "20261101021500"} {
		fire := midnight + 15*minute + int64(i)*hour
		w.batch(40+i, quarters, 6, no, fire-hour, fire, fire)
		w.life(40+i, "n2", fire+5*second)
	}
	w.turn("generate", 3, w.run.End)
	// 23:45 before the run, and what is not yet there after it, are nobody's business; this one waits, and says why.
	w.batch(50, quarters, 6, "20261031231500", midnight-105*minute, midnight-45*minute, midnight-45*minute)
	w.exec("UPDATE task_work SET held = 1 WHERE id = 50")
	w.say(50, "UPDATE task_work SET message = ''", "alice", 0, midnight)
}

func taskName(id int) string {
	return []string{"", "hourly", "child", "nightly", "monthly", "quarters"}[id]
}

func (w *world) mark(period int, mark int64, made int) {
	w.exec("INSERT INTO generate_mark (period, mark, expected, made, present, skipped, failed, complete, started_at, completed_at) VALUES (?, ?, ?, ?, 0, 0, 0, 1, ?, ?)", period, mark, made, made, mark, mark+second)
}

func (w *world) turn(service string, epoch, started int64) {
	w.exec("INSERT INTO service_run (service, epoch, holder, started_at, duration_ms, counts, error) VALUES (?, ?, 'm1', ?, 10, '{}', '')", service, epoch, started)
}

func (w *world) batch(id, task, period int, no string, start, end, mark int64) {
	w.exec(`INSERT INTO task_work (id, task_id, task_version, period, batch_no, run_no, latest, origin, schedule_time, data_start, data_end, create_time, state, finish_state, unmet, kinds, not_before, priority, slots, memory_mb, concurrency, pool, strategy)
		VALUES (?, ?, 1, ?, ?, 0, 1, 0, ?, ?, ?, ?, 0, 0, 0, 0, 0, 5, 1, 100, 1, 'default', '')`, id, task, period, no, mark, start, end, mark+second)
}

// say changes a batch and writes the event of it, as the store does.
func (w *world) say(id int, update, who string, epoch, at int64) {
	w.t.Helper()
	w.exec(update+" WHERE id = ?", id)
	w.event++
	w.exec(`INSERT INTO batch_event (id, batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why)
		SELECT ?, id, ?, state, finish_state, attempt, node, held, kill_request, latest, ?, ?, '' FROM task_work WHERE id = ?`, w.event, at, epoch, who, id)
}

// life runs a batch from its assignment to its success: 3 s after `from` it starts, and its job takes 10 s.
func (w *world) life(id int, node string, from int64) {
	w.assign(id, node, from)
	w.say(id, fmt.Sprintf("UPDATE task_work SET state = 2, start_time = %d", from+3*second), node, 0, from+3*second)
	w.job(id, node, from+3*second+100, from+13*second)
	w.say(id, fmt.Sprintf("UPDATE task_work SET state = 3, finish_state = 1, finish_time = %d", from+14*second), node, 0, from+14*second)
}

func (w *world) assign(id int, node string, from int64) {
	w.say(id, fmt.Sprintf("UPDATE task_work SET state = 1, attempt = attempt + 1, node = '%s'", node), "dispatch", 3, from)
	w.say(id, "UPDATE task_work SET state = 2, start_time = NULL", node, 0, from+second)
}

// job writes the lines of the batch's newest attempt; no end: it was killed.
func (w *world) job(id int, node string, start, end int64) {
	l := Witness{Real: start, What: Start, Batch: int64(id), Node: node, PID: 1000 + id, Boot: "kernel01", Uptime: start - w.run.From}
	require.NoError(w.t, w.db.QueryRow("SELECT t.name, w.batch_no, w.run_no, w.attempt FROM task_work w JOIN task t ON t.id = w.task_id WHERE w.id = ?", id).Scan(&l.Task, &l.BatchNo, &l.RunNo, &l.Attempt))
	w.lines = append(w.lines, l)
	if end != 0 {
		l.What, l.Real, l.Uptime = End, end, end-w.run.From
		w.lines = append(w.lines, l)
	}
}

// rerun makes the next run of a finished batch.
func (w *world) rerun(id, next int, at int64) {
	w.say(id, "UPDATE task_work SET latest = NULL", "alice", 0, at)
	w.exec("CREATE TEMP TABLE again AS SELECT * FROM task_work WHERE id = ?", id)
	w.exec("UPDATE again SET id = ?, run_no = run_no + 1, latest = 1, origin = 3, state = 0, finish_state = 0, attempt = 0, node = '', start_time = NULL, finish_time = NULL, create_time = ?", next, at)
	w.exec("INSERT INTO task_work SELECT * FROM again")
	w.exec("DROP TABLE again")
}

// lose runs batch 30 again as 60 on a node, which is lost with it.
func (w *world) lose(node string, at int64) {
	w.rerun(30, 60, at)
	w.assign(60, node, at+minute)
	w.say(60, fmt.Sprintf("UPDATE task_work SET start_time = %d", at+minute+2*second), node, 0, at+minute+2*second)
	w.job(60, node, at+minute+3*second, 0)
	w.say(60, "UPDATE task_work SET state = 0, node = '', start_time = NULL, losses = 1", "attempts", 3, at+5*minute)
	w.exec("UPDATE batch_event SET why = ? WHERE id = ?", "node "+node+" is lost: it was silent for 30s", w.event)
	w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) VALUES (?, 2, 'node_lost', 0, 0, '', '', ?)", fmt.Sprintf("node_lost:%s:%d", node, at), at+5*minute)
}

// undo ends a run as a cancelled campaign does, and lets the run before count again.
func (w *world) undo(old, run int, at int64) {
	w.t.Helper()
	why := func() {
		w.exec("UPDATE batch_event SET why = 'campaign 1 was cancelled' WHERE id = ?", w.event)
	}
	w.say(run, fmt.Sprintf("UPDATE task_work SET state = 3, finish_state = 3, finish_time = %d", at), "campaign", 3, at)
	why()
	w.say(run, "UPDATE task_work SET latest = NULL", "campaign", 3, at)
	why()
	w.say(old, "UPDATE task_work SET latest = 1", "campaign", 3, at)
}

// campaign is one in a state that holds a batch back.
func (w *world) campaign(batch, state int) {
	w.t.Helper()
	w.exec("INSERT INTO campaign (id, kind, state, target, request, who, items, minutes, unknown, message, created_at) VALUES (1, 1, ?, 'x', '{}', 'alice', 1, 0, 0, '', 1)", state)
	w.exec(`INSERT INTO campaign_item (campaign_id, seq, state, action, task_id, task_version, batch_no, mark, data_start, data_end, priority, via, why, note, old_batch_id, old_run_no, old_state, old_finish, batch_id, minutes)
		VALUES (1, 0, 2, 2, 1, 1, 'x', 0, 0, 0, 0, -1, '', '', 0, 0, 0, 0, ?, -1)`, batch)
}

func (w *world) check() Report {
	h, err := Load(context.Background(), w.db, w.run)
	require.NoError(w.t, err)
	h.Witness, h.Faults = w.lines, w.fault
	return Check(h)
}

func TestARunInOrder_has_no_violation(t *testing.T) {
	w := newWorld(t)
	rep := w.check()
	var text strings.Builder
	rep.Print(&text)
	require.True(t, rep.OK, text.String())
	for _, i := range rep.Invariants {
		if i.Name != "alerts" { // no batch failed
			require.Positive(t, i.Checked, i.Name)
		}
		require.Empty(t, i.NotChecked, i.Name)
	}
	require.Contains(t, text.String(), "held by a person")
}

// What may look odd and is right.
func TestARunWithIncidents_has_no_violation(t *testing.T) {
	late := at("2026-11-01T02:20:00-05:00")
	for name, plant := range map[string]func(*world){
		"a rerun of a parent after its child": func(w *world) {
			w.rerun(10, 60, late)
			w.life(60, "n2", late+minute)
		},
		"a parent that failed, and was run again, before its child": func(w *world) {
			w.exec("UPDATE task_work SET finish_state = 2 WHERE id = 13")
			w.exec("UPDATE batch_event SET finish_state = 2 WHERE batch_id = 13 AND state = 3")
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) VALUES ('batch_failed:13', 2, 'batch_failed', 1, 13, '', '', 0)")
			w.exec("DELETE FROM batch_event WHERE batch_id = 23")
			w.exec("UPDATE task_work SET state = 0, finish_state = 0, attempt = 0, node = '', start_time = NULL WHERE id = 23")
			w.lines = slices.DeleteFunc(w.lines, func(l Witness) bool { return l.Batch == 23 })
			w.rerun(13, 60, late)
			w.life(60, "n2", late+minute)
			w.life(23, "n1", late+2*minute)
		},
		"a run that a cancelled campaign undid": func(w *world) {
			w.rerun(10, 60, late)
			w.undo(10, 60, late+minute)
			w.exec("UPDATE task_work SET run_no = 9 WHERE id = 60")
			w.rerun(10, 61, late+3*minute)
			w.exec("UPDATE task_work SET run_no = 2 WHERE id = 61")
			w.exec("UPDATE task_work SET run_no = 1 WHERE id = 60")
			w.life(61, "n2", late+4*minute)
		},
		"a batch that a paused campaign holds back": func(w *world) {
			w.rerun(30, 60, late)
			w.exec("UPDATE task_work SET unmet = 1, kinds = 64 WHERE id = 60")
			w.campaign(60, 4)
		},
		"an attempt that was lost with its node, and the next": func(w *world) {
			w.lose("n1", late)
			w.life(60, "n2", late+6*minute)
		},
		"one that was late and then succeeded": func(w *world) {
			w.rerun(30, 60, late)
			w.say(60, "UPDATE task_work SET finish_state = 4, dependency_timeout_at = 5", "timeout", 0, late+minute)
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) VALUES ('dependency_timeout:60', 2, 'dependency_timeout', 3, 60, '', '', 0)")
			w.life(60, "n2", late+2*minute)
		},
		"an overlap while the whole host of the first was paused": func(w *world) {
			w.rerun(30, 60, late)
			w.assign(60, "n1", late+minute)
			w.job(60, "n1", late+minute+3*second, 0)
			w.fault = append(w.fault, Fault{At: late + minute + 4*second, Healed: late + 6*minute + 2*second, Kind: PauseHost, Target: "n1"})
			w.say(60, "UPDATE task_work SET state = 0, node = ''", "attempts", 3, late+5*minute)
			w.life(60, "n2", late+6*minute)
			i := slices.IndexFunc(w.lines, func(l Witness) bool { return l.Batch == 60 && l.Attempt == 2 })
			o := w.lines[i]
			o.What = Overlap
			w.lines = slices.Insert(w.lines, i, o)
		},
		"a task that was edited as the mark came": func(w *world) {
			w.exec("INSERT INTO task_history (task_id, version, output_period, enabled, deleted, valid_from, valid_to, definition, changed_at, changed_by) VALUES (4, 2, 4, 0, 0, 0, 0, '{}', ?, 'alice')", at("2026-11-01T00:05:00-04:00")-500)
		},
		"a failure that the ledger keeps": func(w *world) {
			w.exec("DELETE FROM task_work WHERE id = 31")
			w.exec("DELETE FROM batch_event WHERE batch_id = 31")
			w.lines = slices.DeleteFunc(w.lines, func(l Witness) bool { return l.Batch == 31 })
			w.exec("UPDATE generate_mark SET made = 0, failed = expected WHERE period = 4 AND expected = 1")
			w.exec("INSERT INTO generate_failure (period, mark, task_id, tries, next_try, error) VALUES (4, ?, 4, 1, 0, 'no disk')", at("2026-11-01T00:05:00-04:00"))
		},
		"a mark that a turn died in": func(w *world) {
			w.exec("UPDATE generate_mark SET made = 1, present = 1 WHERE period = 2 AND mark = ?", at("2026-11-01T01:01:00-05:00"))
		},
		"a batch that is scheduled later than allowed": func(w *world) {
			w.rerun(30, 60, late)
			w.exec("INSERT INTO dic_data (name, value) VALUES ('latest_schedule_time', '2026-11-01 00:00:59')")
		},
		"a batch whose task's breaker opened by itself": func(w *world) {
			w.rerun(30, 60, late)
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) SELECT 'breaker_opened', 2, 'breaker_opened', task_id, 0, '', '', ? FROM task_work WHERE id = 30", late-minute)
		},
		"a batch of which every node is paused": func(w *world) {
			w.rerun(30, 60, late)
			w.exec("INSERT INTO action_log (at, who, action, target, detail) SELECT ?, 'alice', 'dispatch_pause', 'node ' || host, 'odd' FROM capri_schedul_cluster", w.run.End-1)
		},
		"a batch in the archive": func(w *world) {
			columns := "id, task_id, task_version, period, batch_no, run_no, latest, origin, schedule_time, data_start, data_end, create_time, state, finish_state, unmet, kinds, node, attempt, start_time, finish_time, not_before, priority, slots, memory_mb, concurrency, pool, strategy"
			w.exec("INSERT INTO task_work_archive (" + columns + ", archived_at) SELECT " + columns + ", 1 FROM task_work WHERE id = 10")
			w.exec("INSERT INTO batch_event_archive SELECT * FROM batch_event WHERE batch_id = 10")
			w.exec("DELETE FROM task_work WHERE id = 10")
			w.exec("DELETE FROM batch_event WHERE batch_id = 10")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			plant(w)
			rep := w.check()
			var text strings.Builder
			rep.Print(&text)
			require.True(t, rep.OK, text.String())
		})
	}
}

// Each plant is one thing that went wrong; the invariant that is there for it has to say so.
func TestWhatAPersonDid_is_no_violation_when_it_is_recorded(t *testing.T) {
	for sentence, c := range map[string]struct {
		do, forget func(*world)
		say        string
	}{
		"a batch that was let start without its conditions": {
			func(w *world) {
				w.exec("UPDATE tthird_data SET state = 0 WHERE batch_id = 22")
				w.exec("UPDATE task_work SET run_now = 1 WHERE id = 22")
				w.exec("UPDATE batch_event SET id = id + 100000")
				w.event++
				w.exec(`INSERT INTO batch_event (id, batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why)
					SELECT ?, id, create_time, 0, 0, 0, '', 0, 0, 1, 0, 'alice', 'run now by alice: urgent' FROM task_work WHERE id = 22`, w.event)
				w.exec("INSERT INTO action_log (at, who, action, target, detail) VALUES (1, 'alice', 'run_now', 'batch 22', 'urgent')")
			},
			func(w *world) { w.exec("UPDATE batch_event SET why = '' WHERE why LIKE 'run now%'") }, "is unmet",
		},
		"a failure that was called a success": {
			func(w *world) {
				at := w.run.End - minute
				w.say(43, "UPDATE task_work SET latest = 1", "alice", 0, at)
				w.exec("UPDATE batch_event SET finish_state = 2 WHERE batch_id = 43 AND state = 3 AND id < ?", w.event)
				w.exec("INSERT INTO action_log (at, who, action, target, detail) VALUES (?, 'alice', 'force_success', 'batch 43', 'known to be right')", at)
			},
			func(w *world) { w.exec("UPDATE batch_event SET epoch = 3 WHERE batch_id = 43 AND who = 'alice'") }, "finished is final",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t)
			c.do(w)
			rep := w.check()
			var text strings.Builder
			rep.Print(&text)
			for _, i := range rep.Invariants {
				if i.Name == "fold" || i.Name == "in-order" {
					require.Empty(t, i.Evidence, text.String())
				}
			}
			c.forget(w)
			rep, text = w.check(), strings.Builder{}
			rep.Print(&text)
			require.False(t, rep.OK)
			require.Contains(t, text.String(), c.say)
		})
	}
}

func TestEachInvariant_catches_what_it_is_there_for(t *testing.T) {
	late := at("2026-11-01T02:20:00-05:00")
	setLast := func(w *world, set string) {
		w.exec("UPDATE batch_event SET " + set + " WHERE id = (SELECT MAX(id) FROM batch_event WHERE batch_id = 43)")
	}
	line := func(w *world, batch int64, what string) *Witness {
		i := slices.IndexFunc(w.lines, func(l Witness) bool { return l.Batch == batch && l.What == what })
		return &w.lines[i]
	}
	for _, p := range []struct {
		invariant, what, says string
		plant                 func(*world)
	}{
		{"generated", "a batch is missing", "no run 0 of nightly 20261031", func(w *world) {
			w.exec("DELETE FROM task_work WHERE id = 30")
			w.exec("DELETE FROM batch_event WHERE batch_id = 30")
		}},
		{"generated", "one of two equal hours is missing", "2026110101-0500", func(w *world) {
			w.exec("UPDATE task_work SET batch_no = '2026110101' WHERE id = 13")
		}},
		{"generated", "a fire is missing", "no run 0 of quarters 20261101021500", func(w *world) {
			w.exec("DELETE FROM task_work WHERE id = 43")
			w.exec("DELETE FROM batch_event WHERE batch_id = 43")
		}},
		{"generated", "a mark was made twice", "2 runs 0 of nightly", func(w *world) {
			w.exec("DROP INDEX task_work_run")
			w.exec("DROP INDEX task_work_latest")
			w.exec("CREATE TEMP TABLE again AS SELECT * FROM task_work WHERE id = 30")
			w.exec("UPDATE again SET id = 61")
			w.exec("INSERT INTO task_work SELECT * FROM again")
		}},
		{"generated", "a batch of a task that was disabled long before", "took no part", func(w *world) {
			w.exec("INSERT INTO task_history (task_id, version, output_period, enabled, deleted, valid_from, valid_to, definition, changed_at, changed_by) VALUES (3, 2, 3, 0, 0, 0, 0, '{}', ?, 'alice')", w.run.From-hour)
		}},
		{"generated", "a batch of an interval that is none", "no interval", func(w *world) {
			w.batch(61, nightly, 3, "20261032", late-24*hour, late, late)
		}},
		{"generated", "an interval with the wrong end", "the oracle says", func(w *world) { w.exec("UPDATE task_work SET data_end = data_end + 1 WHERE id = 12") }},
		{"generated", "a batch at the wrong time", "schedule_time", func(w *world) { w.exec("UPDATE task_work SET schedule_time = schedule_time + 60000 WHERE id = 31") }},

		{"one-at-a-time", "a job found the lock taken", "another process held its lock", func(w *world) {
			o := *line(w, 30, Start)
			o.What = Overlap
			w.lines = append(w.lines, o)
		}},
		{"one-at-a-time", "two attempts at once", "ended at", func(w *world) {
			w.rerun(10, 60, late)
			w.life(60, "n2", late)
			line(w, 10, End).Uptime = line(w, 60, Start).Uptime + second
		}},
		{"one-at-a-time", "an attempt started twice", "started twice", func(w *world) { w.lines = append(w.lines, *line(w, 30, Start)) }},
		{"one-at-a-time", "a job that nobody ordered", "no event says", func(w *world) { line(w, 30, Start).Attempt = 5 }},

		{"nothing-lost", "ready, with a free node, and nobody looks", "is free", func(w *world) {
			w.rerun(30, 60, late)
		}},
		{"nothing-lost", "ready, and not later than latest_schedule_time", "is free", func(w *world) {
			w.rerun(30, 60, late)
			w.exec("INSERT INTO dic_data (name, value) VALUES ('latest_schedule_time', '2026-11-01 00:01:00')")
		}},
		{"nothing-lost", "its breaker opened by itself, and was closed again", "is free", func(w *world) {
			w.rerun(30, 60, late)
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) SELECT 'breaker_opened', 2, 'breaker_opened', task_id, 0, '', '', ? FROM task_work WHERE id = 30", late-2*minute)
			w.exec("INSERT INTO action_log (at, who, action, target, detail) SELECT ?, 'alice', 'breaker_close', 'task ' || t.name, '' FROM task t JOIN task_work b ON b.task_id = t.id WHERE b.id = 30", late-minute)
		}},
		{"nothing-lost", "a node is paused, and another is free", "is free", func(w *world) {
			w.rerun(30, 60, late)
			w.exec("INSERT INTO action_log (at, who, action, target, detail) VALUES (?, 'alice', 'dispatch_pause', 'node n1', 'odd')", late)
		}},
		{"nothing-lost", "waits for a parent that has succeeded", "has succeeded", func(w *world) {
			w.rerun(23, 60, late)
			w.exec("UPDATE task_work SET unmet = 1 WHERE id = 60")
			w.exec("INSERT INTO tparent_data (batch_id, seq, grp, policy, state, parent_task_id, parent_batch_no) VALUES (60, 0, 0, 0, 0, 1, '2026103123')")
		}},
		{"nothing-lost", "waits for a third party that has spoken", "reported ready", func(w *world) {
			w.rerun(23, 60, late)
			w.exec("UPDATE task_work SET unmet = 1 WHERE id = 60")
			w.exec("INSERT INTO tthird_data (batch_id, seq, state, code, period, batch_no) VALUES (60, 0, 0, 'closed', 2, '2026103123')")
		}},
		{"nothing-lost", "waits for a path that is there", "which is there", func(w *world) {
			dir := w.t.TempDir()
			require.NoError(w.t, os.WriteFile(filepath.Join(dir, "_SUCCESS"), nil, 0o600))
			w.rerun(30, 60, late)
			w.exec("UPDATE task_work SET unmet = 1 WHERE id = 60")
			w.exec("INSERT INTO task_data (batch_id, type, seq, state, path_hash, path, flag) VALUES (60, 1, 0, 0, 5, ?, '_SUCCESS')", dir)
		}},
		{"nothing-lost", "runs on a node that was lost", "is lost", func(w *world) {
			w.rerun(30, 60, late)
			w.assign(60, "n1", late)
			w.exec("UPDATE capri_schedul_cluster SET lost = 1 WHERE host = 'n1'")
		}},
		{"nothing-lost", "runs, and its node knows nothing of it", "does not hold", func(w *world) {
			w.rerun(30, 60, late)
			w.assign(60, "n1", late)
			w.exec("INSERT INTO node_inventory (host, boot_id, report, reported_at, attempts) VALUES ('n1', 'b', 2, 0, '77.1')")
		}},
		{"nothing-lost", "a success without a job", "no job of attempt 1", func(w *world) {
			w.lines = slices.DeleteFunc(w.lines, func(l Witness) bool { return l.Batch == 31 })
		}},

		{"fold", "a row that changed without an event", "its row says", func(w *world) { w.exec("UPDATE task_work SET finish_state = 2 WHERE id = 43") }},
		{"fold", "an attempt counted twice", "attempt 2 after 0", func(w *world) {
			w.exec("UPDATE batch_event SET attempt = 2 WHERE batch_id = 43")
			w.exec("UPDATE task_work SET attempt = 2 WHERE id = 43")
		}},
		{"fold", "a step that is none", "no such step", func(w *world) {
			w.say(50, "UPDATE task_work SET state = 2, node = 'n1', held = 0", "n1", 0, late)
		}},
		{"fold", "something happened to a finished run", "final", func(w *world) {
			w.say(43, "UPDATE task_work SET finish_state = 3", "alice", 0, late)
		}},
		{"fold", "a held batch was assigned", "it was held", func(w *world) {
			w.say(50, "UPDATE task_work SET state = 1, attempt = 1, node = 'n1'", "dispatch", 3, late)
		}},
		{"fold", "another node took it", "node is", func(w *world) {
			w.exec("UPDATE batch_event SET node = 'n9' WHERE batch_id = 43 AND state = 2")
		}},
		{"fold", "finished with no result", "finish_state", func(w *world) {
			setLast(w, "finish_state = 0")
			w.exec("UPDATE task_work SET finish_state = 0 WHERE id = 43")
		}},
		{"fold", "no run is the latest", "latest is false", func(w *world) { w.say(43, "UPDATE task_work SET latest = NULL", "alice", 0, late) }},
		{"fold", "a run that had started was undone", "latest is", func(w *world) {
			w.rerun(43, 60, late)
			w.assign(60, "n2", late)
			w.say(60, fmt.Sprintf("UPDATE task_work SET state = 2, start_time = %d", late+second), "n2", 0, late+second)
			w.undo(43, 60, late+minute)
		}},
		{"nothing-lost", "held back by a campaign that is over", "every condition is met", func(w *world) {
			w.rerun(30, 60, late)
			w.exec("UPDATE task_work SET unmet = 1, kinds = 64 WHERE id = 60")
			w.campaign(60, 6)
		}},
		{"fold", "a run number was left out", "where run 1 is due", func(w *world) {
			w.rerun(43, 60, late)
			w.exec("UPDATE task_work SET run_no = 2 WHERE id = 60")
		}},
		{"fold", "a count of conditions that drifted", "its conditions say", func(w *world) { w.exec("UPDATE task_work SET unmet = 1 WHERE id = 50") }},

		{"fencing", "an old epoch after a newer one", "has epoch 2", func(w *world) {
			w.exec("UPDATE batch_event SET epoch = 2 WHERE id = (SELECT MAX(id) FROM batch_event WHERE epoch = 3)")
		}},
		{"fencing", "a stale write before the new leader's first event", "had begun", func(w *world) {
			w.exec("UPDATE capri_service_lock SET epoch = 4 WHERE service = 'dispatch'")
			w.turn("reschedule", 4, late)
			w.rerun(43, 60, late)
			w.assign(60, "n2", late+minute)
		}},
		{"fencing", "an epoch that was never granted", "newest grant", func(w *world) {
			w.exec("UPDATE capri_service_lock SET epoch = 2 WHERE service = 'dispatch'")
		}},
		{"fencing", "a lease that vanished", "no lease", func(w *world) { w.exec("DELETE FROM capri_service_lock WHERE service = 'dispatch'") }},

		{"in-order", "a child before its parent", "had not succeeded", func(w *world) {
			w.exec("UPDATE tparent_data SET parent_batch_no = '2026110102' WHERE batch_id = 21")
		}},
		{"in-order", "a child on a parent that was to run again", "had not succeeded", func(w *world) {
			w.rerun(10, 60, at("2026-11-01T00:01:25-04:00"))
			w.exec("UPDATE batch_event SET id = id + 10000 WHERE id > (SELECT MAX(id) FROM batch_event WHERE batch_id = 10 AND state = 3 AND latest = 1) AND batch_id <> 10")
		}},
		{"in-order", "its job before its parent's had ended, as the jobs saw it", "which it waits for", func(w *world) {
			line(w, 11, End).Uptime = line(w, 21, Start).Uptime + second
		}},
		{"in-order", "on a path whose producer had not succeeded", "which produces it", func(w *world) {
			w.exec("UPDATE task_work SET finish_state = 2 WHERE id = 30")
			w.exec("UPDATE batch_event SET finish_state = 2 WHERE batch_id = 30 AND state = 3")
		}},
		{"in-order", "with a third party's word missing", "is unmet", func(w *world) { w.exec("UPDATE tthird_data SET state = 0 WHERE batch_id = 22") }},
		{"in-order", "none of a group of parents", "none of its parents", func(w *world) {
			w.exec("UPDATE tparent_data SET policy = 1, parent_batch_no = '2026110102' WHERE batch_id = 21")
		}},

		{"limits", "a task ran too often at once", "as number 2 of its task", func(w *world) {
			w.rerun(10, 60, late)
			w.rerun(11, 61, late)
			w.assign(60, "n2", late)
			w.assign(61, "n2", late)
		}},
		{"limits", "a node had too much in hand", "slots of 2", func(w *world) {
			for i, id := range []int{10, 30, 31} {
				w.rerun(id, 60+i, late)
				w.assign(60+i, "n1", late)
			}
		}},
		{"limits", "a node had too little memory", "MB of 1000", func(w *world) {
			w.exec("UPDATE task_work SET memory_mb = 1001 WHERE id = 43")
		}},
		{"limits", "max_running was passed", "max_running is 0", func(w *world) { w.run.MaxRunning = new(int) }},
		{"limits", "something was placed in a pause", "dispatch was paused", func(w *world) {
			w.exec("INSERT INTO action_log (at, who, action, target, detail) VALUES (?, 'alice', 'dispatch_pause', 'dispatch', 'upgrade'), (?, 'alice', 'dispatch_resume', 'dispatch', '')", late-10*minute, late)
		}},
		{"limits", "something was placed while its group was paused", "group etl was paused", func(w *world) {
			w.exec("UPDATE task SET task_group = 'etl'")
			w.exec("INSERT INTO action_log (at, who, action, target, detail) VALUES (?, 'alice', 'dispatch_pause', 'group etl', 'bad data')", late-10*minute)
			w.rerun(11, 60, late)
			w.life(60, "n2", late)
		}},
		{"limits", "something was placed while its breaker was open", "its breaker open", func(w *world) {
			w.exec("INSERT INTO action_log (at, who, action, target, detail) VALUES (?, 'alice', 'breaker_open', 'task hourly', 'it fails')", late-10*minute)
			w.rerun(11, 60, late)
			w.life(60, "n2", late)
		}},
		{"limits", "something was placed though its breaker had opened by itself", "its breaker open", func(w *world) {
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) SELECT 'breaker_opened', 2, 'breaker_opened', id, 0, '', '', ? FROM task WHERE name = 'hourly'", late-10*minute)
			w.rerun(11, 60, late)
			w.life(60, "n2", late)
		}},
		{"fold", "a success out of nothing", "finished is final", func(w *world) {
			w.say(10, "UPDATE task_work SET finish_state = 2", "n1", 0, late)
			w.say(10, "UPDATE task_work SET finish_state = 1", "alice", 0, late)
		}},
		{"fold", "a batch that may run without its conditions, and nobody said so", "nobody has said so", func(w *world) { w.exec("UPDATE task_work SET run_now = 1 WHERE id = 22") }},
		{"limits", "jobs of a task ran at once, as they saw it", "ran as number 2", func(w *world) {
			w.rerun(11, 60, late)
			w.life(60, "n2", late)
			line(w, 10, End).Uptime = line(w, 60, Start).Uptime + second
		}},
		{"limits", "jobs took more slots of a node than it has, as they saw it", "slots run on n1", func(w *world) {
			w.exec("UPDATE task_work SET slots = 2 WHERE id = 20")
			line(w, 10, End).Uptime = line(w, 20, Start).Uptime + second
		}},

		{"alerts", "a failure that nobody was told of", "nobody was told", func(w *world) {
			setLast(w, "finish_state = 2")
			w.exec("UPDATE task_work SET finish_state = 2 WHERE id = 43")
		}},
		{"alerts", "a failure that was none", "it is not so", func(w *world) {
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) VALUES ('batch_failed:43', 2, 'batch_failed', 5, 43, '', '', 0)")
		}},
		{"alerts", "a failure told twice", "2 alerts", func(w *world) {
			setLast(w, "finish_state = 2")
			w.exec("UPDATE task_work SET finish_state = 2 WHERE id = 43")
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) VALUES ('batch_failed:43', 2, 'batch_failed', 5, 43, '', '', 0), ('batch_failed:43:again', 2, 'batch_failed', 5, 43, '', '', 0)")
		}},

		{"alerts", "a time-out told to nobody", "dependency_timeout", func(w *world) { w.exec("UPDATE task_work SET dependency_timeout_at = 5 WHERE id = 43") }},
		{"alerts", "a time-out that was none", "output_timeout", func(w *world) {
			w.exec("INSERT INTO alert (alert_key, level, kind, task_id, batch_id, title, body, created_at) VALUES ('output_timeout:43', 2, 'output_timeout', 5, 43, '', '', 0)")
		}},
		{"alerts", "a lost node told to nobody", "nobody was told that it is lost", func(w *world) {
			w.lose("n1", late)
			w.exec("DELETE FROM alert")
		}},
		{"alerts", "a lost node told of long ago", "nobody was told that it is lost", func(w *world) {
			w.lose("n1", late)
			w.exec("UPDATE alert SET created_at = created_at - ?", 2*hour)
		}},

		{"ledger", "a ledger that does not add up", "expected 3", func(w *world) { w.exec("UPDATE generate_mark SET expected = 3 WHERE period = 2 AND expected = 2") }},
		{"ledger", "a ledger that counts what is not there", "rows that marks made", func(w *world) {
			w.exec("UPDATE generate_mark SET expected = 3, made = 3 WHERE period = 2 AND expected = 2")
		}},
		{"ledger", "a failure that nobody keeps", "0 failures stand", func(w *world) {
			w.exec("UPDATE generate_mark SET made = 0, present = expected - 1, failed = 1 WHERE period = 2 AND expected = 2")
		}},
		{"ledger", "a mark that the log left out", "no mark", func(w *world) { w.exec("DELETE FROM generate_mark WHERE period = 4 AND expected = 1") }},
		{"ledger", "a mark that was never completed", "not complete", func(w *world) { w.exec("UPDATE generate_mark SET complete = 0 WHERE period = 3") }},
	} {
		t.Run(p.invariant+"/"+p.what, func(t *testing.T) {
			w := newWorld(t)
			p.plant(w)
			rep := w.check()
			require.False(t, rep.OK)
			i := slices.IndexFunc(rep.Invariants, func(r Result) bool { return r.Name == p.invariant })
			require.Contains(t, strings.Join(rep.Invariants[i].Evidence, "\n"), p.says)
		})
	}
}

func TestAReport_shows_the_first_ten_and_how_many_more(t *testing.T) {
	w := newWorld(t)
	w.exec("UPDATE task_work SET data_start = data_start + 1")
	rep := w.check()
	require.Len(t, rep.Invariants[0].Evidence, mostEvidence)
	var text strings.Builder
	rep.Print(&text)
	require.Contains(t, text.String(), fmt.Sprintf("… and %d more", rep.Invariants[0].Violations-mostEvidence))
}

func TestWithoutAWitness_the_report_says_so(t *testing.T) {
	w := newWorld(t)
	w.lines = nil
	rep := w.check()
	require.True(t, rep.OK)
	require.NotEmpty(t, rep.Invariants[1].NotChecked)
}
