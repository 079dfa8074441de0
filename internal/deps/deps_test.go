// Package deps holds one test: who may import whom.
package deps

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"capri/internal/testenv"
)

// The table is a statement of policy: a package may import what its row names, and the standard library (of it,
// database/sql only where SQL stands). A package of the module goes by its path below capri/, the root by its name;
// "services/*" is every package one level below. A row may use the groups below. Read it from top to bottom: a row
// names only what stands above it, so that no package reaches upward.
//
// It binds the code, not the tests: a test may import whatever it needs, except programs.
const table = `
# words and pure functions: no I/O
capri               :
cron                :
calendar            : capri cron
lineage             : capri cron calendar
placement           : capri
cascade             : capri cron calendar lineage
definition/nearest  :
definition          : capri cron calendar lineage definition/nearest YAML
alerting            : capri
alerting/duty       : capri
alerting/route      : capri alerting
alerting/words      : capri alerting definition/nearest

# edges to the world
metrics             :
internal/failpoint  :
sql/dialect         : capri internal/failpoint SQL
certs               : capri
conf                : capri certs cron calendar definition/nearest sql/dialect YAML
alerting/channel    : capri alerting conf MAIL
files               : capri
files/local         : capri files
files/hdfs          : capri conf files HDFS
sql/schema          : capri sql/dialect SQL
sql/store           : capri alerting/duty internal/failpoint sql/dialect SQL SYNC JSON
birth               : capri cron calendar lineage sql/store
placement/facts     : capri calendar placement sql/store
why                 : capri alerting/duty calendar placement placement/facts sql/store
wake                : capri REDIS
lease               : capri internal/failpoint sql/store wake REDIS

# the services: each has a row in the timetable
services            : capri internal/failpoint sql/store lease wake
services/generate   : capri cron calendar lineage birth sql/store wake services SYNC
services/dependency : capri calendar lineage files sql/store wake services SYNC
services/dispatch   : capri internal/failpoint calendar placement placement/facts sql/store wake services
services/reschedule : capri calendar sql/store wake services
services/campaign   : capri calendar birth sql/store wake services SYNC
services/alert      : capri alerting alerting/duty alerting/route internal/failpoint sql/store services
services/attempts   : capri files sql/store wake services
services/timeout    : sql/store services
services/bigtask    : capri calendar sql/store services
services/cleanup    : capri sql/store services
services/quality    : capri sql/store services SYNC
services/monitor    : capri alerting/duty calendar placement placement/facts sql/store services SYNC

# what people and apps do
auth                : capri sql/store CRYPTO
action              : capri alerting/duty alerting/words definition/nearest cron calendar lineage birth cascade placement why definition files sql/store wake auth SYNC
api/wire            : capri
api                 : capri alerting alerting/duty cron calendar definition files sql/store why auth action metrics api/wire HTTP RATE
client              : capri certs api/wire
watch               : capri alerting/channel sql/store MAIL

# the processes
worker/shim         : SYS
worker/supervisor   : capri worker/shim SYS
worker/logs         : capri files SYS
worker/job/runner   : capri
worker/job          : capri calendar files worker/job/runner SYS
worker              : capri internal/failpoint calendar conf files files/local files/hdfs sql/store wake worker/shim worker/supervisor worker/logs worker/job SYS
master              : capri cron calendar alerting conf files files/local sql/store lease wake services services/* auth action api GOCRON

# for tests and measurements
internal/testenv    :
files/filestest     : capri files
internal/testenv/testsum :
sql/sqltest         : capri sql/dialect sql/schema sql/store internal/testenv SQL
internal/servicetest : capri services sql/store sql/sqltest TESTIFY
internal/workload   : capri calendar definition lineage birth sql/store
action/actiontest   : capri calendar cron definition action services services/campaign sql/store sql/sqltest wake birth auth TESTIFY
internal/cluster    : capri conf sql/store sql/sqltest lease wake services services/* auth action api api/wire client worker worker/* master internal/testenv
internal/bench      : internal/workload api api/wire auth client capri cron calendar lineage birth placement definition conf files files/local files/hdfs sql/dialect sql/schema sql/store sql/sqltest lease wake services services/* action worker worker/* master internal/testenv internal/cluster SQL HDFS SYS

# judges runs from outside: nothing of the product (see the rules)
test/checker/oracle :
test/checker        : test/checker/oracle SQL
test/checker/cmd/capri-check : test/checker
test/checker/cmd/witness : test/checker
test/soak           : test/checker SQL TOXIPROXY SMTP SYS

# the programs: flags and wiring
cmd/capri           : capri cron calendar lineage birth placement definition alerting certs conf alerting/* files files/local files/hdfs sql/dialect sql/schema sql/store lease wake metrics auth action api api/wire client worker worker/* worker/job/runner master watch CLI YAML SYNC SYS
cmd/capri-shim      : worker/shim
cmd/capri-bench     : capri internal/bench
`

