package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

var ctx = context.Background()

// write runs fn as alice, and fails the test where it fails.
func write(t *testing.T, db *sqltest.DB, fn func(*store.Tx) error) {
	t.Helper()
	if err := db.Store.Write(ctx, "write", "alice", fn); err != nil {
		t.Fatal(err)
	}
}

// refused runs fn and wants an error of that kind that says all of words.
func refused(t *testing.T, db *sqltest.DB, kind error, fn func(*store.Tx) error, words ...string) {
	t.Helper()
	err := db.Store.Write(ctx, "write", "alice", fn)
	if !errors.Is(err, kind) {
		t.Errorf("got %v, want: %v", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// names lists the tasks' names.
func names(tasks []*capri.Task) string {
	var all []string
	for _, t := range tasks {
		all = append(all, t.Name)
	}
	return strings.Join(all, " ")
}

func firstMark(t *testing.T, db *sqltest.DB, id capri.TaskID) capri.Instant {
	t.Helper()
	refs, err := db.Store.ParentRefs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return refs[id].FirstMark
}

// full is a definition that uses every field.
func full() capri.Spec {
	at := func(s string) *capri.Offset {
		o, err := capri.ParseOffset(s)
		if err != nil {
			panic(err)
		}
		return &o
	}
	s := sqltest.Spec("full")
	s.Title, s.Period, s.Cron = "Bestellungen <gereinigt> & 订单 🚚", capri.Cron, "0 30 2 * * ?"
	s.Job = capri.Job{Type: "shell", Command: "clean.sh '${yyyyMMdd}' | wc\n\t\"x\"", Account: "etl", Files: []string{"hdfs:///a"}, Env: map[string]string{"K": "v"}, Params: map[string]string{"p": ""}}
	s.Inputs = []capri.Input{{Path: "/ods/${HH}", Flag: "none", Unit: capri.Hour, From: at("-23"), To: at("end+3")}, {Path: "/x"}}
	s.Outputs = []capri.Output{{Path: "/dwd", Flag: "_DONE"}}
	s.ThirdParty = []capri.ThirdParty{{Code: "payments_closed"}}
	s.Parents = []capri.Parent{{Task: "a", Policy: capri.LastOne, TaskID: 4711}, {Task: "full", From: at("-1"), To: at("-1"), TaskID: 1}}
	s.Worker.Nodes = []string{"n1", "n2"}
	s.Limits.ExpireAtDayEnd, s.QualityGate = true, true
	s.Alert.NotifyOn = []string{"failed"}
	s.Valid = capri.Validity{From: "2026-01-01 00:00:00"}
	return s
}

func TestSaveTask_stores_all_that_people_wrote_and_each_edit_is_a_version(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		id, err := db.Store.ReserveTaskIDs(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		task := &capri.Task{ID: id, Spec: full(), App: "portal", Submitter: "alice"}
		write(t, db, func(tx *store.Tx) error { return tx.SaveTask(task, 5, 0) })
		got, err := db.Store.TaskByName(ctx, "full")
		if err != nil {
			t.Fatal(err)
		}
		if task.Version != 1 || task.CreatedAt != sqltest.Start || task.UpdatedAt != sqltest.Start || !reflect.DeepEqual(got, task) {
			t.Errorf("stored  %+v\nread %+v", task, got)
		}

		later := db.Clock.Advance(time.Hour)
		edit := &capri.Task{Spec: full()}
		edit.Priority, edit.Enabled = 0, false
		err = db.Store.Write(ctx, "edit", "bob", func(tx *store.Tx) error { return tx.SaveTask(edit, 0, 0) })
		if err != nil || edit.ID != id || edit.Version != 2 || edit.CreatedAt != sqltest.Start || edit.UpdatedAt != later {
			t.Errorf("%v: the edit is %+v", err, edit)
		}
		versions, err := db.Store.TaskVersions(ctx, []store.VersionKey{{ID: id, Version: 1}, {ID: id, Version: 2}, {ID: id, Version: 2}, {ID: id, Version: 3}, {ID: 99, Version: 1}})
		if err != nil || len(versions) != 2 || versions[store.VersionKey{ID: id, Version: 1}].Priority != 5 || versions[store.VersionKey{ID: id, Version: 2}].Priority != 0 {
			t.Errorf("versions %v, %v", versions, err)
		}
		if old, err := db.Store.TaskVersion(ctx, id, 1); err != nil || !reflect.DeepEqual(old.Spec, full()) || old.UpdatedAt != sqltest.Start || old.CreatedAt != sqltest.Start {
			t.Errorf("version 1 is %+v, %v", old, err)
		}
		if _, err := db.Store.TaskVersion(ctx, id, 3); !errors.Is(err, capri.ErrNotFound) {
			t.Errorf("version 3: %v", err)
		}
		history, err := db.Store.TaskHistory(ctx, id, 0, 0)
		if err != nil || len(history) != 2 || history[0].Version != 2 || history[0].By != "bob" || history[0].Enabled || history[0].At != later ||
			history[1].By != "alice" || !history[1].Enabled || history[1].Spec.Title != full().Title {
			t.Errorf("history %+v, %v", history, err)
		}
	})
}

func TestSaveTask_keeps_the_definition_as_plain_JSON_that_people_can_read(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		db.Task(t, func(s *capri.Spec) { s.Name, s.Job.Command = "plain", "a < b && c > d" })
		var text, checkType string
		var period, begin int
		err := db.Store.DB().QueryRow("SELECT definition, output_period, task_begin_time, check_type FROM task").Scan(&text, &period, &begin, &checkType)
		if err != nil || period != 3 || begin != -1 || checkType != "exit_code" || !json.Valid([]byte(text)) || !strings.Contains(text, "a < b && c > d") {
			t.Errorf("%v: period %d, begin %d, check %s, definition %s", err, period, begin, checkType, text)
		}
	})
}

