package attempts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/files"
	"capri/internal/servicetest"
	"capri/services"
	"capri/services/attempts"
	"capri/sql/store"
	"capri/wake"
)

// world has the services with a monotonic clock of their own, which the test moves together with the database's.
type world struct {
	*servicetest.World
	mono   time.Time
	lost   *attempts.LostNodes
	zombie *attempts.Zombie
	files  *fake
	beats  map[string]string // of nodes that live: their boot
}

func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	servicetest.Each(t, "attempts", func(in *servicetest.World) {
		w := &world{World: in, mono: time.Unix(0, 0), beats: map[string]string{}, files: &fake{there: map[string]bool{}}}
		w.restart()
		fn(w)
	})
}

// restart is what a new process begins with.
func (w *world) restart() {
	log := slog.New(slog.DiscardHandler)
	w.lost = attempts.NewLostNodes(w.Store, 180*time.Second, func() time.Time { return w.mono }, log)
	w.zombie = attempts.NewZombie(w.Store, w.files, log)
}

// fake is a file system.
type fake struct {
	there map[string]bool
	asked int
	err   func([]capri.PathCondition) error
}

func (f *fake) There(_ context.Context, paths []capri.PathCondition) ([]bool, error) {
	f.asked++
	out := make([]bool, len(paths))
	for i, p := range paths {
		out[i] = f.there[p.Path]
	}
	if f.err != nil {
		return out, f.err(paths)
	}
	return out, nil
}

// node registers a node that beats from now on.
func (w *world) node(name, boot string, change func(*capri.Node)) {
	w.T.Helper()
	w.Node(name, func(n *capri.Node) { n.BootID = boot }, change)
	w.beats[name] = boot
}

func (w *world) silence(name string) { delete(w.beats, name) }

// batches are of a task of their own.
func (w *world) batches(n int) []capri.BatchID { return w.Batches(w.Task(w.T, nil), n) }

func (w *world) isLost(name string) bool {
	w.T.Helper()
	nodes, err := w.Store.Nodes(w.Ctx)
	require.NoError(w.T, err)
	for _, n := range nodes {
		if n.Name == name {
			require.Equal(w.T, n.Lost, n.LostAt != 0)
			return n.Lost
		}
	}
	w.T.Fatalf("there is no node %s", name)
	return false
}

// look is one turn of lost-nodes.
func (w *world) look() services.Result {
	w.T.Helper()
	return w.Turn(w.lost)
}

// pass lets time go by: all that live beat, and the service looks, each 5 seconds. It returns what the turns counted.
func (w *world) pass(d time.Duration) map[string]int {
	w.T.Helper()
	sum := map[string]int{}
	for ; d > 0; d -= 5 * time.Second {
		w.move(5 * time.Second)
		for k, n := range w.look().Counts {
			sum[k] += n
		}
	}
	return sum
}

func (w *world) move(d time.Duration) {
	w.T.Helper()
	w.mono = w.mono.Add(d)
	w.Clock.Advance(d)
	for name, boot := range w.beats {
		ok, err := w.Store.Beat(w.Ctx, capri.Node{Name: name, BootID: boot})
		require.NoError(w.T, err)
		require.True(w.T, ok, "%s beats", name)
	}
}

func TestALostNode_is_declared_once_and_its_batches_run_elsewhere(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		w.node("n2", "b2", nil)
		ids := w.batches(4)
		w.Start("n1", ids[0])
		w.Claim("n1", ids[1])
		w.Assign("n1", ids[2])
		w.Start("n2", ids[3])
		w.look()
		w.silence("n1")
		require.Empty(t, w.pass(175*time.Second))
		require.False(t, w.isLost("n1"))
		require.Equal(t, map[string]int{"lost": 1, "batches": 3}, w.pass(10*time.Second))
		require.True(t, w.isLost("n1"))
		require.False(t, w.isLost("n2"))
		for i, losses := range []int{1, 1, 0} {
			b := w.Get(ids[i])
			require.Equal(t, []any{capri.Waiting, "", losses}, []any{b.State, b.Node, b.Losses}, "batch %d", i)
			require.Contains(t, b.Message, "node n1 is lost")
		}
		require.Equal(t, "n1", w.Get(ids[2]).AvoidNode)
		require.Equal(t, capri.Running, w.Get(ids[3]).State, "the other node's job runs on")
		require.Empty(t, w.pass(time.Minute))
		a := w.Alerts("node_lost")
		require.Len(t, a, 1)
		require.Equal(t, capri.Important, a[0].Level)
		for _, id := range ids[:3] {
			require.Contains(t, a[0].Text, fmt.Sprintf("(batch %d)", id))
		}
		w.Assign("n2", ids[:2]...)
		w.Assign("n1", ids[2])
		_, err := w.Store.Claim(w.Ctx, "n1", "b1", 10)
		require.ErrorIs(t, err, capri.ErrForbidden)
		ok, err := w.Store.Beat(w.Ctx, capri.Node{Name: "n1", BootID: "b1"})
		require.NoError(t, err)
		require.False(t, ok, "it has to register anew")
	})
}

