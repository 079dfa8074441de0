package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// The log of actions says who changed what, from where, and what it was before: a row of action_log for each change by a person or an
// app, in the transaction of the change. An action says what it does (LogChanges, LogAction); who asked for it comes
// with the context, and what the rows were and are comes of the writes themselves (note). Nothing updates or deletes a
// row; SQLite refuses it by triggers.

// Request is by whom and from where a transaction was asked for, as far as the actor's name does not say it.
type Request struct {
	ID      string // as in the answer: X-Request-Id
	Kind    string // of caller: user, app, worker, job; link for one of a message. Empty: Capri itself
	Address string
}

type requestKey struct{}

// WithRequest puts request data into a context, from where write transactions take them.
func WithRequest(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestOf gives a context's request data; zero where nobody asked.
func RequestOf(ctx context.Context) Request {
	r, _ := ctx.Value(requestKey{}).(Request)
	return r
}

// Change is one thing that somebody changed, to be logged.
type Change struct {
	Action     string // task_apply, kill, user_set …
	Target     string // what, in words that people search for: a name, batch 17
	Detail     string
	Task       capri.TaskID // whose people may read of it; 0 none
	Department string       // the same
	// What it was and is, as JSON; secrets in it are masked. Nil in both: what the writes before it noted of their rows.
	Before, After any
}

// LogAction notes what the transaction's actor did to something that is nobody's in particular.
func (tx *Tx) LogAction(action, target, detail string) error {
	return tx.LogChanges(Change{Action: action, Target: target, Detail: detail})
}

// LogChanges notes what the transaction's actor did, in the same transaction. Text that is too long is shortened: the log
// must not be why a change fails.
func (tx *Tx) LogChanges(changes ...Change) error {
	r := RequestOf(tx.ctx)
	before, after, err := tx.noted()
	if err != nil {
		return err
	}
	for _, part := range chunks(changes, 200) {
		q := sq.Insert("action_log").Columns("at", "who", "kind", "address", "request_id", "action", "target", "detail", "task_id", "department", "before_json", "after_json")
		for _, c := range part {
			if c.Before == nil && c.After == nil && len(changes) == 1 {
				c.Before, c.After = before, after
			}
			q = q.Values(int64(tx.Now), loggable(tx.who, 190), loggable(r.Kind, 16), loggable(r.Address, 64), loggable(r.ID, 64), loggable(c.Action, 64), loggable(c.Target, 255),
				loggable(c.Detail, 16_000), int64(c.Task), loggable(c.Department, 128), loggedJSON(c.Before), loggedJSON(c.After)) // TEXT holds 65,535 bytes
		}
		if _, err := tx.exec(q); err != nil {
			return err
		}
	}
	return nil
}

// loggable makes any text fit a column of n characters.
func loggable(s string, n int) string { return cut(strings.ToValidUTF8(s, "?"), n) }

// mostJSON bounds one side of a change. What is longer can be read elsewhere: a task's in its history.
const mostJSON = 64_000

// secretName are the keys whose values are never logged.
var secretName = regexp.MustCompile(`(?i)passw|pwd|secret|token|credential|api_?key|key_?hash|private`)

// loggedJSON writes a side of a change, NULL for none.
func loggedJSON(v any) any {
	if v == nil || reflect.ValueOf(v).Kind() == reflect.Map && reflect.ValueOf(v).Len() == 0 {
		return nil
	}
	data, err := json.Marshal(v)
	var plain any
	if err == nil {
		err = json.Unmarshal(data, &plain)
	}
	if err == nil {
		data, err = json.Marshal(masked(plain))
	}
	switch {
	case err != nil:
		return fmt.Sprintf(`{"not_written":%q}`, err.Error())
	case len(data) > mostJSON:
		return fmt.Sprintf(`{"too_long":%d}`, len(data))
	}
	return string(data)
}

// masked hides what stands under the name of a secret, however deep.
func masked(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, inner := range x {
			if secretName.MatchString(k) && inner != nil && inner != "" {
				x[k] = "***"
			} else {
				x[k] = masked(inner)
			}
		}
	case []any:
		for i := range x {
			x[i] = masked(x[i])
		}
	}
	return v
}

// note remembers a row before a write changes it, for the log. It is asked again when the change is logged, so that a
// writer says once where it writes.
func (tx *Tx) note(table string, where sq.Eq) error {
	row, err := tx.rowOf(table, where)
	tx.notes = append(tx.notes, rowNote{table, where, row})
	return err
}

type rowNote struct {
	table  string
	where  sq.Eq
	before map[string]any // nil: it is not there
}

// noted gives what the noted rows were and are: of a row that was changed the columns that differ, with the row's name.
func (tx *Tx) noted() (before, after map[string]any, err error) {
	before, after = map[string]any{}, map[string]any{}
	for i, n := range tx.notes {
		now, err := tx.rowOf(n.table, n.where)
		if err != nil {
			return nil, nil, err
		}
		was, is := differing(n.before, now), differing(now, n.before)
		if len(tx.notes) == 1 {
			before, after = was, is
			continue
		}
		name := fmt.Sprintf("%s %d", n.table, i+1)
		if len(was) > 0 {
			before[name] = was
		}
		if len(is) > 0 {
			after[name] = is
		}
	}
	tx.notes = nil
	return before, after, nil
}

// differing are the columns of a row that another version of it has not, or has otherwise.
func differing(row, other map[string]any) map[string]any {
	out := map[string]any{}
	for column, v := range row {
		if w, has := other[column]; !has || v != w {
			out[column] = v
		}
	}
	return out
}

