package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	sq "github.com/Masterminds/squirrel"

	"capri"
)

// From an alert to people:
//
//	alert (incident_id 0) ──File──▶ incident ──▶ alert_delivery (due) ──EndDeliveries──▶ sent, given up, expired
//
// One service does all of it under one lease. Each step is one transaction, and what it relied on is compared, so that a
// former leader changes nothing: at worst a message goes out twice, under the same key.

// Incident is alerts of one cause.
type Incident struct {
	ID       int64
	Cause    string
	Level    capri.Level // the highest of its alerts
	Kind     string      // of the first
	Task     capri.TaskID
	Batch    capri.BatchID
	Title    string
	Alerts   int
	OpenedAt capri.Instant
	LastAt   capri.Instant // of its newest alert
	Tellings int           // how often people were told
	NextAt   capri.Instant // when they are told again; 0: they are not
	Step     int           // of repeats and escalation
	AckedAt  capri.Instant
	AckedBy  string
	Silenced string // why nobody is told
	ClosedAt capri.Instant
	Closed   string // why it is over
}

// DeliveryState is what became of a message.
type DeliveryState int

const (
	Due DeliveryState = iota
	Sent
	GivenUp
	Expired
)

// String is its name in lists.
func (d DeliveryState) String() string {
	return [...]string{"due", "sent", "given up", "expired"}[min(max(0, int(d)), 3)]
}

// Delivery is one message to one address.
type Delivery struct {
	ID        int64
	Incident  int64
	Telling   int
	Stage     string
	Channel   string
	Address   string
	Person    string
	Why       string // the rule that chose the receiver
	Level     capri.Level
	State     DeliveryState
	Tries     int
	NextAt    capri.Instant
	CreatedAt capri.Instant
	EndedAt   capri.Instant
	Error     string // of the last try
	Receipt   string // what the channel calls it, where it says so
}

// Key is the same for each try of the message.
func (d Delivery) Key() string { return fmt.Sprintf("capri-%d-%d-%d", d.Incident, d.Telling, d.ID) }

// Silence keeps people from being told.
type Silence struct {
	ID          int64
	Task, Group string // names, or patterns with *; empty: all
	Kind        string
	Reason      string
	Until       capri.Instant
	CreatedBy   string
	CreatedAt   capri.Instant
}

// NewAlerts lists alerts that belong to no incident yet, the oldest first.
func (s *Store) NewAlerts(ctx context.Context, limit int) ([]AlertRow, error) {
	return s.alertRows(ctx, s.newAlerts(limit))
}

func (s *Store) newAlerts(limit int) sq.SelectBuilder {
	return s.alertQuery().Where("incident_id = 0").OrderBy("id").Limit(uint64(limit))
}

// AlertsOf lists the first alerts of incidents, so many of each.
func (s *Store) AlertsOf(ctx context.Context, incidents []int64, each int) (map[int64][]AlertRow, error) {
	found := map[int64][]AlertRow{}
	for _, part := range chunks(incidents, mostSelects) {
		ids, err := column[int64](ctx, s.read, firstAlerts(part, each))
		if err != nil {
			return nil, s.fault("list alerts", err)
		}
		for _, some := range chunks(ids, s.d.ChunkRows) {
			list, err := s.alertRows(ctx, s.alertQuery().Where(idIn("id", some)).OrderBy("id"))
			if err != nil {
				return nil, err
			}
			for _, a := range list {
				found[a.Incident] = append(found[a.Incident], a)
			}
		}
	}
	return found, nil
}

// mostSelects bounds how many SELECTs are one statement: SQLite takes 500.
const mostSelects = 100

// firstAlerts walks the index once for each incident and stops there: a window function would read all alerts of all of them.
// It asks for ids alone: of rows with texts MariaDB makes a temporary table on disk for each SELECT, and a server that could not
// make one has crashed.
func firstAlerts(incidents []int64, each int) sq.SelectBuilder {
	var q sq.SelectBuilder
	for n, id := range incidents {
		first := sq.Select("id").From("alert").Where("incident_id = ?", id).OrderBy("id").Limit(uint64(each))
		if one := sq.Select("*").FromSelect(first, "first_ones"); n == 0 {
			q = one
		} else {
			q = q.SuffixExpr(sq.Expr("UNION ALL ?", one))
		}
	}
	return q
}

func (s *Store) alertQuery() sq.SelectBuilder {
	return sq.Select("id", "alert_key", "level", "kind", "task_id", "batch_id", "title", "body", "created_at", "incident_id").From("alert")
}

