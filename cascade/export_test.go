package cascade

import (
	"capri"
	"capri/calendar"
	"capri/lineage"
)

// Obvious is the obvious search for tests that look at plans from outside. Batches are "task batch_no".
type Obvious struct{ rows *edges }

// SearchObviously makes every batch until an instant.
func SearchObviously(c calendar.Calendar, tasks []*capri.Task, refs map[capri.TaskID]lineage.Ref, until capri.Instant) (*Obvious, error) {
	w := &world{c: c, tasks: tasks, refs: refs}
	all, err := w.batches(until)
	if err != nil {
		return nil, err
	}
	return &Obvious{edgesOf(all)}, nil
}

// Reach gives all that a rerun of a task's batch_nos reaches, each with those of them that it waits for.
func (o *Obvious) Reach(task string, nos []capri.BatchNo, by By) map[string][]string {
	roots := make([]name, len(nos))
	for i, no := range nos {
		roots[i] = name{task, no}
	}
	word := func(n name) string { return n.task + " " + string(n.no) }
	found := o.rows.reach(roots, by)
	out := make(map[string][]string, len(found.in))
	for n := range found.in {
		before := []string{}
		for b := range found.before[n] {
			before = append(before, word(b))
		}
		out[word(n)] = before
	}
	return out
}
