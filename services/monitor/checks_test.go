package monitor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/alerting/duty"
	"capri/services"
	"capri/sql/store"
)

var now = capri.InstantOf(time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC))

// well is a cluster where nothing is wrong, by the built-in limits.
func well() *facts {
	hourly := func(after capri.Instant) capri.Instant {
		return capri.InstantOf(after.In(time.UTC).Truncate(time.Hour).Add(time.Hour))
	}
	f := &facts{now: now, began: now.Add(-24 * time.Hour), zone: time.UTC, judged: true,
		limits: map[string]int{store.GenerateImportant: 10, store.GenerateSevere: 15, store.DependencyImportant: 5, store.DependencySevere: 10, store.TimeoutAge: 2, store.ServiceAge: 5, store.ReadyImportant: 5,
			store.NodeMemoryPercent: 95, store.NodeDiskFreeMB: 1024, store.ClockOffsetMS: 2000},
		rows:   []services.Row{{Name: "generate", Every: time.Minute}, {Name: "dependency", Part: "paths", Every: 30 * time.Second}, {Name: "timeout", Every: time.Minute}, {Name: "zombie", Fires: hourly}, {Name: "monitor", Every: time.Minute}},
		states: map[string]store.ServiceState{},
	}
	for _, r := range f.rows {
		f.states[r.String()] = store.ServiceState{Service: r.String(), Holder: "m1/x", StartedAt: now.Add(-31 * time.Second), CompletedAt: now.Add(-30 * time.Second), Duration: time.Second}
	}
	for i := range 5 {
		f.masters = append(f.masters, store.Master{Name: fmt.Sprint("m", i), Instance: "x"})
		f.nodes = append(f.nodes, capri.Node{Name: fmt.Sprint("n", i), CPULoad: 0.5, MemoryLoad: 0.5, DiskFreeMB: 100_000})
	}
	return f
}

// onDuty gives department dw a rota without holes, of which so many days ahead are looked at.
func onDuty(f *facts, days int) {
	r, wrong := duty.Parse(duty.Spec{Department: "dw", Primary: duty.SpecRotation{People: []string{"alice", "bob"}, Start: "2026-11-16"}}, time.UTC)
	if len(wrong) > 0 {
		panic(wrong)
	}
	f.rotas = []duty.Rota{r}
	f.people = map[string]duty.Person{"alice": {Enabled: true, Phone: "1"}, "bob": {Enabled: true, Phone: "2"}}
	f.limits[store.DutyHoleDays] = days
}

// findings are "kind level: title" of all checks.
func findings(f *facts) []string {
	var out []string
	for _, c := range checks {
		for _, x := range c.find(f) {
			out = append(out, fmt.Sprintf("%s %s: %s", c.kind, x.level, x.title))
		}
	}
	return out
}

