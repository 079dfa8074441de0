package dependency_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/files"
	"capri/internal/servicetest"
	"capri/services"
	"capri/services/dependency"
	"capri/sql/store"
	"capri/wake"
)

type world struct {
	*servicetest.World
	files *fake
	soon  *dependency.Soon
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	servicetest.Each(t, "dependency", func(w *servicetest.World) {
		w.Node("n1")
		fn(&world{World: w, files: &fake{there: map[string]bool{}}, soon: &dependency.Soon{}})
	})
}

// fake is a file system that remembers what it was asked.
type fake struct {
	mu     sync.Mutex
	there  map[string]bool
	asked  []string
	rounds int
	fail   func(paths []capri.PathCondition) ([]bool, error) // instead of answering; nil: answer
}

func (f *fake) There(_ context.Context, paths []capri.PathCondition) ([]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rounds++
	out := make([]bool, len(paths))
	for i, p := range paths {
		f.asked = append(f.asked, p.Path)
		out[i] = f.there[p.Path]
	}
	if f.fail != nil {
		return f.fail(paths)
	}
	return out, nil
}

func (w *world) turn(s services.Service, woken bool) services.Result {
	w.T.Helper()
	res, err := s.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads, Woken: woken})
	require.NoError(w.T, err)
	return res
}

func (w *world) changes() services.Result {
	return w.turn(dependency.Changes{Store: w.Store, Soon: w.soon}, false)
}

func (w *world) paths(woken bool) services.Result {
	return w.turn(dependency.Paths{Store: w.Store, Soon: w.soon, Files: w.files, Log: slog.New(slog.DiscardHandler)}, woken)
}

func (w *world) recount() services.Result {
	return w.turn(dependency.Recount{Store: w.Store, Log: slog.New(slog.DiscardHandler)}, false)
}

func (w *world) batch(task *capri.Task, no string, c capri.Conditions) *capri.NewBatch {
	w.T.Helper()
	b := w.NewBatch(task, func(b *capri.NewBatch) { b.BatchNo, b.Period, b.Conditions = capri.BatchNo(no), task.Period, c })
	w.Insert(b)
	return b
}

func (w *world) unmet(b *capri.NewBatch) int { return w.Get(b.ID).Unmet }

func (w *world) succeed(b *capri.NewBatch) {
	w.T.Helper()
	w.Finish("n1", store.Succeeded, w.Start("n1", b.ID)...)
}

func on(parent *capri.Task, no capri.BatchNo) capri.Conditions {
	return capri.Conditions{Parents: []capri.ParentCondition{{TaskID: parent.ID, BatchNo: no}}}
}

func reads(paths ...string) (c capri.Conditions) {
	for _, p := range paths {
		c.Inputs = append(c.Inputs, capri.PathCondition{Path: p, Flag: "_SUCCESS"})
	}
	return c
}

func TestAParentsSuccess_meets_its_children_at_once(t *testing.T) {
	each(t, func(w *world) {
		parent := w.Task(t, nil)
		p := w.batch(parent, "20261119", capri.Conditions{})
		child, other := w.batch(w.Task(t, nil), "20261119", on(parent, "20261119")), w.batch(w.Task(t, nil), "20261119", on(parent, "20261120"))
		w.changes()
		require.Empty(t, w.changes().Counts, "every change was looked at once")
		w.succeed(p)
		res := w.changes()
		require.Equal(t, 1, res.Counts["met"])
		require.Contains(t, res.Wake, wake.Dispatch)
		require.Zero(t, w.unmet(child))
		require.Equal(t, 1, w.unmet(other), "another interval of the same parent")
		require.Empty(t, w.changes().Counts)
	})
}

func TestAChildMadeAfterItsParentsSuccess_is_met_as_well(t *testing.T) {
	each(t, func(w *world) {
		parent := w.Task(t, nil)
		w.succeed(w.batch(parent, "20261119", capri.Conditions{}))
		w.changes()
		child := w.batch(w.Task(t, nil), "20261119", on(parent, "20261119"))
		require.Equal(t, 1, w.changes().Counts["met"])
		require.Zero(t, w.unmet(child))
	})
}