func TestALoss_wakes_dispatch(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		w.Start("n1", w.batches(1)...)
		w.look()
		w.silence("n1")
		var res services.Result
		for range 36 {
			w.move(5 * time.Second)
			res = w.look()
		}
		require.Equal(t, 1, res.Counts["lost"])
		require.Equal(t, []string{wake.Dispatch}, res.Wake)
	})
}

func TestALoss_counts_to_its_own_limit_and_a_kill_outlives_nothing(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		ids := w.batches(2)
		_, err := w.Store.DB().ExecContext(w.Ctx, "UPDATE task_work SET losses = 3 WHERE id = ?", int64(ids[0]))
		require.NoError(t, err)
		w.Start("n1", ids...)
		require.NoError(t, w.Store.Write(w.Ctx, "kill", "alice", func(tx *store.Tx) error {
			_, asked, err := tx.RequestKill(ids[1:], "not needed")
			require.Equal(t, ids[1:], asked)
			return err
		}))
		w.look()
		w.silence("n1")
		w.pass(185 * time.Second)
		require.Equal(t, capri.Failed, w.Get(ids[0]).FinishState)
		require.Equal(t, capri.Killed, w.Get(ids[1]).FinishState)
		require.Len(t, w.Alerts("batch_failed"), 1)
		require.Contains(t, w.Alerts("node_lost")[0].Text, "2 ended")
	})
}

func TestTheCount_begins_anew(t *testing.T) {
	for sentence, tt := range map[string]struct {
		change func(w *world)
		wait   time.Duration // after it the node is not lost; 10 s later it is
	}{
		"when_the_node_moves": {func(w *world) {
			ok, err := w.Store.Beat(w.Ctx, capri.Node{Name: "n1", BootID: "b1"})
			require.True(w.T, ok)
			require.NoError(w.T, err)
		}, 180 * time.Second},
		"with_a_new_life_of_the_node":           {func(w *world) { w.node("n1", "b2", nil); w.silence("n1") }, 180 * time.Second},
		"with_a_new_leader":                     {func(w *world) { w.Lead() }, 180 * time.Second},
		"with_a_new_process":                    {func(w *world) { w.restart() }, 180 * time.Second},
		"after_a_gap_in_which_nobody_could_see": {func(w *world) { w.move(21 * time.Second) }, 180 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			each(t, func(w *world) {
				w.node("n1", "b1", nil)
				w.look()
				w.silence("n1")
				require.Empty(t, w.pass(170*time.Second))
				tt.change(w)
				require.Empty(t, w.pass(tt.wait))
				require.Equal(t, 1, w.pass(10 * time.Second)["lost"])
			})
		})
	}
}

func TestALook_that_fails_is_no_look(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		w.look()
		w.silence("n1")
		w.pass(170 * time.Second)
		gone, cancel := context.WithCancel(w.Ctx)
		cancel()
		for range 5 { // the database does not answer
			w.move(5 * time.Second)
			_, err := w.lost.Run(gone, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
			require.Error(t, err)
		}
		require.Empty(t, w.pass(175*time.Second), "while nobody could read, nobody could beat")
		require.False(t, w.isLost("n1"))
	})
}

func TestANode_that_ends_its_jobs_late_is_called_lost_later(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", func(n *capri.Node) { n.KillAfter, n.KillGrace = 300*time.Second, 30*time.Second })
		w.look()
		w.silence("n1")
		require.Empty(t, w.pass(340*time.Second))
		require.Equal(t, 1, w.pass(10 * time.Second)["lost"])
	})
}

