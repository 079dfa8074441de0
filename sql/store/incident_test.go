package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func incidentOf(cause string) store.Incident {
	return store.Incident{Cause: cause, Level: capri.Important, Kind: "workers", Title: "few", Alerts: 1, OpenedAt: 1, LastAt: 1, Tellings: 1}
}

func TestAn_incident_is_filed_as_a_whole_or_not_at_all(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		s, c := db.Store, t.Context()
		lease := db.Lease(t, "alert")
		require.NoError(t, s.Write(c, "test", "test", func(tx *store.Tx) error {
			return tx.Alerts([]capri.Alert{{Key: "a", Level: capri.Important, Kind: "workers", Title: "few"}, {Key: "b", Level: capri.Important, Kind: "workers", Title: "fewer"}})
		}))
		alerts, err := s.NewAlerts(c, 10)
		require.NoError(t, err)
		require.Len(t, alerts, 2)
		message := store.Delivery{Telling: 1, Stage: "new", Channel: "mail", Address: "a@x", Person: "ann", Why: "all admins", Level: capri.Important}
		require.NoError(t, s.File(c, lease, nil, []store.Filing{{Incident: incidentOf("x"), Alerts: []int64{alerts[0].ID}, Deliveries: []store.Delivery{message}}}))
		open, err := s.OpenIncidents(c, []string{"x", "y"})
		require.NoError(t, err)
		require.Len(t, open, 1)
		was := open["x"]

		nothing := func(what string, lease capri.Lease, was map[int64]store.Incident, f store.Filing, want error) {
			t.Helper()
			before := fmt.Sprint(count(t, db, "incident"), count(t, db, "alert_delivery"), count(t, db, "alert WHERE incident_id = 0"))
			require.ErrorIs(t, s.File(c, lease, was, []store.Filing{{Incident: incidentOf("z"), Deliveries: []store.Delivery{message}}, f}), want, what)
			require.Equal(t, before, fmt.Sprint(count(t, db, "incident"), count(t, db, "alert_delivery"), count(t, db, "alert WHERE incident_id = 0")), what)
		}
		known := map[int64]store.Incident{was.ID: was}
		nothing("an alert that is filed already", lease, known, store.Filing{Incident: was, Alerts: []int64{alerts[0].ID, alerts[1].ID}}, capri.ErrConflict)
		is := was
		is.Alerts++
		require.NoError(t, s.File(c, lease, known, []store.Filing{{Incident: is, Alerts: []int64{alerts[1].ID}}}))
		nothing("an incident that has changed since", lease, known, store.Filing{Incident: is}, capri.ErrConflict)
		known = map[int64]store.Incident{was.ID: is}
		require.NoError(t, s.Write(c, "test", "pat", func(tx *store.Tx) error { return tx.Acknowledge(was.ID, "pat") }))
		nothing("one that was acknowledged since", lease, known, store.Filing{Incident: is}, capri.ErrConflict)
		acked, err := s.Incident(c, was.ID)
		require.NoError(t, err)
		require.Equal(t, "pat", acked.AckedBy)
		require.Zero(t, acked.NextAt)
		acked.ClosedAt, acked.Closed = 5, "over"
		known = map[int64]store.Incident{was.ID: acked}
		stale := lease
		lease = db.Lease(t, "alert")
		nothing("a former leader", stale, known, store.Filing{Incident: acked}, capri.ErrStaleEpoch)
		require.NoError(t, s.File(c, lease, known, []store.Filing{{Incident: acked}}))
		nothing("one that is over", lease, known, store.Filing{Incident: acked}, capri.ErrConflict)
		require.ErrorIs(t, s.Write(c, "test", "ops", func(tx *store.Tx) error { return tx.Acknowledge(was.ID+1000, "ops") }), capri.ErrNotFound)
		require.NoError(t, s.Write(c, "test", "ops", func(tx *store.Tx) error { return tx.Acknowledge(was.ID, "ops") }), "somebody did before it was over")
		// The cause may come again.
		require.NoError(t, s.File(c, lease, nil, []store.Filing{{Incident: incidentOf("x")}}))

		n, err := s.ForgetIncidents(c, lease, 4, 10)
		require.NoError(t, err)
		require.Zero(t, n, "not old enough")
		n, err = s.ForgetIncidents(c, lease, 6, 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, 1, count(t, db, "incident"))
		require.Zero(t, count(t, db, "alert_delivery"))
	})
}

func count(t *testing.T, db *sqltest.DB, from string) (n int) {
	t.Helper()
	require.NoError(t, db.Store.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+from).Scan(&n))
	return n
}

