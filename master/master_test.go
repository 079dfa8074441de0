package master_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"capri"
	"capri/calendar"
	"capri/internal/testenv"
	"capri/lease"
	"capri/master"
	"capri/sql/sqltest"
	"capri/sql/store"
	"capri/wake"
)

// patience ends a test that would wait for ever; how fast something is, it does not judge.
const patience = time.Minute

type noFiles struct{}

func (noFiles) There(_ context.Context, p []capri.PathCondition) ([]bool, error) {
	return make([]bool, len(p)), nil
}

func start(s *store.Store, name string, sole bool) (stop func() error) {
	m := master.New(master.Options{Store: s, Calendar: calendar.New(time.UTC), Waker: wake.NewLocal(), Files: noFiles{}, Name: name, Sole: sole,
		BeatEvery: 200 * time.Millisecond, Random: rand.New(rand.NewPCG(1, 1)), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

func locks(t *testing.T, s *store.Store) map[string]store.ServiceLock {
	t.Helper()
	all, err := s.Locks(t.Context())
	require.NoError(t, err)
	by := map[string]store.ServiceLock{}
	for _, l := range all {
		by[l.Service] = l
	}
	return by
}

func leads(all map[string]store.ServiceLock, name, service string) bool {
	return strings.HasPrefix(all[service].Holder, name+"/")
}

func TestAMaster_starts_and_stops_fifty_times_and_leaves_nothing_behind(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		before := goleak.IgnoreCurrent()
		s, err := store.Open(t.Context(), db.Options)
		require.NoError(t, err)
		for i := range 50 {
			name := "m" + strconv.Itoa(i)
			stop := start(s, name, true)
			whole := i%10 == 9 // the others are stopped wherever they are
			if whole {
				require.Eventually(t, func() bool {
					all := locks(t, db.Store)
					return leads(all, name, "dependency") && leads(all, name, "dispatch") && leads(all, name, "generate")
				}, patience, time.Millisecond)
			}
			require.NoError(t, stop())
			for service, l := range locks(t, db.Store) {
				require.False(t, whole && l.Holder != "", "%s was given back", service)
			}
		}
		require.NoError(t, s.Close())                                                                                                                                                              // its connections have goroutines
		goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("database/sql.(*DB).connectionCleaner"), goleak.IgnoreTopFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1")) // of the test's own
	})
}

func TestASecondMaster_takes_over_what_the_first_gives_back(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		task := db.Task(t, nil)
		first := start(db.Store, "first", false)
		require.Eventually(t, func() bool { return leads(locks(t, db.Store), "first", "dispatch") }, patience, 5*time.Millisecond)
		second := start(db.Again(t), "second", false)
		require.NoError(t, first())
		began := time.Now()
		require.Eventually(t, func() bool { return leads(locks(t, db.Store), "second", "dispatch") }, patience, 5*time.Millisecond)
		require.Less(t, time.Since(began), lease.TTL-lease.Renew, "it looks each second, and does not wait for the lease to lapse")
		require.Greater(t, locks(t, db.Store)["dispatch"].Epoch, capri.Epoch(1))
		// And it works: a new leader places at once what is ready.
		require.NoError(t, db.Store.RegisterNode(t.Context(), capri.Node{Name: "n1", BootID: "b", Pool: "default", Slots: 1, CheckInterval: 5}, "d"))
		b := &capri.NewBatch{Batch: capri.Batch{TaskID: task.ID, TaskVersion: 1, Period: capri.Day, BatchNo: "20261119", Slots: 1, Concurrency: 1, Pool: "default", ScheduleTime: 1}}
		_, err := db.Store.InsertBatches(t.Context(), store.ByPerson("test"), []*capri.NewBatch{b}, nil)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			row, err := db.Store.Batch(t.Context(), b.ID)
			return err == nil && row.State == capri.Assigned
		}, patience, 5*time.Millisecond)
		require.NoError(t, second())
	})
}