func TestAnAnswer_that_comes_with_the_judgement_saves_the_node(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		ids := w.batches(1)
		w.Start("n1", ids...)
		nodes, err := w.Store.Nodes(w.Ctx)
		require.NoError(t, err)
		w.move(5 * time.Second) // it beats after it was read
		done, err := w.Store.LoseNode(w.Ctx, w.Leads, store.SilentNode{Name: "n1", BootID: "b1", Beat: nodes[0].Beat})
		require.NoError(t, err)
		require.Equal(t, store.LostNode{}, done)
		require.False(t, w.isLost("n1"))
		require.Equal(t, capri.Running, w.Get(ids[0]).State)
	})
}

func TestAStaleLeader_calls_nobody_lost(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		w.look()
		w.silence("n1")
		w.pass(175 * time.Second)
		w.Lease(t, "attempts")
		w.move(10 * time.Second)
		_, err := w.lost.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.False(t, w.isLost("n1"))
		require.Empty(t, w.Alerts("node_lost"))
	})
}

func TestANode_that_does_not_end_its_jobs_is_told_of_once_and_left_alone(t *testing.T) {
	for sentence, change := range map[string]func(*capri.Node){
		"on_lease_lost_wait": func(n *capri.Node) { n.LeaseWait = true },
		"never_kills":        func(n *capri.Node) { n.KillAfter = 0 },
	} {
		t.Run(sentence, func(t *testing.T) {
			each(t, func(w *world) {
				w.node("n1", "b1", change)
				ids := w.batches(1)
				w.Start("n1", ids...)
				w.look()
				w.silence("n1")
				require.Equal(t, map[string]int{"silent": 1}, w.pass(20*time.Minute))
				w.restart()
				w.pass(5 * time.Minute)
				require.Len(t, w.Alerts("node_silent"), 1, "once for this silence, whoever leads")
				require.Equal(t, capri.Important, w.Alerts("node_silent")[0].Level)
				require.False(t, w.isLost("n1"))
				require.Equal(t, capri.Running, w.Get(ids[0]).State)

				w.beats["n1"] = "b1"
				w.pass(10 * time.Second)
				w.silence("n1")
				require.Equal(t, 1, w.pass(4 * time.Minute)["silent"], "another silence")
				require.Len(t, w.Alerts("node_silent"), 2)

				// A person who knows that its jobs have ended removes it.
				require.NoError(t, w.Store.Write(w.Ctx, "remove", "alice", func(tx *store.Tx) error { return tx.RemoveNode("n1") }))
				require.Empty(t, w.pass(180*time.Second))
				require.Equal(t, map[string]int{"lost": 1, "batches": 1}, w.pass(10*time.Second))
				require.Equal(t, capri.Waiting, w.Get(ids[0]).State)
				require.Contains(t, w.Alerts("node_lost")[0].Text, "not registered any more")
				require.Empty(t, w.pass(time.Minute))
			})
		})
	}
}

func TestANode_that_was_drained_or_stopped_in_order_wakes_nobody_up(t *testing.T) {
	each(t, func(w *world) {
		w.node("drained", "b1", nil)
		w.node("waits", "b2", func(n *capri.Node) { n.LeaseWait = true })
		require.NoError(t, w.Store.Write(w.Ctx, "drain", "alice", func(tx *store.Tx) error {
			return errors.Join(tx.DrainNode("drained", true), tx.DrainNode("waits", true))
		}))
		w.node("left", "b3", func(n *capri.Node) { n.KillAfter = 0 })
		left, err := w.Store.LeaveNode(w.Ctx, "left", "b3")
		require.NoError(t, err)
		require.True(t, left)
		clear(w.beats)
		w.look()
		w.pass(5 * time.Minute)
		require.True(t, w.isLost("drained"))
		require.True(t, w.isLost("left"), "no job can run there, whatever it does when it is silent")
		require.False(t, w.isLost("waits"))
		a := w.Alerts("node_lost")
		require.Len(t, a, 2)
		require.Equal(t, []capri.Level{capri.Attention, capri.Attention}, []capri.Level{a[0].Level, a[1].Level})
		require.Empty(t, w.Alerts("node_silent"))
	})
}

func TestANode_that_comes_and_goes_is_one_alert_an_hour(t *testing.T) {
	each(t, func(w *world) {
		lose := func(life int) {
			w.node("n1", fmt.Sprint("b", life), nil)
			w.pass(5 * time.Second)
			w.silence("n1")
			require.Equal(t, 1, w.pass(190 * time.Second)["lost"])
		}
		for life := range 4 {
			lose(life)
		}
		require.Len(t, w.Alerts("node_lost"), 1)
		w.pass(time.Hour)
		lose(5)
		a := w.Alerts("node_lost")
		require.Len(t, a, 2)
		require.Contains(t, a[0].Text, "called lost 3 times more")
		w.pass(time.Hour)
		lose(6)
		require.NotContains(t, w.Alerts("node_lost")[0].Text, "times more")
	})
}

