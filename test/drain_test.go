package test

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"capri"
	"capri/internal/testenv"
	"capri/sql/sqltest"
	"capri/sql/store"
)

// scripts/drain is for the night in which nothing answers but the database.
func TestDrain_stops_and_resumes_a_node_on_the_database_alone(t *testing.T) {
	db := sqltest.MySQL(t)
	config, err := mysql.ParseDSN(db.Options.DSN)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(config.Addr)
	if err != nil {
		t.Fatal(err)
	}
	drain := func(args ...string) (string, error) {
		t.Helper()
		args = append(args, "--host", host, "--port", port, "--user", config.User, "--password="+config.Passwd, config.DBName)
		out, err := exec.CommandContext(t.Context(), filepath.Join(testenv.Root(t), "scripts/drain"), args...).CombinedOutput()
		return string(out), err
	}
	for _, name := range []string{"n1", "n2"} {
		if err := db.Store.RegisterNode(t.Context(), capri.Node{Name: name, BootID: "b-" + name, Pool: "default", Slots: 1, CheckInterval: 5}, "dir-"+name); err != nil {
			t.Fatal(err)
		}
	}
	stopped := func() string {
		t.Helper()
		nodes, err := db.Store.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, n := range nodes {
			if n.Draining != (n.StopTime != 0) {
				t.Errorf("%s: stopped %v at %v", n.Name, n.Draining, n.StopTime)
			}
			if n.Draining {
				names = append(names, n.Name)
			}
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct{ what, node, want string }{{"stop", "n1", "n1"}, {"stop", "n1", "n1"}, {"stop", "n2", "n1 n2"}, {"resume", "n1", "n2"}} {
		if out, err := drain(c.what, c.node); err != nil || !strings.Contains(out, "node "+c.node) {
			t.Fatalf("%s %s: %v: %s", c.what, c.node, err, out)
		}
		if got := stopped(); got != c.want {
			t.Errorf("after %s %s these are stopped: %q, want %q", c.what, c.node, got, c.want)
		}
	}
	for _, bad := range [][]string{{"stop", "n3"}, {"stop", "n1' OR '1'='1"}, {"halt", "n1"}, {"stop", ""}} {
		if out, err := drain(bad...); err == nil {
			t.Errorf("%q was accepted: %s", bad, out)
		}
	}
	if got := stopped(); got != "n2" {
		t.Errorf("what was refused changed something: %q", got)
	}
	actions, err := db.Store.Actions(t.Context(), store.ActionFilter{Limit: 100})
	if err != nil || len(actions) != 4 || actions[0].Target != "n1" {
		t.Errorf("the log of actions has %v (%v)", actions, err)
	}
}
