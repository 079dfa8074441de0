package alert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting"
	"capri/alerting/route"
	"capri/internal/servicetest"
	"capri/internal/testenv"
	"capri/services"
	"capri/sql/store"
)

// asLeader does what the process of a leader does, where this binary was started as one (crash_test.go).
var asLeader = func() bool { return false }

func TestMain(m *testing.M) {
	if asLeader() {
		return
	}
	testenv.AtOnce(4)
	m.Run()
}

// world is the service and the people and channels around it.
type world struct {
	*servicetest.World
	filing *Filing
	people route.People
	phones *post
	sms    *post
	mail   *post
}

// post is a channel that notes what it takes.
type post struct {
	mu   sync.Mutex
	took []alerting.Message
	fail func(m alerting.Message) error // nil: everything is taken
}

func (p *post) Send(ctx context.Context, m alerting.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		if err := p.fail(m); err != nil {
			return err
		}
	}
	p.took = append(p.took, m)
	return ctx.Err()
}

// read gives "to stage: subject" of what came since the last read, sorted.
func (p *post) read() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for _, m := range p.took {
		list = append(list, fmt.Sprintf("%s %s: %s", m.To, m.Stage, m.Subject))
	}
	p.took = nil
	slices.Sort(list)
	return list
}

func each(t *testing.T, fn func(w *world)) {
	servicetest.Each(t, "alert", func(sw *servicetest.World) {
		w := &world{World: sw, phones: &post{}, sms: &post{}, mail: &post{}}
		w.people = route.People{Duty: map[string]route.Duty{"": {Primary: "ops", Secondary: "pat"}}, Persons: map[string]route.Person{}}
		for i, name := range []string{"ops", "pat", "alice", "bob"} {
			w.people.Persons[name] = route.Person{Name: name, Department: map[bool]string{true: "ops", false: "dw"}[i < 2], Mail: name + "@x", Phone: fmt.Sprint("+", i), Enabled: true, Admin: i < 2}
		}
		w.filing = &Filing{Store: w.Store,
			People: func(context.Context, capri.Instant, []capri.TaskID) (route.People, error) { return w.people, nil }}
		fn(w)
	})
}

func (w *world) channel(name string, p alerting.Sender) *Sending {
	s := &Sending{Store: w.Store, Channel: name, People: w.filing.People, Zone: time.UTC, Log: slog.New(slog.DiscardHandler), Limits: Limits{Retries: 3},
		Compose: func(_ string, f alerting.Facts) alerting.Message {
			return alerting.Message{Incident: f.Incident, Level: f.Level, Stage: f.Stage, Subject: fmt.Sprintf("%s (%d alerts, %d wait)", f.Title, f.Alerts, f.Waiting), Text: strings.Join(f.Others, "\n")}
		}}
	if p != nil {
		s.Send = func(ctx context.Context, m alerting.Message) (string, error) {
			return "taken as " + m.Key, p.Send(ctx, m)
		}
	}
	return s
}

// deliver files what is new and sends what is due, by all channels.
func (w *world) deliver() {
	w.T.Helper()
	for range 50 {
		if !w.Turn(w.filing).Again {
			break
		}
	}
	for name, p := range map[string]*post{alerting.Phone: w.phones, alerting.SMS: w.sms, alerting.Mail: w.mail} {
		s := w.channel(name, p)
		for range 500 {
			if !w.Turn(s).Again {
				break
			}
		}
	}
}

func (w *world) raise(alerts ...capri.Alert) {
	w.T.Helper()
	w.Write(func(tx *store.Tx) error { return tx.Alerts(alerts) })
}

func (w *world) incidents(open bool) []store.Incident {
	w.T.Helper()
	list, err := w.Store.Incidents(w.Ctx, nil, open, 0, 100_000)
	require.NoError(w.T, err)
	slices.Reverse(list)
	return list
}

// accounted checks that every alert is in an incident and every message has an end.
func (w *world) accounted() {
	w.T.Helper()
	require.Zero(w.T, w.Count("alert WHERE incident_id = 0"))
	require.Zero(w.T, w.Count("alert_delivery WHERE state = 0"))
}

func TestAn_alert_of_the_system_reaches_duty_and_admins_by_its_level(t *testing.T) {
	each(t, func(w *world) {
		w.raise(capri.Alert{Key: "a", Level: capri.Severe, Kind: "masters", Title: "severe"}, capri.Alert{Key: "b", Level: capri.Important, Kind: "workers", Title: "important"},
			capri.Alert{Key: "c", Level: capri.Attention, Kind: "clocks", Title: "attention"})
		w.deliver()
		require.Equal(t, []string{"+0 new: severe (1 alerts, 0 wait)", "+1 new: severe (1 alerts, 0 wait)"}, w.phones.read())
		require.Len(t, w.sms.read(), 4)
		require.Len(t, w.mail.read(), 6)
		w.deliver()
		require.Empty(t, slices.Concat(w.phones.read(), w.sms.read(), w.mail.read()), "each once")
		w.accounted()
		for _, d := range w.deliveries(w.incidents(true)[0].ID) {
			require.Equal(t, store.Sent, d.State)
			require.NotEmpty(t, d.Why)
			require.Equal(t, 1, d.Tries)
			require.Equal(t, "taken as "+d.Key(), d.Receipt)
		}
	})
}

