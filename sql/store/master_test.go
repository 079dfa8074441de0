package store_test

import (
	"errors"
	"testing"
	"time"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestAMastersName_goes_to_one_of_those_that_saw_it_free(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.DB) {
		register := func(m store.Master, seen *store.Master, want bool) {
			t.Helper()
			if ok, err := db.Store.RegisterMaster(ctx, m, seen); ok != want || err != nil {
				t.Errorf("%+v over %+v: %v, %v", m, seen, ok, err)
			}
		}
		only := func() store.Master {
			t.Helper()
			all, err := db.Store.Masters(ctx)
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			return all[0]
		}
		a := store.Master{Name: "m", Instance: "a", Host: "h", PID: 7, Listen: "h:1", Version: "1", ClockOffset: -3 * time.Millisecond}
		register(a, nil, true)
		register(store.Master{Name: "m", Instance: "b"}, nil, false)
		want := a
		want.Beat, want.LastCheckTime, want.StartTime = 1, sqltest.Start, sqltest.Start
		if got := only(); got != want || got.Holder() != "m/a" {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		seen := only()
		db.Clock.Advance(time.Second)
		if ok, err := db.Store.BeatMaster(ctx, "m", "a", time.Second); !ok || err != nil {
			t.Error(ok, err)
		}
		register(store.Master{Name: "m", Instance: "b"}, &seen, false) // it has beaten meanwhile
		seen = only()
		if seen.Beat != 2 || seen.LastCheckTime != sqltest.Start.Add(time.Second) || seen.ClockOffset != time.Second {
			t.Errorf("%+v", seen)
		}
		register(store.Master{Name: "m", Instance: "b"}, &seen, true)
		register(store.Master{Name: "m", Instance: "c"}, &seen, false)
		if ok, err := db.Store.BeatMaster(ctx, "m", "a", 0); ok || err != nil {
			t.Errorf("a beat of who lost the name: %v, %v", ok, err)
		}
		if err := db.Store.StopMaster(ctx, "m", "a"); err != nil || only().Stopped {
			t.Errorf("signed off by who lost the name: %v", err)
		}
		if err := db.Store.StopMaster(ctx, "m", "b"); err != nil || !only().Stopped {
			t.Errorf("%+v, %v", only(), err)
		}
		if _, err := db.Store.RegisterMaster(ctx, store.Master{Instance: "c"}, nil); !errors.Is(err, capri.ErrInvalid) {
			t.Errorf("without a name: %v", err)
		}

		db.Clock.Advance(8 * 24 * time.Hour)
		register(store.Master{Name: "n", Instance: "d"}, nil, true)
		if got := only(); got.Name != "n" {
			t.Errorf("who was silent for a week is forgotten: %+v", got)
		}
	})
}
