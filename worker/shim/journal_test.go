package shim

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func newJournal(t *testing.T) (*journal, string) {
	t.Helper()
	dir := t.TempDir()
	j, err := createJournal(dir, Life{Version: Version, Pid: 7, BootID: "boot"})
	require.NoError(t, err)
	t.Cleanup(func() { j.f.Close() })
	return j, filepath.Join(dir, journalName)
}

func Test_a_journal_tells_who_runs_who_ended_and_who_is_settled(t *testing.T) {
	j, _ := newJournal(t)
	require.NoError(t, j.append(
		record{Take: []string{"1.1", "2.1", "3.1", "4.1"}},
		record{Start: &Running{Attempt: "1.1", Pid: 11, StartTicks: 100, Started: 1}}, record{Start: &Running{Attempt: "2.1", Pid: 12, StartTicks: 101, Started: 2}}, record{Start: &Running{Attempt: "3.1", Pid: 13, StartTicks: 102, Started: 3}},
		record{Exits: []Exit{{Attempt: "2.1", Code: 1}, {Attempt: "1.1", Signal: 9}}},
		record{Ack: []string{"2.1"}},
	))
	r, err := ReadJournal(j.dir)
	require.NoError(t, err)
	require.Equal(t, &Remains{
		Life:    Life{Version: Version, Pid: 7, BootID: "boot"},
		Running: []Running{{Attempt: "3.1", Pid: 13, StartTicks: 102, Started: 3}, {Attempt: "4.1"}},
		Exits:   []Exit{{Attempt: "1.1", Signal: 9}},
	}, r)
}

func Test_a_journal_cut_anywhere_tells_the_truth_up_to_the_cut(t *testing.T) {
	j, path := newJournal(t)
	for i := range 5 {
		require.NoError(t, j.append(record{Take: []string{fmt.Sprintf("%d.1", i)}}))
		require.NoError(t, j.append(record{Exits: []Exit{{Attempt: fmt.Sprintf("%d.1", i), Code: i}}}))
	}
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := range len(whole) + 1 {
		require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))
		r, err := ReadJournal(j.dir)
		require.NoError(t, err)
		complete := bytes.Count(whole[:cut], []byte("\n"))
		if cut < len(whole) && whole[cut] == '\n' {
			complete++ // the line lacks nothing but its end
		}
		require.Len(t, r.Exits, max(0, complete-1)/2, "cut at %d", cut)
		for i, e := range r.Exits {
			require.Equal(t, Exit{Attempt: fmt.Sprintf("%d.1", i), Code: i}, e)
		}
		torn := cut > 0 && whole[cut-1] != '\n' && (cut == len(whole) || whole[cut] != '\n')
		require.Equal(t, torn, r.Skipped == 1, "cut at %d", cut)
	}
}

func Test_a_line_that_the_disk_spoiled_costs_only_itself(t *testing.T) {
	j, path := newJournal(t)
	for i := range 3 {
		require.NoError(t, j.append(record{Exits: []Exit{{Attempt: fmt.Sprintf("%d.1", i), Code: 1000 + i}}}))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("1001"), []byte("1007"), 1), 0o600))
	r, err := ReadJournal(j.dir)
	require.NoError(t, err)
	require.Equal(t, 1, r.Skipped)
	require.Equal(t, []Exit{{Attempt: "0.1", Code: 1000}, {Attempt: "2.1", Code: 1002}}, r.Exits)
}

func Test_a_rewritten_journal_is_small_and_says_the_same(t *testing.T) {
	s, err := newShim(t.TempDir(), Life{Version: Version, Pid: 7})
	require.NoError(t, err)
	defer func() { s.journal.f.Close() }()
	const n = 1000
	var jobs []Job
	for i := range n {
		jobs = append(jobs, Job{Attempt: fmt.Sprintf("%d.1", i)})
	}
	s.take(jobs)
	for i := range n - 1 { // the last one runs on
		s.settle([]Exit{{Attempt: jobs[i].Attempt, Code: i}})
	}
	var acks []string
	for i := range n - 2 {
		acks = append(acks, jobs[i].Attempt)
	}
	before, err := ReadJournal(s.journal.dir)
	require.NoError(t, err)
	require.Len(t, before.Exits, n-1)
	s.acknowledge(acks)
	require.Greater(t, s.journal.size, int64(compactAt))
	s.compact()
	require.Less(t, s.journal.size, int64(1000))
	after, err := ReadJournal(s.journal.dir)
	require.NoError(t, err)
	require.Equal(t, before.Running, after.Running)
	require.Equal(t, before.Exits[n-2:], after.Exits)
	require.Equal(t, before.Life, after.Life)
}

func Test_a_journal_that_cannot_be_written_holds_no_exit_back_and_heals(t *testing.T) {
	s, err := newShim(t.TempDir(), Life{Version: Version, Pid: 7})
	require.NoError(t, err)
	s.take([]Job{{Attempt: "1.1"}, {Attempt: "2.1"}})
	s.journal.f.Close() // every write fails now
	s.settle([]Exit{{Attempt: "1.1", Code: 1}})
	require.Contains(t, s.unacked, "1.1", "it is reported")
	s.compact()
	defer func() { s.journal.f.Close() }()
	r, err := ReadJournal(s.journal.dir)
	require.NoError(t, err)
	require.Equal(t, []Exit{{Attempt: "1.1", Code: 1}}, r.Exits)
	require.Equal(t, []Running{{Attempt: "2.1"}}, r.Running)
}