func (w *world) deliveries(incident int64) []store.Delivery {
	w.T.Helper()
	list, err := w.Store.DeliveriesOf(w.Ctx, incident)
	require.NoError(w.T, err)
	return list
}

func TestThousands_of_alerts_of_one_root_are_one_incident_and_one_call(t *testing.T) {
	each(t, func(w *world) {
		const many = 2000
		w.people.Persons["alice"] = route.Person{Name: "alice", Mail: "alice@x", Phone: "+2", Enabled: true}
		root := w.Task(t, func(s *capri.Spec) {
			s.Owner, s.Priority = "alice", 0
			s.Alert = capri.AlertRules{DefaultRules: true, Phone: true, PhoneTo: []string{"alice"}}
		})
		failed := w.Batches(root, 1)[0]
		w.Node("n1")
		w.Finish("n1", store.Failed, w.Start("n1", failed)...)
		child := w.Task(t, func(s *capri.Spec) {
			s.Owner, s.Priority = "alice", 0
			s.Alert = capri.AlertRules{DefaultRules: true, Phone: true, PhoneTo: []string{"alice"}}
		})
		no := w.Get(failed).BatchNo
		children := w.Batches(child, many, func(b *capri.NewBatch) {
			b.Conditions.Parents = []capri.ParentCondition{{TaskID: root.ID, BatchNo: no}}
		})
		alerts := make([]capri.Alert, many)
		for i, id := range children {
			alerts[i] = capri.Alert{Key: fmt.Sprint("late", id), Level: capri.Important, Kind: "dependency_timeout", Task: child.ID, Batch: id, Title: fmt.Sprint("late ", i)}
		}
		w.raise(alerts...)
		w.deliver()
		open := w.incidents(true)
		require.Len(t, open, 1)
		require.Equal(t, many+len(w.Alerts("batch_failed")), open[0].Alerts)
		require.Equal(t, failed, open[0].Batch)
		require.Len(t, w.phones.read(), 1, "one call")
		mails := w.mail.read()
		require.Len(t, mails, 1)
		require.Contains(t, mails[0], "2000 wait)")
		w.accounted()

		// It is over when the root has succeeded, and whoever was told is told so, but not called.
		w.Clock.Advance(2 * time.Minute)
		w.Exec("UPDATE task_work SET finish_state = 1 WHERE id = ?", int64(failed))
		w.deliver()
		require.Empty(t, w.incidents(true))
		require.Empty(t, w.phones.read())
		require.True(t, strings.HasPrefix(w.mail.read()[0], "alice@x over: "))
		require.Equal(t, "its batch has succeeded", w.incidents(false)[0].Closed)
	})
}

func TestA_later_alert_attaches_and_a_worse_one_is_told_again(t *testing.T) {
	each(t, func(w *world) {
		w.raise(capri.Alert{Key: "node_lost:1", Level: capri.Important, Kind: "node_lost", Title: "n1 is lost"})
		w.deliver()
		require.Len(t, w.sms.read(), 2)
		w.mail.read()
		w.raise(capri.Alert{Key: "node_lost:2", Level: capri.Important, Kind: "node_lost", Title: "n2 is lost"})
		w.deliver()
		require.Empty(t, slices.Concat(w.phones.read(), w.sms.read(), w.mail.read()), "they know")
		w.raise(capri.Alert{Key: "node_lost:3", Level: capri.Severe, Kind: "node_lost", Title: "most are lost"})
		w.deliver()
		require.Len(t, w.phones.read(), 2)
		require.Len(t, w.sms.read(), 2)
		open := w.incidents(true)
		require.Len(t, open, 1)
		require.Equal(t, 3, open[0].Alerts)
		require.Equal(t, capri.Severe, open[0].Level)
		w.accounted()
	})
}

