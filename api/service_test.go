package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/action/actiontest"
	"capri/api/wire"
	"capri/auth"
	"capri/sql/sqltest"
	"capri/sql/store"
)

func TestServices_tell_who_leads_what_they_did_and_what_is_missing(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		services := func() map[string]wire.Service {
			t.Helper()
			rec := r.ask(auth.ReadOnly, http.MethodGet, "/api/v1/services", "")
			require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())
			var all []wire.Service
			require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &all))
			by := map[string]wire.Service{}
			for i, s := range all {
				require.Equal(t, capri.Services[i], capri.ServiceName{Name: s.Service, Lease: s.Lease})
				by[s.Service] = s
			}
			return by
		}
		lease, ok, err := w.Store.AcquireLease(w.Ctx, "dependency", "m1/life-1", store.ServiceLock{})
		require.NoError(t, err)
		require.True(t, ok)
		at := sqltest.Start.Add(-time.Minute)
		for part, age := range map[string]time.Duration{"dependency/paths": 20 * time.Second, "dependency/changes": 0} {
			require.NoError(t, w.Store.SaveServiceState(w.Ctx, store.ServiceState{Service: part, Holder: lease.Holder, Epoch: lease.Epoch, StartedAt: at.Add(-age),
				CompletedAt: at.Add(-age), Duration: time.Second, NextAt: sqltest.Start.Add(time.Minute + age)}))
		}
		require.NoError(t, w.Store.RecordRun(w.Ctx, store.ServiceRun{Service: "dependency", StartedAt: at.Add(-10 * time.Second), Counts: map[string]int{"met": 3}, Error: "a disk is full"}))
		got := services()["dependency"]
		require.Equal(t, "m1", got.Leader)
		require.Equal(t, int64(1), got.Epoch)
		require.Equal(t, at, capri.InstantOf(*got.LastRun))
		require.Equal(t, sqltest.Start.Add(time.Minute), capri.InstantOf(*got.NextRun))
		require.Equal(t, map[string]int{"met": 3}, got.Counts)
		require.Equal(t, "a disk is full", got.Error, "a part has not completed a turn since")
		require.NoError(t, w.Store.SaveServiceState(w.Ctx, store.ServiceState{Service: "dependency/paths", Epoch: lease.Epoch, StartedAt: at, CompletedAt: at}))
		require.Empty(t, services()["dependency"].Error)

		_, err = w.Store.DB().ExecContext(w.Ctx, "DELETE FROM capri_service_lock WHERE service = 'attempts'")
		require.NoError(t, err)
		all := services()
		require.Contains(t, all["zombie"].Error, "capri migrate up")
		require.Contains(t, all["lost-nodes"].Error, "capri migrate up")
		require.Empty(t, all["cleanup"].Error)

		rec := r.ask(auth.Admin, http.MethodPost, "/api/v1/services/zombie:trigger", "")
		require.Equal(t, http.StatusNoContent, rec.Code, rec.Body.String())
		require.NotNil(t, services()["zombie"].Triggered)
		require.Nil(t, services()["lost-nodes"].Triggered)
	})
}

func TestRuns_of_a_service_come_in_pages_newest_first(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		for n := range 5 { // two begin at the same instant
			run := store.ServiceRun{Service: "dispatch", Epoch: 3, Holder: "m1/life-1", StartedAt: sqltest.Start.Add(time.Duration(n/2) * time.Hour), Duration: time.Duration(n) * time.Millisecond, Counts: map[string]int{"assigned": n}}
			if n == 3 {
				run.Error = "a disk is full"
			}
			require.NoError(t, w.Store.RecordRun(w.Ctx, run))
			require.NoError(t, w.Store.RecordRun(w.Ctx, store.ServiceRun{Service: "dependency", StartedAt: sqltest.Start}))
		}
		runs := func(query string) (durations []int64) {
			t.Helper()
			for cursor := ""; ; {
				rec := r.ask(auth.ReadOnly, http.MethodGet, "/api/v1/services/dispatch/runs?limit=2"+query+cursor, "")
				require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())
				var page wire.Page[wire.ServiceRun]
				require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &page))
				for _, x := range page.Items {
					require.Equal(t, "m1", x.Leader)
					require.Equal(t, int(x.DurationMS), x.Counts["assigned"])
					durations = append(durations, x.DurationMS)
				}
				if page.Next == "" {
					return durations
				}
				cursor = "&cursor=" + page.Next
			}
		}
		require.Equal(t, []int64{4, 3, 2, 1, 0}, runs(""))
		require.Equal(t, []int64{3}, runs("&failed=true"))
		zone := sqltest.Start.In(time.UTC)
		require.Equal(t, []int64{3, 2}, runs("&from="+zone.Add(time.Minute).Format(time.RFC3339)+"&to="+zone.Add(time.Hour).Format(time.RFC3339)))
		require.Equal(t, http.StatusNotFound, r.ask(auth.ReadOnly, http.MethodGet, "/api/v1/services/nothing/runs", "").Code)
	})
}

func TestMasters_are_listed(t *testing.T) {
	actiontest.Each(t, func(t *testing.T, w *actiontest.World) {
		r := newRig(t, w)
		ok, err := w.Store.RegisterMaster(w.Ctx, store.Master{Name: "m1", Instance: "i", Host: "h", PID: 7, Listen: "http://h:1", Version: "1", ClockOffset: time.Second}, nil)
		require.NoError(t, err)
		require.True(t, ok)
		rec := r.ask(auth.ReadOnly, http.MethodGet, "/api/v1/masters", "")
		var all []wire.Master
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &all), rec.Body.String())
		at := sqltest.Start.In(time.UTC)
		require.Equal(t, []wire.Master{{Name: "m1", Instance: "i", Host: "h", PID: 7, Listen: "http://h:1", Version: "1", Beat: 1, LastCheckTime: &at, StartTime: &at, ClockOffsetMS: 1000}}, all)
	})
}