func (s *Store) alertRows(ctx context.Context, q sq.SelectBuilder) ([]AlertRow, error) {
	out, err := collect(ctx, s.read, q, func(r *sql.Rows, a *AlertRow) error {
		return r.Scan(&a.ID, &a.Key, &a.Level, &a.Kind, &a.Task, &a.Batch, &a.Title, &a.Text, &a.CreatedAt, &a.Incident)
	})
	return out, s.fault("list alerts", err)
}

var incidentColumns = []string{"id", "cause", "level", "kind", "task_id", "batch_id", "title", "alerts", "opened_at", "last_at", "tellings",
	"COALESCE(next_at, 0)", "step", "COALESCE(acked_at, 0)", "acked_by", "silenced", "COALESCE(closed_at, 0)", "closed_why"}

func incidents(ctx context.Context, q querier, b sq.SelectBuilder) ([]Incident, error) {
	return collect(ctx, q, b, func(r *sql.Rows, i *Incident) error {
		err := r.Scan(&i.ID, &i.Cause, &i.Level, &i.Kind, &i.Task, &i.Batch, &i.Title, &i.Alerts, &i.OpenedAt, &i.LastAt, &i.Tellings,
			&i.NextAt, &i.Step, &i.AckedAt, &i.AckedBy, &i.Silenced, &i.ClosedAt, &i.Closed)
		return err
	})
}

// OpenIncidents finds the open incidents of causes.
func (s *Store) OpenIncidents(ctx context.Context, causes []string) (map[string]Incident, error) {
	found := map[string]Incident{}
	for _, part := range chunks(causes, s.d.ChunkRows) {
		list, err := incidents(ctx, s.read, sq.Select(incidentColumns...).From("incident").Where(sq.Eq{"cause": part, "open": 1}))
		if err != nil {
			return nil, s.fault("look for open incidents", err)
		}
		for _, i := range list {
			found[i.Cause] = i
		}
	}
	return found, nil
}

// AllOpen lists open incidents in the order of their ids, from after on.
func (s *Store) AllOpen(ctx context.Context, after int64, limit int) ([]Incident, error) {
	list, err := incidents(ctx, s.read, sq.Select(incidentColumns...).From("incident").Where("open = 1 AND id > ?", after).OrderBy("id").Limit(uint64(limit)))
	return list, s.fault("list open incidents", err)
}

// DueIncidents lists open incidents of which people are to be told again.
func (s *Store) DueIncidents(ctx context.Context, now capri.Instant, limit int) ([]Incident, error) {
	list, err := incidents(ctx, s.read, dueIncidents(now, limit))
	return list, s.fault("look for incidents that are due", err)
}

func dueIncidents(now capri.Instant, limit int) sq.SelectBuilder {
	return sq.Select(incidentColumns...).From("incident").Where("open = 1 AND next_at <= ?", int64(now)).OrderBy("next_at").Limit(uint64(limit))
}

// Incidents lists incidents, newest first, from before the given one on (0: from the newest on); open: only those that are
// not over.
func (s *Store) Incidents(ctx context.Context, seen *Seen, open bool, before int64, limit int) ([]Incident, error) {
	q := seen.narrowTo(beforeID(sq.Select(incidentColumns...).From("incident"), before), "task_id").OrderBy("id DESC").Limit(uint64(limit))
	if open {
		q = q.Where("open = 1")
	}
	list, err := incidents(ctx, s.read, q)
	return list, s.fault("list incidents", err)
}

// Incident reads one.
func (s *Store) Incident(ctx context.Context, id int64) (Incident, error) {
	list, err := incidents(ctx, s.read, sq.Select(incidentColumns...).From("incident").Where("id = ?", id))
	if err != nil {
		return Incident{}, s.fault("read an incident", err)
	}
	if len(list) == 0 {
		return Incident{}, capri.NotFound("there is no incident %d", id)
	}
	return list[0], nil
}

// IncidentsByID reads several; those that do not exist are left out.
func (s *Store) IncidentsByID(ctx context.Context, ids []int64) (map[int64]Incident, error) {
	found := make(map[int64]Incident, len(ids))
	for _, part := range chunks(ids, s.d.ChunkRows) {
		list, err := incidents(ctx, s.read, sq.Select(incidentColumns...).From("incident").Where(idIn("id", part)))
		if err != nil {
			return nil, s.fault("read incidents", err)
		}
		for _, i := range list {
			found[i.ID] = i
		}
	}
	return found, nil
}

