package sqltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"capri"
	"capri/sql/store"
)

// Spec is a valid definition with the defaults of the task file: a day task that runs true.
func Spec(name string) capri.Spec {
	return capri.Spec{
		Name: name, Group: "test", Owner: "alice", Period: capri.Day, Priority: 5,
		Job:     capri.Job{Type: "shell", Command: "true"},
		Worker:  capri.Placement{Pool: "default", Strategy: capri.RoundRobin, Slots: 1},
		Limits:  capri.Limits{Concurrency: 1, BeginMinutes: -1},
		Retry:   capri.Retry{FailedIntervalS: 3, Rejected: -1, RejectedIntervalS: 3},
		Check:   capri.CheckExitCode,
		Alert:   capri.AlertRules{DefaultRules: true},
		Cascade: true, Enabled: true,
	}
}

// Task stores a task: Spec with what change makes of it. Without a name it gets one of its own. Parents may name
// tasks that are stored, their ids are filled in. A name that is stored already gets its next version.
func (db *DB) Task(t testing.TB, change func(*capri.Spec)) *capri.Task {
	t.Helper()
	return db.Tasks(t, 1, func(_ int, s *capri.Spec) {
		if change != nil {
			change(s)
		}
	})[0]
}

// Tasks stores n tasks in one transaction.
func (db *DB) Tasks(t testing.TB, n int, change func(i int, s *capri.Spec)) []*capri.Task {
	t.Helper()
	ctx := context.Background()
	first, err := db.Store.ReserveTaskIDs(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	tasks := make([]*capri.Task, n)
	saves := make([]store.TaskSave, n)
	err = db.Store.Write(ctx, "save a test's tasks", "alice", func(tx *store.Tx) error {
		names := make([]string, n)
		var parents []string
		for i := range tasks {
			tasks[i] = &capri.Task{ID: first + capri.TaskID(i), Submitter: "alice"}
			tasks[i].Spec = Spec(fmt.Sprintf("task_%d", tasks[i].ID))
			change(i, &tasks[i].Spec)
			names[i] = tasks[i].Name
			for _, p := range tasks[i].Parents {
				parents = append(parents, p.Task)
			}
			saves[i] = store.TaskSave{Task: tasks[i], ValidFrom: instant(t, tasks[i].Valid.From), ValidTo: instant(t, tasks[i].Valid.To)}
		}
		known, err := tx.Tasks(store.TaskFilter{Names: slices.Concat(names, parents), WithDeleted: true})
		if err != nil {
			return err
		}
		ids := map[string]capri.TaskID{}
		for _, k := range tasks {
			ids[k.Name] = k.ID
		}
		for _, k := range known {
			ids[k.Name] = k.ID
		}
		for _, k := range tasks {
			k.ID = ids[k.Name]
			for i := range k.Parents {
				k.Parents[i].TaskID = ids[k.Parents[i].Task]
			}
		}
		return tx.SaveTasks(saves)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// instant reads business time, which is UTC in tests.
func instant(t testing.TB, text string) capri.Instant {
	t.Helper()
	if text == "" {
		return 0
	}
	at, err := time.Parse(time.DateTime, text)
	if err != nil {
		t.Fatal(err)
	}
	return capri.InstantOf(at)
}

// Lease takes a service's lease, from whoever has it.
func (db *DB) Lease(t testing.TB, service string) capri.Lease {
	t.Helper()
	ctx := context.Background()
	locks, err := db.Store.Locks(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range locks {
		if l.Service != service {
			continue
		}
		lease, ok, err := db.Store.AcquireLease(ctx, service, "test", l)
		if err != nil || !ok {
			t.Fatalf("acquire the lease of %s: %v %v", service, ok, err)
		}
		return lease
	}
	t.Fatalf("no lease of %s", service)
	return capri.Lease{}
}

// Set writes a setting as an operator does: by SQL.
func (db *DB) Set(t testing.TB, name, value string) {
	t.Helper()
	for _, text := range []string{"DELETE FROM dic_data WHERE name = ?", "INSERT INTO dic_data (name, value) VALUES (?, ?)"} {
		args := []any{name, value}
		if _, err := db.Store.DB().ExecContext(context.Background(), text, args[:strings.Count(text, "?")]...); err != nil {
			t.Fatal(err)
		}
	}
}
