package store

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// locked is what the locking read saw of a batch. The row cannot change before this transaction ends.
type locked struct {
	ID          capri.BatchID
	TaskID      capri.TaskID
	TaskVersion int
	BatchNo     capri.BatchNo
	Latest      bool
	State       capri.State
	FinishState capri.FinishState
	Unmet       int
	Kinds       int
	Held        bool
	KillRequest bool
	Node        string
	Attempt     int
	Started     bool
	Failures    int
	Rejections  int
	Losses      int
	RunNow      bool
}

// notStarted: its job has never been given to a shim under this attempt, so it may still go back to waiting.
func (r locked) notStarted() bool {
	return r.State < capri.Running || (r.State == capri.Running && !r.Started)
}

// sqlNotStarted is the same, asked of rows.
const sqlNotStarted = "(state IN (0, 1) OR state = 2 AND start_time IS NULL)"

// lock reads batches for change, ids ascending so that two transactions never wait for each other in a ring.
func (tx *Tx) lock(ids []capri.BatchID) ([]locked, error) { return tx.lockThose(ids, nil) }

// lockThose is lock for those that meet a condition.
func (tx *Tx) lockThose(ids []capri.BatchID, meet sq.Sqlizer) ([]locked, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	rows := make([]locked, 0, len(ids))
	for _, part := range chunks(ids, tx.s.d.ChunkRows) {
		err := tx.query(sq.Select("id", "task_id", "task_version", "batch_no", "latest", "state", "finish_state", "unmet", "kinds", "held", "kill_request",
			"node", "attempt", "start_time", "failures", "rejections", "losses", "run_now").From("task_work").
			Where(idIn("id", part)).Where(meet).OrderBy("id").Suffix(tx.s.d.ForUpdate), func(rs *sql.Rows) error {
			var r locked
			var latest sql.NullInt64
			var start capri.Instant
			if err := rs.Scan(&r.ID, &r.TaskID, &r.TaskVersion, &r.BatchNo, &latest, &r.State, &r.FinishState, &r.Unmet, &r.Kinds, &r.Held, &r.KillRequest,
				&r.Node, &r.Attempt, instant{&start}, &r.Failures, &r.Rejections, &r.Losses, &r.RunNow); err != nil {
				return err
			}
			r.Latest, r.Started = latest.Valid, start != 0
			rows = append(rows, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// lockWhere is lock for the hot paths: it compares in SQL and reads no more than id and kinds, since reading sixteen
// columns of a hundred thousand rows costs as much as writing them.
func (tx *Tx) lockWhere(ids []capri.BatchID, compares string) ([]locked, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	asked := make([]locked, len(ids))
	for i, id := range ids {
		asked[i].ID = id
	}
	rows := make([]locked, 0, len(ids))
	for _, part := range chunks(asked, tx.s.d.ChunkRows) {
		err := tx.query(sq.Select("id", "kinds").From("task_work"+tx.s.d.ByKey).Where(tx.among("id", part)).Where(compares).OrderBy("id").Suffix(tx.s.d.ForUpdate), func(rs *sql.Rows) error {
			var r locked
			err := rs.Scan(&r.ID, &r.Kinds)
			rows = append(rows, r)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// change is one step of batches from where they must be to where they go.
type change struct {
	from  func(locked) bool         // the comparison; rows that fail it are left alone
	set   sq.Eq                     // the new values, by column
	why   string                    // for the events; "" takes each row's message
	alert func(locked) *capri.Alert // written with the change; may be nil
}

// change locks the batches and changes those that compare. It returns them as they were before.
func (tx *Tx) change(ids []capri.BatchID, c change) ([]locked, error) {
	rows, err := tx.lock(ids)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r locked) bool { return !c.from(r) })
	return rows, tx.changeLocked(rows, c)
}

// changeLocked is change for rows that this transaction has locked and compared already.
func (tx *Tx) changeLocked(rows []locked, c change) error {
	for _, part := range chunks(rows, tx.s.d.ChunkRows) {
		n, err := tx.exec(sq.Update("task_work").SetMap(c.set).Where(tx.among("id", part)))
		if err != nil {
			return err
		}
		if n != len(part) {
			return fmt.Errorf("changed %d of %d locked batches", n, len(part))
		}
		if err := tx.events(part, c.why); err != nil {
			return err
		}
		if c.set["state"] == int(capri.Waiting) {
			if err := tx.proveAgain(slices.DeleteFunc(slices.Clone(part), func(r locked) bool { return r.State != capri.Running })); err != nil {
				return err
			}
		}
		if c.set["state"] == int(capri.Finished) {
			if err := tx.noticeEnds(part, c.set["finish_state"]); err != nil {
				return err
			}
		}
		if c.alert == nil {
			continue
		}
		if err := tx.nameTasks(part); err != nil {
			return err
		}
		var alerts []capri.Alert
		for _, r := range part {
			if a := c.alert(r); a != nil {
				alerts = append(alerts, *a)
			}
		}
		if err := tx.Alerts(alerts); err != nil {
			return err
		}
	}
	return nil
}

// events appends what the rows say now to the history.
func (tx *Tx) events(rows []locked, why string) error { return tx.eventsFrom("task_work", rows, why) }

func (tx *Tx) eventsFrom(table string, rows []locked, why string) error {
	reason := sq.Expr("message")
	if why != "" {
		reason = sq.Expr("?", cut(why, 1000))
	}
	text, args, err := sq.Select("id").Column("?", int64(tx.Now)).Columns("state", "finish_state", "attempt", "node", "held", "kill_request", "latest").
		Column("?", int64(tx.epoch)).Column("?", cut(tx.who, 190)).Column(reason).
		From(table).Where(tx.among("id", rows)).OrderBy("id").ToSql()
	if err != nil {
		return err
	}
	_, err = tx.execText("INSERT INTO batch_event (batch_id, at, state, finish_state, attempt, node, held, kill_request, latest, epoch, who, why) "+text, args...)
	return err
}

// Alert puts an alert into the outbox; the same key again is the same alert.
func (tx *Tx) Alert(a capri.Alert) error { return tx.Alerts([]capri.Alert{a}) }

// Alerts is Alert for many, by few statements. It inserts first and asks only where a key was there already: asking first
// locks, for every key that is not there, the gap where it belongs, and two writers then wait for each other.
func (tx *Tx) Alerts(alerts []capri.Alert) error {
	seen := make(map[string]bool, len(alerts))
	fresh := make([]capri.Alert, 0, len(alerts))
	for _, a := range alerts {
		if a.Key = AlertKey(a.Key); !seen[a.Key] {
			seen[a.Key] = true
			fresh = append(fresh, a)
		}
	}
	err := tx.insertAlerts(fresh)
	if err == nil || !tx.s.d.IsDuplicate(err) {
		return err
	}
	for _, part := range chunks(fresh, tx.s.d.ChunkRows) {
		keys := make([]string, len(part))
		for i, a := range part {
			keys[i] = a.Key
		}
		known, err := column[string](tx.ctx, tx.tx, sq.Select("alert_key").From("alert").Where(sq.Eq{"alert_key": keys}).Suffix(tx.s.d.ForShare))
		if err != nil {
			return err
		}
		for _, key := range known {
			delete(seen, key)
		}
	}
	return tx.insertAlerts(slices.DeleteFunc(fresh, func(a capri.Alert) bool { return !seen[a.Key] }))
}

func (tx *Tx) insertAlerts(alerts []capri.Alert) error {
	const most = 16_000 // characters; of four bytes each they still fit the column
	return tx.bulk("alert", []string{"alert_key", "level", "kind", "task_id", "batch_id", "title", "body", "created_at"}, len(alerts), func(i int, args []any) []any {
		a := &alerts[i]
		return append(args, a.Key, int(a.Level), a.Kind, int64(a.Task), int64(a.Batch), cut(a.Title, 255), cut(a.Text, most), int64(tx.Now))
	})
}

// AlertKey fits a key, or a cause, to its column. A long one ends in its hash, so that two that differ late stay two.
func AlertKey(key string) string {
	const most = 255
	if short := cut(key, most); short == key {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return cut(key, most-17) + "#" + hex.EncodeToString(sum[:8])
}

func idsOf(rows []locked) []capri.BatchID {
	ids := make([]capri.BatchID, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return ids
}

// idIn is "column IN (1,2,3)" with the numbers in the text: they are integers, and five hundred parameters cost
// more than the statement.
func idIn[T ~int64](column string, ids []T) sq.Sqlizer {
	if len(ids) == 0 {
		return sq.Expr("1 = 0")
	}
	var b strings.Builder
	b.Grow(len(column) + 6 + 12*len(ids))
	b.WriteString(column)
	b.WriteString(" IN (")
	var digits [20]byte
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(strconv.AppendInt(digits[:0], int64(id), 10))
	}
	b.WriteByte(')')
	return sq.Expr(b.String())
}

// among is idIn for the hot paths, whose ids are sorted and often without a gap: a mark's batches are made, met and
// placed in the order of their ids. A range is one walk along the key where a list is a search for each id. On a server it
// locks the row behind it as well; since everybody locks in the order of the ids, that is a short wait and no ring.
func (tx *Tx) among(column string, rows []locked) sq.Sqlizer {
	ascend := func(a, b locked) int { return cmp.Compare(a.ID, b.ID) }
	// Of rows in another order, as a campaign releases them, first and last say nothing of those between them.
	if n := len(rows); n > 1 && rows[n-1].ID-rows[0].ID == capri.BatchID(n-1) && slices.IsSortedFunc(rows, ascend) {
		return sq.Expr(fmt.Sprintf("%s BETWEEN %d AND %d", column, rows[0].ID, rows[n-1].ID))
	}
	return idIn(column, idsOf(rows))
}

// cut shortens text to n characters, at a character's boundary, for a column of that length. Bytes that are no UTF-8
// become ?: MySQL refuses them, and what a job or a driver said in another encoding must not keep its batch from ending.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// bulkBytes bounds the text in one statement: a server takes no packet above its max_allowed_packet (MariaDB 16 MB)
// and ends the connection instead, which looks like a lost one.
const bulkBytes = 4 << 20

// bulk inserts many rows by few statements. The text is the same for each full chunk, which spares the builder's
// work: a mark at 00:01 inserts some hundred thousand rows.
func (tx *Tx) bulk(table string, columns []string, n int, row func(i int, args []any) []any) error {
	per := min(tx.s.d.ChunkRows, 30_000/len(columns))
	head := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES "
	tuple := ",(?" + strings.Repeat(",?", len(columns)-1) + ")"
	args := make([]any, 0, min(n, per)*len(columns))
	for from, to := 0, 0; from < n; from = to {
		args = args[:0]
		for bytes := 0; to < n && to < from+per && bytes < bulkBytes; to++ {
			args = row(to, args)
			for _, a := range args[len(args)-len(columns):] {
				if text, ok := a.(string); ok {
					bytes += len(text)
				}
			}
		}
		if _, err := tx.execText(head+strings.Repeat(tuple, to-from)[1:], args...); err != nil {
			return err
		}
	}
	return nil
}