func TestAdmins_are_called_for_many_failures_by_that_name_and_task_people_for_their_own(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, func(s *capri.Spec) { s.Owner, s.Alert.DefaultRules = "alice", true })
		w.raise(capri.Alert{Key: fmt.Sprintf("generate_failed:3:1000:%d", task.ID), Level: capri.Important, Kind: "generate_failed", Task: task.ID, Title: "no batch"},
			capri.Alert{Key: "generate_many_failed:3:1000", Level: capri.Severe, Kind: "generate_many_failed", Title: "11 tasks failed"})
		w.deliver()
		require.Equal(t, []string{"+0 new: 11 tasks failed (1 alerts, 0 wait)", "+1 new: 11 tasks failed (1 alerts, 0 wait)"}, w.phones.read())
		require.Equal(t, []string{"alice@x new: no batch (1 alerts, 0 wait)", "bob@x new: no batch (1 alerts, 0 wait)", "ops@x new: 11 tasks failed (1 alerts, 0 wait)", "pat@x new: 11 tasks failed (1 alerts, 0 wait)"}, w.mail.read())
		w.Clock.Advance(10 * time.Minute)
		w.deliver()
		require.Equal(t, []string{"+1 escalated: 11 tasks failed (1 alerts, 0 wait)"}, w.phones.read(), "nobody has acknowledged")
		w.accounted()
	})
}

func TestWhat_a_script_raises_again_and_again_is_one_incident_while_it_goes_on(t *testing.T) {
	each(t, func(w *world) {
		for i := range 5 {
			// As action writes it: with the hour, so that a loop does not fill the table.
			hour := w.Clock.Now().In(time.UTC).Format("2006010215")
			w.raise(capri.Alert{Key: "raised:disk:/data:" + hour, Level: capri.Important, Kind: "raised", Title: "the disk is full"},
				capri.Alert{Key: "raised:disk:/var:" + hour, Level: capri.Important, Kind: "raised", Title: "another disk is full"})
			w.deliver()
			require.Len(t, w.incidents(true), 2, "hour %d", i)
			w.Clock.Advance(time.Hour)
		}
		require.Equal(t, 5, w.incidents(true)[0].Alerts)
	})
	// A key that was too long ends in its hash, and has no hour any more.
	for key, cause := range map[string]string{"raised:a:2026112009": "raised:a", "raised:a:b:2026112009": "raised:a:b", "raised:a: long title#0123456789abcdef": "raised:a: long title#0123456789abcdef", "raised": "raised"} {
		require.Equal(t, cause, withoutHour(key))
	}
}

func TestMessages_that_wait_too_long_for_their_channel_expire_and_admins_are_told(t *testing.T) {
	each(t, func(w *world) {
		w.sms.fail = func(alerting.Message) error { return &net.OpError{Op: "dial", Err: errors.New("connection refused")} }
		w.raise(capri.Alert{Key: "a", Level: capri.Important, Kind: "workers", Title: "few"})
		w.deliver()
		w.Clock.Advance(13 * time.Hour)
		w.sms.fail = nil
		w.deliver()
		w.deliver()
		require.NotEmpty(t, w.Alerts("messages_expired"))
		require.Equal(t, capri.Attention, w.Alerts("messages_expired")[0].Level)
		require.Contains(t, strings.Join(w.mail.read(), "\n"), "Messages by sms were too old to be sent")
	})
}

func TestWhat_nobody_acknowledges_is_told_again_and_climbs(t *testing.T) {
	each(t, func(w *world) {
		w.raise(capri.Alert{Key: "a", Level: capri.Severe, Kind: "masters", Title: "severe"}, capri.Alert{Key: "b", Level: capri.Important, Kind: "workers", Title: "important"})
		w.deliver()
		w.phones.read()
		w.sms.read()
		w.mail.read()
		w.Clock.Advance(10 * time.Minute)
		w.deliver()
		require.Equal(t, []string{"+1 escalated: severe (1 alerts, 0 wait)"}, w.phones.read(), "the secondary")
		w.Clock.Advance(10 * time.Minute)
		w.deliver()
		require.Equal(t, []string{"+0 escalated: severe (1 alerts, 0 wait)", "+1 escalated: severe (1 alerts, 0 wait)"}, w.phones.read(), "all admins")
		w.mail.read()
		w.sms.read()
		w.Clock.Advance(10 * time.Minute)
		w.deliver()
		require.Len(t, w.mail.read(), 2, "the important one again, after 30 minutes")
		// Acknowledged is quiet.
		for _, i := range w.incidents(true) {
			w.Write(func(tx *store.Tx) error { return tx.Acknowledge(i.ID, "pat") })
			w.Write(func(tx *store.Tx) error { return tx.Acknowledge(i.ID, "ops") }) // somebody was first
		}
		w.raise(capri.Alert{Key: "c", Level: capri.Important, Kind: "workers", Title: "more of it"})
		w.sms.read()
		for range 20 {
			w.Clock.Advance(10 * time.Minute)
			w.deliver()
		}
		require.Empty(t, slices.Concat(w.phones.read(), w.sms.read(), w.mail.read()))
		require.Empty(t, w.incidents(true), "quiet for an hour: over")
		require.Equal(t, "pat", w.incidents(false)[0].AckedBy)
		err := w.Store.Write(w.Ctx, "test", "pat", func(tx *store.Tx) error { return tx.Acknowledge(w.incidents(false)[0].ID+100, "pat") })
		require.ErrorIs(t, err, capri.ErrNotFound)
		w.accounted()
	})
}

