package test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"capri/internal/cluster"
	"capri/internal/testenv"
	"capri/sql/sqltest"
)

func TestWeb_answers_and_acts_while_no_master_lives(t *testing.T) {
	t.Parallel()
	in := clustered(t, 4)
	in.apply(`tasks:
  - {name: never, period: day, job: {command: "echo hello"}, inputs: [{path: "/nowhere/at/all"}], valid: {from: "2020-01-01"}}
  - {name: done, period: day, job: {command: "echo hello; exit 0"}, valid: {from: "2020-01-01"}}
`)
	in.coldStart("day", lately)
	in.ended("done", "success")
	in.parts[0].signal(syscall.SIGKILL)
	in.capri("status").ends(5, in.server)
	dead := in.server

	web := launch(t, in.env, "web", "--listen", "127.0.0.1:0")
	in.server = dead + "," + web.address() // as people have it who were told of both
	var waiting []batch
	in.capri("batch", "list", "--task", "never", "-o", "json").json(&waiting)
	if len(waiting) != 1 {
		t.Fatalf("%d batches of never", len(waiting))
	}
	id := fmt.Sprint(waiting[0].ID)
	in.capri("why", id).ends(0, "/nowhere/at/all")
	in.capri("hold", id, "--reason", "no master").ok()
	in.capri("why", id).ends(0, "held")
	in.capri("pause", "--reason", "upgrade").ok()
	in.capri("status").ends(0, "paused")
	var done []batch
	in.capri("batch", "list", "--task", "done", "-o", "json").json(&done)
	in.capri("logs", fmt.Sprint(done[0].ID)).ends(0, "hello") // from the worker, as masters read them
	in.capri("execute", "done").ok()

	// What was done meanwhile holds when a master is there again, and web needs nothing of that.
	in.capri("release", id).ok()
	m := launch(t, in.env, "master", "--name", "m1", "--listen", "127.0.0.1:0")
	m.address()
	in.capri("resume").ok()
	wait(t, patience, func() string {
		var runs []batch
		in.capri("batch", "list", "--task", "done", "--state", "success", "-o", "json").json(&runs)
		if len(runs) == 2 {
			return ""
		}
		return "the batch that was executed while no master lived"
	})
	web.stop()
	m.stop()
}

func TestWeb_refuses_an_older_schema_and_the_embedded_database(t *testing.T) {
	t.Parallel()
	home := cluster.OpenDir(t)
	run(t, environment(home), "web").ends(2, "capri standalone")
	dsn := sqltest.EmptyMySQL(t).Options.DSN
	run(t, environment(home, "CAPRI_DATABASE_DSN="+dsn), "web", "--listen", "127.0.0.1:0").ends(4, "capri migrate up")
}

func TestWeb_makes_the_first_key_of_a_new_database(t *testing.T) {
	t.Parallel()
	home := cluster.OpenDir(t)
	env := environment(home, "CAPRI_DATABASE_DSN="+sqltest.EmptyMySQL(t).Options.DSN, "CAPRI_DATA="+filepath.Join(home, "web"))
	run(t, env, "migrate", "up").ok()
	web := launch(t, env, "web", "--listen", "127.0.0.1:0")
	in := &installation{t: t, home: home, env: env, server: web.address(), key: filepath.Join(home, "web", "admin.key")}
	in.capri("whoami").ends(0, "super_admin")
	web.stop()
	again := launch(t, env, "web", "--listen", "127.0.0.1:0")
	in.server = again.address()
	in.capri("whoami").ends(0, "super_admin") // the same key
	again.stop()
}

// tlsRedis starts a Redis that speaks TLS alone.
func tlsRedis(t *testing.T, ca, cert, key string) (address string) {
	t.Helper()
	testenv.Redis(t) // whoever tests without a server wants none
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if testenv.InCI() {
			t.Fatal("there is no redis-server here")
		}
		t.Skip("there is no redis-server here: one with TLS cannot be started")
	}
	for try := range 20 {
		port := 20000 + (os.Getpid()*7+try*131)%10000
		said := &testenv.Text{}
		cmd := exec.Command(program, "--port", "0", "--tls-port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
			"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca, "--tls-auth-clients", "yes")
		cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), said, said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			cmd.Process.Kill()
			<-ended
		})
		ready := false
		wait(t, patience, func() string {
			ready = strings.Contains(said.String(), "Ready to accept connections")
			select {
			case <-ended:
				return ""
			default:
			}
			if ready {
				return ""
			}
			return "a Redis with TLS:\n" + said.String()
		})
		if ready {
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
		if !strings.Contains(said.String(), "in use") {
			t.Fatalf("redis-server ended: %s", said)
		}
	}
	t.Fatal("no free port for Redis")
	return ""
}