func TestSaveTask_gives_a_deleted_name_its_id_back_and_goes_on_counting_versions(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		task := db.Task(t, func(s *capri.Spec) { s.Name = "phoenix" })
		db.Clock.Advance(time.Hour)
		write(t, db, func(tx *store.Tx) error { return tx.DeleteTask(task.ID) })
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.DeleteTask(task.ID) })
		refused(t, db, capri.ErrNotFound, func(tx *store.Tx) error { return tx.DeleteTask(4711) })
		if _, err := db.Store.TaskByName(ctx, "phoenix"); !errors.Is(err, capri.ErrNotFound) || !strings.Contains(err.Error(), "phoenix") {
			t.Errorf("a deleted task: %v", err)
		}
		gone, err := db.Store.Tasks(ctx, store.TaskFilter{WithDeleted: true})
		if err != nil || len(gone) != 1 || gone[0].DeletedAt != db.Clock.Now() || gone[0].Version != 2 {
			t.Fatalf("with deleted: %+v, %v", gone, err)
		}
		if known, err := db.Store.TaskNames(ctx, []capri.TaskID{task.ID, 99}); err != nil || len(known) != 1 || known[task.ID] != "phoenix" {
			t.Errorf("names %v, %v", known, err)
		}
		if refs, err := db.Store.ParentRefs(ctx); err != nil || len(refs) != 0 {
			t.Errorf("parents %v, %v", refs, err)
		}

		db.Clock.Advance(time.Hour)
		again := db.Task(t, func(s *capri.Spec) { s.Name = "phoenix" })
		if again.ID != task.ID || again.Version != 3 || again.DeletedAt != 0 || again.CreatedAt != sqltest.Start {
			t.Errorf("revived: %+v", again)
		}
		history, err := db.Store.TaskHistory(ctx, task.ID, 0, 0)
		if err != nil || len(history) != 3 || history[0].Deleted || !history[1].Deleted || history[1].Spec.Name != "phoenix" {
			t.Errorf("history %+v, %v", history, err)
		}
	})
}