// Groups of what is not ours.
var groups = map[string][]string{
	"SQL":       {"database/sql/...", "github.com/Masterminds/squirrel/...", "github.com/go-sql-driver/mysql/...", "modernc.org/sqlite/...", "github.com/pressly/goose/..."},
	"REDIS":     {"github.com/redis/go-redis/...", "github.com/go-redsync/redsync/..."},
	"GOCRON":    {"github.com/go-co-op/gocron/..."},
	"HTTP":      {"github.com/go-chi/chi/...", "github.com/danielgtaylor/huma/..."},
	"HDFS":      {"github.com/colinmarc/hdfs/...", "github.com/jcmturner/gokrb5/..."},
	"JSON":      {"github.com/go-json-experiment/..."},
	"CLI":       {"github.com/spf13/cobra/...", "github.com/spf13/pflag/...", "github.com/jedib0t/go-pretty/...", "golang.org/x/term"},
	"CRYPTO":    {"golang.org/x/crypto/argon2"},
	"YAML":      {"go.yaml.in/yaml/..."},
	"MAIL":      {"gopkg.in/gomail.v2"},
	"SMTP":      {"github.com/emersion/go-smtp/..."},
	"SYNC":      {"golang.org/x/sync/..."},
	"RATE":      {"golang.org/x/time/rate"},
	"SYS":       {"golang.org/x/sys/..."},
	"TOXIPROXY": {"github.com/Shopify/toxiproxy/...", "github.com/rs/zerolog/..."},
	"TESTIFY":   {"github.com/stretchr/testify/..."},
}

// The rules hold whatever the table says, and give the reason that a refusal prints.
var rules = []struct {
	who, except string // packages, separated by spaces
	imports     string // packages or groups
	because     string
	testsToo    bool
}{
	{who: "...", imports: "cmd/...", testsToo: true,
		because: "nothing imports a program; a test runs the real one (testenv.Binary)"},
	{who: "worker/shim cmd/capri-shim", imports: "YAML CLI HTTP GOCRON REDIS SQL SYNC SYS",
		because: "the shim is made of the standard library alone: its size is the cost of each running job"},
	{who: "...", except: "sql/... internal/bench test/checker test/soak", imports: "SQL",
		because: "SQL and its drivers stay below sql/; ask sql/store for an operation"},
	{who: "...", except: "wake lease", imports: "REDIS",
		because: "Redis carries speed, never truth: only wake and lease speak to it"},
	{who: "...", except: "files/hdfs internal/bench", imports: "HDFS",
		because: "the library waits for ever on a name-node that is silent: only files/hdfs guards it"},
	{who: "...", except: "master services", imports: "GOCRON",
		because: "gocron only ticks, and the timetable is the master's"},
	{who: "services/*", imports: "services/*",
		because: "services do not import one another; shared decisions go down to placement, lineage, capri or sql/store"},
	{who: "worker worker/...", imports: "master/... services/... action/... api/...",
		because: "worker and master meet only in the database and in cmd"},
	{who: "master/... services/... action/... api/...", imports: "worker/...",
		because: "worker and master meet only in the database and in cmd"},
	{who: "test/checker/...", imports: "capri cron calendar lineage placement definition/... conf files/... sql/... birth why wake lease services/... auth action/... api/... client worker/... master internal/... github.com/Masterminds/squirrel/... github.com/pressly/goose/...",
		because: "the checker judges the product, so it shares no code with it"},
	{who: "capri cron", imports: "capri/...",
		because: "the words and the cron expressions know nothing of the rest"},
	{who: "...", except: "internal/... sql/sqltest action/actiontest cmd/capri-bench", imports: "internal/bench internal/cluster internal/deps internal/servicetest internal/testenv/... internal/workload sql/sqltest",
		because: "internal/ and sql/sqltest are for tests and measurements (only internal/failpoint is part of the product, and empty there)"},
}

const module = "capri"

// use is one import: which package, in which file and line, of what.
type use struct {
	pkg, of, at string
	test        bool
}

func TestImports(t *testing.T) {
	allowed := parseTable(t)
	packages, uses := read(t, testenv.Root(t))
	for _, pkg := range packages {
		if _, ok := allowed[pkg]; !ok {
			t.Errorf("package %s is not in the table: add a row to internal/deps/deps_test.go that says what it may import", pkg)
		}
	}
	for _, u := range uses {
		if broken := check(allowed, u); broken != "" {
			t.Error(broken)
		}
	}
}

func TestTable_has_no_row_for_what_is_gone(t *testing.T) {
	packages, _ := read(t, testenv.Root(t))
	for pkg := range parseTable(t) {
		if !slices.Contains(packages, pkg) {
			t.Errorf("the table has a row for %s, but there is no such package: take the row out", pkg)
		}
	}
}

