package alert

import (
	"context"
	"fmt"
	"strings"

	"capri"
	"capri/sql/store"
)

// cause is what makes alerts one incident.
type cause struct {
	name  string
	batch capri.BatchID // the batch that it is about, 0 where it is about none
	task  capri.TaskID
}

// Causes of alerts that are about no batch. A kind that is not here is a cause by itself: all nodes that are lost, all
// probes that fail within the time of an incident are told of together.
var causes = map[string]func(a *store.AlertRow) string{
	// Failures of a mark: generate_failed:<period>:<mark>:<task>; see shared. The warning that they are many is of the
	// system: others are told of it, and it climbs where nobody acknowledges it.
	"generate_failed":      func(a *store.AlertRow) string { return "generate:" + fields(a.Key, 1, 3) },
	"generate_many_failed": func(a *store.AlertRow) string { return a.Key },
	"probe_failed":         func(a *store.AlertRow) string { return fields(a.Key, 0, 2) }, // probe_failed:<name>:<time>
	"probe_over":           func(a *store.AlertRow) string { return "probe_failed:" + fields(a.Key, 1, 2) },
	"raised":               func(a *store.AlertRow) string { return withoutHour(a.Key) }, // by people and scripts, who choose it
	"message_given_up":     func(a *store.AlertRow) string { return fields(a.Key, 0, 2) },
	"channel_down":         func(a *store.AlertRow) string { return fields(a.Key, 0, 2) },
}

// shared are the kinds whose cause is of many tasks: each department has an incident of its own, since who acknowledges it
// speaks for his own and not for the owners of tasks that he does not know.
var shared = map[string]bool{"generate_failed": true}

// withoutHour takes the hour off a key that ends in one: what goes on in the next hour is the same trouble.
func withoutHour(key string) string {
	at := strings.LastIndex(key, ":")
	if at < 0 || len(key)-at-1 != len("2006010215") || strings.Trim(key[at+1:], "0123456789") != "" {
		return key
	}
	return key[:at]
}

// fields is a part of a key, from and up to the colons of these numbers.
func fields(key string, from, to int) string {
	parts := strings.Split(key, ":")
	if len(parts) < to {
		return key
	}
	return strings.Join(parts[from:to], ":")
}

// causesOf finds the cause of each alert. An alert of a batch that waits is traced to what it waits for in the end, so that one
// failed root with hundreds behind it is one incident. side says whose an alert is.
func causesOf(ctx context.Context, s *store.Store, alerts []store.AlertRow, side func(*store.AlertRow) string) ([]cause, error) {
	var ids []capri.BatchID
	for _, a := range alerts {
		if a.Batch != 0 && !store.IsNotice(a.Kind) {
			ids = append(ids, a.Batch)
		}
	}
	roots, err := rootsOf(ctx, s, ids)
	if err != nil {
		return nil, err
	}
	list := make([]cause, len(alerts))
	for i := range alerts {
		a := &alerts[i]
		switch of := causes[a.Kind]; {
		case store.IsNotice(a.Kind):
			list[i] = cause{name: a.Key, batch: a.Batch, task: a.Task}
		case a.Batch != 0:
			list[i] = roots[a.Batch]
			if list[i].task == 0 { // the batch is gone
				list[i] = cause{name: fmt.Sprintf("batch:%d", a.Batch), batch: a.Batch, task: a.Task}
			}
		case of != nil:
			list[i] = cause{name: of(a), task: a.Task}
			if shared[a.Kind] {
				list[i].name += ":" + side(a)
			}
		case a.Task != 0:
			list[i] = cause{name: fmt.Sprintf("task:%d:%s", a.Task, a.Kind), task: a.Task}
		default:
			list[i] = cause{name: a.Kind}
		}
		list[i].name = store.AlertKey(list[i].name)
	}
	return list, nil
}

// mostLevels bounds a chain of batches that wait for each other.
const mostLevels = 30

// rootsOf follows batches that wait to what they wait for, all of them at once, level by level.
func rootsOf(ctx context.Context, s *store.Store, ids []capri.BatchID) (map[capri.BatchID]cause, error) {
	states, err := s.BatchesByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	at := map[capri.BatchID]capri.BatchID{} // where the way from a batch has led so far
	for id := range states {
		at[id] = id
	}
	found := map[capri.BatchID]cause{}
	end := func(b store.BatchRow) cause {
		return cause{name: fmt.Sprintf("batch:%d", b.ID), batch: b.ID, task: b.TaskID}
	}
	for range mostLevels {
		var waiting []capri.BatchID
		seen := map[capri.BatchID]bool{}
		for id, now := range at {
			b, known := states[now]
			if _, done := found[id]; !done && known && b.State == capri.Waiting && !seen[now] {
				seen[now] = true
				waiting = append(waiting, now)
			}
		}
		if len(waiting) == 0 {
			break
		}
		unmet, err := s.UnmetOf(ctx, waiting)
		if err != nil {
			return nil, err
		}
		var next []capri.BatchID
		for id, now := range at {
			b := states[now]
			if _, done := found[id]; done || b.State != capri.Waiting {
				continue
			}
			c, is := store.Worst(unmet[now])
			switch {
			case !is: // it waits for nothing but a node
				found[id] = end(b)
			case c.Kind == "input" && (c.ParentBatchID == 0 || c.Succeeded()):
				found[id] = cause{name: "path:" + strings.TrimSuffix(c.Path, "/") + "/" + c.Flag, batch: now, task: b.TaskID}
			case c.Kind == "third_party":
				found[id] = cause{name: fmt.Sprintf("third_party:%s:%s", c.Code, c.BatchNo), batch: now, task: b.TaskID}
			case c.ParentBatchID == 0:
				found[id] = cause{name: fmt.Sprintf("missing:%d:%s", c.ParentTaskID, c.BatchNo), batch: now, task: c.ParentTaskID}
			default:
				at[id] = c.ParentBatchID
				next = append(next, c.ParentBatchID)
			}
		}
		if len(next) == 0 {
			break
		}
		more, err := s.BatchesByID(ctx, next)
		if err != nil {
			return nil, err
		}
		for id, b := range more {
			states[id] = b
		}
	}
	for id, now := range at {
		if _, done := found[id]; !done {
			b, known := states[now]
			if !known {
				b = states[id]
			}
			found[id] = end(b)
		}
	}
	return found, nil
}