func TestSaveTask_refuses_what_would_give_a_task_two_ids_or_one_id_two_tasks(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		task := db.Task(t, func(s *capri.Spec) { s.Name = "a" })
		save := func(id capri.TaskID, name string) func(*store.Tx) error {
			return func(tx *store.Tx) error {
				return tx.SaveTask(&capri.Task{ID: id, Spec: sqltest.Spec(name)}, 0, 0)
			}
		}
		refused(t, db, capri.ErrConflict, save(task.ID+500, "a"), fmt.Sprint(task.ID))
		refused(t, db, capri.ErrConflict, save(0, "b"), "no id")
		refused(t, db, capri.ErrConflict, save(task.ID, "b"), "b")
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error {
			one := store.TaskSave{Task: &capri.Task{ID: 77, Spec: sqltest.Spec("c")}}
			return tx.SaveTasks([]store.TaskSave{one, one})
		}, "once")
		if all, err := db.Store.Tasks(ctx, store.TaskFilter{}); err != nil || names(all) != "a" || all[0].Version != 1 {
			t.Errorf("%s, %v", names(all), err)
		}
	})
}

func TestSaveTask_takes_names_of_128_characters_in_any_script_and_refuses_longer_ones(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		long := strings.Repeat("名", 127) + "🚚"
		db.Task(t, func(s *capri.Spec) { s.Name, s.Group, s.Owner = long, long, long })
		db.Task(t, func(s *capri.Spec) { s.Name = "Case" })
		db.Task(t, func(s *capri.Spec) { s.Name = "case" })
		for _, name := range []string{long, "Case", "case"} {
			if got, err := db.Store.TaskByName(ctx, name); err != nil || got.Name != name {
				t.Errorf("%v: %v", got, err)
			}
		}
		if _, err := db.Store.TaskByName(ctx, "CASE"); !errors.Is(err, capri.ErrNotFound) {
			t.Errorf("names are compared byte by byte, got %v", err)
		}
		for field, change := range map[string]func(*capri.Task){
			"name":      func(x *capri.Task) { x.Name = long + "x" },
			"group":     func(x *capri.Task) { x.Group = long + "x" },
			"owner":     func(x *capri.Task) { x.Owner = "a\xffb" },
			"cron":      func(x *capri.Task) { x.Cron = strings.Repeat("0", 256) },
			"submitter": func(x *capri.Task) { x.Submitter = strings.Repeat("s", 191) },
		} {
			task := &capri.Task{ID: 900, Spec: sqltest.Spec("fine")}
			change(task)
			refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveTask(task, 0, 0) }, field)
		}
		for _, name := range []string{"", " a", "a "} {
			refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error {
				return tx.SaveTask(&capri.Task{ID: 900, Spec: sqltest.Spec(name)}, 0, 0)
			}, "name")
		}
	})
}