// The rules are what keeps the table honest, so each must refuse what it is there for.
func TestRules_refuse(t *testing.T) {
	allowed := parseTable(t)
	for _, c := range []struct{ pkg, of, want string }{
		{"worker/shim", "github.com/spf13/cobra", "standard library alone"},
		{"worker/shim", "golang.org/x/sys/unix", "standard library alone"},
		{"worker/shim", "capri", "row of worker/shim"},
		{"test/checker/oracle", "calendar", "shares no code"},
		{"test/checker", "sql/store", "shares no code"},
		{"master", "database/sql", "below sql/"},
		{"action", "github.com/redis/go-redis/v9", "never truth"},
		{"worker", "github.com/go-co-op/gocron/v2", "gocron only ticks"},
		{"worker", "github.com/colinmarc/hdfs/v2", "waits for ever"},
		{"services/generate", "services/dispatch", "one another"},
		{"worker", "master", "only in the database"},
		{"api", "worker/logs", "only in the database"},
		{"master", "cmd/capri", "nothing imports a program"},
		{"cron", "calendar", "know nothing of the rest"},
		{"sql/store", "internal/testenv", "for tests"},
		{"calendar", "sql/store", "row of calendar"},
		{"conf", "example.com/new", "row of conf"},
		{"conf", "database/sql", "below sql/"},
	} {
		if got := check(allowed, use{pkg: c.pkg, of: c.of}); !strings.Contains(got, c.want) || !strings.Contains(got, c.of) {
			t.Errorf("%s importing %s: got %q, want a refusal with %q", c.pkg, c.of, got, c.want)
		}
	}
	for _, c := range []struct{ pkg, of string }{
		{"sql/store", "github.com/Masterminds/squirrel"}, {"sql/store", "database/sql/driver"},
		{"master", "services/generate"}, {"lease", "github.com/go-redsync/redsync/v4/redis/goredis/v9"}, {"cron", "time"},
	} {
		if got := check(allowed, use{pkg: c.pkg, of: c.of}); got != "" {
			t.Errorf("%s importing %s is refused: %s", c.pkg, c.of, got)
		}
	}
}

// check says what is wrong with an import, or nothing.
func check(allowed map[string][]string, u use) string {
	for _, r := range rules {
		if u.test && !r.testsToo {
			continue
		}
		if matchAny(r.who, u.pkg) && !matchAny(r.except, u.pkg) && matchAny(r.imports, u.of) {
			return fmt.Sprintf("%s: %s imports %s, but %s", u.at, u.pkg, u.of, r.because)
		}
	}
	if u.test || standard(u.of) && !matchAny("SQL", u.of) {
		return ""
	}
	row, ok := allowed[u.pkg]
	if ok && !matchAny(strings.Join(row, " "), u.of) {
		return fmt.Sprintf("%s: %s imports %s, which the row of %s in internal/deps/deps_test.go does not name: import something below, or argue for the row", u.at, u.pkg, u.of, u.pkg)
	}
	return ""
}

// matchAny reports whether pkg matches one of the patterns: a name, "dir/*" (one level), "dir/..." (dir and all
// below), "..." (everything), or a group.
func matchAny(patterns, pkg string) bool {
	for _, p := range strings.Fields(patterns) {
		if g, ok := groups[p]; ok {
			if matchAny(strings.Join(g, " "), pkg) {
				return true
			}
			continue
		}
		below, isTree := strings.CutSuffix(p, "...")
		below = strings.TrimSuffix(below, "/")
		switch {
		case p == "capri/...": // everything of ours
			if !standard(pkg) && !strings.Contains(strings.Split(pkg, "/")[0], ".") {
				return true
			}
		case isTree && (below == "" || pkg == below || strings.HasPrefix(pkg, below+"/")):
			return true
		case strings.HasSuffix(p, "/*") && path.Dir(pkg) == strings.TrimSuffix(p, "/*"):
			return true
		case p == pkg:
			return true
		}
	}
	return false
}

// ours are the first elements of the module's packages; whatever else has no dot there is the standard library.
func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".") && !ours[first]
}

var ours = map[string]bool{}

func parseTable(t *testing.T) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		pkg, imports, ok := strings.Cut(line, ":")
		pkg = strings.TrimSpace(pkg)
		if _, twice := rows[pkg]; !ok || twice {
			t.Fatalf("the table's line %q: want PACKAGE : IMPORTS, once for each package", line)
		}
		first, _, _ := strings.Cut(pkg, "/")
		ours[first] = true
		for _, of := range strings.Fields(imports) {
			_, group := groups[of]
			_, row := rows[of]
			if !group && !row && !slices.ContainsFunc(slices.Collect(maps.Keys(rows)), func(p string) bool { return matchAny(of, p) }) {
				t.Fatalf("the row of %s names %s, which does not stand above it", pkg, of)
			}
		}
		rows[pkg] = strings.Fields(imports)
	}
	return rows
}

// read parses every Go file of the module, whatever its build tags.
func read(t *testing.T, root string) (packages []string, uses []use) {
	t.Helper()
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if file != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "tools" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		if pkg == "." {
			pkg = module
		}
		test := strings.HasSuffix(name, "_test.go")
		if !test && !seen[pkg] {
			seen[pkg] = true
			packages = append(packages, pkg)
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			of, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if below, ok := strings.CutPrefix(of, module+"/"); ok {
				of = below
			}
			at := fmt.Sprintf("%s:%d", filepath.ToSlash(rel), set.Position(spec.Pos()).Line)
			uses = append(uses, use{pkg: pkg, of: of, at: at, test: test})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages, uses
}