func TestNobody_is_told_of_what_is_silenced_until_the_silence_is_over(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, func(s *capri.Spec) { s.Owner, s.Group = "alice", "nightly" })
		other := w.Task(t, func(s *capri.Spec) { s.Owner = "alice" })
		silence := func(x store.Silence) {
			id, err := w.Store.NewSilenceID(w.Ctx)
			require.NoError(t, err)
			x.ID, x.Reason, x.Until = id, "we know", w.Clock.Now().Add(time.Hour)
			w.Write(func(tx *store.Tx) error { return tx.AddSilence(x) })
		}
		silence(store.Silence{Group: "night*"})
		silence(store.Silence{Kind: "workers"})
		w.raise(capri.Alert{Key: "a", Level: capri.Important, Kind: "big_task", Task: task.ID, Title: "silenced"}, capri.Alert{Key: "b", Level: capri.Important, Kind: "big_task", Task: other.ID, Title: "told"},
			capri.Alert{Key: "c", Level: capri.Severe, Kind: "workers", Title: "silenced, too"})
		w.deliver()
		require.Empty(t, w.phones.read())
		require.Equal(t, []string{"alice@x new: told (1 alerts, 0 wait)", "bob@x new: told (1 alerts, 0 wait)"}, w.mail.read())
		require.Equal(t, "we know", w.incidents(true)[0].Silenced)
		w.raise(capri.Alert{Key: "d", Level: capri.Severe, Kind: "workers", Title: "still"})
		w.Clock.Advance(61 * time.Minute)
		w.raise(capri.Alert{Key: "e", Level: capri.Severe, Kind: "workers", Title: "and still"})
		w.deliver()
		require.Len(t, w.phones.read(), 2, "it goes on, so it is told now")
		mails := w.mail.read()
		require.Contains(t, mails, "alice@x new: silenced (1 alerts, 0 wait)")
		w.accounted()
	})
}

func (w *world) silence(x store.Silence) int64 {
	w.T.Helper()
	id, err := w.Store.NewSilenceID(w.Ctx)
	require.NoError(w.T, err)
	x.ID, x.Reason, x.Until = id, "we know", w.Clock.Now().Add(time.Hour)
	w.Write(func(tx *store.Tx) error { return tx.AddSilence(x) })
	return id
}

func TestA_silence_covers_its_own_alerts_and_no_others_of_the_incident(t *testing.T) {
	each(t, func(w *world) {
		only := capri.AlertRules{OwnerOnly: true}
		known := w.Task(t, func(s *capri.Spec) { s.Name, s.Owner, s.Alert = "known", "alice", only })
		other := w.Task(t, func(s *capri.Spec) { s.Name, s.Owner, s.Alert = "other", "bob", only })
		w.silence(store.Silence{Task: "known"})
		failed := func(mark int, task *capri.Task) capri.Alert {
			return capri.Alert{Key: fmt.Sprintf("generate_failed:3:%d:%d", mark, task.ID), Level: capri.Important, Kind: "generate_failed", Task: task.ID, Title: task.Name}
		}
		w.raise(failed(1000, known), failed(1000, other))
		w.deliver()
		require.Len(t, w.incidents(true), 1)
		require.Equal(t, []string{"bob@x new: known (2 alerts, 0 wait)"}, w.mail.read(), "the other task's people hear of theirs")
		// What is still open when the silence is over is told to whoever was kept from it.
		w.Clock.Advance(59 * time.Minute)
		w.raise(failed(1000, w.Task(t, func(s *capri.Spec) { s.Name, s.Owner, s.Alert = "third", "bob", only })))
		w.deliver()
		require.Empty(t, w.mail.read(), "they know")
		w.Clock.Advance(2 * time.Minute)
		w.deliver()
		require.Contains(t, strings.Join(w.mail.read(), "\n"), "alice@x new: known (3 alerts")
	})
}

func TestWho_acknowledges_the_failures_of_a_mark_speaks_for_his_own_department(t *testing.T) {
	each(t, func(w *world) {
		var failed []capri.Alert
		for n, owner := range []string{"alice", "bob", "ops"} { // of dw, dw, ops
			task := w.Task(t, func(s *capri.Spec) { s.Owner, s.Alert.DefaultRules = owner, true })
			failed = append(failed, capri.Alert{Key: fmt.Sprintf("generate_failed:3:1000:%d", task.ID), Level: capri.Important, Kind: "generate_failed", Task: task.ID, Title: fmt.Sprint("no batch ", n)})
		}
		w.raise(failed...)
		w.deliver()
		require.Equal(t, []string{"alice@x new: no batch 0 (2 alerts, 0 wait)", "bob@x new: no batch 0 (2 alerts, 0 wait)", "ops@x new: no batch 2 (1 alerts, 0 wait)", "pat@x new: no batch 2 (1 alerts, 0 wait)"}, w.mail.read())
		open := w.incidents(true)
		require.Len(t, open, 2, "one for each department")
		w.Write(func(tx *store.Tx) error { return tx.Acknowledge(open[0].ID, "alice") })
		w.Clock.Advance(31 * time.Minute)
		w.deliver()
		require.Equal(t, []string{"ops@x again: no batch 2 (1 alerts, 0 wait)", "pat@x again: no batch 2 (1 alerts, 0 wait)"}, w.mail.read(), "nobody looks after theirs")
	})
}