func TestTLS_everywhere_the_whole_way_of_a_batch(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	srvCert, srvKey := ca.Issue(t, "servers", "127.0.0.1")
	cert, key := ca.Issue(t, "capri", "127.0.0.1")
	nodeCert, nodeKey := ca.Issue(t, "node", "here")
	dsn, root := ownServer(t, "--ssl-ca="+ca.File, "--ssl-cert="+srvCert, "--ssl-key="+srvKey, "--require-secure-transport=ON")
	redis := tlsRedis(t, ca.File, srvCert, srvKey)
	home := cluster.OpenDir(t)
	plain := func(name string) []string {
		return environment(home, "CAPRI_DATABASE_DSN="+dsn, "CAPRI_REDIS_ADDR="+redis, "CAPRI_NODE_SLOTS=4", "CAPRI_DATA="+filepath.Join(home, name))
	}
	env := func(name string) []string {
		return append(plain(name), "CAPRI_DATABASE_TLS_CA="+ca.File, "CAPRI_REDIS_TLS_CA="+ca.File, "CAPRI_REDIS_TLS_CERT="+cert, "CAPRI_REDIS_TLS_KEY="+key, "CAPRI_CACERT="+ca.File)
	}
	run(t, plain("master"), "migrate", "up").ends(1, "Access denied") // --require_secure_transport
	run(t, append(env("master"), "CAPRI_DATABASE_TLS_SERVER_NAME=other.example.org"), "migrate", "up").ends(1, "other.example.org")
	run(t, env("master"), "migrate", "up").ok()
	var version string
	if err := root.QueryRow("SHOW GLOBAL STATUS LIKE 'Ssl_accepts'").Scan(new(string), &version); err != nil || version == "0" {
		t.Fatalf("the server accepted %s connections with TLS: %v", version, err)
	}
	t.Cleanup(func() { cluster.KillShims(filepath.Join(home, "worker")) })
	m := launch(t, append(env("master"), "CAPRI_TLS_CERT="+cert, "CAPRI_TLS_KEY="+key, "CAPRI_TLS_CA="+ca.File), "master", "--name", "m1", "--listen", "127.0.0.1:0")
	in := &installation{t: t, home: home, env: env("master"), server: m.address(), key: filepath.Join(home, "master", "admin.key")}
	if !strings.HasPrefix(in.server, "https://") {
		t.Fatalf("the master listens on %s", in.server)
	}
	w := launch(t, append(env("worker"), "CAPRI_SERVER="+in.server, "CAPRI_TLS_CERT="+nodeCert, "CAPRI_TLS_KEY="+nodeKey, "CAPRI_TLS_CA="+ca.File), "worker", "--node", "here", "--listen", "127.0.0.1:0")
	w.says("worker runs")
	in.apply(`tasks: [{name: coded, period: day, check: user_code, job: {command: "echo hello; capri report-code 0"}, valid: {from: "2020-01-01"}}]`)
	in.coldStart("day", lately)
	in.ended("coded", "success") // the job itself spoke to the API over TLS
	var done []batch
	in.capri("batch", "list", "--task", "coded", "-o", "json").json(&done)
	in.capri("logs", fmt.Sprint(done[0].ID)).ends(0, "hello")
	in.capri("doctor").ends(0, "127.0.0.1")
	if strings.Contains(m.log.String()+w.log.String(), "Redis does not answer") {
		t.Error("Redis was not reached over TLS")
	}
	run(t, append(plain("master"), "CAPRI_TOKEN=capri_x", "CAPRI_SERVER="+in.server), "status").ends(5, "unknown authority")
	run(t, append(plain("master"), "CAPRI_TOKEN=capri_x", "CAPRI_SERVER="+strings.Replace(in.server, "https", "http", 1)), "status").ends(5, "no Capri server")

	// A new certificate is served without a restart.
	newCert, newKey := ca.Issue(t, "renewed", "127.0.0.1", "renewed.example.org")
	for from, to := range map[string]string{newKey: key, newCert: cert} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, 20*time.Second, func() string {
		in.capri("status").ok()
		if strings.Contains(m.log.String(), "certificate was read again") {
			return ""
		}
		return "the new certificate"
	})
	in.stopIn(m, w)
}

func (in *installation) stopIn(parts ...*program) {
	in.parts = parts
	in.stop()
}

func TestPlainHTTP_for_other_machines_is_warned_of(t *testing.T) {
	t.Parallel()
	home := cluster.OpenDir(t)
	data := filepath.Join(home, "data")
	t.Cleanup(func() { cluster.KillShims(data) })
	p := launch(t, environment(home), "standalone", "--data", data, "--listen", "0.0.0.0:0")
	p.says("THE API IS SERVED IN PLAIN HTTP")
	resp, err := http.Get(p.address() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("Strict-Transport-Security") != "" {
		t.Error("HSTS over plain HTTP")
	}
	p.stop()
	q := launch(t, environment(home), "standalone", "--data", data, "--listen", "127.0.0.1:0")
	q.address()
	if strings.Contains(q.log.String(), "PLAIN HTTP") {
		t.Error("it warns of 127.0.0.1")
	}
	q.stop()
}
