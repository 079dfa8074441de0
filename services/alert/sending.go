package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/alerting"
	"capri/alerting/route"
	"capri/services"
	"capri/sql/store"
)

// TopicMessages wakes the channels: there are new messages.
const TopicMessages = "messages"

// Send hands a message to a channel, and gives what the channel calls it.
type Send func(ctx context.Context, m alerting.Message) (receipt string, err error)

// Sending sends the messages of one channel.
type Sending struct {
	Store   *store.Store
	Channel string
	Send    Send // nil: the channel is not configured
	Limits  Limits
	People  func(ctx context.Context, at capri.Instant, tasks []capri.TaskID) (route.People, error)
	// Compose writes a message from what is known.
	Compose func(channel string, f alerting.Facts) alerting.Message
	// Links makes the links of an incident for one receiver; nil: none.
	Links func(incident int64, person string, until capri.Instant) (look, acknowledge string)
	Zone  *time.Location
	Log   *slog.Logger

	broken breaker
	minute capri.Instant // of which sent counts
	sent   int
}

// Limits are those of a channel.
type Limits struct {
	Timeout   time.Duration // of one try; default 10 s
	Retries   int           // after the first try; default 3
	Parallel  int           // at once; default 4
	PerMinute int           // 0: no limit
}

func (l Limits) filled() Limits {
	if l.Timeout <= 0 {
		l.Timeout = 10 * time.Second
	}
	if l.Parallel <= 0 {
		l.Parallel = 4
	}
	return l
}

// pauses before each try after the first; the last goes on.
var pauses = []time.Duration{15 * time.Second, time.Minute, 5 * time.Minute}

// A channel whose own side does not answer is left alone for a while. Its messages wait and use up no tries meanwhile:
// when an SMTP server is back after an hour, what was raised meanwhile goes out.
type breaker struct {
	faults int           // in a row
	until  capri.Instant // it is left alone; then one message tries
}

const (
	mostFaults = 3
	leaveAlone = 30 * time.Second
	waves      = 2 // of parallel sends in one turn: what a leader that dies has sent and not noted goes out twice
)

func (b *breaker) open() bool { return b.faults >= mostFaults }

// outcome is what a try came to.
type outcome struct {
	store.Delivery
	err error
}

// Run sends what is due.
func (s *Sending) Run(ctx context.Context, t services.Turn) (services.Result, error) {
	limits := s.Limits.filled()
	res := services.Result{Counts: map[string]int{}}
	if s.broken.open() && t.Now < s.broken.until && s.broken.until.Sub(t.Now) <= leaveAlone {
		res.Next = s.broken.until
		return res, nil
	}
	most := limits.Parallel * waves
	if s.broken.open() {
		most = 1
	}
	if limits.PerMinute > 0 {
		if since := t.Now.Sub(s.minute); since >= time.Minute || since < 0 {
			s.minute, s.sent = t.Now, 0
		}
		if most = min(most, limits.PerMinute-s.sent); most <= 0 {
			res.Next = s.minute.Add(time.Minute)
			return res, nil
		}
	}
	due, err := s.Store.DueDeliveries(ctx, s.Channel, t.Now, most)
	if err != nil || len(due) == 0 {
		return res, err
	}
	groups, err := s.group(ctx, t.Now, due, most)
	if err != nil {
		return res, err
	}
	settings, err := readSettings(ctx, s.Store)
	if err != nil {
		return res, err
	}
	facts, err := s.gather(ctx, t.Now, slices.Concat(groups...))
	if err != nil {
		return res, err
	}
	ends, alerts := s.settle(t, limits, s.send(ctx, t.Now, limits, settings, groups, facts), settings, facts)
	for _, d := range ends {
		res.Counts[map[store.DeliveryState]string{store.Sent: "sent", store.Due: "failed", store.GivenUp: "given_up", store.Expired: "expired"}[d.State]]++
	}
	if ctx.Err() != nil {
		return res, ctx.Err() // what was sent is sent again under its key: nobody knows who leads now
	}
	if err := s.Store.EndDeliveries(ctx, t.Lease, ends, alerts); err != nil {
		return res, err
	}
	s.sent += len(groups)
	res.Again = len(due) == most && !s.broken.open()
	if s.broken.open() {
		res.Next = s.broken.until
	}
	return res, nil
}

// Who would get so many messages at once gets one about all of them instead: a hundred mails are read by nobody.
const (
	digestFrom = 10
	digestMost = 500
)