func TestA_silence_is_made_longer_by_another_one(t *testing.T) {
	each(t, func(w *world) {
		w.silence(store.Silence{Kind: "workers"})
		w.raise(capri.Alert{Key: "a", Level: capri.Important, Kind: "workers", Title: "few"})
		w.deliver()
		w.Clock.Advance(50 * time.Minute)
		longer := w.silence(store.Silence{Kind: "workers"})
		w.raise(capri.Alert{Key: "b", Level: capri.Important, Kind: "workers", Title: "still few"}) // else it were over after an hour
		w.Clock.Advance(11 * time.Minute)
		w.deliver()
		require.Empty(t, w.mail.read(), "the first is over, the second is not")
		w.Write(func(tx *store.Tx) error { return tx.EndSilence(longer) })
		w.deliver()
		require.Len(t, w.mail.read(), 2)
	})
}

func TestA_silence_that_is_ended_early_lets_its_incidents_be_told_then(t *testing.T) {
	each(t, func(w *world) {
		id := w.silence(store.Silence{Kind: "workers"})
		w.raise(capri.Alert{Key: "a", Level: capri.Important, Kind: "workers", Title: "few"})
		w.deliver()
		require.Empty(t, w.mail.read())
		w.Clock.Advance(10 * time.Minute)
		w.Write(func(tx *store.Tx) error { return tx.EndSilence(id) })
		w.deliver()
		require.Equal(t, []string{"ops@x new: few (1 alerts, 0 wait)", "pat@x new: few (1 alerts, 0 wait)"}, w.mail.read())
		w.Clock.Advance(30 * time.Minute)
		w.deliver()
		require.Equal(t, []string{"ops@x again: few (1 alerts, 0 wait)", "pat@x again: few (1 alerts, 0 wait)"}, w.mail.read(), "and again, as any other")
		w.accounted()
	})
}

func TestAn_alert_that_is_too_old_is_accounted_for_and_not_sent_as_news(t *testing.T) {
	each(t, func(w *world) {
		w.raise(capri.Alert{Key: "a", Level: capri.Severe, Kind: "masters", Title: "of last night"})
		w.Clock.Advance(13 * time.Hour)
		w.raise(capri.Alert{Key: "b", Level: capri.Severe, Kind: "workers", Title: "of now"})
		w.deliver()
		require.Equal(t, []string{"+0 new: of now (1 alerts, 0 wait)", "+1 new: of now (1 alerts, 0 wait)"}, w.phones.read())
		w.accounted()
		for _, d := range w.deliveries(w.incidents(false)[0].ID) {
			require.Equal(t, store.Expired, d.State, "%+v", d)
			require.Contains(t, d.Error, "13h0m0s old")
		}
	})
}

func TestA_message_is_tried_four_times_and_then_admins_are_told_once(t *testing.T) {
	each(t, func(w *world) {
		w.sms.fail = func(m alerting.Message) error {
			if m.To == "+0" {
				return errors.New("500 try later")
			}
			return nil
		}
		w.raise(capri.Alert{Key: "a", Level: capri.Important, Kind: "workers", Title: "few"})
		tries := 0
		for range 20 {
			w.deliver()
			w.Clock.Advance(time.Minute)
		}
		for _, d := range w.deliveries(w.incidents(false)[0].ID) {
			if d.Channel == alerting.SMS && d.Address == "+0" && d.Telling == 1 {
				tries = d.Tries
				require.Equal(t, store.GivenUp, d.State)
				require.Equal(t, "500 try later", d.Error)
			}
		}
		require.Equal(t, 4, tries)
		require.Len(t, w.Alerts("message_given_up"), 1)
		require.Contains(t, strings.Join(w.mail.read(), "\n"), "ops@x new: A message of incident 1 to ops by sms is given up after 4 tries")
	})
}

