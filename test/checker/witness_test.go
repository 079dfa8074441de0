package checker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// witness is a job of batch 7 that writes the log; program is the Go witness or the shell's.
type witnessed struct {
	t       *testing.T
	dir     string
	program []string
}

func (w *witnessed) start(attempt int, command string) *exec.Cmd {
	w.t.Helper()
	c := exec.Command(w.program[0], append(w.program[1:], command)...)
	c.Env = append(os.Environ(), "WITNESS_DIR="+w.dir, "CAPRI_TASK=orders", "CAPRI_BATCH_NO=20261120", "CAPRI_RUN_NO=0", "CAPRI_ATTEMPT=7."+strconv.Itoa(attempt))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	before := len(w.lines())
	require.NoError(w.t, c.Start())
	w.t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	require.Eventually(w.t, func() bool {
		l := w.lines()
		return len(l) > before && l[len(l)-1].Attempt == attempt && l[len(l)-1].What != Overlap
	}, 20*time.Second, 5*time.Millisecond)
	return c
}

func (w *witnessed) lines() []Witness {
	all, err := ReadWitness(w.dir)
	if err != nil {
		return nil // not there yet
	}
	return all
}

func (w *witnessed) what() (said []string) {
	for _, l := range w.lines() {
		said = append(said, strconv.Itoa(l.Attempt)+" "+l.What)
	}
	return said
}

func TestAWitness_tells_of_an_overlap_by_its_lock(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "witness")
	out, err := exec.Command("go", "build", "-o", bin, "./cmd/witness").CombinedOutput()
	require.NoError(t, err, string(out))
	snippet, err := filepath.Abs("witness.sh")
	require.NoError(t, err)
	for name, program := range map[string][]string{
		"program": {bin, "--", "/bin/sh", "-c"},
		"shell":   {"/bin/sh", "-c", `. ` + snippet + `; eval "$0"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := &witnessed{t, t.TempDir(), program}
			require.NoError(t, w.start(1, "true").Wait())
			require.Equal(t, []string{"1 start", "1 end"}, w.what())

			first := w.start(2, "sleep 60 & wait")
			second := w.start(3, "true")
			require.NoError(t, second.Wait())
			require.Equal(t, []string{"2 start", "3 overlap", "3 start", "3 end"}, w.what()[2:])

			// The job is killed and says nothing; what it leaves behind still holds the lock, and is an overlap.
			require.NoError(t, first.Process.Kill())
			require.Error(t, first.Wait())
			require.NoError(t, w.start(4, "true").Wait())
			require.Equal(t, []string{"4 overlap", "4 start", "4 end"}, w.what()[6:])

			// Once all of it is gone, the next one is alone.
			require.NoError(t, syscall.Kill(-first.Process.Pid, syscall.SIGKILL))
			lock, err := os.Open(filepath.Join(w.dir, "locks", "orders@20261120"))
			require.NoError(t, err)
			require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
			require.NoError(t, lock.Close())
			require.NoError(t, w.start(5, "true").Wait())
			require.Equal(t, []string{"5 start", "5 end"}, w.what()[9:])

			// A job that is asked to end says so.
			asked := w.start(6, "sleep 60")
			require.NoError(t, syscall.Kill(-asked.Process.Pid, syscall.SIGTERM))
			require.Error(t, asked.Wait())
			require.Equal(t, []string{"6 start", "6 end"}, w.what()[11:])
		})
	}
}

func TestAWitnessLine_reads_as_it_was_written(t *testing.T) {
	w := Witness{1763740000123, Start, "orders", "2026110101-0400", 2, 17, 3, "n1", 4711, "0f0e0d0c", 99123}
	got, err := ParseWitness(w.String())
	require.NoError(t, err)
	require.Equal(t, w, got)
	for _, line := range []string{"", "1 begin t n 0 1.1 n1 1 b/1", "x start t n 0 1.1 n1 1 b/1", "1 start t n 0 1 n1 1 b/1"} {
		_, err := ParseWitness(line)
		require.Error(t, err, line)
	}
}

// A kill may cut the last line off; a line in the middle that cannot be read is a fault of the log, and said.
func TestALog_that_was_cut_off_is_read_up_to_there(t *testing.T) {
	dir := t.TempDir()
	good := Witness{1, Start, "t", "n", 0, 1, 1, "n1", 1, "b", 1}.String() + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.log"), []byte(good+good[:10]), 0o600))
	all, err := ReadWitness(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.log"), []byte("nonsense\n"+good), 0o600))
	_, err = ReadWitness(dir)
	require.ErrorContains(t, err, "a.log:1")
	_, err = ReadWitness(t.TempDir())
	require.ErrorContains(t, err, "no *.log")
}

func TestARunFileAndANemesisLog_read_as_they_were_written(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	one := 1
	r := Run{Zone: "UTC", Seed: 3, From: 1, To: 2, End: 3, Speed: 60, BaseReal: 1000, BaseBusiness: 5000, Settled: true, SettledMS: 4, Nodes: map[string]Capacity{"n1": {2, 3}}, MaxRunning: &one, SlackMS: 500}
	require.NoError(t, r.Write(file))
	got, err := ReadRun(file)
	require.NoError(t, err)
	require.Equal(t, r, got)
	require.EqualValues(t, 5000+60*250, r.business(1250))
	require.EqualValues(t, 30_000, r.slack())

	log, err := os.Create(filepath.Join(t.TempDir(), "nemesis.jsonl"))
	require.NoError(t, err)
	f := Fault{At: 1, Healed: 2, Kind: PauseHost, Target: "n1", Args: map[string]string{"for": "3s"}}
	require.NoError(t, WriteFault(log, f))
	require.NoError(t, log.Close())
	all, err := ReadFaults(log.Name())
	require.NoError(t, err)
	require.Equal(t, []Fault{f}, all)
}