func TestAnAlert_names_twenty_batches_and_counts_the_rest(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		w.Assign("n1", w.batches(23)...)
		w.look()
		w.silence("n1")
		w.pass(190 * time.Second)
		a := w.Alerts("node_lost")
		require.Len(t, a, 1)
		require.Equal(t, 20, strings.Count(a[0].Text, "(batch "))
		require.Contains(t, a[0].Text, " and 3 more")
	})
}

func TestWhatIsPlacedOnALostNode_is_taken_at_the_next_look(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		w.look()
		w.silence("n1")
		w.pass(190 * time.Second)
		require.True(t, w.isLost("n1"))
		ids := w.batches(1)
		w.Assign("n1", ids...) // the placer had read the node before
		require.Equal(t, 1, w.pass(5 * time.Second)["batches"])
		require.Equal(t, capri.Waiting, w.Get(ids[0]).State)
		require.Len(t, w.Alerts("node_lost"), 1)
		require.Empty(t, w.pass(time.Minute))
	})
}

// ---- zombie

func (w *world) report(node, boot string, held ...capri.Attempt) {
	w.T.Helper()
	w.Clock.Advance(time.Second)
	require.NoError(w.T, w.Store.ReportInventory(w.Ctx, node, boot, held))
}

func (w *world) hunt() services.Result {
	w.T.Helper()
	return w.Turn(w.zombie)
}

// gone makes an attempt that was missing in one report, and hands in the second.
func (w *world) gone(change func(*capri.Spec), also ...func(*capri.NewBatch)) capri.BatchID {
	w.T.Helper()
	w.node("n1", "b1", nil)
	id := w.Batches(w.Task(w.T, change), 1, also...)[0]
	w.Start("n1", id)
	w.Clock.Advance(11 * time.Minute)
	w.report("n1", "b1")
	require.NotZero(w.T, w.hunt().Next, "it looks again soon")
	require.Equal(w.T, capri.Running, w.Get(id).State, "once is not enough")
	w.report("n1", "b1")
	return id
}

func byOutput(s *capri.Spec) { s.Check = capri.CheckOutputPath }

func writes(paths ...string) func(*capri.NewBatch) {
	return func(b *capri.NewBatch) {
		for _, p := range paths {
			b.Outputs = append(b.Outputs, capri.PathCondition{Path: p, Flag: "_SUCCESS"})
		}
	}
}

func TestAZombie_is_judged_by_its_snapshot(t *testing.T) {
	for sentence, tt := range map[string]struct {
		change  func(*capri.Spec)
		also    func(*capri.NewBatch)
		there   []string
		state   capri.State
		finish  capri.FinishState
		message string
	}{
		"exit_code_is_failed":              {nil, nil, nil, capri.Finished, capri.Failed, "nobody knows how it ended"},
		"user_code_is_failed":              {func(s *capri.Spec) { s.Check = capri.CheckUserCode }, writes("/a"), []string{"/a"}, capri.Finished, capri.Failed, "nobody knows"},
		"exit_code_with_retries_waits":     {func(s *capri.Spec) { s.Retry.Failed = 1 }, nil, nil, capri.Waiting, capri.None, "nobody knows"},
		"output_that_is_there_is_success":  {byOutput, writes("/a", "/b"), []string{"/a", "/b"}, capri.Finished, capri.Success, ""},
		"an_output_that_is_not_is_failed":  {byOutput, writes("/a", "/b"), []string{"/a"}, capri.Finished, capri.Failed, "/b/_SUCCESS is not there"},
		"no_output_at_all_is_failed":       {byOutput, nil, nil, capri.Finished, capri.Failed, "names none"},
		"the_output_of_the_run_before_too": {byOutput, func(b *capri.NewBatch) { writes("/a")(b); b.RunNo = 1 }, []string{"/a"}, capri.Finished, capri.Failed, "the run before"},
	} {
		t.Run(sentence, func(t *testing.T) {
			each(t, func(w *world) {
				id := w.gone(tt.change, tt.also)
				for _, p := range tt.there {
					w.files.there[p] = true
				}
				res := w.hunt()
				require.Equal(t, map[string]int{"zombies": 1}, res.Counts)
				require.Contains(t, res.Wake, wake.Dispatch)
				b := w.Get(id)
				require.Equal(t, []any{tt.state, tt.finish}, []any{b.State, b.FinishState}, b.Message)
				require.Contains(t, b.Message, tt.message)
				a := w.Alerts("zombie")
				require.Len(t, a, 1)
				require.Equal(t, []any{b.TaskID, id}, []any{a[0].Task, a[0].Batch})
				require.Empty(t, w.hunt().Counts)
				if tt.finish == capri.Success {
					changes, err := w.Store.DependencyChanges(w.Ctx, 10)
					require.NoError(t, err)
					require.Equal(t, b.BatchNo, changes[len(changes)-1].BatchNo, "its children are looked at")
				}
			})
		})
	}
}

