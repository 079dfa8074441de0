package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/sql/store"
)

// Seed 001: a batch that has ended is told to whoever asked for it. The kinds are ended_success, ended_failed,
// ended_killed and ended_skipped.
func TestAnEnd_is_told_to_an_owner_who_asked_for_ends_of_its_kind(t *testing.T) {
	ends := []struct {
		on      string
		outcome store.Outcome
		title   string
	}{
		{"success", store.Succeeded, "has succeeded"},
		{"failed", store.Failed, "has failed"},
		{"killed", store.Killed, "was killed"},
	}
	each(t, func(w *world) {
		w.register()
		for i, end := range ends {
			asked := w.Task(w.t, func(s *capri.Spec) { s.Name, s.Alert.NotifyOn = "asked_"+end.on, []string{end.on} })
			other := w.Task(w.t, func(s *capri.Spec) { s.Name, s.Alert.NotifyOn = "other_"+end.on, []string{ends[(i+1)%len(ends)].on} })
			silent := w.Task(w.t, func(s *capri.Spec) { s.Name = "silent_" + end.on })
			for _, task := range []*capri.Task{asked, other, silent} {
				b := w.batch(task, "20261101", capri.Conditions{})
				b.Notifies = len(task.Alert.NotifyOn) > 0
				w.insert(b)
				if task == silent {
					continue
				}
				w.run(b.ID, end.outcome, 0)
			}
			require.Equal(w.t, 1, w.alerts("ended_"+end.on))
			all, err := w.Store.Alerts(w.ctx, nil, 0, 100)
			require.NoError(w.t, err)
			for _, a := range all {
				if a.Kind == "ended_"+end.on {
					require.Equal(w.t, []any{capri.Attention, asked.ID}, []any{a.Level, a.Task})
					require.Contains(w.t, a.Title, end.title)
				}
			}
		}
		skipped := w.batch(w.Task(w.t, func(s *capri.Spec) { s.Name, s.Alert.NotifyOn = "asked_skipped", []string{"skipped"} }), "20261101", capri.Conditions{})
		skipped.Notifies, skipped.State, skipped.FinishState = true, capri.Finished, capri.Skipped
		w.insert(skipped)
		require.Equal(w.t, 1, w.alerts("ended_skipped"), "born so")
	})
}