func TestSaveTask_by_two_at_once_makes_two_versions_of_one_task(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		var wg sync.WaitGroup
		for i := range 4 {
			s := db.Again(t)
			wg.Go(func() {
				for range 3 {
					err := s.Write(ctx, "edit", fmt.Sprint("editor ", i), func(tx *store.Tx) error {
						if err := tx.LockDefinitions(); err != nil {
							return err
						}
						known, err := tx.Tasks(store.TaskFilter{Names: []string{"contested"}})
						if err != nil {
							return err
						}
						task := &capri.Task{ID: capri.TaskID(100 + i), Spec: sqltest.Spec("contested")}
						if len(known) > 0 {
							task.ID, task.ExpectedMinutes = known[0].ID, known[0].Version
						}
						if err := tx.SaveTask(task, 0, 0); err != nil {
							return err
						}
						if task.Version != task.ExpectedMinutes+1 {
							return fmt.Errorf("read version %d under the lock, then wrote version %d", task.ExpectedMinutes, task.Version)
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		task, err := db.Store.TaskByName(ctx, "contested")
		if err != nil || task.Version != 12 {
			t.Fatalf("%+v, %v", task, err)
		}
		if history, err := db.Store.TaskHistory(ctx, task.ID, 0, 0); err != nil || len(history) != 12 {
			t.Errorf("%d versions, %v", len(history), err)
		}
	})
}

func TestSaveTask_keeps_history_in_order_for_a_transaction_that_waited(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		task := db.Task(t, func(s *capri.Spec) { s.Name = "a" })
		db.Clock.Advance(-time.Minute) // as if this one had begun before the other
		db.Task(t, func(s *capri.Spec) { s.Name, s.Enabled = "a", false })
		history, err := db.Store.TaskHistory(ctx, task.ID, 0, 0)
		if err != nil || len(history) != 2 || history[0].At < history[1].At {
			t.Errorf("%+v, %v", history, err)
		}
	})
}

func TestSaveTasks_stores_all_or_none(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		first, err := db.Store.ReserveTaskIDs(ctx, 250)
		if err != nil {
			t.Fatal(err)
		}
		var saves []store.TaskSave
		for i := range 250 {
			saves = append(saves, store.TaskSave{Task: &capri.Task{ID: first + capri.TaskID(i), Spec: sqltest.Spec(fmt.Sprintf("t%03d", i))}})
		}
		saves[249].Group = strings.Repeat("g", 129)
		refused(t, db, capri.ErrInvalid, func(tx *store.Tx) error { return tx.SaveTasks(saves) }, "group")
		if all, err := db.Store.Tasks(ctx, store.TaskFilter{WithDeleted: true}); err != nil || len(all) != 0 {
			t.Errorf("%d tasks, %v", len(all), err)
		}
		saves[249].Group = "g"
		write(t, db, func(tx *store.Tx) error { return tx.SaveTasks(saves) })
		if all, err := db.Store.Tasks(ctx, store.TaskFilter{}); err != nil || len(all) != 250 {
			t.Errorf("%d tasks, %v", len(all), err)
		}
	})
}

func TestTasks_are_listed_by_name_filtered_and_in_pages(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		db.Tasks(t, 6, func(i int, s *capri.Spec) {
			s.Name = []string{"b", "a", "Z", "é", "c", "d"}[i]
			s.Enabled = i != 4
			if i > 2 {
				s.Group, s.Owner, s.Period = "other", "bob", capri.Hour
			}
		})
		gone := db.Task(t, func(s *capri.Spec) { s.Name = "gone" })
		write(t, db, func(tx *store.Tx) error { return tx.DeleteTask(gone.ID) })
		no, yes := false, true
		many := []string{"é", "b", "nobody", "a", "b"}
		for i := range 600 { // more than one chunk
			many = append(many, fmt.Sprintf("nobody%03d", i))
		}
		for want, f := range map[string]store.TaskFilter{
			"Z a b c d é":      {},
			"Z a b c d gone é": {WithDeleted: true},
			"c d é":            {Group: "other"},
			"Z a b":            {Owner: "alice"},
			"d é":              {Period: capri.Hour, Enabled: &yes},
			"c":                {Enabled: &no},
			"Z a":              {Limit: 2},
			"b c":              {After: "a", Limit: 2},
			"a b é":            {Names: many},
			"a b":              {Names: many, Limit: 2},
			"":                 {Names: []string{}},
		} {
			if got, err := db.Store.Tasks(ctx, f); err != nil || names(got) != want {
				t.Errorf("%.60v: got %q, %v, want %q", f, names(got), err, want)
			}
		}
	})
}