func TestASecondMaster_of_the_same_name_is_refused_while_the_first_lives(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		first := start(db.Store, "m", false)
		require.Eventually(t, func() bool { return leads(locks(t, db.Store), "m", "dispatch") }, patience, 5*time.Millisecond)
		holder := locks(t, db.Store)["dispatch"].Holder
		second := master.New(master.Options{Store: db.Again(t), Calendar: calendar.New(time.UTC), Waker: wake.NewLocal(), Files: noFiles{}, Name: "m",
			BeatEvery: 200 * time.Millisecond, Random: rand.New(rand.NewPCG(1, 1)), Log: slog.New(slog.DiscardHandler)})
		require.ErrorIs(t, second.Run(t.Context()), capri.ErrConflict)
		require.Equal(t, holder, locks(t, db.Store)["dispatch"].Holder, "and has touched nothing")
		require.NoError(t, first())
		third := start(db.Again(t), "m", false)
		require.Eventually(t, func() bool { return leads(locks(t, db.Store), "m", "dispatch") }, patience, 5*time.Millisecond)
		require.NotEqual(t, holder, locks(t, db.Store)["dispatch"].Holder, "another life is another holder")
		require.NoError(t, third())
	})
}

func TestAMaster_whose_name_was_taken_over_ends(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		frozen := start(db.Store, "m", false)
		require.Eventually(t, func() bool { return leads(locks(t, db.Store), "m", "dispatch") }, patience, 5*time.Millisecond)
		_, err := db.Store.DB().ExecContext(t.Context(), "UPDATE capri_master SET instance = 'another'")
		require.NoError(t, err)
		require.Eventually(t, func() bool { return locks(t, db.Store)["dispatch"].Holder == "" }, patience, 5*time.Millisecond)
		require.ErrorIs(t, frozen(), capri.ErrConflict)
	})
}

func TestATriggeredService_runs_and_what_shares_its_lease_does_not(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		stop := start(db.Store, "m", false)
		completed := func(service string) capri.Instant {
			x, _, err := db.Store.ServiceState(t.Context(), service)
			require.NoError(t, err)
			return x.CompletedAt
		}
		require.Eventually(t, func() bool { return completed("lost-nodes") != 0 }, patience, 5*time.Millisecond)
		require.Zero(t, completed("zombie"), "its hour has not come")
		require.NoError(t, db.Store.Write(t.Context(), "trigger", "alice", func(tx *store.Tx) error { return tx.Trigger("zombie") }))
		require.Eventually(t, func() bool { return completed("zombie") != 0 }, patience, 5*time.Millisecond)
		left, err := db.Store.Triggers(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoError(t, stop())
	})
}

func TestTheTimetable_has_every_service_under_its_lease(t *testing.T) {
	m := master.New(master.Options{Store: sqltest.SQLite(t).Store, Calendar: calendar.New(time.UTC), Waker: wake.NewLocal(), Files: noFiles{}, Log: slog.New(slog.DiscardHandler)})
	var names []capri.ServiceName
	leases := map[string]bool{}
	for _, r := range m.Timetable() {
		if x := (capri.ServiceName{Name: r.Name, Lease: r.Lease}); !slices.Contains(names, x) {
			names = append(names, x)
		}
		leases[r.Lease] = true
		require.True(t, (r.Every > 0) != (r.Fires != nil), "%s ticks, or has times of day", r)
	}
	require.Equal(t, capri.Services, names)
	for _, l := range capri.ServiceLeases {
		require.True(t, leases[l], "the lease %s", l)
	}
	require.Len(t, leases, len(capri.ServiceLeases))
}

// deaf takes connections and never answers.
func deaf(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return l.Addr().String()
}

func TestAMaster_stops_at_once_also_while_the_database_is_away(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed.Close()
	for name, addr := range map[string]string{"it_refuses": closed.Addr().String(), "it_says_nothing": deaf(t)} {
		t.Run(name, func(t *testing.T) {
			cfg, err := mysql.ParseDSN(testenv.MySQL(t) + "capri")
			require.NoError(t, err)
			cfg.Addr = addr
			s, err := store.Open(t.Context(), store.Options{DSN: cfg.FormatDSN()})
			require.NoError(t, err)
			defer s.Close()
			stop := start(s, "m", false)
			time.Sleep(300 * time.Millisecond) // it is trying
			began := time.Now()
			require.NoError(t, stop())
			require.Less(t, time.Since(began), 3*time.Second)
		})
	}
}
