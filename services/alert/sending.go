package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"capri"
	"capri/alerting"
	"capri/alerting/route"
	"capri/internal/failpoint"
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
	faults int           // messages in a row
	last   string        // what was wrong with the last of them
	until  capri.Instant // it is left alone; then one message tries
}

const (
	mostFaults = 3
	leaveAlone = 30 * time.Second
	waves      = 2 // of parallel sends in one turn: what a leader that dies has sent and not noted goes out twice
)

func (b *breaker) open() bool { return b.faults >= mostFaults }

// try is one message, about one delivery or, as a digest, about many, and what came of it.
type try struct {
	about   []store.Delivery
	expired bool // it was not tried: it is too old
	receipt string
	err     error
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
	facts, err := s.gather(ctx, t.Now, groups)
	if err != nil {
		return res, err
	}
	if err := failpoint.Cut(failpoint.AlertComposed); err != nil {
		return res, err
	}
	tried := s.send(ctx, t.Now, limits, settings, groups, facts)
	if err := failpoint.Cut(failpoint.AlertSent); err != nil {
		return res, err
	}
	ends, alerts := s.settle(t, limits, tried, settings, facts)
	for _, d := range ends {
		res.Counts[map[store.DeliveryState]string{store.Sent: "sent", store.Due: "failed", store.GivenUp: "given_up", store.Expired: "expired"}[d.State]]++
	}
	if ctx.Err() != nil {
		return res, ctx.Err() // what was sent is sent again under its key: nobody knows who leads now
	}
	if err := s.Store.EndDeliveries(ctx, t.Lease, ends, alerts); err != nil {
		return res, err
	}
	if err := failpoint.Cut(failpoint.AlertNoted); err != nil {
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

// group says which messages go out together: each by itself, unless an address has too many. There are no more groups than
// may be sent, the most urgent first; what is left waits for the next turn.
func (s *Sending) group(ctx context.Context, now capri.Instant, due []store.Delivery, most int) (groups [][]store.Delivery, err error) {
	crowded := map[store.Address]bool{}
	if len(due) == most && most > 1 { // else there are not that many
		list, err := s.Store.Crowded(ctx, s.Channel, now, digestFrom, most)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
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
	slices.SortStableFunc(groups, func(a, b []store.Delivery) int {
		return cmp.Or(cmp.Compare(b[0].Level, a[0].Level), cmp.Compare(a[0].ID, b[0].ID))
	})
	return groups[:min(len(groups), most)], nil
}

// send tries all, so many at once. What is too old is not tried, and not part of a digest.
func (s *Sending) send(ctx context.Context, now capri.Instant, limits Limits, x settings, groups [][]store.Delivery, facts map[int64]alerting.Facts) []*try {
	var tried []*try
	slots := make(chan struct{}, limits.Parallel)
	var wait sync.WaitGroup
	for _, g := range groups {
		if s.Send == nil {
			tried = append(tried, &try{about: g, err: &alerting.Refusal{Reason: s.Channel + " is not configured (alerting in the configuration)"}})
			continue
		}
		old, fresh := &try{expired: true}, &try{}
		for _, d := range g {
			to := fresh
			if now.Sub(d.CreatedAt) > x.expires {
				to = old
			}
			to.about = append(to.about, d)
		}
		if len(old.about) > 0 {
			tried = append(tried, old)
		}
		if len(fresh.about) == 0 {
			continue
		}
		tried = append(tried, fresh)
		m := s.message(now, fresh.about, facts)
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			limited, cancel := context.WithTimeout(ctx, limits.Timeout)
			defer cancel()
			fresh.receipt, fresh.err = s.Send(limited, m)
		})
	}
	wait.Wait()
	return tried
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
func (s *Sending) settle(t services.Turn, limits Limits, tried []*try, x settings, facts map[int64]alerting.Facts) (ends []store.Delivery, alerts []capri.Alert) {
	hour := t.Now.In(time.UTC).Format("2006010215")
	expired := false
	for _, o := range tried {
		end, counts := s.judge(t.Now, limits, x, o)
		expired = expired || o.expired
		var givenUp []store.Delivery
		for _, d := range o.about {
			if counts {
				d.Tries++
			}
			d.Receipt = o.receipt
			end(&d)
			if ends = append(ends, d); d.State == store.GivenUp && s.Send != nil {
				givenUp = append(givenUp, d)
			}
		}
		// A message about messages that fail must not breed more of them.
		if slices.ContainsFunc(givenUp, func(d store.Delivery) bool { return facts[d.Incident].Kind != "message_given_up" }) {
			alerts = append(alerts, s.gaveUp(givenUp))
		}
	}
	if s.broken.open() {
		s.broken.until = t.Now.Add(leaveAlone)
		alerts = append(alerts, capri.Alert{Key: fmt.Sprintf("channel_down:%s:%s", s.Channel, hour), Level: capri.Important, Kind: "channel_down",
			Title: fmt.Sprintf("Messages by %s do not go out", s.Channel), Text: fmt.Sprintf("They wait and are tried each %s. What was wrong at last: %s", leaveAlone, s.broken.last)})
	}
	if expired {
		alerts = append(alerts, capri.Alert{Key: fmt.Sprintf("messages_expired:%s:%s", s.Channel, hour), Level: capri.Attention, Kind: "messages_expired",
			Title: fmt.Sprintf("Messages by %s were too old to be sent", s.Channel), Text: fmt.Sprintf("They could not be sent within %s. capri alert list --all shows what they were about.", x.expires)})
	}
	return ends, alerts
}

// judge counts a try once, however many it is about, and says what becomes of each of these and whether it used up a try of
// theirs.
func (s *Sending) judge(now capri.Instant, limits Limits, x settings, o *try) (end func(*store.Delivery), counts bool) {
	var refusal *alerting.Refusal
	switch {
	case o.expired:
		return func(d *store.Delivery) {
			d.State, d.Error = store.Expired, fmt.Sprintf("it could not be sent within %s: %s", x.expires, cmp.Or(d.Error, "its channel was down"))
		}, false
	case o.err == nil:
		s.broken = breaker{}
		return func(d *store.Delivery) { d.State, d.Error = store.Sent, "" }, true
	case errors.As(o.err, &refusal):
		s.broken.faults = 0 // it has answered
		return func(d *store.Delivery) { d.State, d.Error = store.GivenUp, refusal.Error() }, true
	case outside(o.err):
		s.broken.faults++
		s.broken.last = o.err.Error()
		return func(d *store.Delivery) { d.Error, d.NextAt = o.err.Error(), now.Add(pauses[0]) }, !s.broken.open()
	}
	s.broken.faults = 0
	return func(d *store.Delivery) {
		d.Error, d.NextAt = o.err.Error(), now.Add(pauses[min(d.Tries, len(pauses))-1])
		if d.Tries > limits.Retries {
			d.State = store.GivenUp
		}
	}, true
}

// gaveUp tells admins of a message that could not be delivered.
func (s *Sending) gaveUp(about []store.Delivery) capri.Alert {
	d := about[0]
	what := fmt.Sprintf("of incident %d", d.Incident)
	if len(about) > 1 {
		what = fmt.Sprintf("about %d incidents", len(about))
	}
	s.Log.Warn("a message is given up", "channel", s.Channel, "incident", d.Incident, "incidents", len(about), "to", d.Person, "tries", d.Tries, "err", d.Error)
	return capri.Alert{Key: fmt.Sprintf("message_given_up:%s:%d", s.Channel, d.ID), Level: capri.Attention, Kind: "message_given_up",
		Title: fmt.Sprintf("A message %s to %s by %s is given up after %d tries", what, cmp.Or(d.Person, d.Address), s.Channel, d.Tries), Text: d.Error}
}

// outside: nobody was there to say anything about the message.
func outside(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial" || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// gather reads what the messages are about: details for those about one incident, a digest needs titles alone.
func (s *Sending) gather(ctx context.Context, now capri.Instant, groups [][]store.Delivery) (map[int64]alerting.Facts, error) {
	detailed := map[int64]bool{} // by incident
	for _, g := range groups {
		for _, d := range g {
			detailed[d.Incident] = detailed[d.Incident] || len(g) == 1
		}
	}
	list, err := s.Store.IncidentsByID(ctx, slices.Collect(maps.Keys(detailed)))
	if err != nil {
		return nil, err
	}
	facts := map[int64]alerting.Facts{}
	var ids []int64
	var tasks []capri.TaskID
	var batches []capri.BatchID
	for id, i := range list {
		facts[id] = alerting.Facts{Incident: id, Level: i.Level, Kind: i.Kind, Title: i.Title, Since: i.OpenedAt, Now: now, Zone: s.Zone, Alerts: i.Alerts}
		if !detailed[id] {
			continue
		}
		ids = append(ids, id)
		if i.Task != 0 {
			tasks = append(tasks, i.Task)
		}
		if i.Batch != 0 {
			batches = append(batches, i.Batch)
		}
	}
	if len(ids) == 0 {
		return facts, nil
	}
	alerts, err := s.Store.AlertsOf(ctx, ids, 1+mostOthers)
	if err != nil {
		return nil, err
	}
	byTask, err := s.Store.TasksByID(ctx, tasks)
	if err != nil {
		return nil, err
	}
	byBatch, err := s.Store.BatchesByID(ctx, batches)
	if err != nil {
		return nil, err
	}
	morning := nextMorning(now, s.Zone)
	behind, err := s.Store.Behind(ctx, batches, now, morning)
	if err != nil {
		return nil, err
	}
	people, err := s.People(ctx, now, nil)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		i, f := list[id], facts[id]
		f.UrgentBy = morning
		for n, a := range alerts[id] {
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
			f.Waiting, f.Urgent = behind[b.ID].Batches, behind[b.ID].Urgent
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