// Filing is what is decided about one incident in one step. Incident is how it is to look; a new one has no ID yet.
type Filing struct {
	Incident   Incident
	Alerts     []int64 // that are put into it
	Deliveries []Delivery
}

// File writes decisions. Alerts that another has filed meanwhile, or an incident that is not as it was read (Was), fail it
// as a whole, and nothing is written: whoever decides reads again.
func (s *Store) File(ctx context.Context, lease capri.Lease, was map[int64]Incident, filings []Filing) error {
	fresh, messages := 0, 0
	for _, f := range filings {
		if f.Incident.ID == 0 {
			fresh++
		}
		messages += len(f.Deliveries)
	}
	nextIncident, err := s.reserve(ctx, "incident", max(1, fresh))
	if err != nil {
		return s.fault("number incidents", err)
	}
	nextDelivery, err := s.reserve(ctx, "delivery", max(1, messages))
	if err != nil {
		return s.fault("number messages", err)
	}
	return s.WriteAs(ctx, "file alerts", lease, func(tx *Tx) error {
		incident, delivery := nextIncident, nextDelivery
		var made []Incident
		var deliveries []Delivery
		for _, f := range filings {
			i := f.Incident
			if i.ID == 0 {
				i.ID = incident
				incident++
				made = append(made, i)
			} else if err := tx.setIncident(was[i.ID], i); err != nil {
				return err
			}
			for _, part := range chunks(f.Alerts, tx.s.d.ChunkRows) {
				n, err := tx.exec(sq.Update("alert").Set("incident_id", i.ID).Where(idIn("id", part)).Where("incident_id = 0"))
				if err == nil && n != len(part) {
					err = capri.Conflict("%d of %d alerts were filed by another", len(part)-n, len(part))
				}
				if err != nil {
					return err
				}
			}
			for _, d := range f.Deliveries {
				d.ID, d.Incident = delivery, i.ID
				delivery++
				deliveries = append(deliveries, d)
			}
		}
		if err := tx.insertIncidents(made); err != nil {
			return err
		}
		return tx.insertDeliveries(deliveries)
	})
}

func (tx *Tx) insertIncidents(list []Incident) error {
	columns := []string{"id", "cause", "open", "level", "kind", "task_id", "batch_id", "title", "alerts", "opened_at", "last_at", "tellings", "next_at", "step", "silenced"}
	return tx.bulk("incident", columns, len(list), func(n int, args []any) []any {
		i := &list[n]
		return append(args, i.ID, i.Cause, 1, int(i.Level), i.Kind, int64(i.Task), int64(i.Batch), cut(i.Title, 255), i.Alerts, int64(i.OpenedAt), int64(i.LastAt),
			i.Tellings, orNull(i.NextAt), i.Step, cut(i.Silenced, 255))
	})
}

// setIncident changes an incident that is still as it was read.
func (tx *Tx) setIncident(was, is Incident) error {
	set := sq.Eq{"level": int(is.Level), "alerts": is.Alerts, "last_at": int64(is.LastAt), "tellings": is.Tellings, "next_at": orNull(is.NextAt),
		"step": is.Step, "silenced": cut(is.Silenced, 255)}
	if is.ClosedAt != 0 {
		set["open"], set["closed_at"], set["closed_why"] = nil, int64(is.ClosedAt), cut(is.Closed, 255)
	}
	n, err := tx.exec(sq.Update("incident").SetMap(set).Where("id = ? AND open = 1", is.ID).
		Where("alerts = ? AND tellings = ? AND step = ? AND COALESCE(acked_at, 0) = ? AND COALESCE(next_at, 0) = ?", was.Alerts, was.Tellings, was.Step, int64(was.AckedAt), int64(was.NextAt)))
	if err == nil && n == 0 {
		err = capri.Conflict("incident %d was changed meanwhile", is.ID)
	}
	return err
}

func orNull(i capri.Instant) any {
	if i == 0 {
		return nil
	}
	return int64(i)
}

func (tx *Tx) insertDeliveries(list []Delivery) error {
	columns := []string{"id", "incident_id", "telling", "stage", "channel", "address", "person", "why", "urgency", "state", "tries", "next_at", "created_at", "ended_at", "error"}
	return tx.bulk("alert_delivery", columns, len(list), func(n int, args []any) []any {
		d := &list[n]
		var ended any
		if d.State != Due {
			ended = int64(tx.Now)
		}
		return append(args, d.ID, d.Incident, d.Telling, d.Stage, d.Channel, cut(d.Address, 190), cut(d.Person, 128), cut(d.Why, 255), int(capri.Severe-d.Level), int(d.State),
			d.Tries, int64(d.NextAt), int64(tx.Now), ended, cut(d.Error, 2000))
	})
}

