package master

import (
	"time"

	"capri/services"
	"capri/services/dependency"
	"capri/services/dispatch"
	"capri/services/generate"
	"capri/wake"
)

// lookEvery is how often a service looks for what others have changed when no wake-up comes: without Redis a success
// in another process is seen by this alone (design §2).
const lookEvery = 500 * time.Millisecond

// Timetable is every service of a master: THE table. Its rows are in the order of a batch's way, its names those of
// `capri service list`. A new service gets a row here and a package in services/.
func (m *Master) Timetable() []services.Row {
	s, soon := m.o.Store, &dependency.Soon{}
	return []services.Row{
		{Name: "generate", Lease: "generate", Every: time.Minute, Wake: []string{wake.Generate},
			Service: generate.New(s, m.o.Calendar, m.o.Log)},
		{Name: "dependency", Part: "changes", Lease: "dependency", Every: min(m.o.DependencyEvery, lookEvery), Wake: []string{wake.Dependency},
			Service: dependency.Changes{Store: s, Soon: soon}},
		{Name: "dependency", Part: "paths", Lease: "dependency", Every: m.o.DependencyEvery, Wake: []string{dependency.TopicPaths},
			Service: dependency.Paths{Store: s, Soon: soon, Files: m.o.Files, Log: m.o.Log}},
		{Name: "dependency", Part: "recount", Lease: "dependency", Every: 5 * time.Minute,
			Service: dependency.Recount{Store: s, Log: m.o.Log}},
		{Name: "dispatch", Lease: "dispatch", Every: m.o.DispatchEvery, Wake: []string{wake.Dispatch},
			Service: dispatch.New(s, m.o.Calendar, m.o.Random)},
	}
}
