package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"capri"
	"capri/sql/store"
)

// History is what a database says of its batches: the rows as they are, and every event in the order of its writing.
type History struct {
	Batches map[capri.BatchID]store.BatchRow
	Events  []Event

	waits map[capri.BatchID][]wait // on parents, from tparent_data
}

// Event is a row of batch_event.
type Event struct {
	ID          int64
	Batch       capri.BatchID
	At          capri.Instant
	State       capri.State
	FinishState capri.FinishState
	Attempt     int
	Node        string
	Held        bool
	KillRequest bool
	Latest      bool
	Who, Why    string
}

func (e Event) String() string {
	return fmt.Sprintf("event %d: batch %d %s/%s attempt %d on %q by %s (%s)", e.ID, e.Batch, e.State, e.FinishState, e.Attempt, e.Node, e.Who, e.Why)
}

type wait struct {
	group int
	any   bool
	key   store.LatestKey
}

// Read reads the history. Nothing may be changing, or the rows are newer than the events.
func Read(ctx context.Context, s *store.Store) (*History, error) {
	h := &History{Batches: map[capri.BatchID]store.BatchRow{}, waits: map[capri.BatchID][]wait{}}
	rows, err := s.Batches(ctx, store.BatchFilter{AllRuns: true, Limit: 1_000_000})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		h.Batches[r.ID] = r
	}
	err = each(ctx, s, "SELECT id, batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, who, why FROM batch_event ORDER BY id",
		func(scan func(...any) error) error {
			var e Event
			var latest *int64
			err := scan(&e.ID, &e.Batch, &e.At, &e.State, &e.FinishState, &e.Attempt, &e.Node, &e.Held, &e.KillRequest, &latest, &e.Who, &e.Why)
			e.Latest = latest != nil
			h.Events = append(h.Events, e)
			return err
		})
	if err != nil {
		return nil, err
	}
	return h, each(ctx, s, "SELECT batch_id, grp, policy, parent_task_id, parent_batch_no FROM tparent_data ORDER BY batch_id, seq",
		func(scan func(...any) error) error {
			var id capri.BatchID
			var w wait
			err := scan(&id, &w.group, &w.any, &w.key.Task, &w.key.No)
			h.waits[id] = append(h.waits[id], w)
			return err
		})
}