var deliveryColumns = []string{"id", "incident_id", "telling", "stage", "channel", "address", "person", "why", "urgency", "state", "tries", "next_at", "created_at",
	"COALESCE(ended_at, 0)", "error", "receipt"}

func (s *Store) deliveries(ctx context.Context, b sq.SelectBuilder) ([]Delivery, error) {
	out, err := collect(ctx, s.read, b, func(r *sql.Rows, d *Delivery) error {
		urgency := 0
		err := r.Scan(&d.ID, &d.Incident, &d.Telling, &d.Stage, &d.Channel, &d.Address, &d.Person, &d.Why, &urgency, &d.State, &d.Tries, &d.NextAt, &d.CreatedAt, &d.EndedAt, &d.Error, &d.Receipt)
		d.Level = capri.Severe - capri.Level(urgency)
		return err
	})
	return out, s.fault("list messages", err)
}

// DueDeliveries lists messages of a channel that can be sent now, the most urgent and then the oldest first.
func (s *Store) DueDeliveries(ctx context.Context, channel string, now capri.Instant, limit int) ([]Delivery, error) {
	return s.deliveries(ctx, dueDeliveries(channel, now, limit))
}

func dueDeliveries(channel string, now capri.Instant, limit int) sq.SelectBuilder {
	return sq.Select(deliveryColumns...).From("alert_delivery").Where("channel = ? AND state = 0 AND next_at <= ?", channel, int64(now)).
		OrderBy("urgency", "id").Limit(uint64(limit))
}

// Address is somebody who is told by a channel.
type Address struct{ Address, Person string }

// Crowded lists the addresses of a channel that have at least so many messages waiting, those with the most urgent ones first.
func (s *Store) Crowded(ctx context.Context, channel string, now capri.Instant, least, limit int) ([]Address, error) {
	q := sq.Select("address", "person").From("alert_delivery").Where("channel = ? AND state = 0 AND next_at <= ?", channel, int64(now)).
		GroupBy("address", "person").Having("COUNT(*) >= ?", least).OrderBy("MIN(urgency)", "MIN(id)").Limit(uint64(limit))
	all, err := collect(ctx, s.read, q, func(r *sql.Rows, a *Address) error {
		return r.Scan(&a.Address, &a.Person)
	})
	return all, s.fault("look for messages that are due", err)
}

// DueTo lists the messages of one address that can be sent now, the most urgent and then the oldest first.
func (s *Store) DueTo(ctx context.Context, channel string, to Address, now capri.Instant, limit int) ([]Delivery, error) {
	return s.deliveries(ctx, sq.Select(deliveryColumns...).From("alert_delivery").Where("channel = ? AND state = 0 AND next_at <= ?", channel, int64(now)).
		Where(sq.Eq{"address": to.Address, "person": to.Person}).OrderBy("urgency", "id").Limit(uint64(limit)))
}

// DeliveriesOf lists the messages of an incident in their order.
func (s *Store) DeliveriesOf(ctx context.Context, incident int64) ([]Delivery, error) {
	return s.deliveries(ctx, sq.Select(deliveryColumns...).From("alert_delivery").Where("incident_id = ?", incident).OrderBy("id"))
}

// Told lists who has been told of incidents, or is about to be.
func (s *Store) Told(ctx context.Context, ids []int64) (map[int64][]Delivery, error) {
	told := map[int64][]Delivery{}
	for _, part := range chunks(ids, s.d.ChunkRows) {
		list, err := s.deliveries(ctx, sq.Select(deliveryColumns...).From("alert_delivery").Where(idIn("incident_id", part)).OrderBy("id"))
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			told[d.Incident] = append(told[d.Incident], d)
		}
	}
	return told, nil
}