func TestAnAttempt_is_no_zombie(t *testing.T) {
	for sentence, between := range map[string]func(w *world, a capri.Attempt){
		"while_its_node_lists_it":         func(w *world, a capri.Attempt) { w.report("n1", "b1", a) },
		"while_there_is_no_second_report": func(*world, capri.Attempt) {},
		"by_a_report_of_another_life":     func(w *world, _ capri.Attempt) { w.report("n1", "b0") },
		"when_its_node_began_anew":        func(w *world, _ capri.Attempt) { w.report("n1", "b1"); w.node("n1", "b2", nil) },
		"when_its_end_was_reported": func(w *world, a capri.Attempt) {
			_, err := w.Store.FinishAttempts(w.Ctx, "n1", []store.Result{{Attempt: a, Outcome: store.Succeeded}})
			require.NoError(w.T, err)
		},
		"after_a_change_of_the_leader": func(w *world, _ capri.Attempt) { w.report("n1", "b1"); w.Lead() },
	} {
		t.Run(sentence, func(t *testing.T) {
			each(t, func(w *world) {
				w.node("n1", "b1", nil)
				a := w.Start("n1", w.batches(1)...)[0]
				w.Clock.Advance(11 * time.Minute)
				w.report("n1", "b1")
				w.hunt()
				between(w, a)
				require.Empty(t, w.hunt().Counts)
				require.Empty(t, w.Alerts("zombie"))
				require.NotEqual(t, capri.Failed, w.Get(a.Batch).FinishState)
			})
		})
	}
}

func TestAReport_says_nothing_of_what_started_after_it_or_just_now(t *testing.T) {
	each(t, func(w *world) {
		w.node("n1", "b1", nil)
		w.report("n1", "b1")
		a := w.Start("n1", w.batches(1)...)[0]
		w.Clock.Advance(11 * time.Minute)
		require.Zero(t, w.hunt().Next, "that report is older than the attempt")
		young := w.Start("n1", w.batches(1)...)[0]
		w.report("n1", "b1", a)
		w.hunt()
		w.report("n1", "b1", a)
		require.Empty(t, w.hunt().Counts)
		require.Equal(t, capri.Running, w.Get(young.Batch).State)
	})
}

func TestAZombie_whose_output_cannot_be_looked_at_is_left_for_the_next_hour(t *testing.T) {
	for sentence, fail := range map[string]func([]capri.PathCondition) error{
		"none_could_be_asked": func([]capri.PathCondition) error { return errors.New("name node is away") },
		"this_one_could_not": func(p []capri.PathCondition) error {
			return &files.UnseenError{Paths: map[capri.PathCondition]error{p[0]: errors.New("no answer")}}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			each(t, func(w *world) {
				id := w.gone(byOutput, writes("/a"))
				w.files.err = fail
				require.Equal(t, map[string]int{"unasked": 1}, w.hunt().Counts)
				require.Equal(t, capri.Running, w.Get(id).State)
				w.files.err, w.files.there["/a"] = nil, true
				w.hunt()
				w.report("n1", "b1")
				require.Equal(t, 1, w.hunt().Counts["zombies"])
				require.Equal(t, capri.Success, w.Get(id).FinishState)
			})
		})
	}
}

func TestAStaleLeader_ends_no_zombie(t *testing.T) {
	each(t, func(w *world) {
		id := w.gone(nil)
		w.Lease(t, "attempts")
		_, err := w.zombie.Run(w.Ctx, services.Turn{Now: w.Clock.Now(), Lease: w.Leads})
		require.ErrorIs(t, err, capri.ErrStaleEpoch)
		require.Equal(t, capri.Running, w.Get(id).State)
	})
}
