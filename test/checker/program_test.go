package checker

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheProgram_tells_by_its_exit_code_what_became_of_a_run(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	bin, run, nemesis := filepath.Join(dir, "capri-check"), filepath.Join(dir, "run.json"), filepath.Join(dir, "nemesis.jsonl")
	out, err := exec.Command("go", "build", "-o", bin, "./cmd/capri-check").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, w.run.Write(run))
	log, err := os.Create(filepath.Join(dir, "witness.log"))
	require.NoError(t, err)
	for _, l := range w.lines {
		_, err := log.WriteString(l.String() + "\n")
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	require.NoError(t, os.WriteFile(nemesis, []byte(`{"at_ms":1,"fault":"kill","target":"m1"}`+"\n"), 0o600))
	var file string
	require.NoError(t, w.db.QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file))

	check := func(code int, more ...string) []byte {
		t.Helper()
		c := exec.Command(bin, append([]string{"-run", run, "-witness", dir, "-nemesis", nemesis}, more...)...)
		out, err := c.Output()
		if code != 0 {
			require.Error(t, err)
		}
		require.Equal(t, code, c.ProcessState.ExitCode(), string(out))
		return out
	}
	require.Contains(t, string(check(0, file)), "no violation")
	var rep Report
	require.NoError(t, json.Unmarshal(check(0, "-json", file), &rep))
	require.Equal(t, 1, rep.Faults)
	require.Len(t, rep.Invariants, len(invariants))

	w.exec("UPDATE task_work SET finish_state = 2 WHERE id = 43")
	require.Contains(t, string(check(1, file)), "VIOLATED")
	require.NoError(t, json.Unmarshal(check(1, "-json", file), &rep))
	require.False(t, rep.OK)

	check(2, filepath.Join(dir, "none.db"))
	check(2, "-run", filepath.Join(dir, "none.json"), file)
	check(2)
}
