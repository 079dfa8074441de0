// Package testenv gives tests the real things they need: a MariaDB or MySQL server, a Redis, the pipelines to
// replay and the program's own binaries.
//
// The servers are started by scripts/with-servers (which make test calls) and found through the environment:
//
//	CAPRI_TEST_MYSQL_DSN   capri:secret@tcp(127.0.0.1:3306)/   a user who may create databases named capri…
//	CAPRI_TEST_REDIS       127.0.0.1:6379                      shared by packages at once: own keys, no FLUSHALL
//	CAPRI_TEST_HDFS        127.0.0.1:8020                      the name-node that scripts/with-hdfs starts
//	CAPRI_WORKLOADS        a folder of recorded pipelines (*.json)
//	CAPRI_TEST_SEED        the seed of random tests, to see one again (Seed)
//
// A test whose server is not there skips and says what to do. In CI (CI=true) it fails instead: there a skipped
// test is a test that nobody runs. The exceptions are the recorded pipelines, which are not part of the module, and HDFS,
// whose jars cannot be had everywhere.
package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// MySQL returns the DSN of a MariaDB or MySQL server, in the form of go-sql-driver and without a database. Each
// test makes databases of its own there, with names that begin with "capri".
func MySQL(t testing.TB) string {
	t.Helper()
	return need(t, "CAPRI_TEST_MYSQL_DSN", "MariaDB")
}

// Redis returns the host:port of a Redis server.
func Redis(t testing.TB) string {
	t.Helper()
	return need(t, "CAPRI_TEST_REDIS", "Redis")
}

// HDFS returns the host:port of a real name-node. It skips where there is none, in CI too.
func HDFS(t testing.TB) string {
	t.Helper()
	v := os.Getenv("CAPRI_TEST_HDFS")
	if v == "" {
		t.Skip("NOT TESTED AGAINST A REAL HDFS: run make test-hdfs, or set CAPRI_TEST_HDFS")
	}
	return v
}

// NameNodePID returns the process id of the name-node that HDFS gave, for tests that kill or freeze it. Whoever keeps it
// starts it again with another one.
func NameNodePID(t testing.TB) int {
	t.Helper()
	file := os.Getenv("CAPRI_TEST_HDFS_PID_FILE")
	if file == "" {
		t.Skip("NOT TESTED WITH A NAME-NODE THAT FAILS: this one is not ours to kill; run make test-hdfs without CAPRI_TEST_HDFS")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("which process is the name-node: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatalf("which process is the name-node: %v", err)
	}
	return pid
}

// InCI reports whether the tests run where a skip counts as a failure.
func InCI() bool {
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	return ci
}

func need(t testing.TB, variable, server string) string {
	t.Helper()
	if v := os.Getenv(variable); v != "" {
		return v
	}
	if InCI() {
		t.Fatalf("needs %s, and CI has to bring one: run make test, or set %s", server, variable)
	}
	t.Skipf("needs %s: run make test or set %s", server, variable)
	return ""
}

// Seed is that of a random test: another each time, or CAPRI_TEST_SEED to see the same again. A test that fails says it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) //nolint:forbidigo // another each time, and printed
	if given, err := strconv.ParseUint(os.Getenv("CAPRI_TEST_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("CAPRI_TEST_SEED=%d", seed)
	return seed
}

// Workloads returns the folder of recorded pipelines. It skips where there is none, in CI too.
func Workloads(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("CAPRI_WORKLOADS")
	if dir == "" {
		dir = filepath.Join(Root(t), "..", "shared", "workloads")
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*.json")); err != nil || len(found) == 0 {
		t.Skipf("needs recorded pipelines: set CAPRI_WORKLOADS to their folder (no *.json in %s)", dir)
	}
	return dir
}

// Root returns the module's root folder: the nearest one upwards from the test's package that holds go.mod.
func Root(t testing.TB) string {
	t.Helper()
	start, err := os.Getwd()
	if err != nil {
		t.Fatalf("find the module's root: %v", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("find the module's root: no go.mod in %s or above it", start)
		}
	}
}