func TestChecks(t *testing.T) {
	state := func(f *facts, row string, change func(*store.ServiceState)) {
		x := f.states[row]
		change(&x)
		f.states[row] = x
	}
	running := func(row string, since time.Duration) func(*facts) {
		return func(f *facts) {
			state(f, row, func(x *store.ServiceState) { x.StartedAt, x.CompletedAt = now.Add(-since), now.Add(-since-time.Second) })
		}
	}
	took := func(row string, d time.Duration) func(*facts) {
		return func(f *facts) {
			state(f, row, func(x *store.ServiceState) { x.StartedAt, x.Duration = now.Add(-30*time.Second-d), d })
		}
	}
	done := func(row string, ago time.Duration) func(*facts) {
		return func(f *facts) {
			state(f, row, func(x *store.ServiceState) { x.StartedAt, x.CompletedAt = now.Add(-ago-time.Second), now.Add(-ago) })
		}
	}
	for _, c := range []struct {
		sentence string
		change   func(*facts)
		want     []string
	}{
		{"nothing is wrong", func(*facts) {}, nil},
		{"a dependency round that took five minutes is bearable", took("dependency/paths", 5*time.Minute), nil},
		{"a longer one is important", took("dependency/paths", 5*time.Minute+time.Second), []string{"dependency_slow important: Dependency checking is slow: a turn of dependency/paths took 5m1s"}},
		{"one of more than ten is severe", took("dependency/paths", 11*time.Minute), []string{"dependency_slow severe: Dependency checking is slow: a turn of dependency/paths took 11m0s"}},
		{"one that goes on for seven is important, and late", running("dependency/paths", 7*time.Minute), []string{
			"dependency_slow important: Dependency checking is slow: a turn of dependency/paths has been going on for 7m0s", "service_overdue important: Service dependency/paths is overdue"}},
		{"one of which nobody completes a look for more than ten is severe", done("dependency/paths", 11*time.Minute), []string{"service_overdue severe: Service dependency/paths is overdue"}},
		{"any other service is important however late", done("generate", 11*time.Hour), []string{"service_overdue important: Service generate is overdue"}},
		{"with its limits off it is only late", func(f *facts) {
			running("dependency/paths", 20*time.Minute)(f)
			f.limits[store.DependencyImportant], f.limits[store.DependencySevere] = 0, 0
		}, []string{"service_overdue important: Service dependency/paths is overdue"}},
		{"a turn of generate of more than ten minutes is important", took("generate", 11*time.Minute), []string{"generate_slow important: Generation is slow: a turn of generate took 11m0s"}},
		{"one of more than fifteen is severe", took("generate", 16*time.Minute), []string{"generate_slow severe: Generation is slow: a turn of generate took 16m0s"}},
		{"a mark that took longer says its period", func(f *facts) {
			f.marks = []store.Mark{{Period: capri.Day, Mark: now.Add(-time.Hour), StartedAt: now.Add(-time.Hour), CompletedAt: now.Add(-48 * time.Minute)}, {Period: capri.Hour, Mark: now.Add(-time.Hour), StartedAt: now.Add(-time.Hour), CompletedAt: now.Add(-59 * time.Minute)}}
		}, []string{"mark_slow important: Generation of the day mark 2026-11-20 08:30:00 took 12m0s"}},

		{"a service is late by its interval and the limit", done("generate", 6*time.Minute), nil},
		{"and then overdue", done("generate", 6*time.Minute+time.Second), []string{"service_overdue important: Service generate is overdue"}},
		{"the time-out service sooner", done("timeout", 3*time.Minute+time.Second), []string{"service_overdue important: Service timeout is overdue"}},
		{"a service of times of day from its next one", done("zombie", 31*time.Minute), []string{"service_overdue important: Service zombie is overdue"}},
		{"and not from its last run", done("zombie", 29*time.Minute), nil},
		{"a service that never ran is overdue, too", func(f *facts) { delete(f.states, "generate") }, []string{"service_overdue important: Service generate is overdue"}},
		{"a new leader gives everybody time first", func(f *facts) {
			f.began = now.Add(-5 * time.Minute)
			for row := range f.states {
				done(row, 20*time.Hour)(f)
			}
			f.limits[store.TimeoutAge] = 5
		}, nil},
		{"with the limit off nobody is overdue", func(f *facts) { done("generate", time.Hour)(f); f.limits[store.ServiceAge] = 0 }, nil},

		{"a mark without missing batches", func(f *facts) { f.missing = []missing{{Mark: store.Mark{Period: capri.Day, Mark: now}}} }, nil},
		{"missing batches are important", func(f *facts) {
			f.missing = []missing{{Mark: store.Mark{Period: capri.Day, Mark: now}, tasks: []string{"orders"}}}
		}, []string{"batches_missing important: Batches of the day mark 2026-11-20 09:30:00 are missing"}},
		{"ready batches that have just found a node", func(f *facts) { f.stuck = []stuck{{since: now.Add(-5 * time.Minute)}} }, nil},
		{"that have one for longer and are not placed", func(f *facts) {
			f.stuck = []stuck{{since: now.Add(-7 * time.Minute)}, {since: now.Add(-6 * time.Minute)}, {since: now}}
		}, []string{"ready_waits important: 2 ready batches wait although a node is free"}},
		{"a recount that had to repair is severe", func(f *facts) { f.repairs = []store.Repair{{At: now, Repaired: 3}} }, []string{"recount_repaired severe: A recount found 3 batches whose unmet conditions were counted wrongly"}},

		{"a rota that is full for the days ahead", func(f *facts) { onDuty(f, 7) }, nil},
		{"a hole of the coming days is important", func(f *facts) {
			onDuty(f, 7)
			f.people["bob"] = duty.Person{Enabled: true}
		}, []string{"duty_hole important: A hole in the duty rota of department dw: bob has no phone number from 2026-11-23 09:00:00 to 2026-11-30 09:00:00"}},
		{"one that begins later is not told yet", func(f *facts) {
			onDuty(f, 2)
			f.people["bob"] = duty.Person{Enabled: true}
		}, nil},
		{"with the setting at 0 none is", func(f *facts) {
			onDuty(f, 0)
			clear(f.people)
		}, nil},
		{"two holes are two alerts", func(f *facts) {
			onDuty(f, 7)
			f.people["alice"] = duty.Person{Phone: "1"}
			delete(f.people, "bob")
		}, []string{"duty_hole important: A hole in the duty rota of department dw: alice is disabled from 2026-11-16 09:00:00 to 2026-11-23 09:00:00",
			"duty_hole important: A hole in the duty rota of department dw: bob is not known from 2026-11-23 09:00:00 to 2026-11-30 09:00:00"}},
		{"a rota of the system that cannot be read is a hole at any time", func(f *facts) {
			onDuty(f, 7)
			f.rotas = []duty.Rota{{Zone: time.UTC, Broken: "timezone"}}
		}, []string{"duty_hole important: A hole in the duty rota of the system: nobody is on duty at any time"}},

		{"how many masters are expected is not known at first", func(f *facts) { f.masters = f.masters[:1] }, nil},
		{"fewer masters than expected", func(f *facts) {
			f.masters = f.masters[:4]
			f.limits[store.MastersImportant], f.limits[store.MastersSevere] = 5, 3
		}, []string{"masters_few important: Only 4 masters live"}},
		{"far fewer masters than expected", func(f *facts) {
			f.masters = f.masters[:2]
			f.limits[store.MastersImportant], f.limits[store.MastersSevere] = 5, 3
		}, []string{"masters_few severe: Only 2 masters live"}},
		{"fewer workers than expected", func(f *facts) { f.limits[store.WorkersImportant], f.limits[store.WorkersSevere] = 10, 5 }, []string{"workers_few important: Only 5 workers live"}},
		{"before the second look nobody knows who lives", func(f *facts) { f.nodes, f.judged = nil, false; f.limits[store.WorkersSevere] = 5 }, nil},

		{"a node whose memory is used up", func(f *facts) { f.nodes[1].MemoryLoad = 0.97 }, []string{"node_load important: Node n1 is loaded: memory used 97% (node_memory_percent is 95)"}},
		{"a node whose disk is full", func(f *facts) { f.nodes[2].DiskFreeMB = 0 }, []string{"node_load important: Node n2 is loaded: disk free 0 MB (node_disk_free_mb is 1024)"}},
		{"a node that has not measured yet", func(f *facts) { f.nodes[2].DiskFreeMB, f.nodes[2].MemoryLoad = 0, 0 }, nil},
		{"CPU counts when its limit is set", func(f *facts) { f.nodes[0].CPULoad = 3; f.limits[store.NodeCPUPercent] = 200 }, []string{"node_load important: Node n0 is loaded: CPU load 300% (node_cpu_percent is 200)"}},

		{"a node whose clock is off", func(f *facts) { f.nodes[0].ClockOffset = -2100 * time.Millisecond }, []string{"clock_off important: Clocks are off: node n0 by -2.1s"}},
		{"a master whose clock is off", func(f *facts) { f.masters[0].ClockOffset = time.Hour }, []string{"clock_off important: Clocks are off: master m0 by 1h0m0s"}},
		{"if half of them differ it may still be they", func(f *facts) {
			for i := range f.nodes {
				f.nodes[i].ClockOffset = 3 * time.Second
			}
		}, []string{"clock_off important: Clocks are off: node n0 by 3s"}},
		{"if most differ it is the database", func(f *facts) {
			for i := range f.nodes {
				f.nodes[i].ClockOffset = 3 * time.Second
			}
			f.masters[0].ClockOffset = 3 * time.Second
		}, []string{"clock_off important: The database's clock is off"}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			f := well()
			c.change(f)
			require.Equal(t, c.want, findings(f))
		})
	}
}