// rowOf reads a row as it stands, whatever its columns.
func (tx *Tx) rowOf(table string, where sq.Eq) (row map[string]any, err error) {
	err = tx.query(sq.Select("*").From(table).Where(where).Limit(1), func(r *sql.Rows) error {
		types, err := r.ColumnTypes()
		if err != nil {
			return err
		}
		values := make([]any, len(types))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if err := r.Scan(values...); err != nil {
			return err
		}
		row = map[string]any{}
		for i, c := range types {
			v := values[i].(*sql.NullString)
			if !v.Valid {
				continue
			}
			row[c.Name()] = v.String
			if n, err := strconv.ParseInt(v.String, 10, 64); err == nil && strings.Contains(c.DatabaseTypeName(), "INT") {
				row[c.Name()] = n
			}
		}
		return nil
	})
	return row, err
}

// Standing is what people change of a batch, for the log.
type Standing struct {
	TaskID      capri.TaskID `json:"-"`
	State       string       `json:"state"`
	FinishState string       `json:"finish_state"`
	Held        bool         `json:"held"`
	KillRequest bool         `json:"kill_request"`
	RunNow      bool         `json:"run_now"`
}

// Standings reads how some batches stand in this transaction.
func (tx *Tx) Standings(ids []capri.BatchID) (map[capri.BatchID]Standing, error) {
	out := make(map[capri.BatchID]Standing, len(ids))
	for _, part := range chunks(ids, tx.s.d.ChunkRows) {
		q := sq.Select("id", "task_id", "state", "finish_state", "held", "kill_request", "run_now").From("task_work").Where(idIn("id", part))
		err := tx.query(q, func(r *sql.Rows) error {
			var id capri.BatchID
			var x Standing
			var state capri.State
			var finish capri.FinishState
			err := r.Scan(&id, &x.TaskID, &state, &finish, &x.Held, &x.KillRequest, &x.RunNow)
			x.State, x.FinishState = state.String(), finish.String()
			out[id] = x
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Action is one change that a person or an app made.
type Action struct {
	ID int64
	At capri.Instant
	Request
	Who        string
	Action     string
	Target     string
	Detail     string
	TaskID     capri.TaskID
	Department string
	Before     string // JSON; empty: nothing was
	After      string
}

// ActionFilter chooses actions for a list. Zero fields choose all.
type ActionFilter struct {
	Seen                *SeenActions // only those that somebody may read of; nil: all
	Who, Action, Target string
	Task                capri.TaskID
	From, To            capri.Instant // [From, To)
	RequestID           string
	Before              int64 // ids before this one, for the next page
	Limit               int
}

// SeenActions are those that concern somebody: his own, and those on what is his or his department's.
type SeenActions struct {
	Who, Kind string
	Of        Seen
}

// Actions lists actions, the newest first.
func (s *Store) Actions(ctx context.Context, f ActionFilter) ([]Action, error) {
	all, err := collect(ctx, s.read, actions(f), func(r *sql.Rows, a *Action) error {
		var before, after sql.NullString
		err := r.Scan(&a.ID, &a.At, &a.Who, &a.Kind, &a.Address, &a.Request.ID, &a.Action, &a.Target, &a.Detail, &a.TaskID, &a.Department, &before, &after)
		a.Before, a.After = before.String, after.String
		return err
	})
	return all, s.fault("read the log of actions", err)
}

func actions(f ActionFilter) sq.SelectBuilder {
	q := sq.Select("a.id", "a.at", "a.who", "a.kind", "a.address", "a.request_id", "a.action", "a.target", "a.detail", "a.task_id", "a.department", "a.before_json", "a.after_json").
		From("action_log a").OrderBy("a.id DESC").Limit(uint64(max(f.Limit, 0)))
	if f.Seen == nil {
		return f.narrow(q)
	}
	return q.JoinClause(f.seen())
}

// seen joins the newest that somebody may read of, by a walk for each reason why he may: of somebody quiet, an OR over the
// reasons would walk through all that anybody ever did. What was done to a department's is of no task.
func (f ActionFilter) seen() sq.Sqlizer {
	v := f.Seen
	newest := func(q sq.SelectBuilder) sq.SelectBuilder {
		return sq.Select("m.id").FromSelect(f.narrow(q.OrderBy("a.id DESC").Limit(uint64(max(f.Limit, 0)))), "m")
	}
	own := newest(sq.Select("a.id").From("action_log a").Where(sq.Eq{"a.who": v.Who, "a.kind": v.Kind}))
	tasks := newest(sq.Select("a.id").From("task t").Join("action_log a ON a.task_id = t.id").Where(v.Of.tasks()))
	if v.Of.Department == "" {
		return sq.Expr("JOIN (? UNION ?) seen ON seen.id = a.id", own, tasks)
	}
	department := newest(sq.Select("a.id").From("action_log a").Where(sq.Eq{"a.task_id": 0, "a.department": v.Of.Department}))
	return sq.Expr("JOIN (? UNION ? UNION ?) seen ON seen.id = a.id", own, tasks, department)
}

func (f ActionFilter) narrow(q sq.SelectBuilder) sq.SelectBuilder {
	for column, text := range map[string]string{"a.who": f.Who, "a.action": f.Action, "a.target": f.Target, "a.request_id": f.RequestID} {
		if text != "" {
			q = q.Where(sq.Eq{column: text})
		}
	}
	if f.Task != 0 {
		q = q.Where(sq.Eq{"a.task_id": int64(f.Task)})
	}
	if f.From != 0 {
		q = q.Where("a.at >= ?", int64(f.From))
	}
	if f.To != 0 {
		q = q.Where("a.at < ?", int64(f.To))
	}
	if f.Before != 0 {
		q = q.Where("a.id < ?", f.Before)
	}
	return q
}
