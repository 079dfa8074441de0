package store_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// lock reads one service's lease.
func lock(t *testing.T, s *store.Store, service string) store.ServiceLock {
	t.Helper()
	all, err := s.Locks(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if l.Service == service {
			return l
		}
	}
	t.Fatalf("no lease of %s", service)
	return store.ServiceLock{}
}

func TestLease_goes_to_one_of_many_masters_that_saw_it_free(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		for round := range 5 {
			seen := lock(t, db.Store, "dispatch")
			var wg sync.WaitGroup
			var mu sync.Mutex
			var granted []capri.Lease
			for i := range 4 {
				wg.Go(func() {
					l, ok, err := db.Store.AcquireLease(ctx, "dispatch", fmt.Sprint("master-", i), seen)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if ok {
						granted = append(granted, l)
					}
				})
			}
			wg.Wait()
			now := lock(t, db.Store, "dispatch")
			if len(granted) != 1 || granted[0] != (capri.Lease{Service: "dispatch", Holder: now.Holder, Epoch: now.Epoch}) ||
				now.Epoch != capri.Epoch(round+1) || now.AcquiredAt != sqltest.Start {
				t.Fatalf("round %d: granted %+v, the row says %+v", round, granted, now)
			}
		}
	})
}

func TestLease_is_not_taken_from_a_holder_who_renewed_in_between(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		mine := db.Lease(t, "generate")
		seen := lock(t, db.Store, "generate")
		if ok, err := db.Store.RenewLease(ctx, mine); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, ok, err := db.Store.AcquireLease(ctx, "generate", "other", seen); ok || err != nil {
			t.Errorf("taken from who renewed: %v, %v", ok, err)
		}
		moved := lock(t, db.Store, "generate")
		if moved.Epoch != mine.Epoch || moved.Renewals != seen.Renewals+1 {
			t.Errorf("from %+v to %+v", seen, moved)
		}
		theirs, ok, err := db.Store.AcquireLease(ctx, "generate", "other", moved)
		if !ok || err != nil || theirs.Epoch != mine.Epoch+1 {
			t.Fatalf("%+v, %v, %v", theirs, ok, err)
		}
		if ok, err := db.Store.RenewLease(ctx, mine); ok || err != nil {
			t.Errorf("the old holder renewed: %v, %v", ok, err)
		}
		if err := db.Store.ReleaseLease(ctx, mine); err != nil {
			t.Error(err)
		}
		if got := lock(t, db.Store, "generate"); got.Holder != "other" {
			t.Errorf("the old holder gave away what is not his: %+v", got)
		}
		if _, _, err := db.Store.AcquireLease(ctx, "generate", "", moved); !errors.Is(err, capri.ErrInvalid) {
			t.Errorf("nobody cannot hold a lease: %v", err)
		}
	})
}

func TestLease_that_is_released_is_free_at_once_and_cannot_be_renewed(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		mine := db.Lease(t, "generate")
		if err := db.Store.ReleaseLease(ctx, mine); err != nil {
			t.Fatal(err)
		}
		if ok, err := db.Store.RenewLease(ctx, mine); ok || err != nil {
			t.Errorf("renewed after its release: %v, %v", ok, err)
		}
		free := lock(t, db.Store, "generate")
		next, ok, err := db.Store.AcquireLease(ctx, "generate", "other", free)
		if free.Holder != "" || !ok || err != nil || next.Epoch != mine.Epoch+1 {
			t.Errorf("%+v, then %+v, %v, %v", free, next, ok, err)
		}
	})
}