// EndDeliveries writes what became of tries, and raises alerts with them. Each is as it was when it was read (tries counts
// one more now), or it was another's and is left alone.
func (s *Store) EndDeliveries(ctx context.Context, lease capri.Lease, tried []Delivery, alerts []capri.Alert) error {
	return s.WriteAs(ctx, "note what was sent", lease, func(tx *Tx) error {
		// Alike ends are one statement: thousands of sent ones are the ordinary case.
		sent := map[int][]int64{}
		for _, d := range tried {
			if d.State == Sent && d.Receipt == "" {
				sent[d.Tries] = append(sent[d.Tries], d.ID)
				continue
			}
			set := sq.Eq{"state": int(d.State), "tries": d.Tries, "next_at": int64(d.NextAt), "error": cut(d.Error, 2000), "receipt": cut(d.Receipt, 190)}
			if d.State != Due {
				set["ended_at"] = int64(tx.Now)
			}
			if _, err := tx.exec(sq.Update("alert_delivery").SetMap(set).Where("id = ? AND state = 0", d.ID)); err != nil {
				return err
			}
		}
		for tries, ids := range sent {
			for _, part := range chunks(ids, tx.s.d.ChunkRows) {
				if _, err := tx.exec(sq.Update("alert_delivery").SetMap(sq.Eq{"state": int(Sent), "tries": tries, "ended_at": int64(tx.Now), "error": ""}).Where(idIn("id", part)).Where("state = 0")); err != nil {
					return err
				}
			}
		}
		return tx.Alerts(alerts)
	})
}

// ForgetIncidents deletes at most limit incidents that were over before an instant, with the account of their messages,
// the oldest first.
func (s *Store) ForgetIncidents(ctx context.Context, lease capri.Lease, before capri.Instant, limit int) (int, error) {
	old, err := incidents(ctx, s.read, sq.Select(incidentColumns...).From("incident").Where("closed_at < ?", int64(before)).OrderBy("closed_at").Limit(uint64(limit)))
	if err != nil || len(old) == 0 {
		return 0, s.fault("look for old incidents", err)
	}
	ids := make([]int64, len(old))
	for i, x := range old {
		ids[i] = x.ID
	}
	n := 0
	err = s.WriteAs(ctx, "forget old incidents", lease, func(tx *Tx) error {
		if _, err := tx.exec(sq.Delete("alert_delivery").Where(idIn("incident_id", ids))); err != nil {
			return err
		}
		n, err = tx.exec(sq.Delete("incident").Where(idIn("id", ids)))
		return err
	})
	return n, err
}

// Acknowledge says that somebody looks after an incident: nobody is told again until it is over.
func (tx *Tx) Acknowledge(id int64, by string) error {
	if err := tx.note("incident", sq.Eq{"id": id}); err != nil {
		return err
	}
	n, err := tx.exec(sq.Update("incident").Set("acked_at", int64(tx.Now)).Set("acked_by", cut(by, 190)).Set("next_at", nil).Where("id = ? AND open = 1 AND acked_at IS NULL", id))
	if err != nil || n > 0 {
		return err
	}
	list, err := incidents(tx.ctx, tx.tx, sq.Select(incidentColumns...).From("incident").Where("id = ?", id))
	switch {
	case err != nil:
		return err
	case len(list) == 0:
		return capri.NotFound("there is no incident %d", id)
	case list[0].AckedAt != 0:
		return nil // by somebody else, and that is as good
	}
	return capri.Conflict("incident %d is over: %s", id, list[0].Closed)
}

// Silences lists those that are not over at an instant; 0: all.
func (s *Store) Silences(ctx context.Context, at capri.Instant) ([]Silence, error) {
	q := sq.Select("id", "task", "task_group", "kind", "reason", "until_at", "created_by", "created_at").From("silence").Where("until_at > ?", int64(at)).OrderBy("id")
	all, err := collect(ctx, s.read, q, func(r *sql.Rows, x *Silence) error {
		return r.Scan(&x.ID, &x.Task, &x.Group, &x.Kind, &x.Reason, &x.Until, &x.CreatedBy, &x.CreatedAt)
	})
	return all, s.fault("read silences", err)
}

// Silence reads one, also one that is over.
func (s *Store) Silence(ctx context.Context, id int64) (x Silence, err error) {
	found, err := one(ctx, s.read, sq.Select("id", "task", "task_group", "kind", "reason", "until_at", "created_by", "created_at").From("silence").Where("id = ?", id),
		&x.ID, &x.Task, &x.Group, &x.Kind, &x.Reason, &x.Until, &x.CreatedBy, &x.CreatedAt)
	if err == nil && !found {
		err = capri.NotFound("there is no silence %d", id)
	}
	return x, s.fault("read a silence", err)
}