func TestChildren_follow_the_newest_versions_that_live(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		a := db.Task(t, func(s *capri.Spec) { s.Name = "a" })
		parents := func(names ...string) func(*capri.Spec) {
			return func(s *capri.Spec) {
				s.Name = "b"
				for _, n := range names {
					s.Parents = append(s.Parents, capri.Parent{Task: n})
				}
			}
		}
		b := db.Task(t, parents("a", "b", "a")) // itself, and one parent with two windows
		want := func(of capri.TaskID, ids ...capri.TaskID) {
			t.Helper()
			if got, err := db.Store.Children(ctx, of); err != nil || !slices.Equal(got, ids) {
				t.Errorf("children of %d: %v, %v, want %v", of, got, err, ids)
			}
		}
		want(a.ID, b.ID)
		want(b.ID, b.ID)
		db.Task(t, parents("b"))
		want(a.ID)
		want(b.ID, b.ID)
		db.Task(t, parents("a"))
		write(t, db, func(tx *store.Tx) error { return tx.DeleteTask(b.ID) })
		want(a.ID)
		if err := db.Store.Write(ctx, "save", "alice", func(tx *store.Tx) error {
			c := sqltest.Spec("c")
			c.Parents = []capri.Parent{{Task: "a"}}
			return tx.SaveTask(&capri.Task{ID: 500, Spec: c}, 0, 0)
		}); err == nil || !strings.Contains(err.Error(), "has no id") {
			t.Errorf("a parent without an id: %v", err)
		}
	})
}

func TestFirstMark_is_where_validity_begins_or_the_name_was_made_or_an_earlier_batch(t *testing.T) {
	day := 24 * time.Hour
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		start := sqltest.Start
		var id capri.TaskID
		save := func(from capri.Instant) {
			t.Helper()
			task := &capri.Task{ID: id, Spec: sqltest.Spec("parent")}
			write(t, db, func(tx *store.Tx) error { return tx.SaveTask(task, from, 0) })
		}
		want := func(at capri.Instant) {
			t.Helper()
			if got := firstMark(t, db, id); got != at {
				t.Errorf("first mark is %s, want %s", got, at)
			}
		}
		id = db.Task(t, func(s *capri.Spec) { s.Name = "parent" }).ID
		want(start)
		db.Clock.Advance(day)
		save(0)
		want(start)
		save(start.Add(-10 * day))
		want(start.Add(-10 * day))
		save(start.Add(-5 * day)) // an edit that moves the beginning later, and no batch stands in the way
		want(start.Add(-5 * day))

		write(t, db, func(tx *store.Tx) error { return tx.LowerFirstMark(start.Add(-20*day), id) })
		write(t, db, func(tx *store.Tx) error { return tx.LowerFirstMark(start.Add(-15*day), id) })
		want(start.Add(-20 * day))
		save(start.Add(-5 * day)) // another edit leaves it
		want(start.Add(-20 * day))

		_, err := db.Store.DB().Exec(`INSERT INTO task_work (id, task_id, task_version, period, batch_no, run_no, latest, origin, schedule_time, data_start, data_end,
			create_time, state, finish_state, unmet, kinds, not_before, priority, slots, memory_mb, concurrency, pool, strategy)
			VALUES (1, ?, 1, 3, '20261101', 0, 1, 2, ?, 0, ?, 0, 0, 0, 0, 0, 0, 5, 1, 0, 1, 'default', 'random')`, int64(id), int64(start), int64(start.Add(-18*day)))
		if err != nil {
			t.Fatal(err)
		}
		save(start.Add(-2 * day)) // as late as the earliest batch that exists
		want(start.Add(-18 * day))
	})
}