func TestA_refusal_is_not_tried_again(t *testing.T) {
	each(t, func(w *world) {
		w.mail.fail = func(m alerting.Message) error {
			if m.To == "ops@x" {
				return &alerting.Refusal{Reason: "550 no such user"}
			}
			return nil
		}
		w.raise(capri.Alert{Key: "a", Level: capri.Attention, Kind: "clocks", Title: "off"})
		w.deliver()
		w.deliver()
		w.Clock.Advance(time.Hour)
		w.deliver()
		w.deliver()
		// The message about it is refused as well, and breeds no third.
		require.Len(t, w.Alerts("message_given_up"), 1)
		w.accounted()
	})
}

func TestA_channel_that_is_down_for_an_hour_loses_nothing_and_holds_up_no_other(t *testing.T) {
	each(t, func(w *world) {
		down := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		w.mail.fail = func(alerting.Message) error { return down }
		mail := w.channel(alerting.Mail, w.mail)
		w.raise(capri.Alert{Key: "a", Level: capri.Severe, Kind: "masters", Title: "few"})
		w.deliver()
		require.Len(t, w.phones.read(), 2)
		for range 60 {
			w.Clock.Advance(time.Minute)
			w.Turn(w.filing)
			w.Turn(mail)
			w.Turn(w.channel(alerting.SMS, w.sms))
		}
		require.NotEmpty(t, w.Alerts("channel_down"))
		require.Contains(t, strings.Join(w.sms.read(), "\n"), "Messages by mail do not go out")
		for _, d := range w.deliveries(w.incidents(false)[0].ID) {
			if d.Channel == alerting.Mail && d.Telling == 1 {
				require.Equal(t, store.Due, d.State, "it waits")
				require.LessOrEqual(t, d.Tries, mostFaults)
			}
		}
		w.mail.fail = nil
		w.Clock.Advance(time.Minute)
		for range 20 {
			w.Turn(mail)
		}
		require.Contains(t, w.mail.read(), "ops@x new: few (1 alerts, 0 wait)")
	})
}

func TestA_channel_that_is_not_configured_is_in_the_account_and_raises_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.raise(capri.Alert{Key: "a", Level: capri.Severe, Kind: "masters", Title: "few"})
		w.Turn(w.filing)
		w.Turn(w.channel(alerting.Phone, nil))
		for _, d := range w.deliveries(w.incidents(true)[0].ID) {
			if d.Channel == alerting.Phone {
				require.Equal(t, store.GivenUp, d.State)
				require.Contains(t, d.Error, "phone is not configured")
			}
		}
		require.Len(t, w.Alerts(), 1)
	})
}

// A leader may die at any moment: before anything is written, or after messages went out and before that was noted.
func TestNothing_is_lost_when_leaders_die_between_steps(t *testing.T) {
	each(t, func(w *world) {
		seed := uint64(time.Now().UnixNano()) //nolint:forbidigo // printed below
		random := rand.New(rand.NewPCG(seed, 1))
		t.Logf("seed %d", seed)
		var mu sync.Mutex
		dies := func() bool { // after a message the process is gone
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(10) == 0
		}
		for i := range 30 {
			w.raise(capri.Alert{Key: fmt.Sprint("k", i), Level: capri.Level(1 + i%3), Kind: fmt.Sprint("kind", i), Title: fmt.Sprint("alert ", i)})
		}
		for range 200 {
			old := w.Leads
			w.Clock.Advance(10 * time.Second)
			if random.IntN(4) == 0 {
				w.Lead()
				// The former leader wakes up and writes nothing any more.
				s := w.channel(alerting.Mail, &post{})
				if _, err := s.Run(w.Ctx, turnOf(w, old)); err != nil {
					require.ErrorIs(t, err, capri.ErrStaleEpoch)
				}
			}
			w.Turn(w.filing)
			for name, p := range map[string]*post{alerting.Phone: w.phones, alerting.SMS: w.sms, alerting.Mail: w.mail} {
				ctx, cancel := context.WithCancel(w.Ctx)
				s := w.channel(name, dying{p, dies, cancel})
				_, err := s.Run(ctx, turnOf(w, w.Leads))
				cancel()
				if err != nil {
					require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, capri.ErrStaleEpoch), "%v", err)
				}
			}
		}
		w.accounted()
		told := map[string]bool{}
		for _, m := range w.mail.took {
			told[m.To+" "+strings.TrimSuffix(m.Subject, " (1 alerts, 0 wait)")] = true
			for line := range strings.Lines(m.Text) { // of a digest
				told[m.To+" "+strings.TrimSpace(line)] = true
			}
			if n := strings.Index(m.Subject, " ("); n > 0 {
				told[m.To+" "+m.Subject[:n]] = true
			}
		}
		for i := range 30 {
			for _, to := range []string{"ops@x", "pat@x"} {
				require.True(t, told[fmt.Sprintf("%s alert %d", to, i)], "%s was not told of alert %d", to, i)
			}
		}
	})
}

// dying is a channel whose process ends after a message.
type dying struct {
	*post
	dead   func() bool
	cancel context.CancelFunc
}