// AddSilence makes one; id was reserved with NewSilenceID.
func (tx *Tx) AddSilence(x Silence) error {
	if err := tx.note("silence", sq.Eq{"id": x.ID}); err != nil {
		return err
	}
	err := firstError(fits("task", x.Task, 190), fits("group", x.Group, 190), fits("kind", x.Kind, 64), fits("reason", x.Reason, 255))
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(x.Reason) == "":
		return capri.Invalid("reason", x.Reason, "why nobody is told")
	case x.Until <= tx.Now:
		return capri.Invalid("until", fmt.Sprint(x.Until), "a time to come")
	}
	_, err = tx.exec(sq.Insert("silence").Columns("id", "task", "task_group", "kind", "reason", "until_at", "created_by", "created_at").
		Values(x.ID, x.Task, x.Group, x.Kind, x.Reason, int64(x.Until), cut(tx.who, 190), int64(tx.Now)))
	return err
}

// NewSilenceID reserves an id.
func (s *Store) NewSilenceID(ctx context.Context) (int64, error) {
	id, err := s.reserve(ctx, "silence", 1)
	return id, s.fault("number a silence", err)
}

// EndSilence ends one now.
func (tx *Tx) EndSilence(id int64) error {
	if err := tx.note("silence", sq.Eq{"id": id}); err != nil {
		return err
	}
	var reason string
	var until capri.Instant
	found, err := one(tx.ctx, tx.tx, sq.Select("reason", "until_at").From("silence").Where("id = ? AND until_at > ?", id, int64(tx.Now)).Suffix(tx.s.d.ForShare), &reason, &until)
	if err == nil && !found {
		err = capri.NotFound("there is no silence %d that stands", id)
	}
	if err != nil {
		return err
	}
	if _, err := tx.exec(sq.Update("silence").Set("until_at", int64(tx.Now)).Where("id = ?", id)); err != nil {
		return err
	}
	// What it kept quiet was to be told at its end.
	_, err = tx.exec(sq.Update("incident").Set("next_at", int64(tx.Now)).Where("open = 1 AND silenced = ? AND next_at = ?", reason, int64(until)))
	return err
}

// Waiting says what waits for a batch.
type Waiting struct {
	Batches int // directly, or through others
	Urgent  int // those of them whose output is due soon
}

// Behind counts the batches that wait for each of these, and those of them whose output is due until an instant. All are
// followed at once, level by level; it looks at no more than some thousands behind each.
func (s *Store) Behind(ctx context.Context, roots []capri.BatchID, now, by capri.Instant) (map[capri.BatchID]Waiting, error) {
	const most, levels = 10_000, 30
	behind := map[capri.BatchID]map[capri.BatchID]bool{} // of each root, with itself
	level := map[capri.BatchID][]capri.BatchID{}         // batches that were reached last, with the roots that reached them
	for _, root := range roots {
		behind[root] = map[capri.BatchID]bool{root: true}
		level[root] = []capri.BatchID{root}
	}
	for n := 0; n < levels && len(level) > 0; n++ {
		next := map[capri.BatchID][]capri.BatchID{}
		for _, part := range chunks(slices.Collect(maps.Keys(level)), s.d.ChunkRows) {
			q := sq.Select("p.id", "w.id").From("task_work p").Join("tparent_data d ON d.parent_task_id = p.task_id AND d.parent_batch_no = p.batch_no").
				Join("task_work w ON w.id = d.batch_id").Where(idIn("p.id", part)).Where("d.state = 0 AND w.state = 0 AND w.latest = 1").Limit(most)
			err := query(ctx, s.read, q, func(r *sql.Rows) error {
				var parent, id capri.BatchID
				err := r.Scan(&parent, &id)
				for _, root := range level[parent] {
					if seen := behind[root]; !seen[id] && len(seen) <= most {
						seen[id] = true
						next[id] = append(next[id], root)
					}
				}
				return err
			})
			if err != nil {
				return nil, s.fault("look what waits for a batch", err)
			}
		}
		level = next
	}
	found, waits := map[capri.BatchID]Waiting{}, map[capri.BatchID][]capri.BatchID{} // of what waits, its roots
	for root, seen := range behind {
		if len(seen) > 1 {
			found[root] = Waiting{Batches: len(seen) - 1}
		}
		for id := range seen {
			if id != root {
				waits[id] = append(waits[id], root)
			}
		}
	}
	if len(waits) == 0 {
		return found, nil
	}
	const output = 2
	ids, err := column[capri.BatchID](ctx, s.read, sq.Select("batch_id").From("batch_deadline").Where("due > ? AND due <= ? AND kind = ?", int64(now), int64(by), output).Limit(5*most))
	for _, id := range ids {
		for _, root := range waits[id] {
			w := found[root]
			w.Urgent++
			found[root] = w
		}
	}
	return found, s.fault("look what is urgent", err)
}