func TestWhat_became_of_a_message_is_written_once(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		s, c, lease := db.Store, t.Context(), db.Lease(t, "alert")
		var messages []store.Delivery
		for i := range 5 {
			messages = append(messages, store.Delivery{Telling: 1, Stage: "new", Channel: "sms", Address: fmt.Sprint("+", i), Level: capri.Level(1 + i%3)})
		}
		require.NoError(t, s.File(c, lease, nil, []store.Filing{{Incident: incidentOf("x"), Deliveries: messages}}))
		now := db.Clock.Now()
		due, err := s.DueDeliveries(c, "sms", now, 10)
		require.NoError(t, err)
		var levels []string
		for _, d := range due {
			levels = append(levels, d.Level.String())
		}
		require.Equal(t, "severe important important attention attention", strings.Join(levels, " "), "the most urgent first")
		keys := map[string]bool{}
		for _, d := range due {
			keys[d.Key()] = true
		}
		require.Len(t, keys, 5)
		due[0].State, due[0].Tries = store.Sent, 1
		due[1].Tries, due[1].NextAt, due[1].Error = 1, now.Add(time.Minute), "500"
		due[2].State, due[2].Tries, due[2].Error = store.GivenUp, 4, strings.Repeat("x", 5000)
		require.NoError(t, s.EndDeliveries(c, lease, due[:3], []capri.Alert{{Key: "g", Level: capri.Attention, Kind: "message_given_up", Title: "given up"}}))
		due[0].State, due[0].Error = store.GivenUp, "a former leader's"
		require.NoError(t, s.EndDeliveries(c, lease, due[:1], nil))
		left, err := s.DueDeliveries(c, "sms", now, 10)
		require.NoError(t, err)
		require.Len(t, left, 2)
		later, err := s.DueDeliveries(c, "sms", now.Add(time.Minute), 10)
		require.NoError(t, err)
		require.Len(t, later, 3)
		crowded, err := s.Crowded(c, "sms", now, 2, 10)
		require.NoError(t, err)
		require.Empty(t, crowded)
		all, err := s.DeliveriesOf(c, due[0].Incident)
		require.NoError(t, err)
		states := map[store.DeliveryState]int{}
		for _, d := range all {
			states[d.State]++
		}
		require.Equal(t, map[store.DeliveryState]int{store.Sent: 1, store.Due: 3, store.GivenUp: 1}, states)
	})
}

func TestWhat_waits_behind_a_batch_is_counted_through_others(t *testing.T) {
	each(t, func(w *world) {
		t := w.t
		tasks := w.Tasks(t, 4, func(int, *capri.Spec) {})
		now := w.Clock.Now()
		chain := make([]capri.BatchID, 4)
		for i, task := range tasks {
			b := w.batch(task, "1", capri.Conditions{})
			if i > 0 {
				b.Conditions.Parents = []capri.ParentCondition{{TaskID: tasks[i-1].ID, BatchNo: "1"}}
				b.Deadlines = []capri.Deadline{{Kind: capri.OutputDeadline, Due: now.Add(time.Duration(i) * time.Hour)}}
			}
			w.insert(b)
			chain[i] = b.ID
		}
		behind, err := w.Store.Behind(w.ctx, chain, now, now.Add(2*time.Hour))
		require.NoError(t, err)
		for i, want := range []int{3, 2, 1, 0} {
			require.Equal(t, store.Waiting{Batches: want, Urgent: max(0, 2-i)}, behind[chain[i]], "behind %d", i)
			alone, err := w.Store.Behind(w.ctx, chain[i:i+1], now, now.Add(2*time.Hour))
			require.NoError(t, err)
			require.Equal(t, behind[chain[i]], alone[chain[i]])
		}
	})
}

func TestThe_first_alerts_of_many_incidents_are_read_at_once(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		s, c, lease := db.Store, t.Context(), db.Lease(t, "alert")
		const incidents, alerts = 130, 4
		for i := range incidents {
			require.NoError(t, s.Write(c, "test", "test", func(tx *store.Tx) error {
				list := make([]capri.Alert, alerts)
				for n := range list {
					list[n] = capri.Alert{Key: fmt.Sprint(i, "-", n), Level: capri.Important, Kind: "raised", Title: fmt.Sprint(i, "-", n)}
				}
				return tx.Alerts(list)
			}))
		}
		all, err := s.NewAlerts(c, incidents*alerts)
		require.NoError(t, err)
		var filings []store.Filing
		for i := range incidents {
			f := store.Filing{Incident: incidentOf(fmt.Sprint(i))}
			for _, a := range all[i*alerts : (i+1)*alerts] {
				f.Alerts = append(f.Alerts, a.ID)
			}
			filings = append(filings, f)
		}
		require.NoError(t, s.File(c, lease, nil, filings))
		open, err := s.AllOpen(c, 0, incidents)
		require.NoError(t, err)
		var ids []int64
		for _, i := range open {
			ids = append(ids, i.ID)
		}
		first, err := s.AlertsOf(c, ids, 3)
		require.NoError(t, err)
		require.Len(t, first, incidents)
		for _, i := range open {
			var titles []string
			for _, a := range first[i.ID] {
				titles = append(titles, a.Title)
			}
			require.Equal(t, []string{i.Cause + "-0", i.Cause + "-1", i.Cause + "-2"}, titles)
		}
		none, err := s.AlertsOf(c, nil, 3)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}