func (d dying) Send(ctx context.Context, m alerting.Message) error {
	err := d.post.Send(ctx, m)
	if d.dead() {
		d.cancel()
		return io.ErrUnexpectedEOF
	}
	return err
}

func turnOf(w *world, l capri.Lease) services.Turn {
	return services.Turn{Now: w.Clock.Now(), Lease: l}
}

func TestAn_owner_who_asked_for_it_is_told_of_each_end_by_mail_alone(t *testing.T) {
	each(t, func(w *world) {
		w.Node("n1")
		notified := func(b *capri.NewBatch) { b.Notifies = true }
		all := w.Task(t, func(s *capri.Spec) {
			s.Owner, s.Priority = "alice", 0
			s.Alert = capri.AlertRules{NotifyOn: []string{"success", "killed", "skipped"}}
		})
		ids := w.Batches(all, 3, notified)
		w.Finish("n1", store.Succeeded, w.Start("n1", ids[0])...)
		w.Finish("n1", store.Killed, w.Start("n1", ids[1])...)
		w.Finish("n1", store.Failed, w.Start("n1", ids[2])...) // it did not ask for these, and has no other receivers: admins
		w.Batches(all, 1, notified, func(b *capri.NewBatch) { b.State, b.FinishState = capri.Finished, capri.Skipped })
		silent := w.Task(t, func(s *capri.Spec) { s.Owner = "bob" })
		w.Finish("n1", store.Succeeded, w.Start("n1", w.Batches(silent, 1)...)...)
		w.deliver()
		require.Empty(t, w.sms.read())
		mails := w.mail.read()
		require.Len(t, mails, 5, "%v", mails)
		for i, how := range []string{"has succeeded", "was killed", "was skipped"} {
			require.Contains(t, mails[i], "alice@x notice: ")
			require.Contains(t, mails[i], how)
		}
		w.accounted()
		w.Clock.Advance(2 * time.Minute)
		w.deliver()
		require.Len(t, w.incidents(true), 1, "a notice is no incident that goes on")
		require.Empty(t, w.mail.read())
	})
}

func TestWho_is_read_from_the_database(t *testing.T) {
	each(t, func(w *world) {
		task := w.Task(t, nil)
		w.Write(func(tx *store.Tx) error {
			for _, u := range []store.User{{Name: "ann", Mail: "ann@x", Phone: "+1", Department: "dw", Enabled: true, Admin: true}, {Name: "bob", Mail: "bob@x"}} {
				if err := tx.SaveUser(u); err != nil {
					return err
				}
			}
			return tx.GrantAlert(store.AlertGrant{TaskID: task.ID, User: "ann", SMS: true})
		})
		p, err := PeopleOf(w.Store)(w.Ctx, w.Clock.Now(), []capri.TaskID{task.ID})
		require.NoError(t, err)
		require.Equal(t, route.Person{Name: "ann", Department: "dw", Mail: "ann@x", Phone: "+1", Enabled: true, Admin: true}, p.Persons["ann"])
		require.False(t, p.Persons["bob"].Enabled)
		require.Equal(t, []route.Grant{{Person: "ann", SMS: true}}, p.Grants[task.ID])
	})
}

func TestThousands_of_alerts_of_as_many_roots_are_a_few_digests_and_calls_go_out_at_once(t *testing.T) {
	each(t, func(w *world) {
		const many = 2000
		alerts := make([]capri.Alert, many)
		for i := range alerts {
			alerts[i] = capri.Alert{Key: fmt.Sprint("raised:", i), Level: capri.Attention, Kind: "raised", Title: fmt.Sprint("trouble ", i)}
		}
		alerts[many-1].Level = capri.Severe
		w.raise(alerts...)
		for range 50 {
			if !w.Turn(w.filing).Again {
				break
			}
		}
		require.Len(t, w.incidents(true), many)
		w.Turn(w.channel(alerting.Phone, w.phones))
		require.Len(t, w.phones.read(), 2, "before any mail")
		w.deliver()
		mails := w.mail.read()
		require.LessOrEqual(t, len(mails), 2*(many/digestMost+1), "%d mails", len(mails))
		require.Contains(t, strings.Join(mails, "\n"), fmt.Sprintf("ops@x digest: trouble 1999 (%d alerts, 0 wait)", digestMost), "the most urgent first")
		w.accounted()
		require.Equal(t, 2*many, w.Count("alert_delivery WHERE channel = 'mail' AND state = 1"))
	})
}

// full makes n messages for one address that are due.
func (w *world) full(n int) {
	w.T.Helper()
	alerts := make([]capri.Alert, n)
	for i := range alerts {
		alerts[i] = capri.Alert{Key: fmt.Sprint("raised:", i), Level: capri.Attention, Kind: "raised", Title: fmt.Sprint("trouble ", i)}
	}
	w.raise(alerts...)
	for w.Turn(w.filing).Again {
		continue
	}
}