// group says which messages go out together: each by itself, unless an address has too many.
func (s *Sending) group(ctx context.Context, now capri.Instant, due []store.Delivery, most int) (groups [][]store.Delivery, err error) {
	crowded := map[store.Address]bool{}
	if len(due) == most && most > 1 { // else there are not that many
		list, err := s.Store.Crowded(ctx, s.Channel, now, digestFrom)
		if err != nil {
			return nil, err
		}
		for _, a := range list[:min(len(list), most)] {
			crowded[a] = true
			all, err := s.Store.DueTo(ctx, s.Channel, a, now, digestMost)
			if err != nil {
				return nil, err
			}
			groups = append(groups, all)
		}
	}
	for _, d := range due {
		if !crowded[store.Address{Address: d.Address, Person: d.Person}] {
			groups = append(groups, []store.Delivery{d})
		}
	}
	return groups, nil
}

// send tries all, so many at once.
func (s *Sending) send(ctx context.Context, now capri.Instant, limits Limits, x settings, groups [][]store.Delivery, facts map[int64]alerting.Facts) []outcome {
	tried := make([][]outcome, len(groups))
	slots := make(chan struct{}, limits.Parallel)
	var wait sync.WaitGroup
	for n, g := range groups {
		var fresh []store.Delivery
		for _, d := range g {
			switch {
			case s.Send == nil:
				tried[n] = append(tried[n], outcome{d, &alerting.Refusal{Reason: s.Channel + " is not configured (alerting in the configuration)"}})
			case now.Sub(d.CreatedAt) > x.expires:
				d.State = store.Expired
				tried[n] = append(tried[n], outcome{Delivery: d})
			default:
				fresh = append(fresh, d)
			}
		}
		if len(fresh) == 0 {
			continue
		}
		m := s.message(now, fresh, facts)
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			limited, cancel := context.WithTimeout(ctx, limits.Timeout)
			defer cancel()
			receipt, err := s.Send(limited, m)
			for _, d := range fresh {
				d.Receipt = receipt
				tried[n] = append(tried[n], outcome{d, err})
			}
		})
	}
	wait.Wait()
	return slices.Concat(tried...)
}

// message is about one incident, or a digest of many.
func (s *Sending) message(now capri.Instant, about []store.Delivery, facts map[int64]alerting.Facts) alerting.Message {
	d := about[0]
	f := facts[d.Incident]
	f.Stage, f.Why, f.Level = alerting.Stage(d.Stage), d.Why, max(f.Level, d.Level)
	if len(about) > 1 {
		f = alerting.Facts{Stage: alerting.Digest, Level: f.Level, Kind: f.Kind, Title: f.Title, Since: f.Since, Now: now, Zone: s.Zone, Why: d.Why, Alerts: len(about)}
		for _, o := range about[1:] {
			x := facts[o.Incident]
			f.Since = min(f.Since, x.Since)
			f.Others = append(f.Others, x.Title)
		}
	} else if s.Links != nil {
		f.Link, f.Acknowledge = s.Links(d.Incident, d.Person, now.Add(24*time.Hour))
	}
	m := s.Compose(s.Channel, f)
	m.Key, m.To, m.Name, m.Incident = d.Key(), d.Address, d.Person, d.Incident
	return m
}

