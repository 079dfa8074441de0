package quality_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/internal/servicetest"
	"capri/services"
	"capri/services/quality"
)

// world is a database and a quality API that remembers what it was asked.
type world struct {
	*servicetest.World
	service *quality.Service

	mu    sync.Mutex
	asked []quality.Question
	fails func(quality.Question) error // nil: it takes every question
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	servicetest.Each(t, "quality", func(in *servicetest.World) {
		w := &world{World: in}
		w.serve(w.answer)
		fn(w)
	})
}

func (w *world) serve(ask func(context.Context, quality.Question) error) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(w.T, err)
	w.service = quality.New(quality.Options{Store: w.Store, Zone: shanghai, Ask: ask, Server: "http://capri:8680", Log: slog.New(slog.DiscardHandler)})
}

func (w *world) answer(_ context.Context, q quality.Question) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, q)
	if w.fails != nil {
		return w.fails(q)
	}
	return nil
}

// gated inserts n batches at their gates.
func (w *world) gated(n int, change func(*capri.NewBatch)) []capri.BatchID {
	w.T.Helper()
	atGate := func(b *capri.NewBatch) { b.QualityState, b.DataStart = 1, b.DataEnd.Add(-24*time.Hour) }
	return w.Batches(w.Task(w.T, func(s *capri.Spec) { s.QualityGate = true }), n, atGate, change)
}

func (w *world) turn() services.Result {
	w.T.Helper()
	w.Clock.Advance(30 * time.Second)
	return w.Turn(w.service)
}

func (w *world) alerts(kind string) int { return len(w.Alerts(kind)) }

func TestBatchesAtTheirGate_are_asked_about_once(t *testing.T) {
	each(t, func(w *world) {
		require.Empty(t, w.turn().Counts, "nobody is at a gate")
		id := w.gated(1, nil)[0]
		require.Equal(t, map[string]int{"asked": 1}, w.turn().Counts)
		row, err := w.Store.Batch(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []quality.Question{{Task: row.Task, BatchID: id, BatchNo: "d1", RunNo: 0, Ask: 1, DataStart: "2026-11-19T17:30:30+08:00", DataEnd: "2026-11-20T17:30:30+08:00",
			Callback: fmt.Sprintf("http://capri:8680/api/v1/batches/%d/quality", id)}}, w.asked)
		require.Equal(t, 2, row.QualityState)
		require.Empty(t, w.turn().Counts, "its verdict is waited for by nobody")
		require.Len(t, w.asked, 1)
	})
}

func TestWhoHasNoReasonToBeAskedAbout_is_not(t *testing.T) {
	each(t, func(w *world) {
		w.gated(1, func(b *capri.NewBatch) { b.QualityState = 0 })
		w.gated(1, func(b *capri.NewBatch) { b.QualityState = 3 })
		w.gated(1, func(b *capri.NewBatch) {
			b.ThirdParty = []capri.ThirdPartyCondition{{Code: "c", Period: capri.Day, BatchNo: "20261119"}}
		})
		w.gated(1, func(b *capri.NewBatch) { b.State, b.FinishState = capri.Finished, capri.Skipped })
		disabled := w.Task(t, func(s *capri.Spec) { s.QualityGate, s.Enabled = true, false })
		w.gated(1, func(b *capri.NewBatch) { b.TaskID = disabled.ID })
		require.Empty(t, w.turn().Counts)
		require.Empty(t, w.asked)
	})
}

func TestAFailure_is_tried_three_times_more_and_again_in_the_next_turn(t *testing.T) {
	each(t, func(w *world) {
		id := w.gated(1, nil)[0]
		w.fails = func(quality.Question) error { return errors.New("the quality API answers 500") }
		require.Equal(t, map[string]int{"failed": 1}, w.turn().Counts)
		require.Len(t, w.asked, 4, "one try and three more")
		require.Equal(t, 1, w.Get(id).QualityState)
		require.Equal(t, "quality gate: the quality API answers 500", w.Get(id).Message, "for capri why")
		require.Equal(t, 1, w.alerts("quality_unasked"))
		w.turn()
		require.Equal(t, 1, w.alerts("quality_unasked"), "once an hour")
		w.Clock.Advance(time.Hour)
		w.turn()
		require.Equal(t, 2, w.alerts("quality_unasked"))

		w.fails = nil
		require.Equal(t, map[string]int{"asked": 1}, w.turn().Counts)
		require.Equal(t, []int{2, 4}, []int{w.Get(id).QualityState, w.Get(id).QualityAsk}, "each turn's question has its own number")
	})
}

func TestOneBatchThatFails_does_not_keep_others_from_being_asked_about(t *testing.T) {
	each(t, func(w *world) {
		ids := w.gated(40, nil)
		w.fails = func(q quality.Question) error {
			if q.BatchID == ids[0] {
				return errors.New("422")
			}
			return nil
		}
		require.Equal(t, map[string]int{"asked": 39, "failed": 1}, w.turn().Counts)
		require.Len(t, w.asked, 43)
	})
}

