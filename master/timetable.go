package master

import (
	"context"
	"slices"
	"time"

	"capri"
	"capri/alerting"
	"capri/cron"
	"capri/services"
	"capri/services/alert"
	"capri/services/attempts"
	"capri/services/bigtask"
	"capri/services/campaign"
	"capri/services/cleanup"
	"capri/services/dependency"
	"capri/services/dispatch"
	"capri/services/generate"
	"capri/services/monitor"
	"capri/services/quality"
	"capri/services/reschedule"
	"capri/services/timeout"
	"capri/wake"
)

// lookEvery is how often a service looks for what others have changed when no wake-up comes: without Redis a success
// in another process is seen by this alone (design §2).
const lookEvery = 500 * time.Millisecond

// Timetable is every service of a master: THE table. Its rows are in the order of a batch's way, its names those of
// `capri service list`. A new service gets a row here and a package in services/.
func (m *Master) Timetable() []services.Row {
	s, soon := m.o.Store, &dependency.Soon{}
	watcher := monitor.New(s, m.o.Calendar, m.o.Log)
	rows := []services.Row{
		{Name: "generate", Lease: "generate", Every: time.Minute, Wake: []string{wake.Generate},
			Service: generate.New(s, m.o.Calendar, m.o.Log)},
		{Name: "dependency", Part: "changes", Lease: "dependency", Every: min(m.o.DependencyEvery, lookEvery), Wake: []string{wake.Dependency},
			Service: dependency.Changes{Store: s, Soon: soon}},
		{Name: "dependency", Part: "paths", Lease: "dependency", Every: m.o.DependencyEvery, Wake: []string{dependency.TopicPaths},
			Service: dependency.Paths{Store: s, Soon: soon, Files: m.o.Files, Log: m.o.Log}},
		{Name: "dependency", Part: "recount", Lease: "dependency", Every: 5 * time.Minute,
			Service: dependency.Recount{Store: s, Log: m.o.Log}},
		{Name: "quality", Lease: "quality", Every: 30 * time.Second, Wake: []string{wake.Dispatch}, // what makes a batch ready makes its gate due
			Service: quality.New(quality.Options{Store: s, Zone: m.o.Calendar.Zone(), Ask: m.askQuality(), Server: m.o.Quality.Callback, Log: m.o.Log})},
		{Name: "dispatch", Lease: "dispatch", Every: m.o.DispatchEvery, Wake: []string{wake.Dispatch},
			Service: dispatch.New(s, m.o.Calendar, m.o.Random)},
		{Name: "reschedule", Lease: "dispatch", Every: 30 * time.Second,
			Service: reschedule.Service{Store: s, Calendar: m.o.Calendar, Log: m.o.Log}},
		{Name: "campaign", Lease: "campaign", Every: lookEvery, Wake: []string{wake.Campaign},
			Service: campaign.New(s, m.o.Calendar, m.o.Log)},
		{Name: "timeout", Lease: "timeout", Fires: m.at("10 * * * * ?"), // not at the full minute, when batches are made
			Service: timeout.Service{Store: s, Zone: m.o.Calendar.Zone()}},
		{Name: "lost-nodes", Lease: "attempts", Every: 5 * time.Second,
			Service: attempts.NewLostNodes(s, m.o.LostAfter, m.o.Monotonic, m.o.Log)},
		{Name: "zombie", Lease: "attempts", Fires: m.at("0 0 * * * ?"),
			Service: attempts.NewZombie(s, m.o.Files, m.o.Log)},
		{Name: "monitor", Lease: "monitor", Every: time.Minute,
			Service: watcher},
		{Name: "monitor", Part: "probes", Lease: "monitor", Every: 10 * time.Second,
			Service: monitor.NewProbes(s, m.probes(), m.o.Log)},
		{Name: "bigtask", Lease: "bigtask", Fires: m.at("0 0 10 * * ?"),
			Service: bigtask.Service{Store: s, Calendar: m.o.Calendar}},
		{Name: "cleanup", Lease: "cleanup", Fires: m.at("0 10 2 * * ?"),
			Service: cleanup.New(s)},
		{Name: "alert", Lease: "alert", Every: time.Second,
			Service: &alert.Filing{Store: s, People: alert.PeopleOf(s), Webhooks: m.webhooks()}},
	}
	for _, channel := range slices.Concat([]string{alerting.Phone, alerting.SMS, alerting.Mail}, m.webhooks()) {
		// Each has a rhythm of its own: a mail server that hangs holds up no call.
		l := m.o.Alerting.Limits[channel]
		rows = append(rows, services.Row{Name: "alert", Part: channel, Lease: "alert", Every: 5 * time.Second, Wake: []string{alert.TopicMessages},
			Service: &alert.Sending{Store: s, Channel: channel, Send: m.o.Alerting.Senders[channel], Limits: alert.Limits{Timeout: l.Timeout, Retries: l.Tries, Parallel: l.Parallel, PerMinute: l.PerMinute},
				People: alert.PeopleOf(s), Compose: m.o.Alerting.Compose, Links: m.o.Alerting.Links, Zone: m.o.Calendar.Zone(), Log: m.o.Log}})
	}
	watcher.Watch(rows)
	return rows
}

// webhooks names the channels that no rule names.
func (m *Master) webhooks() []string {
	var names []string
	for name := range m.o.Alerting.Senders {
		if name != alerting.Phone && name != alerting.SMS && name != alerting.Mail {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// askQuality is how the quality API is asked; nil where none is configured.
func (m *Master) askQuality() func(context.Context, quality.Question) error {
	if m.o.Quality.URL == "" {
		return nil
	}
	return quality.Client(m.o.Quality.URL, m.o.Quality.Token, m.o.Quality.Timeout)
}

func (m *Master) probes() []monitor.Probe {
	probes := make([]monitor.Probe, len(m.o.Probes))
	for i, p := range m.o.Probes {
		probes[i] = monitor.Probe(p)
	}
	return probes
}

// at gives the times of day of a Quartz expression, in the business zone.
func (m *Master) at(expression string) func(after capri.Instant) capri.Instant {
	e, err := cron.Parse(expression)
	if err != nil {
		panic(err) // it stands above: whoever makes a timetable sees it
	}
	zone := m.o.Calendar.Zone()
	return func(after capri.Instant) capri.Instant {
		next, _ := e.Next(time.UnixMilli(int64(after)), zone)
		return capri.InstantOf(next)
	}
}