// settle decides what becomes of each try, and what admins are to know.
func (s *Sending) settle(t services.Turn, limits Limits, tried []outcome, x settings, facts map[int64]alerting.Facts) (ends []store.Delivery, alerts []capri.Alert) {
	hour := t.Now.In(time.UTC).Format("2006010215")
	expired := 0
	for _, o := range tried {
		d := o.Delivery
		var refusal *alerting.Refusal
		switch {
		case d.State == store.Expired:
			d.Error = fmt.Sprintf("it could not be sent within %s: %s", x.expires, first(d.Error, "its channel was down"))
			expired++
		case o.err == nil:
			d.State, d.Error = store.Sent, ""
			d.Tries++
			s.broken = breaker{}
		case errors.As(o.err, &refusal):
			d.State, d.Error = store.GivenUp, refusal.Error()
			d.Tries++
			s.broken.faults = 0 // it has answered
		case outside(o.err):
			s.broken.faults++
			d.Error = o.err.Error()
			d.NextAt = t.Now.Add(pauses[0])
			if !s.broken.open() {
				d.Tries++
			}
		default:
			s.broken.faults = 0
			d.Tries++
			d.Error = o.err.Error()
			d.NextAt = t.Now.Add(pauses[min(d.Tries, len(pauses))-1])
			if d.Tries > limits.Retries {
				d.State = store.GivenUp
			}
		}
		if d.State == store.GivenUp && s.Send != nil {
			s.Log.Warn("a message is given up", "channel", s.Channel, "incident", d.Incident, "to", d.Person, "tries", d.Tries, "err", d.Error)
			// A message about messages that fail must not breed more of them.
			if facts[d.Incident].Kind != "message_given_up" {
				alerts = append(alerts, capri.Alert{Key: fmt.Sprintf("message_given_up:%s:%d", s.Channel, d.ID), Level: capri.Attention, Kind: "message_given_up",
					Title: fmt.Sprintf("A message of incident %d to %s by %s is given up after %d tries", d.Incident, first(d.Person, d.Address), s.Channel, d.Tries), Text: d.Error})
			}
		}
		ends = append(ends, d)
	}
	if s.broken.open() {
		s.broken.until = t.Now.Add(leaveAlone)
		last := tried[len(tried)-1]
		alerts = append(alerts, capri.Alert{Key: fmt.Sprintf("channel_down:%s:%s", s.Channel, hour), Level: capri.Important, Kind: "channel_down",
			Title: fmt.Sprintf("Messages by %s do not go out", s.Channel), Text: fmt.Sprintf("They wait and are tried each %s. The last answer: %v", leaveAlone, last.err)})
	}
	if expired > 0 {
		alerts = append(alerts, capri.Alert{Key: fmt.Sprintf("messages_expired:%s:%s", s.Channel, hour), Level: capri.Attention, Kind: "messages_expired",
			Title: fmt.Sprintf("Messages by %s were too old to be sent", s.Channel), Text: fmt.Sprintf("They could not be sent within %s. capri alert list --all shows what they were about.", x.expires)})
	}
	return ends, alerts
}

// outside: nobody was there to say anything about the message.
func outside(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// gather reads what the messages are about, once for each incident.
func (s *Sending) gather(ctx context.Context, now capri.Instant, due []store.Delivery) (map[int64]alerting.Facts, error) {
	seen := map[int64]bool{}
	var ids []int64
	for _, d := range due {
		if !seen[d.Incident] {
			seen[d.Incident] = true
			ids = append(ids, d.Incident)
		}
	}
	list, err := s.Store.IncidentsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	var tasks []capri.TaskID
	var batches []capri.BatchID
	for _, i := range list {
		if i.Task != 0 {
			tasks = append(tasks, i.Task)
		}
		if i.Batch != 0 {
			batches = append(batches, i.Batch)
		}
	}
	byTask, err := s.Store.TasksByID(ctx, tasks)
	if err != nil {
		return nil, err
	}
	byBatch, err := s.Store.BatchesByID(ctx, batches)
	if err != nil {
		return nil, err
	}
	people, err := s.People(ctx, now, nil)
	if err != nil {
		return nil, err
	}
	morning := nextMorning(now, s.Zone)
	facts := map[int64]alerting.Facts{}
	for id, i := range list {
		f := alerting.Facts{Incident: id, Level: i.Level, Kind: i.Kind, Title: i.Title, Since: i.OpenedAt, Now: now, Zone: s.Zone, Alerts: i.Alerts, UrgentBy: morning}
		alerts, err := s.Store.AlertsOf(ctx, id, 1+mostOthers)
		if err != nil {
			return nil, err
		}
		for n, a := range alerts {
			if n == 0 {
				f.Text = a.Text
				continue
			}
			f.Others = append(f.Others, a.Title)
		}
		if t := byTask[i.Task]; t != nil {
			f.Task, f.Owner, f.Department = t.Name, t.Owner, people.Persons[t.Owner].Department
		}
		for _, name := range []string{people.Duty[f.Department].Primary, people.Duty[f.Department].Secondary} {
			if name != "" {
				f.OnDuty = append(f.OnDuty, name)
			}
		}
		if b, ok := byBatch[i.Batch]; ok {
			f.Batch, f.BatchNo, f.Task = b.ID, string(b.BatchNo), b.Task
			if f.Waiting, f.Urgent, err = s.Store.Behind(ctx, b.ID, now, morning); err != nil {
				return nil, err
			}
		}
		facts[id] = f
	}
	return facts, nil
}

// nextMorning is eight o'clock, when people come to work and look for yesterday's figures.
func nextMorning(now capri.Instant, zone *time.Location) capri.Instant {
	t := now.In(zone)
	at := time.Date(t.Year(), t.Month(), t.Day(), 8, 0, 0, 0, zone)
	if !at.After(t) {
		at = time.Date(t.Year(), t.Month(), t.Day()+1, 8, 0, 0, 0, zone)
	}
	return capri.InstantOf(at)
}