func TestTakingPart_asks_the_history_what_was_in_force_at_the_mark(t *testing.T) {
	mark := sqltest.Start.Add(24 * time.Hour)
	text := func(at capri.Instant) string { return at.In(time.UTC).Format(time.DateTime) }
	off := func(s *capri.Spec) { s.Enabled = false }
	hourly := func(s *capri.Spec) { s.Period = capri.Hour }
	from := func(at capri.Instant) func(*capri.Spec) {
		return func(s *capri.Spec) { s.Valid.From = text(at) }
	}
	to := func(at capri.Instant) func(*capri.Spec) { return func(s *capri.Spec) { s.Valid.To = text(at) } }
	remove := func(*capri.Spec) {} // stands for DeleteTask
	plain := func(*capri.Spec) {}

	// Each task is a row of edits: at the beginning, an hour before the mark, at the mark, an hour after it; nil: no edit.
	cases := []struct {
		name    string
		edits   [4]func(*capri.Spec)
		deleted [4]bool
		takes   bool
	}{
		{name: "enabled_since_long", edits: [4]func(*capri.Spec){plain}, takes: true},
		{name: "made_at_the_mark", edits: [4]func(*capri.Spec){2: plain}, takes: true},
		{name: "made_after_the_mark", edits: [4]func(*capri.Spec){3: plain}},
		{name: "disabled_before", edits: [4]func(*capri.Spec){plain, off}},
		{name: "disabled_after", edits: [4]func(*capri.Spec){plain, nil, nil, off}},
		{name: "enabled_after", edits: [4]func(*capri.Spec){off, nil, nil, plain}},
		{name: "enabled_before", edits: [4]func(*capri.Spec){off, plain}, takes: true},
		{name: "enabled_before_and_edited_after", edits: [4]func(*capri.Spec){off, plain, nil, plain}, takes: true},
		{name: "disabled_at_the_mark_and_enabled_after", edits: [4]func(*capri.Spec){plain, nil, off, plain}},
		{name: "edited_after", edits: [4]func(*capri.Spec){plain, nil, nil, plain}, takes: true},
		{name: "of_another_period", edits: [4]func(*capri.Spec){hourly}},
		{name: "of_another_period_then", edits: [4]func(*capri.Spec){hourly, nil, nil, plain}},
		{name: "of_another_period_now", edits: [4]func(*capri.Spec){plain, nil, nil, hourly}},
		{name: "valid_from_the_mark", edits: [4]func(*capri.Spec){from(mark)}, takes: true},
		{name: "valid_from_later", edits: [4]func(*capri.Spec){from(mark + 1000)}},
		{name: "valid_to_the_mark", edits: [4]func(*capri.Spec){to(mark)}},
		{name: "valid_to_later", edits: [4]func(*capri.Spec){to(mark + 1000)}, takes: true},
		{name: "not_valid_then_but_now", edits: [4]func(*capri.Spec){to(mark), nil, nil, plain}},
		{name: "valid_then_but_not_now", edits: [4]func(*capri.Spec){plain, nil, nil, to(mark)}, takes: true},
		{name: "deleted_before", edits: [4]func(*capri.Spec){plain, remove}, deleted: [4]bool{1: true}},
		{name: "deleted_after", edits: [4]func(*capri.Spec){plain, nil, nil, remove}, deleted: [4]bool{3: true}},
		{name: "deleted_then_and_revived_after", edits: [4]func(*capri.Spec){plain, remove, nil, plain}, deleted: [4]bool{1: true}},
	}
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		var want []string
		for step, at := range []capri.Instant{sqltest.Start, mark.Add(-time.Hour), mark, mark.Add(time.Hour)} {
			db.Clock.Set(at)
			for _, c := range cases {
				switch edit := c.edits[step]; {
				case c.deleted[step]:
					task, err := db.Store.TaskByName(ctx, c.name)
					if err != nil {
						t.Fatal(err)
					}
					write(t, db, func(tx *store.Tx) error { return tx.DeleteTask(task.ID) })
				case edit != nil:
					db.Task(t, func(s *capri.Spec) { s.Name = c.name; s.Title = fmt.Sprint("step ", step); edit(s) })
				}
			}
		}
		for _, c := range cases {
			if c.takes {
				want = append(want, c.name)
			}
		}
		got, err := db.Store.TakingPart(ctx, capri.Day, mark, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range got {
			if task.Name == "edited_after" && task.Title != "step 3" {
				t.Errorf("content of %q is of %s, want the newest version", task.Name, task.Title)
			}
		}
		gotNames := strings.Fields(names(got))
		slices.Sort(gotNames)
		slices.Sort(want)
		if !slices.Equal(gotNames, want) {
			t.Errorf("got  %v\nwant %v", gotNames, want)
		}

		var paged []*capri.Task
		for after := capri.TaskID(0); ; {
			page, err := db.Store.TakingPart(ctx, capri.Day, mark, after, 3)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
			after = page[len(page)-1].ID
		}
		if !reflect.DeepEqual(paged, got) {
			t.Errorf("in pages: %s\nat once:  %s", names(paged), names(got))
		}
	})
}

