package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql" // the watcher's way in
)

// A killed server is no news here.
func init() { _ = mysql.SetLogger(log.New(io.Discard, "", 0)) }

// freePort takes one that nobody has now.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// program finds one on PATH or where servers are installed.
func program(names ...string) (string, error) {
	for _, name := range names {
		for _, path := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
			if found, err := exec.LookPath(path); err == nil {
				return found, nil
			}
		}
	}
	return "", fmt.Errorf("there is no %s here: run scripts/install-servers", strings.Join(names, " or "))
}

// mariadb is a server of our own, to be killed.
type mariadb struct {
	dir     string
	address string
	argv    []string
	as      *syscall.Credential
	p       *process
}

const (
	databaseName = "capri_soak"
	databaseUser = "soak:soak"
)

func newMariaDB(ctx context.Context, dir string) (*mariadb, error) {
	server, err := program("mariadbd", "mysqld")
	if err != nil {
		return nil, err
	}
	install, err := program("mariadb-install-db", "mysql_install_db")
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	m := &mariadb{dir: dir, address: "127.0.0.1:" + strconv.Itoa(port)}
	args := []string{"--no-defaults", "--datadir=" + dir + "/data", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"}
	if os.Geteuid() == 0 { // it refuses to run as root, and a setuid of its own would undo PDEATHSIG
		u, err := user.Lookup("mysql")
		if err != nil {
			return nil, fmt.Errorf("mariadbd does not run as root: %w", err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
		m.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		args = append(args, "--user=mysql")
	}
	if out, err := exec.CommandContext(ctx, install, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	name, password, _ := strings.Cut(databaseUser, ":")
	init := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %s CHARACTER SET utf8mb4;\nCREATE USER IF NOT EXISTS %s@'127.0.0.1' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO %s@'127.0.0.1';\n",
		databaseName, name, password, name)
	if err := os.WriteFile(dir+"/init.sql", []byte(init), 0o644); err != nil {
		return nil, err
	}
	// Durable at each commit: a killed server has to come back with everything it acknowledged.
	m.argv = []string{server, "--no-defaults", "--datadir=" + dir + "/data", "--socket=" + dir + "/sock", "--pid-file=" + dir + "/pid", "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port),
		"--skip-name-resolve", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M", "--innodb-log-file-size=128M", "--max-connections=500",
		"--character-set-server=utf8mb4", "--default-time-zone=+00:00", "--init-file=" + dir + "/init.sql", "--innodb-print-all-deadlocks=1"}
	return m, nil
}

// dsn is how to reach it at an address: its own, or a proxy's.
func (m *mariadb) dsn(address string) string {
	return databaseUser + "@tcp(" + address + ")/" + databaseName
}

func (m *mariadb) start() error {
	p, err := launch("mariadb", m.dir+"/log", []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir}, place{as: m.as}, m.argv...)
	if err != nil {
		return err
	}
	m.p = p
	return m.await(60 * time.Second)
}

// await waits until it answers and knows its user.
func (m *mariadb) await(within time.Duration) error {
	db, err := sql.Open("mysql", m.dsn(m.address)+"?timeout=1s&readTimeout=2s")
	if err != nil {
		return err
	}
	defer db.Close()
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err = db.PingContext(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if !m.p.alive() || time.Now().After(deadline) {
			return fmt.Errorf("MariaDB does not answer (%w); the end of its log:\n%s", err, tail(m.dir+"/log", 30))
		}
	}
}

// redis is a server of our own.
type redis struct {
	dir     string
	address string
	argv    []string
	p       *process
}

func newRedis(ctx context.Context, dir string) (*redis, error) {
	server, err := program("redis-server", "valkey-server")
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return &redis{dir: dir, address: "127.0.0.1:" + strconv.Itoa(port),
		argv: []string{server, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir, "--daemonize", "no"}}, nil
}

func (r *redis) start() (err error) {
	if r.p, err = launch("redis", r.dir+"/log", []string{"PATH=" + os.Getenv("PATH")}, place{}, r.argv...); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = r.say("PING"); err == nil {
			return nil
		}
		if !r.p.alive() || time.Now().After(deadline) {
			return fmt.Errorf("Redis does not answer (%w):\n%s", err, tail(r.dir+"/log", 20))
		}
	}
}

// say sends one command without arguments.
func (r *redis) say(command string) error {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", r.address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second)) // a socket has deadlines
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err == nil && !bytes.HasPrefix(answer[:n], []byte("+")) {
		err = fmt.Errorf("Redis says %q to %s", answer[:n], command)
	}
	return err
}

// tail is the end of a text file.
func tail(file string, lines int) string {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return err.Error()
	}
	all := strings.SplitAfter(string(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
