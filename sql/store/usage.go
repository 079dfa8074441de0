package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// Usage is the most that the processes of an attempt were seen to have together; 0 is not known.
type Usage struct {
	MemoryMB  int
	Processes int
	AskedMB   int // what its task asks for (worker.memory_mb); 0: nothing
}

// ReportUsage writes what attempts use while they run, many at once. What a task uses beyond what it asks for is told
// its owner, once for each attempt: a node was chosen for less.
func (s *Store) ReportUsage(ctx context.Context, node string, used map[capri.Attempt]Usage) error {
	by, number := map[capri.BatchID]Usage{}, map[capri.BatchID]int{}
	for a, u := range used {
		by[a.Batch], number[a.Batch] = u, a.Number
	}
	for _, ids := range chunks(keysOf(by), s.d.ChunkRows) {
		err := s.Write(ctx, "report what jobs use", node, func(tx *Tx) error {
			rows, err := tx.lock(ids)
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(r locked) bool {
				return r.State != capri.Running || r.Node != node || r.Attempt != number[r.ID]
			})
			set := usageSet(rows, by)
			if len(set) == 0 {
				return nil
			}
			if _, err := tx.exec(sq.Update("task_work").SetMap(set).Where(tx.among("id", rows))); err != nil {
				return err
			}
			return tx.alertUsage(rows, by)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// usageSet is what an update of the rows sets; each may have its own values.
func usageSet(rows []locked, used map[capri.BatchID]Usage) sq.Eq {
	set := sq.Eq{}
	for column, of := range map[string]func(Usage) int{
		"actual_memory_mb": func(u Usage) int { return u.MemoryMB },
		"actual_processes": func(u Usage) int { return u.Processes },
	} {
		var values []int
		for _, r := range rows {
			values = append(values, of(used[r.ID]))
		}
		switch distinct := slices.Compact(slices.Sorted(slices.Values(values))); {
		case len(distinct) == 0 || len(distinct) == 1 && distinct[0] == 0:
		case len(distinct) == 1:
			set[column] = distinct[0]
		default:
			var text strings.Builder
			text.WriteString("CASE id")
			for i, r := range rows {
				if values[i] > 0 {
					fmt.Fprintf(&text, " WHEN %d THEN %d", int64(r.ID), values[i])
				}
			}
			text.WriteString(" ELSE " + column + " END")
			set[column] = sq.Expr(text.String())
		}
	}
	return set
}

// alertUsage tells of attempts that have more memory than their tasks ask for.
func (tx *Tx) alertUsage(rows []locked, used map[capri.BatchID]Usage) error {
	over := slices.DeleteFunc(slices.Clone(rows), func(r locked) bool {
		u := used[r.ID]
		return u.AskedMB <= 0 || u.MemoryMB <= u.AskedMB
	})
	if len(over) == 0 {
		return nil
	}
	if err := tx.nameTasks(over); err != nil {
		return err
	}
	alerts := make([]capri.Alert, len(over))
	for i, r := range over {
		u := used[r.ID]
		alerts[i] = capri.Alert{Key: fmt.Sprintf("over_memory:%d.%d", r.ID, r.Attempt), Level: capri.Severe, Kind: "over_memory", Task: r.TaskID, Batch: r.ID,
			Title: fmt.Sprintf("%s %s has %d MB in memory and asks for %d MB (batch %d on node %s)", tx.taskName(r.TaskID), r.BatchNo, u.MemoryMB, u.AskedMB, r.ID, r.Node),
			Text:  "The node was chosen for what it asks for; others' jobs there may be short of memory. Mend the job, or raise its worker.memory_mb."}
	}
	return tx.Alerts(slices.Concat(alerts, tx.alertNodes(over, alerts)))
}

// alertNodes tells admins, at the level that they are told of resources by (seed 002 §2.3), once an hour for each node:
// jobs that have more than they ask for take it from others. What each task is told is in the text.
func (tx *Tx) alertNodes(over []locked, told []capri.Alert) []capri.Alert {
	texts := map[string][]string{}
	for i, r := range over {
		texts[r.Node] = append(texts[r.Node], told[i].Title)
	}
	hour := tx.Now.In(time.UTC).Format("2006010215")
	var alerts []capri.Alert
	for _, node := range slices.Sorted(maps.Keys(texts)) {
		list := texts[node]
		text := strings.Join(list[:min(len(list), namedInAlert)], "\n")
		if more := len(list) - namedInAlert; more > 0 {
			text += fmt.Sprintf("\nand %d more", more)
		}
		alerts = append(alerts, capri.Alert{Key: "node_over_memory:" + node + ":" + hour, Level: capri.Severe, Kind: "node_over_memory",
			Title: "Jobs on node " + node + " have more memory than they ask for",
			Text:  text + "\nOther jobs there may be short of memory. Their tasks' people are told as well. worker.over_memory: end makes an end of such jobs."})
	}
	return alerts
}
