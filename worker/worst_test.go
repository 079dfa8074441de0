package worker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"capri"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// What jobs do to a machine whose worker trusts none of them.

func TestA_job_that_closes_its_outputs_is_judged_by_its_code(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	good := c.launch("n1", "exec >&- 2>&-; sleep 0.05; exit 0", nil)
	bad := c.launch("n1", "echo before; exec >&- 2>&-; exit 7", nil)
	c.wants(good, capri.Success, "")
	c.wants(bad, capri.Failed, "exit code 7")
	if out := n.output(good, 1, false); out != "" {
		t.Errorf("it wrote %q", out)
	}
	if out := n.output(bad, 1, false); out != "before\n" {
		t.Errorf("it wrote %q", out)
	}
}

func TestBinary_output_is_read_as_it_was_written(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	id := c.launch("n1", `printf 'a\000b\377\033[2J\r\n'; head -c 300000 /dev/urandom >all; cat all; sha256sum <all >&2`, nil)
	c.wants(id, capri.Success, "")
	out := n.output(id, 1, false)
	const head = "a\x00b\xff\x1b[2J\r\n"
	if !strings.HasPrefix(out, head) || len(out) != len(head)+300_000 {
		t.Fatalf("%d bytes that begin with %.20q", len(out), out)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(out[len(head):])))
	if said := n.output(id, 1, true); !strings.HasPrefix(said, sum) {
		t.Errorf("the sum of what is read is %s, of what was written %s", sum, said)
	}
	// The last line that it wrote to stderr becomes the message of a failure: nothing of it may play with a terminal.
	id = c.launch("n1", `printf 'bad\033[2J\000\377 end\n' >&2; exit 1`, nil)
	b := c.wants(id, capri.Failed, "exit code 1: bad")
	if strings.ContainsFunc(b.Message, func(r rune) bool { return r < ' ' }) {
		t.Errorf("the message is %q", b.Message)
	}
}

func TestLinks_that_a_job_leaves_lead_nowhere(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(nil)
	outside := filepath.Join(filepath.Dir(dataDir(t)), "outside")
	precious := filepath.Join(outside, "precious")
	if err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(precious, []byte("as it was"), 0o600), os.Chmod(outside, 0o777), os.Chmod(precious, 0o666)); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(precious)
	if err != nil {
		t.Fatal(err)
	}
	worst := "ln -s " + outside + " link; ln -s " + precious + " file; ln -s / root; mkdir -p deep/er; ln -s " + outside + " deep/er/link; " +
		"ln -s $PWD self; ln -s link loop; mkfifo pipe; mkdir closed; ln -s " + outside + " closed/link; chmod 000 closed; ln -s ../../node.id id; echo $PWD"
	for range 3 { // the next of the account gets the place of the one before
		id := c.launch("n1", worst, nil)
		c.wants(id, capri.Success, "")
		dir := strings.TrimSpace(n.output(id, 1, false))
		c.until("its directory to be gone or empty", func() bool {
			entries, err := os.ReadDir(dir)
			return errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0
		}, func() string { return dir })
	}
	next := c.launch("n1", "ls -A | wc -l", nil)
	c.wants(next, capri.Success, "")
	if said := strings.TrimSpace(n.output(next, 1, false)); said != "0" {
		t.Errorf("the next job finds %s files in its directory", said)
	}
	after, err := os.Stat(precious)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "as it was" || after.Mode() != before.Mode() || !os.SameFile(before, after) {
		t.Errorf("what lay outside is %q now, with %v; %v", b, after.Mode(), err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside there is %v now, %v", entries, err)
	}
	if _, err := os.Stat(filepath.Join(n.o.Dir, idFile)); err != nil {
		t.Errorf("the directory's own id: %v", err)
	}
}

// wrote tells whether a job's output is this so far; one that has not begun has none.
func (n *node) wrote(id capri.BatchID, text string) bool {
	data, _, _, err := n.ReadLog(n.c.ctx, n.c.batch(id), 1, false, 0, 0)
	return err == nil && string(data) == text
}

