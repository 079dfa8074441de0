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
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"capri"
	"capri/alerting"
	"capri/calendar"
	"capri/conf"
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
	Name            string // of the master, the same in each of its lives
	Host            string // where it runs, for people
	Listen          string // the address of its API, for people
	Version         string
	Sole            bool              // standalone: no other master can be there
	Redis           wake.RedisOptions // decides who tries first for a lease; without Addr: nobody does
	LeaseTTL        time.Duration     // 0: the usual, as of the three below
	LeaseRenew      time.Duration
	LeaseStable     time.Duration // how long the same masters live before leases move among them
	BeatEvery       time.Duration
	DependencyEvery time.Duration
	DispatchEvery   time.Duration
	LostAfter       time.Duration    // the shortest silence of a node that is called lost
	Monotonic       func() time.Time // counts that silence; nil: time.Now, two of whose readings are as far apart as the time between them
	Quality         conf.Quality     // the quality API; without URL nobody is asked
	Probes          []conf.Probe     // what the monitor looks after besides Capri
	Alerting        Alerting         // how alerts leave
	Random          *rand.Rand
	Observe         func(row string, took time.Duration, err error) // is told of every turn; may be nil
	Log             *slog.Logger
}

// Alerting is how alerts leave. The zero value sends nothing: alerts are filed, and their messages are in the account as not
// configured.
type Alerting struct {
	Senders map[string]func(context.Context, alerting.Message) (receipt string, err error) // by channel
	Limits  map[string]conf.Limits
	Compose func(channel string, f alerting.Facts) alerting.Message
	Links   func(incident int64, person string, until capri.Instant) (look, acknowledge string)
}

// Master runs the services. Make it with New.
type Master struct {
	o     Options
	redis *lease.Redis // nil: leases go by the database alone
}

// New makes a master; nothing runs before Run.
func New(o Options) *Master {
	if o.DependencyEvery <= 0 {
		o.DependencyEvery = 30 * time.Second
	}
	if o.DispatchEvery <= 0 {
		o.DispatchEvery = time.Second
	}
	if o.LostAfter <= 0 {
		o.LostAfter = 3 * time.Minute
	}
	if o.Monotonic == nil {
		o.Monotonic = time.Now
	}
	return &Master{o: o}
}

// Run registers the master, which takes three beats where one of its name was there and did not sign off, and runs the
// services until ctx ends. Then it finishes the turns under way, gives the leases back and signs off. It ends with an
// error where another master has its name.
func (m *Master) Run(ctx context.Context) error {
	member := lease.NewMember(lease.MemberOptions{Store: m.o.Store, Name: m.o.Name, Host: m.o.Host, Listen: m.o.Listen, Version: m.o.Version,
		Sole: m.o.Sole, Every: m.o.BeatEvery, Log: m.o.Log})
	if err := member.Register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	keeper, runners := m.prepare(member)
	ticker, err := gocron.NewScheduler(gocron.WithStopTimeout(time.Second), gocron.WithLocation(time.UTC))
	if err != nil {
		return fmt.Errorf("start the ticker: %w", err)
	}
	for _, r := range runners {
		if r.row.Every == 0 {
			continue // a service of times of day has its own timer
		}
		if _, err := ticker.NewJob(gocron.DurationJob(r.row.Every), gocron.NewTask(r.Tick), gocron.WithName(r.row.String())); err != nil {
			return fmt.Errorf("put %s into the timetable: %w", r.row, err)
		}
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var turns, keeping sync.WaitGroup
	for _, r := range runners {
		turns.Go(func() { r.Run(ctx) })
	}
	turns.Go(func() { m.hearTriggers(ctx, keeper, runners) })
	keep, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	keeping.Go(func() { keeper.Run(keep) })
	var taken error
	keeping.Go(func() {
		taken = member.Run(keep)
		stop() // the name is another process's now
	})
	ticker.Start()
	<-ctx.Done()
	// Our own turns end first: gocron's shutdown spins while a job runs, and a lease is released only when
	// nothing writes under it any more.
	turns.Wait()
	err = ticker.Shutdown()
	stopKeeping()
	keeping.Wait()
	if m.redis != nil {
		m.redis.Close()
	}
	switch {
	case taken != nil:
		return taken
	case err != nil:
		return fmt.Errorf("stop the ticker: %w", err)
	}
	return nil
}

// runner is a row at work.
type runner struct {
	*services.Runner
	row services.Row
}

// prepare makes the keeper of the timetable's leases and a runner for each of its rows.
func (m *Master) prepare(member *lease.Member) (*lease.Keeper, []*runner) {
	var runners []*runner
	o := lease.Options{Store: m.o.Store, Holder: member.Holder(), Sole: m.o.Sole, Member: member, Waker: m.o.Waker,
		TTL: m.o.LeaseTTL, Renew: m.o.LeaseRenew, Stable: m.o.LeaseStable, Log: m.o.Log}
	if m.o.Redis.Addr != "" && !m.o.Sole {
		o.Redis = lease.NewRedis(m.o.Redis, o.Holder, cmp.Or(o.TTL, lease.TTL), m.o.Log)
		m.redis = o.Redis
	}
	// Who wins a lease runs at once what may have come due while nobody held it.
	o.Due = func(service string) {
		for _, r := range runners {
			if r.row.Lease == service {
				r.Tick()
			}
		}
	}
	rows := m.Timetable()
	for _, row := range rows {
		if !slices.Contains(o.Wanted, row.Lease) {
			o.Wanted = append(o.Wanted, row.Lease)
		}
	}
	keeper := lease.New(o)
	for _, row := range rows {
		r := services.NewRunner(row, m.o.Store, keeper, m.o.Waker, m.o.Log)
		r.Observe = m.o.Observe
		runners = append(runners, &runner{r, row})
	}
	return keeper, runners
}

// hearTriggers runs what people asked for (`capri service trigger`), where this master leads it.
func (m *Master) hearTriggers(ctx context.Context, keeper *lease.Keeper, runners []*runner) {
	woken, stop := m.o.Waker.Listen(wake.Trigger)
	defer stop()
	tick := time.NewTicker(lease.Look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-tick.C:
		}
		if !slices.ContainsFunc(runners, func(r *runner) bool { _, leads := keeper.Held(r.row.Lease); return leads }) {
			continue // there is nothing that it could be asked for
		}
		asked, err := m.o.Store.Triggers(ctx)
		if err != nil {
			continue // the leases' own looks say that the database is away
		}
		for service, at := range asked {
			m.heard(ctx, keeper, runners, service, at)
		}
	}
}

func (m *Master) heard(ctx context.Context, keeper *lease.Keeper, runners []*runner, service string, at capri.Instant) {
	parts := slices.DeleteFunc(slices.Clone(runners), func(r *runner) bool { return r.row.Name != service })
	if len(parts) == 0 {
		return
	}
	held, leads := keeper.Held(parts[0].row.Lease)
	if !leads {
		return
	}
	if ok, err := m.o.Store.TakeTrigger(ctx, service, at, held); err != nil || !ok {
		return // it stays, and is looked at again in a second; or it was another's
	}
	for _, r := range parts {
		r.Trigger()
	}
}