func TestADeathBetweenMeetingAndForgetting_looks_at_the_same_changes_again(t *testing.T) {
	each(t, func(w *world) {
		parent := w.Task(t, nil)
		p := w.batch(parent, "20261119", capri.Conditions{})
		child := w.batch(w.Task(t, nil), "20261119", on(parent, "20261119"))
		w.changes()
		w.succeed(p)
		before, err := w.Store.DependencyChanges(w.Ctx, 10)
		require.NoError(t, err)
		require.Len(t, before, 1)
		w.changes()
		// As if the last transaction had not come: the line is there again, and what it led to as well.
		_, err = w.Store.DB().ExecContext(w.Ctx, "INSERT INTO dependency_change (kind, task_id, batch_no) VALUES (1, ?, '20261119')", int64(parent.ID))
		require.NoError(t, err)
		res := w.changes()
		require.Zero(t, res.Counts["met"])
		require.Zero(t, w.unmet(child))
		// And a leader that lost its lease forgets nothing.
		_, err = w.Store.DB().ExecContext(w.Ctx, "INSERT INTO dependency_change (kind, task_id, batch_no) VALUES (1, ?, '20261119')", int64(parent.ID))
		require.NoError(t, err)
		stale := w.Leads
		w.Lease(t, "dependency")
		_, err = dependency.Changes{Store: w.Store, Soon: w.soon}.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: stale})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		left, err := w.Store.DependencyChanges(w.Ctx, 10)
		require.NoError(t, err)
		require.Len(t, left, 1)
	})
}

func TestEachDistinctPath_is_asked_once_a_round(t *testing.T) {
	each(t, func(w *world) {
		for _, task := range w.Tasks(t, 3, func(int, *capri.Spec) {}) {
			w.batch(task, "20261119", reads("/a", "/b"))
		}
		w.files.there["/a"] = true
		res := w.paths(false)
		slices.Sort(w.files.asked)
		require.Equal(t, []string{"/a", "/b"}, w.files.asked)
		require.Equal(t, 1, w.files.rounds)
		require.Equal(t, map[string]int{"paths": 2, "there": 1, "met": 3}, res.Counts)
		w.files.asked, w.files.there["/b"] = nil, true
		res = w.paths(false)
		require.Equal(t, []string{"/b"}, w.files.asked, "what is met is not asked for again")
		require.Equal(t, 3, res.Counts["met"])
		require.Equal(t, []string{wake.Dispatch}, res.Wake)
		require.Empty(t, w.paths(false).Counts, "nothing waits, nothing is asked")
		require.Equal(t, 2, w.files.rounds)
	})
}

func TestAPath_is_not_met_while_the_batch_that_produces_it_has_not_succeeded(t *testing.T) {
	each(t, func(w *world) {
		out := reads("/x")
		p := w.batch(w.Task(t, nil), "20261119", capri.Conditions{Outputs: out.Inputs})
		child := w.batch(w.Task(t, nil), "20261119", out)
		w.files.there["/x"] = true // an old flag, or one that was put there too early
		res := w.paths(false)
		require.Equal(t, 1, res.Counts["there"])
		require.Equal(t, 1, w.unmet(child))
		w.succeed(p)
		require.Contains(t, w.changes().Wake, dependency.TopicPaths, "it may be there now, and need not wait for the next round")
		require.Equal(t, 1, w.paths(true).Counts["met"])
		require.Zero(t, w.unmet(child))
	})
}

func TestAWokenRound_asks_only_for_what_has_just_become_likely(t *testing.T) {
	each(t, func(w *world) {
		w.batch(w.Task(t, nil), "20261118", reads("/old"))
		w.changes()
		w.paths(true)
		w.files.asked = nil
		w.batch(w.Task(t, nil), "20261119", reads("/new"))
		require.Contains(t, w.changes().Wake, dependency.TopicPaths)
		w.paths(true)
		require.Equal(t, []string{"/new"}, w.files.asked)
		w.paths(true)
		require.Equal(t, []string{"/new"}, w.files.asked, "once")
	})
}

func (w *world) alerts() []string {
	w.T.Helper()
	rows, err := w.Store.Alerts(w.Ctx, nil, 0, 100)
	require.NoError(w.T, err)
	var out []string
	for _, a := range rows {
		require.Equal(w.T, capri.Severe, a.Level)
		out = append(out, a.Kind)
	}
	return out
}