// smallDisk mounts a file system of so many MB for a data directory.
func smallDisk(t *testing.T, mb int) string {
	t.Helper()
	dir := filepath.Dir(dataDir(t)) + "/disk"
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0711", mb))
	return filepath.Join(dir, "data")
}

func mount(t *testing.T, source, at, kind string, flags uintptr, data string) {
	t.Helper()
	err := unix.Mount(source, at, kind, flags, data)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skip("NOT TESTED WITH A DISK OF ITS OWN: mounting one needs root")
	}
	if err != nil {
		t.Fatalf("mount %s: %v", at, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", at, err)
		}
	})
}

func TestA_job_that_fills_the_disk_keeps_no_other_from_its_end(t *testing.T) {
	disk := smallDisk(t, 64)
	c := newCluster(t, sqltest.SQLite(t))
	n := c.run(func(o *Options) { o.Dir, o.MinFreeMB = disk, 8 })
	gate := n.fifo(t)
	other := c.launch("n1", "echo began; read x <"+gate+"; exit 5", nil)
	c.until("it to run", func() bool { return n.wrote(other, "began\n") }, n.logged.String)
	filler := c.launch("n1", "dd if=/dev/zero of=fill bs=1M 2>/dev/null; echo full; read x <"+gate+"; exit 0", nil)
	c.until("the disk to be full", func() bool { d, err := n.disk(); return err == nil && d.freeMB == 0 }, func() string { return "" })
	late := c.launch("n1", "echo late", nil)
	c.untilBatch(late, "the late one to go back", func(b store.BatchRow) bool {
		return b.State == capri.Waiting && strings.Contains(b.Message, "has 0 MB left")
	})
	n.release()
	c.wants(other, capri.Failed, "exit code 5")
	c.wants(filler, capri.Success, "")
	c.until("the disk to be free again", func() bool { d, err := n.disk(); return err == nil && d.freeMB > 32 }, func() string { return "" })
	c.assign("n1", late)
	c.wants(late, capri.Success, "")
	if out := n.output(late, c.batch(late).Attempt, false); out != "late\n" {
		t.Errorf("it wrote %q", out)
	}
	// One that prints until nothing fits any more fails by itself, and its log is there.
	loud := c.launch("n1", "head -c 200000000 /dev/zero", nil)
	c.wants(loud, capri.Failed, "")
	if out := n.output(loud, 1, false); len(out) < 16<<20 {
		t.Errorf("its log has %d bytes", len(out))
	}
}

func TestA_disk_that_turns_read_only_costs_no_batch_its_retries(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	disk := smallDisk(t, 64)
	n := c.run(func(o *Options) { o.Dir = disk })
	gate := n.fifo(t)
	running := c.launch("n1", "echo began; read x <"+gate+"; echo still; exit 6", nil)
	c.until("it to run", func() bool { return n.wrote(running, "began\n") }, n.logged.String)
	logs := filepath.Join(disk, logDir)
	mount(t, logs, logs, "", unix.MS_BIND, "")
	if err := unix.Mount("", logs, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	c.until("the node to say so", func() bool {
		for _, node := range c.nodes() {
			if strings.Contains(node.ShortOf, logs+" is read-only") {
				return true
			}
		}
		return false
	}, n.logged.String)
	id := c.launch("n1", "echo never", nil)
	b := c.untilBatch(id, "it to go back", func(b store.BatchRow) bool { return b.State == capri.Waiting && b.Attempt == 1 })
	if !strings.Contains(b.Message, "is read-only") || b.Failures != 0 {
		t.Errorf("it went back with %q and %d failures", b.Message, b.Failures)
	}
	n.release()
	c.wants(running, capri.Failed, "exit code 6")
	if err := unix.Mount("", logs, "", unix.MS_BIND|unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	c.assign("n1", id)
	c.wants(id, capri.Success, "")
}
