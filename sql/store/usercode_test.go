package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

// coded is a running attempt of a task that is judged by the code it reports.
func (w *world) coded(retries int) (capri.Attempt, func(o store.Outcome) capri.Batch) {
	w.t.Helper()
	task := w.Task(w.t, func(s *capri.Spec) { s.Check = capri.CheckUserCode })
	b := w.batch(task, "20261119", capri.Conditions{})
	w.insert(b)
	a := w.start(b.ID)
	return a, func(o store.Outcome) capri.Batch {
		w.t.Helper()
		_, err := w.Store.FinishAttempts(w.ctx, node, []store.Result{{Attempt: a, Outcome: o, ByCode: true, Retries: retries, Message: "by its process"}})
		require.NoError(w.t, err)
		return w.get(b.ID)
	}
}

func TestAn_attempt_is_judged_by_the_code_that_its_job_reported(t *testing.T) {
	for name, c := range map[string]struct {
		codes   []int64
		process store.Outcome
		state   capri.State
		how     capri.FinishState
		message string
	}{
		"success":                           {[]int64{0}, store.Succeeded, capri.Finished, capri.Success, ""},
		"success, and the process failed":   {[]int64{0}, store.Failed, capri.Finished, capri.Success, ""},
		"success, and the process was lost": {[]int64{0}, store.Lost, capri.Finished, capri.Success, ""},
		"failure":                           {[]int64{7}, store.Succeeded, capri.Finished, capri.Failed, "reported code 7: said 7"},
		"failure, and then success":         {[]int64{7, 0}, store.Succeeded, capri.Finished, capri.Success, ""},
		"the last failure":                  {[]int64{7, 8}, store.Failed, capri.Finished, capri.Failed, "reported code 8: said 8"},
		"nothing":                           {nil, store.Succeeded, capri.Finished, capri.Failed, "reported no code"},
		"nothing, and the process failed":   {nil, store.Failed, capri.Finished, capri.Failed, "by its process"},
		"nothing, and the process was lost": {nil, store.Lost, capri.Waiting, capri.None, "by its process"},
		"killed":                            {[]int64{0}, store.Killed, capri.Finished, capri.Killed, "by its process"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			each(t, func(w *world) {
				w.register()
				a, finish := w.coded(0)
				for _, code := range c.codes {
					message := ""
					if code != 0 {
						message = "said " + string(rune('0'+code))
					}
					require.NoError(w.t, w.Store.ReportCode(w.ctx, a, code, message))
				}
				b := finish(c.process)
				require.Equal(w.t, c.state, b.State)
				require.Equal(w.t, c.how, b.FinishState)
				require.Contains(w.t, b.Message, c.message)
				require.Zero(w.t, w.count("capri_user_code_log WHERE exexecute_state = 1 AND ? <> 'killed'", name), "they were used")
			})
		})
	}
}

func TestWhat_a_job_may_not_report(t *testing.T) {
	each(t, func(w *world) {
		w.register()
		a, finish := w.coded(1)
		other := a
		other.Number++
		require.ErrorIs(w.t, w.Store.ReportCode(w.ctx, other, 0, ""), capri.ErrConflict, "an attempt that does not run")
		require.NoError(w.t, w.Store.ReportCode(w.ctx, a, 3, "no"))
		require.Equal(w.t, capri.Waiting, finish(store.Failed).State, "it has a retry")
		require.ErrorIs(w.t, w.Store.ReportCode(w.ctx, a, 0, ""), capri.ErrConflict, "it has ended")
		next := w.start(a.Batch)
		require.NoError(w.t, w.Store.ReportCode(w.ctx, next, 0, ""))
		require.NoError(w.t, w.Store.ReportCode(w.ctx, next, 0, "again"), "saying it twice changes nothing")
		require.ErrorIs(w.t, w.Store.ReportCode(w.ctx, next, 1, ""), capri.ErrConflict, "after success")
		require.Equal(w.t, 1, w.count("capri_user_code_log WHERE user_code = 0"))

		plain := w.batch(w.Task(w.t, nil), "20261119", capri.Conditions{})
		w.insert(plain)
		require.ErrorIs(w.t, w.Store.ReportCode(w.ctx, w.start(plain.ID), 0, ""), capri.ErrConflict, "judged by its exit code")
		require.Error(w.t, w.Store.ReportCode(w.ctx, capri.Attempt{Batch: 999_999, Number: 1}, 0, ""))
	})
}

func TestAttemptToken_is_good_for_its_attempt_alone(t *testing.T) {
	secret, a := []byte("secret"), capri.Attempt{Batch: 12, Number: 3}
	token := store.AttemptToken(secret, a)
	got, ok := store.ParseAttemptToken(secret, token)
	require.True(t, ok)
	require.Equal(t, a, got)
	for _, bad := range []string{
		"", "capri_attempt_", strings.Replace(token, "12.3", "12.4", 1), strings.Replace(token, "12.3", "012.3", 1), token + "0", token[:len(token)-1], strings.ToUpper(token),
		strings.Replace(token, "capri_attempt_", "capri_", 1),
	} {
		_, ok := store.ParseAttemptToken(secret, bad)
		require.False(t, ok, bad)
	}
	_, ok = store.ParseAttemptToken([]byte("another"), token)
	require.False(t, ok)
	_, ok = store.ParseAttemptToken(nil, store.AttemptToken(nil, a))
	require.False(t, ok, "without a secret anybody could make one")
}