func TestMoreThanATurnHolds_are_asked_about_at_once_in_the_next(t *testing.T) {
	each(t, func(w *world) {
		w.gated(501, nil)
		res := w.turn()
		require.Equal(t, 500, res.Counts["asked"])
		require.True(t, res.Again)
		require.Equal(t, 1, w.turn().Counts["asked"])
		require.Empty(t, w.turn().Counts)
	})
}

func TestWakeUps_that_come_close_together_make_one_look(t *testing.T) {
	each(t, func(w *world) {
		w.turn()
		w.gated(1, nil)
		woken := services.Turn{Now: w.Clock.Advance(time.Second), Lease: w.Leads, Woken: true}
		res, err := w.service.Run(t.Context(), woken)
		require.NoError(t, err)
		require.Empty(t, w.asked)
		require.Equal(t, w.Clock.Now().Add(4*time.Second), res.Next, "and come back then")
		woken.Now = w.Clock.Advance(4 * time.Second)
		_, err = w.service.Run(t.Context(), woken)
		require.NoError(t, err)
		require.Len(t, w.asked, 1)
	})
}

func TestWithoutAnAPI_gates_stay_closed_and_people_are_told_once_a_day(t *testing.T) {
	each(t, func(w *world) {
		w.serve(nil)
		id := w.gated(1, nil)[0]
		w.turn()
		w.turn()
		require.Equal(t, 1, w.alerts("quality_unconfigured"))
		require.Contains(t, w.Get(id).Message, "no quality API is configured")
		require.Equal(t, []int{1, 0}, []int{w.Get(id).QualityState, w.Get(id).QualityAsk})
		w.Clock.Advance(24 * time.Hour)
		w.turn()
		require.Equal(t, 2, w.alerts("quality_unconfigured"))
	})
}

func TestAStaleLease_sends_no_question(t *testing.T) {
	each(t, func(w *world) {
		w.gated(1, nil)
		w.Lease(t, "quality")
		_, err := w.service.Run(t.Context(), services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Empty(t, w.asked)
	})
}

func TestARun_that_is_stopped_in_the_middle_asks_again_later(t *testing.T) {
	each(t, func(w *world) {
		id := w.gated(1, nil)[0]
		ctx, stop := context.WithCancel(t.Context())
		w.fails = func(quality.Question) error { stop(); return nil } // taken, and then the process is told to end
		_, err := w.service.Run(ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
		require.Error(t, err)
		require.Equal(t, 1, w.Get(id).QualityState)
		w.fails = nil
		require.Equal(t, map[string]int{"asked": 1}, w.turn().Counts)
		require.Equal(t, []int{1, 2}, []int{w.asked[0].Ask, w.asked[1].Ask})
	})
}

func TestClient(t *testing.T) {
	q := quality.Question{Task: "orders", BatchID: 7, BatchNo: "20261119", Ask: 3}
	var got *http.Request
	var body string
	answer := func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, _ := io.ReadAll(r.Body)
		got, body = r, string(read)
		answer(w)
	}))
	defer api.Close()
	ask := quality.Client(api.URL+"/ask", "s3cret", 5*time.Second)

	require.NoError(t, ask(t.Context(), q))
	require.Equal(t, []string{"POST", "/ask", "Bearer s3cret", "application/json"}, []string{got.Method, got.URL.Path, got.Header.Get("Authorization"), got.Header.Get("Content-Type")})
	var sent map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &sent))
	require.Equal(t, map[string]any{"task": "orders", "batch_id": 7., "batch_no": "20261119", "run_no": 0., "ask": 3., "data_start": "", "data_end": "", "callback": ""}, sent)

	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
	}{
		"a refusal says its first words": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "no such\n  table ", strings.Repeat("x", 1<<20))
		}, "the quality API answers 500 Internal Server Error: no such table xxx"},
		"a redirect is not followed": {func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			answer = c.answer
			err := ask(t.Context(), q)
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 400, "an answer does not fill the log")
		})
	}

	gone := httptest.NewServer(nil)
	gone.Close()
	err := quality.Client(strings.Replace(gone.URL, "http://", "http://user:geheim@", 1), "s3cret", time.Second)(t.Context(), q)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "geheim")
	require.NotContains(t, err.Error(), "s3cret")
}

func TestAnAPIThatNeverAnswers_costs_no_more_than_the_time_limit(t *testing.T) {
	release := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer api.Close()
	defer close(release)
	began := time.Now()
	require.Error(t, quality.Client(api.URL, "", 50*time.Millisecond)(t.Context(), quality.Question{}))
	require.Less(t, time.Since(began), 10*time.Second)
}
