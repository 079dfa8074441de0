// Package master is a process that runs the services: it wires the timetable to gocron's ticks, to the leases and to
// the wake-ups, and stops them again. It decides nothing itself.
//
//	gocron tick ─┐
//	wake-up ─────┼──▶ services.Runner ──lease held?──▶ Service.Run(Turn{Now, Lease}) ──▶ record, wake others
//	next time ───┘
//
// gocron is a local ticker here and no more: whether a tick does anything is decided by the lease row, because
// gocron's own distributed locker runs a tick on two masters whose clocks differ by 200 ms (docs/decisions).
package master

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"capri/calendar"
	"capri/lease"
	"capri/services"
	"capri/services/dependency"
	"capri/sql/store"
	"capri/wake"
)

// Options of a master.
type Options struct {
	Store           *store.Store
	Calendar        calendar.Calendar
	Waker           wake.Waker
	Files           dependency.Files
	Name            string // unlike any other master's, and unlike an earlier life's
	Sole            bool   // standalone: no other master can be there
	DependencyEvery time.Duration
	DispatchEvery   time.Duration
	Random          *rand.Rand
	Log             *slog.Logger
}

// Master runs the services. Make it with New.
type Master struct{ o Options }

// New makes a master; nothing runs before Run.
func New(o Options) *Master {
	if o.DependencyEvery <= 0 {
		o.DependencyEvery = 30 * time.Second
	}
	if o.DispatchEvery <= 0 {
		o.DispatchEvery = time.Second
	}
	return &Master{o: o}
}

// Run runs the services until ctx ends, then finishes the turns under way, gives the leases back and returns.
func (m *Master) Run(ctx context.Context) error {
	rows := m.Timetable()
	byLease := map[string][]*services.Runner{}
	var leases []string
	for _, r := range rows {
		if byLease[r.Lease] == nil {
			leases = append(leases, r.Lease)
			byLease[r.Lease] = []*services.Runner{}
		}
	}
	// Who wins a lease runs at once what may have come due while nobody held it.
	gained := func(service string) {
		for _, r := range byLease[service] {
			r.Tick()
		}
	}
	keeper := lease.New(m.o.Store, m.o.Name, m.o.Sole, leases, gained, m.o.Log)
	ticker, err := gocron.NewScheduler(gocron.WithStopTimeout(time.Second), gocron.WithLocation(time.UTC))
	if err != nil {
		return fmt.Errorf("start the ticker: %w", err)
	}
	var running sync.WaitGroup
	for _, row := range rows {
		r := services.NewRunner(row, m.o.Store, keeper, m.o.Waker, m.o.Log)
		byLease[row.Lease] = append(byLease[row.Lease], r)
		if _, err := ticker.NewJob(gocron.DurationJob(row.Every), gocron.NewTask(r.Tick), gocron.WithName(row.String()), gocron.WithSingletonMode(gocron.LimitModeReschedule)); err != nil {
			return fmt.Errorf("put %s into the timetable: %w", row, err)
		}
		running.Go(func() { r.Run(ctx) })
	}
	keep, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() { keeper.Run(keep) })
	ticker.Start()
	<-ctx.Done()
	// Our own turns end first: gocron's shutdown spins while a job runs, and a lease is released only when
	// nothing writes under it any more.
	running.Wait()
	err = ticker.Shutdown()
	stopKeeping()
	keeping.Wait()
	if err != nil {
		return fmt.Errorf("stop the ticker: %w", err)
	}
	return nil
}
