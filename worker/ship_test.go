package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"capri"
	"capri/files/local"
	"capri/sql/sqltest"
)

func TestLogs_get_into_the_store_while_their_jobs_run_and_can_be_read_without_their_node(t *testing.T) {
	c := newCluster(t, sqltest.SQLite(t))
	store := t.TempDir()
	n := c.run(func(o *Options) { o.LogStore = local.Store(store) })
	gate := n.fifo(t)
	id := c.launch("n1", "echo first; read x <"+gate+"; echo last; echo oh >&2", nil)
	kept := func(stderr bool) (string, bool) {
		data, _, complete, err := ReadKeptLog(c.ctx, local.Store(store), "n1", c.batch(id), 1, stderr, 0, 0)
		if err != nil {
			return "", false
		}
		return string(data), complete
	}
	c.until("its beginning in the store", func() bool { text, complete := kept(false); return text == "first\n" && !complete }, func() string { return "" })
	n.release()
	c.wants(id, capri.Success, "")
	c.until("all of it in the store", func() bool {
		out, complete := kept(false)
		err, errComplete := kept(true)
		return out == "first\nlast\n" && complete && err == "oh\n" && errComplete
	}, func() string { text, _ := kept(false); return text })

	// A store that cannot be written to holds up nothing, and what ended meanwhile gets there later.
	n.stop()
	if err := os.Rename(filepath.Join(store, "n1"), filepath.Join(store, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(store, "n1"), nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	n.start()
	next := c.launch("n1", "echo meanwhile", nil)
	c.wants(next, capri.Success, "")
	c.until("somebody to be told", func() bool { return strings.Contains(n.logged.String(), "logs do not get into the log store") }, n.logged.String)
	if err := os.Remove(filepath.Join(store, "n1")); err != nil {
		t.Fatal(err)
	}
	c.until("what ended meanwhile in the store", func() bool {
		data, _, complete, err := ReadKeptLog(c.ctx, local.Store(store), "n1", c.batch(next), 1, false, 0, 0)
		return err == nil && complete && string(data) == "meanwhile\n"
	}, n.logged.String)
	// What ended just before a process died, and was not shipped, is found by the next one.
	n.stop()
	b := c.batch(next)
	if err := os.RemoveAll(filepath.Join(store, "n1", fmt.Sprintf("%s_%d_1", b.Task, b.ID))); err != nil {
		t.Fatal(err)
	}
	n.start()
	c.until("what ended before in the store", func() bool {
		data, _, complete, err := ReadKeptLog(c.ctx, local.Store(store), "n1", b, 1, false, 0, 0)
		return err == nil && complete && string(data) == "meanwhile\n"
	}, n.logged.String)
	if _, _, _, err := ReadKeptLog(c.ctx, local.Store(store), "n2", c.batch(next), 1, false, 0, 0); err == nil {
		t.Error("another node's log was found")
	}
}