func each(ctx context.Context, s *store.Store, query string, row func(scan func(...any) error) error) error {
	rows, err := s.DB().QueryContext(ctx, query)
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

// Makespan is from the first assignment to the last end.
func (h *History) Makespan() time.Duration {
	var first, last capri.Instant
	for _, e := range h.Events {
		if e.State == capri.Assigned && (first == 0 || e.At < first) {
			first = e.At
		}
		if e.State == capri.Finished {
			last = max(last, e.At)
		}
	}
	return last.Sub(first)
}

// Check finds whatever must never be, however the batches came about:
//
//   - a batch that is not what its events add up to, or that took a step that there is none (design §4);
//   - two attempts of a batch at once, an attempt number used twice, two successes of a run;
//   - a start before what it waits for had succeeded;
//   - more slots in use on a node, or more of one task at once, than there may be. slots names the nodes' (nil: not
//     looked at).
//
// It says so in order, up to twenty times.
func (h *History) Check(slots map[string]int) error {
	c := &checker{h: h, slots: slots, now: map[capri.BatchID]Event{}, used: map[string]int{}, ofTask: map[capri.TaskID]int{},
		succeeded: map[store.LatestKey]bool{}, successes: map[capri.BatchID]int{}}
	touched := map[capri.BatchID]bool{}
	for _, e := range h.Events {
		touched[e.Batch] = true
	}
	for id, b := range h.Batches {
		if !touched[id] { // it stands as it was born, which for some is finished
			if b.State == capri.Finished && b.FinishState == capri.Success {
				c.succeeded[store.LatestKey{Task: b.TaskID, No: b.BatchNo}] = true
			}
			if b.State == capri.Assigned || b.State == capri.Running || b.Attempt != 0 {
				c.wrong("batch %d is %s at attempt %d without an event", id, b.State, b.Attempt)
			}
		}
	}
	for _, e := range h.Events {
		c.step(e)
	}
	for id, e := range c.now {
		b := h.Batches[id]
		if b.State != e.State || b.FinishState != e.FinishState || b.Attempt != e.Attempt || b.Node != e.Node || b.Held != e.Held || b.KillRequest != e.KillRequest || b.Latest != e.Latest {
			c.wrong("batch %d is %s/%s attempt %d on %q held=%t kill=%t latest=%t, its last %s", id, b.State, b.FinishState, b.Attempt, b.Node, b.Held, b.KillRequest, b.Latest, e)
		}
	}
	return errors.Join(c.errs...)
}

type checker struct {
	h         *History
	slots     map[string]int
	now       map[capri.BatchID]Event // the newest event of each
	used      map[string]int          // slots by node
	ofTask    map[capri.TaskID]int
	succeeded map[store.LatestKey]bool
	successes map[capri.BatchID]int
	errs      []error
}

func (c *checker) wrong(format string, a ...any) {
	if len(c.errs) < 20 {
		c.errs = append(c.errs, fmt.Errorf(format, a...))
	}
}

func busy(s capri.State) bool { return s == capri.Assigned || s == capri.Running }

func (c *checker) step(e Event) {
	b, ok := c.h.Batches[e.Batch]
	if !ok {
		c.wrong("%s: there is no such batch", e)
		return
	}
	before, had := c.now[e.Batch]
	if !had {
		before = Event{State: capri.Waiting, Latest: true}
		if e.State == capri.Finished && !e.Latest { // a finished batch hands over to its next run
			before.State, before.FinishState, before.Attempt = e.State, e.FinishState, e.Attempt
		}
	}
	c.now[e.Batch] = e
	if why := badStep(before, e); why != "" {
		c.wrong("%s: %s (before it: %s)", e, why, before)
	}
	key := store.LatestKey{Task: b.TaskID, No: b.BatchNo}
	if busy(before.State) {
		c.used[before.Node] -= b.Slots
		c.ofTask[b.TaskID]--
	}
	if busy(e.State) {
		c.used[e.Node] += b.Slots
		c.ofTask[b.TaskID]++
		if n, known := c.slots[e.Node]; c.slots != nil && (!known || c.used[e.Node] > n) {
			c.wrong("%s: %d slots are in use on %s, which has %d", e, c.used[e.Node], e.Node, n)
		}
		if b.Concurrency > 0 && c.ofTask[b.TaskID] > b.Concurrency {
			c.wrong("%s: %d batches of %s at once, its limit is %d", e, c.ofTask[b.TaskID], b.Task, b.Concurrency)
		}
	}
	switch {
	case e.State == capri.Assigned && before.State == capri.Waiting:
		c.inOrder(e)
	case e.State == capri.Finished && before.State != capri.Finished:
		if e.FinishState == capri.Success {
			c.succeeded[key] = true
			if c.successes[e.Batch]++; c.successes[e.Batch] > 1 {
				c.wrong("%s: it succeeds again", e)
			}
		}
	case e.State == capri.Finished && !e.Latest:
		c.succeeded[key] = false
	}
}

// badStep says why a batch cannot go from one event to the next.
func badStep(from, to Event) string {
	switch {
	case from.State == capri.Finished && (to.State != capri.Finished || to.FinishState != from.FinishState):
		return "finished is final"
	case from.State == capri.Waiting && to.State == capri.Assigned:
		if to.Attempt != from.Attempt+1 {
			return "an assignment takes the next attempt number"
		}
		if from.Held || from.KillRequest || to.Node == "" {
			return "it was not free to be assigned"
		}
	case to.Attempt != from.Attempt:
		return "the attempt's number changes without an assignment"
	case from.State == capri.Waiting && to.State == capri.Running:
		return "it runs without having been assigned"
	case from.State == capri.Running && to.State == capri.Assigned:
		return "it is assigned again while it runs"
	case busy(from.State) && busy(to.State) && from.Node != to.Node:
		return "it changes its node"
	}
	return ""
}

// inOrder holds an assignment against what the batch waits for.
func (c *checker) inOrder(e Event) {
	type group struct{ any, met, all bool }
	groups := map[int]*group{}
	var missing store.LatestKey
	for _, w := range c.h.waits[e.Batch] {
		g := groups[w.group]
		if g == nil {
			g = &group{any: w.any, all: true}
			groups[w.group] = g
		}
		if c.succeeded[w.key] {
			g.met = true
		} else {
			g.all, missing = false, w.key
		}
	}
	for n, g := range groups {
		if g.any && !g.met || !g.any && !g.all {
			c.wrong("%s: dependency %d is not met, batch_no %s of task %d has not succeeded", e, n, missing.No, missing.Task)
		}
	}
}

// OnceEach finds batches that did not run exactly once and well: run 0, one success, one attempt. but names those that
// may have needed another attempt.
func (h *History) OnceEach(but map[capri.BatchID]bool) error {
	var errs []error
	for id, b := range h.Batches {
		switch {
		case len(errs) >= 20:
		case b.RunNo != 0 || b.State != capri.Finished || b.FinishState != capri.Success:
			errs = append(errs, fmt.Errorf("batch %d (%s %s) run %d is %s/%s: %s", id, b.Task, b.BatchNo, b.RunNo, b.State, b.FinishState, b.Message))
		case b.Attempt > 1 && !but[id]:
			errs = append(errs, fmt.Errorf("batch %d (%s %s) took %d attempts", id, b.Task, b.BatchNo, b.Attempt))
		}
	}
	return errors.Join(errs...)
}
