package workload

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/definition"
	"capri/internal/testenv"
	"capri/sql/sqltest"
)

func TestIn_gives_the_figures_that_were_recorded(t *testing.T) {
	dir := testenv.Workloads(t)
	for _, tt := range []struct {
		name                                string
		batches, edges, conditions, outside int // design and README say them, too
	}{
		{"montage-dss10", 472, 1284, 0, 0},
		{"genome-2ch", 82, 106, 0, 0},
		{"wikimedia-refinery", 484, 1336, 303, 26},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := Load(dir, tt.name)
			require.NoError(t, err)
			win, err := w.In(Options{Root: "/r"})
			require.NoError(t, err)
			f := win.Figures()
			assert.Equal(t, []int{tt.batches, tt.edges, tt.conditions, tt.outside}, []int{f.Nodes, f.Edges, win.OutsideConditions, len(win.Outside)})
			assert.NoError(t, win.Check(&w.Stats))
			t.Logf("%s on %s: %+v, %v, %d conditions on %d batches outside, %d external inputs", tt.name, w.Day.Format(time.DateOnly), f, win.ByPeriod(), win.OutsideConditions, len(win.Outside), len(win.External))
		})
	}
}

func TestSpecs_are_valid_definitions_and_survive_their_own_export(t *testing.T) {
	dir := testenv.Workloads(t)
	for _, name := range []string{"montage-dss10", "genome-2ch", "wikimedia-refinery"} {
		w, err := Load(dir, name)
		require.NoError(t, err)
		specs := w.Specs(Options{Scale: 100, Root: "/r", Journal: "/r/journal"})
		file, err := definition.Export(specs)
		require.NoError(t, err)
		items, _, err := definition.Check([]definition.Source{{Name: name + ".yaml", Data: file}}, definition.Known{Calendar: calendar.New(time.UTC)})
		require.NoError(t, err)
		require.Len(t, items, len(specs))
		byName := map[string]*capri.Spec{}
		longest := 0
		for i := range items {
			byName[items[i].Name] = &items[i].Spec
			longest = max(longest, len(items[i].Name))
		}
		for i := range specs {
			if d := definition.Diff(&specs[i], byName[specs[i].Name]); len(d) > 0 {
				t.Fatalf("%s: %s comes back with %v", name, specs[i].Name, d)
			}
		}
		t.Logf("%s: %d tasks, the longest name has %d characters, the file %d bytes", name, len(specs), longest, len(file))
	}
}

func TestPrepare_and_MakeInputs_leave_nothing_from_outside_unmet(t *testing.T) {
	w, err := Load(testenv.Workloads(t), "wikimedia-refinery")
	require.NoError(t, err)
	o := Options{Root: t.TempDir()}
	win, err := w.In(o)
	require.NoError(t, err)
	require.NoError(t, win.MakeInputs())
	for _, p := range win.External {
		_, err := os.Stat(filepath.Join(p.Path, p.Flag))
		require.NoError(t, err)
	}

	db := sqltest.SQLite(t)
	specs := w.Specs(o)
	db.Tasks(t, len(specs), func(i int, s *capri.Spec) { *s = specs[i] })
	n, err := win.Prepare(context.Background(), db.Store)
	require.NoError(t, err)
	assert.Equal(t, 26, n)
	again, err := win.Prepare(context.Background(), db.Store)
	require.NoError(t, err)
	assert.Zero(t, again)
}

func TestCommand_quotes_paths_and_says_when_it_begins_and_ends(t *testing.T) {
	got := command(&Task{RuntimeS: 12.5, Outputs: []Path{{Path: "/a/month=${M}", Flag: "_OK"}, {Path: "/a/b", Flag: capri.FlagNone}, {Path: "/a/c"}}},
		Options{Scale: 10, Root: "/r", Journal: "/j"})
	want := "set -e\necho \"begin $CAPRI_ATTEMPT\" >>'/j'\nsleep 1.250\nmkdir -p '/r/a/month=${M}' '/r/a' '/r/a/c'\n" +
		"touch '/r/a/month=${M}/_OK' '/r/a/b' '/r/a/c/_SUCCESS'\necho \"end $CAPRI_ATTEMPT\" >>'/j'\n"
	assert.Equal(t, want, got)
}

func TestJournal(t *testing.T) {
	parents := func(b capri.BatchID) []capri.BatchID {
		if b == 2 {
			return []capri.BatchID{1}
		}
		return nil
	}
	for _, tt := range []struct{ name, lines, wrong string }{
		{"is right in order", "begin 1.1;end 1.1;begin 2.1;end 2.1", ""},
		{"is right where a killed attempt is followed by another", "begin 1.1;begin 1.2;end 1.2", ""},
		{"shows a child that begins too early", "begin 1.1;begin 2.1;end 1.1", "before its parent"},
		{"shows an attempt that begins twice", "begin 1.1;begin 1.1", "while attempt 1 runs"},
		{"shows an old attempt that begins after the new one", "begin 1.2;begin 1.1", "while attempt 2 runs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal")
			require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(tt.lines, ";", "\n")+"\n"), 0o600))
			j, err := ReadJournal(path)
			require.NoError(t, err)
			if err := j.Check(parents); tt.wrong == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.wrong)
			}
		})
	}
}

func TestDay_is_over(t *testing.T) {
	assert.Equal(t, "2026-06-10", day(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)).Format(time.DateOnly))
	assert.Equal(t, "2025-06-11", day(time.Date(2026, 6, 11, 12, 0, 0, 0, time.UTC)).Format(time.DateOnly))
}