// BenchmarkTakingPart reads the tasks of a mark in pages of 2,000 with a definition of about 1 KB each; one task in
// fifty was edited after the mark. The limit it is compared with is decoding the same definitions from memory.
func BenchmarkTakingPart(b *testing.B) {
	for _, kind := range []struct {
		name  string
		fresh func(testing.TB) *sqltest.DB
	}{{"sqlite", sqltest.SQLite}, {"mysql", sqltest.MySQL}} {
		b.Run(kind.name, func(b *testing.B) {
			const n = 20_000
			db := kind.fresh(b)
			change := func(i int, s *capri.Spec) {
				name := s.Name
				*s = full()
				s.Name, s.Period, s.Parents = name, capri.Day, nil
			}
			tasks := db.Tasks(b, n, change)
			mark := db.Clock.Advance(time.Hour)
			db.Clock.Advance(time.Hour)
			db.Tasks(b, n/50, func(i int, s *capri.Spec) { change(i, s); s.Name = tasks[i*50].Name })

			text, err := json.Marshal(tasks[0].Spec)
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			for range n {
				var s capri.Spec
				if err := json.Unmarshal(text, &s); err != nil {
					b.Fatal(err)
				}
			}
			limit := time.Since(began)
			for b.Loop() {
				got := 0
				for after := capri.TaskID(0); ; {
					page, err := db.Store.TakingPart(ctx, capri.Day, mark, after, 2000)
					if err != nil {
						b.Fatal(err)
					}
					if len(page) == 0 {
						break
					}
					got, after = got+len(page), page[len(page)-1].ID
				}
				if got != n {
					b.Fatalf("%d tasks take part, want %d", got, n)
				}
			}
			each := b.Elapsed() / time.Duration(b.N) / n
			b.ReportMetric(float64(each.Nanoseconds())/1000, "µs/task")
			b.ReportMetric(float64(each)/float64(limit/n), "×decoding")
			b.ReportMetric(float64(len(text)), "bytes/task")
		})
	}
}

func TestADefinition_is_stored_without_its_zeros_and_read_back_the_same(t *testing.T) {
	s := sqltest.Spec("everything")
	s.Priority, s.Enabled, s.Cascade = 0, false, false
	s.Job.Env, s.Job.Params = map[string]string{"EMPTY": "", "X": "<&>"}, map[string]string{"zero": "0", "none": ""}
	s.Inputs = []capri.Input{{Path: "/a/${HH}", Flag: "_SUCCESS", Unit: capri.Hour, From: &capri.Offset{}, To: &capri.Offset{End: true, N: 3}}}
	s.Parents = []capri.Parent{{Task: "p", TaskID: 7, Policy: capri.Anyone}}
	s.Alert.DefaultRules = false
	text, err := store.EncodeSpec(&s)
	if err != nil {
		t.Fatal(err)
	}
	var back capri.Spec
	if err := json.Unmarshal([]byte(text), &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, back) {
		t.Errorf("%s\nbecame %+v\nfrom   %+v", text, back, s)
	}
	if strings.Contains(text, `"enabled"`) || strings.Contains(text, `"dependency_timeout_minutes"`) {
		t.Errorf("zeros are stored: %s", text)
	}
}