func TestWriteAs_with_a_stale_epoch_or_no_row_writes_nothing(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		old := db.Lease(t, "generate")
		save := func(name string) func(*store.Tx) error {
			return func(tx *store.Tx) error { return tx.SaveUser(store.User{Name: name}) }
		}
		users := func(want int) {
			t.Helper()
			if got, err := db.Store.Users(ctx); err != nil || len(got) != want {
				t.Errorf("users %v, %v, want %d", got, err, want)
			}
		}
		if err := db.Store.WriteAs(ctx, "write", old, save("in office")); err != nil {
			t.Fatal(err)
		}
		users(1)
		fresh := db.Lease(t, "generate")
		ran := false
		err := db.Store.WriteAs(ctx, "write", old, func(tx *store.Tx) error { ran = true; return save("stale")(tx) })
		if !errors.Is(err, capri.ErrStaleEpoch) || ran {
			t.Errorf("a stale epoch: %v, ran: %v", err, ran)
		}
		err = db.Store.WriteAs(ctx, "write", capri.Lease{Service: "nobody", Epoch: 1}, save("no row"))
		if !errors.Is(err, capri.ErrStaleEpoch) {
			t.Errorf("no row: %v", err)
		}
		users(1)
		if err := db.Store.WriteAs(ctx, "write", fresh, save("new")); err != nil {
			t.Error(err)
		}
		users(2)
	})
}

// The fence is a lock that is kept until the commit: a successor's grant and an old leader's write come one after
// the other, never across each other.
func TestLease_is_not_granted_anew_while_a_write_under_it_is_on_its_way(t *testing.T) {
	db := sqltest.MySQL(t) // with SQLite the one writer makes it so
	mine := db.Lease(t, "generate")
	seen := lock(t, db.Store, "generate")
	granted := make(chan error, 1)
	err := db.Store.WriteAs(ctx, "write", mine, func(tx *store.Tx) error {
		go func() {
			_, ok, err := db.Store.AcquireLease(ctx, "generate", "other", seen)
			if err == nil && !ok {
				err = errors.New("not granted")
			}
			granted <- err
		}()
		select {
		case err := <-granted:
			t.Errorf("granted (%v) before the write had ended", err)
			granted <- err
		case <-time.After(150 * time.Millisecond):
		}
		return tx.SaveUser(store.User{Name: "alice"})
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-granted; err != nil {
		t.Error(err)
	}
}

func TestATrigger_is_taken_once_by_who_holds_the_lease(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		trigger := func(service string) error {
			return db.Store.Write(ctx, "trigger", "alice", func(tx *store.Tx) error { return tx.Trigger(service) })
		}
		take := func(service string, at capri.Instant, l capri.Lease, want bool) {
			t.Helper()
			if ok, err := db.Store.TakeTrigger(ctx, service, at, l); ok != want || err != nil {
				t.Errorf("%s at %s under %+v: %v, %v", service, at, l, ok, err)
			}
		}
		stale := db.Lease(t, "attempts")
		holder := db.Lease(t, "attempts")
		at := db.Clock.Advance(time.Minute)
		if err := errors.Join(trigger("zombie"), trigger("zombie"), trigger("generate")); err != nil {
			t.Fatal(err)
		}
		if err := trigger("attempts"); !errors.Is(err, capri.ErrNotFound) || !strings.Contains(err.Error(), "lost-nodes") {
			t.Errorf("a lease is no service: %v", err)
		}
		if got, err := db.Store.Triggers(ctx); err != nil || len(got) != 2 || got["zombie"] != at {
			t.Errorf("%v, %v", got, err)
		}
		take("zombie", at, stale, false)
		take("zombie", at-1, holder, false) // asked for again since it was read
		take("zombie", at, holder, true)
		take("zombie", at, holder, false)
		if got, err := db.Store.Triggers(ctx); err != nil || len(got) != 1 {
			t.Errorf("the other stays: %v, %v", got, err)
		}
	})
}

