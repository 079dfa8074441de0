package test

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/colinmarc/hdfs/v2"

	"capri/internal/testenv"
)

func TestATask_whose_data_and_program_lie_on_HDFS(t *testing.T) {
	address := testenv.HDFS(t)
	dir := fmt.Sprintf("/capri-test/%d-%d", os.Getpid(), time.Now().UnixNano())
	write := func(name, text string) {
		t.Helper()
		c, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: []string{address}, User: userName()}) // anew each time: the test takes long
		if err == nil {
			defer c.Close()
			err = c.MkdirAll(filepath.Dir(dir+name), 0o755)
		}
		var f *hdfs.FileWriter
		if err == nil {
			f, err = c.Create(dir + name)
		}
		if err == nil && text != "" {
			_, err = f.Write([]byte(text))
		}
		if err == nil {
			for end := time.Now().Add(patience); ; {
				if err = f.Close(); !hdfs.IsErrReplicating(err) || time.Now().After(end) {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		if err != nil {
			t.Fatalf("write %s: %v", name, err)
		}
	}
	t.Cleanup(func() {
		if c, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: []string{address}, User: userName()}); err == nil {
			c.RemoveAll(dir)
			c.Close()
		}
	})
	write("/job.sh", "#!/bin/sh\necho from HDFS for $1\n")

	in := standalone(t, 4)
	in.apply("tasks:\n  - {name: early, period: manual, job: {command: x, files: [\"hdfs://wh/x.sh\"]}}\n")
	out := in.capri("task", "apply", "-f", filepath.Join(in.home, "tasks.yaml"), "--dry-run").ok()
	if !strings.Contains(out.out+out.err, "no HDFS is configured here") {
		t.Errorf("without HDFS the task is applied with %s %s", out.out, out.err)
	}
	in.stop()
	in.env = append(in.env, "CAPRI_HDFS_NAME_NODES=wh="+address, "CAPRI_DEPENDENCY_INTERVAL=1s")
	in.start()

	release := filepath.Join(in.home, "release")
	in.apply(fmt.Sprintf(`tasks:
  - {name: reads, period: day, job: {command: "job.sh ${yyyyMMdd}", files: ["hdfs://wh%[1]s/job.sh"]}, inputs: [{path: "hdfs://wh%[1]s/in/${yyyyMMdd}"}], valid: {from: "2020-01-01"}}
  - {name: writes, period: day, check: output_path, job: {command: "while [ ! -e %[2]s ]; do sleep 0.1; done"}, outputs: [{path: "hdfs://wh%[1]s/out/${yyyyMMdd}"}], valid: {from: "2020-01-01"}}
  - {name: absent, period: day, job: {command: "true", files: ["hdfs://wh%[1]s/none.sh"]}, valid: {from: "2020-01-01"}}
`, dir, release))
	in.coldStart("day", lately)
	day := strings.ReplaceAll(lately, "-", "")
	in.ended("absent", "failed")
	in.capri("why", id(in.one("reads", "waits", func(b batch) bool { return b.State == "waiting" && b.Unmet == 1 }))).ends(0, dir+"/in/"+day)
	if r := in.capri("doctor"); !strings.Contains(r.out, "wh: "+address+" is active") {
		t.Errorf("the doctor says %s", r.out)
	}

	write("/in/"+day+"/_SUCCESS", "")
	if got := in.capri("logs", id(in.ended("reads", "success"))).ok().out; got != "from HDFS for "+day+"\n" {
		t.Errorf("the log is %q", got)
	}
	in.runs("writes")
	write("/out/"+day+"/_SUCCESS", "")
	if err := os.WriteFile(release, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	in.ended("writes", "success")
}

func TestLogs_that_are_kept_on_HDFS_are_read_when_their_node_is_gone(t *testing.T) {
	address := testenv.HDFS(t)
	dir := fmt.Sprintf("/capri-test/%d-%d-logs", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if c, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: []string{address}, User: userName()}); err == nil {
			c.RemoveAll(dir)
			c.Close()
		}
	})
	in := clustered(t, 4)
	in.stop()
	kept := []string{"CAPRI_HDFS_NAME_NODES=wh=" + address, "CAPRI_WORKER_LOG_STORE=hdfs://wh" + dir}
	in.env, in.workers = append(in.env, kept...), kept
	in.start()
	release := filepath.Join(in.home, "release")
	in.apply(fmt.Sprintf(`tasks:
  - {name: done, period: manual, job: {command: "seq 1 20000; echo end; echo oh >&2"}}
  - {name: runs, period: manual, job: {command: "echo begun; while [ ! -e %s ]; do sleep 0.1; done; echo never kept"}}
`, release))
	in.capri("execute", "done").ok()
	in.capri("execute", "runs").ok()
	done, runs := in.ended("done", "success"), in.runs("runs")
	wait(t, patience, func() string {
		c, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: []string{address}, User: userName()})
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		for task, file := range map[string]string{fmt.Sprintf("done_%s_1", id(done)): "err.0000000000003.end", fmt.Sprintf("runs_%s_1", id(runs)): "out.0000000000000"} {
			if _, err := c.Stat(filepath.Join(dir, "here", task, file)); err != nil {
				return err.Error()
			}
		}
		return ""
	})
	in.parts[1].signal(syscall.SIGKILL) // the worker: its machine is gone
	whole := in.capri("logs", id(done)).ok().out
	if lines := strings.Count(whole, "\n"); lines != 20_001 || !strings.HasPrefix(whole, "1\n2\n") || !strings.HasSuffix(whole, "20000\nend\n") {
		t.Errorf("the log has %d lines that end with %q", lines, tail(whole, 2))
	}
	in.capri("logs", id(done), "--stderr").ends(0, "oh")
	if got := in.capri("logs", id(runs)).ok().out; got != "begun\n" {
		t.Errorf("of the job that ran there is %q", got)
	}
	if err := os.WriteFile(release, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// userName is who administers the name-node that scripts/with-hdfs starts: whoever runs it.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}