func TestA_digest_that_fails_is_one_failure_however_many_it_tells_of(t *testing.T) {
	each(t, func(w *world) {
		delete(w.people.Persons, "pat")
		w.full(30)
		w.mail.fail = func(alerting.Message) error { return &net.OpError{Op: "dial", Err: errors.New("connection refused")} }
		mail := w.channel(alerting.Mail, w.mail)
		for turn := 1; turn < mostFaults; turn++ {
			w.Turn(mail)
			require.Empty(t, w.Alerts("channel_down"), "%d digests have failed", turn)
			require.Equal(t, 30, w.Count("alert_delivery WHERE channel = 'mail' AND tries = ?", turn))
			w.Clock.Advance(time.Minute)
		}
		w.Turn(mail)
		require.Len(t, w.Alerts("channel_down"), 1)

		// Refused for good it is one message that is given up.
		w.mail.fail = func(alerting.Message) error { return &alerting.Refusal{Reason: "550 no such user"} }
		mail = w.channel(alerting.Mail, w.mail)
		w.Clock.Advance(time.Minute)
		w.Turn(mail)
		require.Equal(t, 30, w.Count("alert_delivery WHERE channel = 'mail' AND state = ?", int(store.GivenUp)))
		require.Len(t, w.Alerts("message_given_up"), 1)
		require.Contains(t, w.Alerts("message_given_up")[0].Title, "30 incidents")
	})
}

func TestThe_alert_that_a_channel_is_down_says_what_was_wrong_with_it(t *testing.T) {
	each(t, func(w *world) {
		down := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		sms := w.channel(alerting.SMS, w.sms)
		// Old ones have expired before the channel is found to be down, and are no answer of it.
		w.raise(capri.Alert{Key: "old", Level: capri.Important, Kind: "clocks", Title: "old"})
		w.Turn(w.filing)
		w.Exec("UPDATE incident SET next_at = NULL")
		w.Clock.Advance(13 * time.Hour)
		w.sms.fail = func(alerting.Message) error { return down }
		w.raise(capri.Alert{Key: "a", Level: capri.Severe, Kind: "workers", Title: "few"}, capri.Alert{Key: "b", Level: capri.Severe, Kind: "masters", Title: "fewer"})
		w.Turn(w.filing)
		w.Turn(sms)
		raised := w.Alerts("channel_down")
		require.Len(t, raised, 1)
		require.Contains(t, raised[0].Text, "connection refused")
		require.NotContains(t, raised[0].Text, "nil")
	})
}

func TestA_turn_sends_no_more_messages_than_the_channel_may_and_the_most_urgent_first(t *testing.T) {
	each(t, func(w *world) {
		w.full(12) // for each of two admins
		for i := range 9 {
			name := fmt.Sprint("owner", i)
			w.people.Persons[name] = route.Person{Name: name, Mail: name + "@x", Enabled: true}
			task := w.Task(t, func(s *capri.Spec) { s.Owner, s.Alert = name, capri.AlertRules{OwnerOnly: true} })
			w.raise(capri.Alert{Key: name, Level: capri.Severe, Kind: "big_task", Task: task.ID, Title: name})
		}
		w.Turn(w.filing)
		mail := w.channel(alerting.Mail, w.mail)
		mail.Limits.PerMinute = 5
		for minute, want := range []int{5, 5, 1} {
			for range 10 {
				w.Turn(mail)
			}
			took := w.mail.read()
			require.Len(t, took, want, "minute %d: %s", minute, took)
			require.Equal(t, minute > 0, strings.Contains(strings.Join(took, " "), "digest"), "minute %d: %s", minute, took)
			w.Clock.Advance(time.Minute)
		}
		require.Zero(t, w.Count("alert_delivery WHERE state = 0 AND channel = 'mail'"))
	})
}

func TestOne_severe_message_does_not_wait_behind_digests(t *testing.T) {
	each(t, func(w *world) {
		for i := range 9 {
			name := fmt.Sprint("admin", i)
			w.people.Persons[name] = route.Person{Name: name, Mail: name + "@x", Enabled: true, Admin: true}
		}
		w.full(12) // for each of eleven admins
		task := w.Task(t, func(s *capri.Spec) { s.Owner, s.Alert = "alice", capri.AlertRules{OwnerOnly: true} })
		w.raise(capri.Alert{Key: "mine", Level: capri.Severe, Kind: "big_task", Task: task.ID, Title: "mine"})
		w.Turn(w.filing)
		mail := w.channel(alerting.Mail, w.mail)
		mail.Limits.Parallel = 1
		w.Turn(mail)
		require.Contains(t, strings.Join(w.mail.read(), " "), "alice@x new: mine")
	})
}