func TestServiceState_keeps_what_is_not_said_and_what_a_newer_leader_said(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		save := func(x store.ServiceState) {
			t.Helper()
			if err := db.Store.SaveServiceState(ctx, x); err != nil {
				t.Fatal(err)
			}
		}
		want := func(x store.ServiceState) {
			t.Helper()
			got, found, err := db.Store.ServiceState(ctx, x.Service)
			if err != nil || !found || got != x {
				t.Errorf("%+v, %v, %v, want %+v", got, found, err, x)
			}
		}
		if _, found, err := db.Store.ServiceState(ctx, "cleanup"); found || err != nil {
			t.Errorf("%v, %v", found, err)
		}
		first := store.ServiceState{Service: "cleanup", Holder: "a", Epoch: 4, StartedAt: 100}
		save(first)
		want(first)
		save(store.ServiceState{Service: "cleanup", Holder: "a", Epoch: 4, StartedAt: 100, CompletedAt: 150, Duration: 50 * time.Millisecond, NextAt: 900, FiredAt: 100})
		second := store.ServiceState{Service: "cleanup", Holder: "b", Epoch: 5, StartedAt: 200}
		save(second)
		second.CompletedAt, second.Duration, second.NextAt, second.FiredAt = 150, 50*time.Millisecond, 900, 100
		want(second)
		save(store.ServiceState{Service: "cleanup", Holder: "a", Epoch: 4, StartedAt: 300, CompletedAt: 300, FiredAt: 300})
		want(second)
		if all, err := db.Store.ServiceStates(ctx); err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

func TestLastRuns_are_the_newest_of_each_service(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		if got, err := db.Store.LastRuns(ctx); err != nil || len(got) != 0 {
			t.Fatalf("%v, %v", got, err)
		}
		run := func(service string, at capri.Instant, made int, failed string) store.ServiceRun {
			return store.ServiceRun{Service: service, Epoch: 3, Holder: "m1", StartedAt: at, Duration: 1500 * time.Millisecond, Counts: map[string]int{"made": made}, Error: failed}
		}
		for _, r := range []store.ServiceRun{
			run("generate", sqltest.Start, 1, ""),
			run("generate", sqltest.Start+2, 2, strings.Repeat("é", 1500)),
			run("dispatch", sqltest.Start+1, 3, ""),
			run("timeout", sqltest.Start+5, 4, ""),
			run("timeout", sqltest.Start+5, 5, ""), // within the same millisecond, the later one
			run("timeout", sqltest.Start+4, 6, ""),
		} {
			if err := db.Store.RecordRun(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		got, err := db.Store.LastRuns(ctx)
		want := map[string]store.ServiceRun{
			"generate": run("generate", sqltest.Start+2, 2, strings.Repeat("é", 999)+"…"),
			"dispatch": run("dispatch", sqltest.Start+1, 3, ""),
			"timeout":  run("timeout", sqltest.Start+5, 5, ""),
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	})
}

func TestRuns_beyond_the_newest_are_forgotten(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		exec := func(text string) {
			t.Helper()
			if _, err := db.Store.DB().ExecContext(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
		count := func(service string) (n int) {
			t.Helper()
			if err := db.Store.DB().QueryRowContext(ctx, "SELECT COUNT(*) FROM service_run WHERE service = ?", service).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		exec("INSERT INTO service_run (service, epoch, holder, started_at, duration_ms, counts, error) VALUES ('s', 1, 'm', 0, 0, '{}', ''), ('other', 1, 'm', 0, 0, '{}', '')")
		for range 14 { // 16,384 rows of s
			exec("INSERT INTO service_run (service, epoch, holder, started_at, duration_ms, counts, error) SELECT service, epoch, holder, started_at + 1, duration_ms, counts, error FROM service_run WHERE service = 's'")
		}
		for i := range 3000 {
			if err := db.Store.RecordRun(ctx, store.ServiceRun{Service: "s", StartedAt: 100}); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 && count("s") <= 10_100 {
				break
			}
		}
		if n := count("s"); n < 10_000 || n > 10_500 {
			t.Errorf("%d runs are left", n)
		}
		if count("other") != 1 {
			t.Error("another service's runs are not ours")
		}
	})
}
