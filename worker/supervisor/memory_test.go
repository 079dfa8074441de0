package supervisor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// hog is a script whose shell keeps mb megabytes.
func hog(mb int) string {
	return fmt.Sprintf("x=$(head -c %dM /dev/zero | tr '\\0' x); echo $$ >&2; ", mb)
}

func Test_the_memory_of_all_processes_of_a_job_is_counted_together(t *testing.T) {
	eachWay(t, func(w *world) {
		j := w.job(1, hog(40)+"( "+hog(40)+" echo ready; while [ ! -e gate ]; do sleep 0.05; done ) & setsid sh -c \""+"sleep 1000"+"\" & wait $!; :")
		w.start(j)
		w.says(1, "ready\n")
		var used, processes int
		w.eventually("it is looked at", func() bool {
			for _, i := range w.inventory() {
				used, processes = max(used, i.MemoryMB), max(processes, i.Processes)
			}
			return used >= 80 && processes >= 4
		})
		require.Less(t, used, 500)
		require.Less(t, processes, 20)
	})
}

func Test_a_job_that_takes_more_memory_than_it_may_is_ended(t *testing.T) {
	w := newWorld(t)
	w.open()
	greedy, modest := w.job(1, hog(80)+"sleep 1000; true"), w.job(2, hog(80)+"while [ ! -e gate ]; do sleep 0.05; done")
	greedy.EndOverMB, modest.EndOverMB = 60, 1000
	w.start(greedy, modest)
	e := w.exit(1)
	require.True(t, e.OverMemory)
	require.False(t, e.OK())
	require.False(t, e.Killed, "nobody asked for it")
	require.GreaterOrEqual(t, e.PeakMemoryMB, 80)
	require.GreaterOrEqual(t, e.Processes, 1)
	require.NotContains(t, w.got, attempt(2))
}
