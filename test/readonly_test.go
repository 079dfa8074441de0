package test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"capri/internal/cluster"
	"capri/internal/testenv"
)

// ownServer starts a MariaDB for one test, which may do to it what others must not see. It gives a database on it, and the
// server's root.
func ownServer(t *testing.T, args ...string) (dsn string, root *sql.DB) {
	t.Helper()
	testenv.MySQL(t) // whoever tests without a server wants none
	if _, err := exec.LookPath("mariadbd"); err != nil {
		if _, err := os.Stat("/usr/sbin/mariadbd"); err != nil {
			if testenv.InCI() {
				t.Fatal("there is no mariadbd here")
			}
			t.Skip("there is no mariadbd here: a server of its own cannot be started")
		}
	}
	dir, err := os.MkdirTemp("", "capri-own") // a socket's path is short
	if err == nil {
		err = os.Chmod(dir, 0o755) // MariaDB runs as another user
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	said := &testenv.Text{}
	cmd := exec.Command(filepath.Join(testenv.Root(t), "scripts/with-servers"), "sh", "-c", `echo "dsn=$CAPRI_TEST_MYSQL_DSN"; exec sleep 1000`)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CAPRI_SERVERS_DIR=" + dir, "CAPRI_SERVERS_BUFFER_POOL=64M", "CAPRI_TEST_REDIS=none", "CAPRI_TEST_MYSQL_DSN=",
		"CAPRI_SERVERS_MARIADB_ARGS=" + strings.Join(args, " ")}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	server := ""
	wait(t, patience, func() string {
		for line := range strings.Lines(said.String()) {
			if d, ok := strings.CutPrefix(line, "dsn="); ok {
				server = strings.TrimSpace(d)
				return ""
			}
		}
		return "a MariaDB of its own:\n" + said.String()
	})
	socket, err := filepath.Glob(filepath.Join(dir, "capri-servers.*", "mysql", "sock"))
	if err != nil || len(socket) != 1 {
		t.Fatalf("the server's socket: %v %v", socket, err)
	}
	root, err = sql.Open("mysql", "root@unix("+socket[0]+")/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	if _, err := root.Exec("CREATE DATABASE capri_here"); err != nil {
		t.Fatal(err)
	}
	return server + "capri_here", root
}

// Design §5.7, for the case that is seen in practice: a failover leaves the old primary read-only, or an operator does.
func TestA_read_only_database_is_named_and_all_goes_on_when_it_is_writable_again(t *testing.T) {
	t.Parallel()
	dsn, root := ownServer(t)
	set := func(readOnly int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := root.ExecContext(ctx, fmt.Sprintf("SET GLOBAL read_only = %d", readOnly)); err != nil {
			t.Fatal(err)
		}
	}
	home := cluster.OpenDir(t)
	env := func(name string) []string {
		return environment(home, "CAPRI_DATABASE_DSN="+dsn, "CAPRI_NODE_SLOTS=4", "CAPRI_DATA="+filepath.Join(home, name))
	}
	run(t, env("master"), "migrate", "up").ok()
	t.Cleanup(func() { cluster.KillShims(filepath.Join(home, "worker")) })
	m := launch(t, env("master"), "master", "--name", "m1", "--listen", "127.0.0.1:0")
	in := &installation{t: t, home: home, env: env("master"), server: m.address(), key: filepath.Join(home, "master", "admin.key")}
	w := launch(t, env("worker"), "worker", "--node", "here", "--listen", "127.0.0.1:0")
	w.says("worker runs")
	in.parts = []*program{m, w}

	dir := cluster.OpenDir(t)
	in.beginPair(dir)

	set(1)
	m.says("database is read-only")
	w.says("database is read-only")
	in.capri("execute", "second").ends(5, "read-only")
	if b := in.runs("first"); b.Attempt != 1 { // people can look
		t.Errorf("attempt %d runs", b.Attempt)
	}
	in.endFirst(dir) // it ran before, and is not to be touched
	if !m.has(false) || !w.has(false) {
		t.Fatal("a process ended because the database was read-only")
	}

	set(0)
	in.endPair(dir)
	set(1)
	t.Run("and a stop is quick while it is read-only", func(*testing.T) { in.stop() })
}