// The key of an alert is kind, episode and level: it must stay the same while the same thing goes on, and differ for
// the next.
func TestEpisodes(t *testing.T) {
	episodes := func(f *facts) string {
		var out []string
		for _, c := range checks {
			for _, x := range c.find(f) {
				out = append(out, c.kind+":"+x.episode)
			}
		}
		return strings.Join(out, " ")
	}
	slow := func(at capri.Instant, started time.Duration) *facts {
		f := well()
		f.now = at
		for row, x := range f.states {
			x.StartedAt, x.CompletedAt = at, at
			f.states[row] = x
		}
		f.states["dependency/paths"] = store.ServiceState{StartedAt: now.Add(-started), CompletedAt: now.Add(-started - time.Second)}
		f.limits[store.ServiceAge] = 0
		return f
	}
	first := episodes(slow(now, 6*time.Minute))
	require.Equal(t, first, episodes(slow(now.Add(3*time.Minute), 6*time.Minute)), "the same turn")
	ended := slow(now.Add(time.Minute), 6*time.Minute)
	ended.states["dependency/paths"] = store.ServiceState{StartedAt: now.Add(-6 * time.Minute), CompletedAt: now, Duration: 6 * time.Minute}
	require.Equal(t, first, episodes(ended), "also when it has ended")
	require.NotEqual(t, first, episodes(slow(now.Add(20*time.Minute), -10*time.Minute)), "another turn")

	few := func(at capri.Instant) string {
		f := well()
		f.now, f.limits[store.MastersSevere], f.limits[store.ServiceAge], f.limits[store.TimeoutAge] = at, 9, 0, 0
		return episodes(f)
	}
	require.Equal(t, few(now), few(now.Add(29*time.Minute)), "within the hour")
	require.NotEqual(t, few(now), few(now.Add(30*time.Minute)), "in the next hour")
}