func TestFilesThatCannotBeAsked_are_tried_four_times_and_alerted_once_an_hour(t *testing.T) {
	for name, fail := range map[string]func([]capri.PathCondition) ([]bool, error){
		"with_no_answers": func([]capri.PathCondition) ([]bool, error) { return nil, errors.New("name node is away") },
		"with_answers": func(p []capri.PathCondition) ([]bool, error) {
			return make([]bool, len(p)), errors.New("name node is away")
		},
		"with_a_short_one": func(p []capri.PathCondition) ([]bool, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				b := w.batch(w.Task(t, nil), "20261119", reads("/a"))
				w.files.fail = fail
				w.paths(false)
				require.Equal(t, 4, w.files.rounds)
				require.Equal(t, []string{"/a", "/a", "/a", "/a"}, w.files.asked)
				w.Clock.Advance(10 * time.Minute)
				w.paths(false)
				require.Equal(t, []string{"paths_unchecked"}, w.alerts())
				w.Clock.Advance(time.Hour)
				w.paths(false)
				require.Len(t, w.alerts(), 2)
				w.files.fail, w.files.there["/a"] = nil, true
				w.paths(false)
				require.Zero(t, w.unmet(b))
				require.Len(t, w.alerts(), 2)
			})
		})
	}
}

func TestWhatCouldBeSeen_counts_and_is_not_asked_again(t *testing.T) {
	each(t, func(w *world) {
		b := w.batch(w.Task(t, nil), "20261119", reads("/here", "/absent", "/hidden"))
		w.files.fail = func(paths []capri.PathCondition) ([]bool, error) {
			out, unseen := make([]bool, len(paths)), &files.UnseenError{Paths: map[capri.PathCondition]error{}}
			for i, p := range paths {
				out[i] = p.Path == "/here"
				if p.Path == "/hidden" {
					unseen.Paths[p] = errors.New("its data node is away")
				}
			}
			return out, unseen
		}
		w.paths(false)
		slices.Sort(w.files.asked)
		require.Equal(t, []string{"/absent", "/here", "/hidden", "/hidden", "/hidden", "/hidden"}, w.files.asked)
		require.Equal(t, 2, w.unmet(b))
		require.Len(t, w.alerts(), 1)
	})
}

func TestAFileSystemThatIsSlow_holds_up_the_batches_of_no_other(t *testing.T) {
	each(t, func(w *world) {
		here, far := w.batch(w.Task(t, nil), "20261119", reads("/a")), w.batch(w.Task(t, nil), "20261119", reads("hdfs://nn/a"))
		slow := &slowFiles{answer: make(chan struct{})}
		done := make(chan services.Result)
		go func() {
			done <- w.turn(dependency.Paths{Store: w.Store, Soon: w.soon, Files: slow, Log: slog.New(slog.DiscardHandler)}, false)
		}()
		require.Eventually(t, func() bool { return w.unmet(here) == 0 }, 20*time.Second, 5*time.Millisecond)
		require.Equal(t, 1, w.unmet(far))
		close(slow.answer)
		require.Equal(t, 2, (<-done).Counts["met"])
		require.Zero(t, w.unmet(far))
	})
}

// slowFiles has everything, and answers for hdfs:// only when it is told to.
type slowFiles struct{ answer chan struct{} }

func (f *slowFiles) There(_ context.Context, paths []capri.PathCondition) ([]bool, error) {
	out := make([]bool, len(paths))
	for i, p := range paths {
		if strings.HasPrefix(p.Path, "hdfs:") {
			<-f.answer
		}
		out[i] = true
	}
	return out, nil
}

func TestTheRecount_repairs_heals_and_is_silent_in_ordinary_life(t *testing.T) {
	each(t, func(w *world) {
		parent := w.Task(t, nil)
		p := w.batch(parent, "20261119", capri.Conditions{})
		child := w.batch(w.Task(t, nil), "20261119", on(parent, "20261119"))
		wrong := w.batch(w.Task(t, nil), "20261119", reads("/never"))
		w.changes()
		require.Empty(t, w.recount().Counts)
		w.succeed(p)
		for _, text := range []string{"DELETE FROM dependency_change", "UPDATE task_work SET unmet = 0 WHERE id IN (SELECT batch_id FROM task_data)"} {
			_, err := w.Store.DB().ExecContext(w.Ctx, text)
			require.NoError(t, err)
		}
		res := w.recount()
		require.Equal(t, map[string]int{"repaired": 1, "healed": 1}, res.Counts)
		require.Equal(t, []string{wake.Dispatch}, res.Wake)
		require.Zero(t, w.unmet(child))
		require.Equal(t, 1, w.unmet(wrong))
		require.Equal(t, []string{"unmet_repaired"}, w.alerts(), "a lost change is healed, a wrong count is a fault")
		require.Empty(t, w.recount().Counts)
	})
}
