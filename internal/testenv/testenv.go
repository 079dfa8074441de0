// Package testenv gives tests the real things they need: a MariaDB or MySQL server, a Redis, the pipelines to
// replay and the program's own binaries.
//
// The servers are started by scripts/with-servers (which make test calls) and found through the environment:
//
//	CAPRI_TEST_MYSQL_DSN   capri:secret@tcp(127.0.0.1:3306)/   a user who may create databases named capri…
//	CAPRI_TEST_REDIS       127.0.0.1:6379                      shared by packages at once: own keys, no FLUSHALL
//	CAPRI_WORKLOADS        a folder of recorded pipelines (*.json)
//
// A test whose server is not there skips and says what to do. In CI (CI=true) it fails instead: there a skipped
// test is a test that nobody runs. The recorded pipelines are the exception, they are not part of the module.
package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
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
