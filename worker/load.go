package worker

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"capri"
	"capri/worker/job"
)

// measure fills in what a beat tells of this machine. What cannot be read stays 0: a beat is not to fail for it.
func (w *Worker) measure(n *capri.Node) {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(b)); len(fields) > 0 {
			load, _ := strconv.ParseFloat(fields[0], 64)
			n.CPULoad = load / float64(runtime.NumCPU()) // of one minute, for each CPU
		}
	}
	total, available := memory()
	if n.MemoryMB == 0 {
		n.MemoryMB = int(total)
	}
	if total > 0 {
		n.MemoryLoad = 1 - float64(available)/float64(total)
	}
	if d, err := w.disk(); err == nil {
		n.DiskFreeMB = d.freeMB
	}
	n.TaskNum = w.table.jobs()
	n.ShortOf = w.shortOf(n)
}

// clients names the clients that are here, for those who define tasks. What is installed later counts from the next start
// on for them, and at once for jobs.
func (w *Worker) clients() string {
	find := job.Clients{Path: w.o.Path, Configured: w.o.Clients}
	names := []string{}
	for _, name := range job.ClientNames {
		if _, err := find.Find(name); err == nil {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, ","), "-")
}

// shortOf says what keeps the node from taking anything new; "" is nothing. It begins to take again when it has clearly
// more than the least: at the edge it would take a batch, be short for it, and give it back, again and again.
func (w *Worker) shortOf(n *capri.Node) (why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	least, most := w.o.MinFreeMB, w.o.MaxLoad
	if w.short {
		least, most = least+least/2, most*0.8
	}
	d, err := w.disk()
	switch {
	case err == nil && d.readOnly != "":
		why = d.readOnly + " is read-only"
	case err == nil && d.freeMB < least:
		why = fmt.Sprintf("its disk has %d MB left (worker.min_free_mb is %d)", d.freeMB, w.o.MinFreeMB)
	case most > 0 && n.CPULoad > most:
		why = fmt.Sprintf("its load is %.0f%% of its CPUs (worker.max_load_percent is %.0f)", 100*n.CPULoad, 100*w.o.MaxLoad)
	}
	if now := why != ""; now != w.short {
		w.short = now
		if now {
			w.log.Warn("takes nothing new", "node", w.node, "why", why)
		} else {
			w.log.Info("takes batches again", "node", w.node)
		}
	}
	return why
}

// memory gives the machine's memory and how much of it a new process could have, in MB.
func memory() (total, available int64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			total = kb / 1024
		case "MemAvailable:":
			return total, kb / 1024
		}
	}
	return total, total
}

// disk is what jobs and logs can write to.
type disk struct {
	freeMB   int64  // for us, where there is least
	readOnly string // the directory that is; "": none. Linux makes a file system read-only when its disk fails.
}

// disk looks at the data directory, and at that of the logs, which may lie elsewhere.
func (w *Worker) disk() (d disk, err error) {
	for i, dir := range []string{w.directory.path, w.directory.in(logDir), w.directory.in(jobDir)} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return d, err
		}
		free := int64(st.Bavail) * int64(st.Bsize) >> 20 //nolint:unconvert // other types elsewhere
		if d.freeMB = min(d.freeMB, free); i == 0 {
			d.freeMB = free
		}
		if st.Flags&unix.ST_RDONLY != 0 && d.readOnly == "" {
			d.readOnly = dir
		}
	}
	return d, nil
}
