// Package bench measures Capri against limits that are measured in the same run on the same server, so that a
// slow machine makes both slower and the ratio stays. Each figure prints the rows and statements of its limit: nobody
// need trust them. `make bench` runs it; a miss of a target ends with exit code 1.
package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"capri"
	"capri/calendar"
	"capri/sql/schema"
	"capri/sql/store"
)

// Figure is one line of the table and of bench.json. Ratio is value/limit or limit/value, whichever is "higher is
// better" for rates and "lower is better" for times, as Target says.
type Figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Limit  float64 `json:"limit"`
	Ratio  float64 `json:"ratio"`
	Target string  `json:"target"`
	OK     bool    `json:"ok"`
}

// Options of a run.
type Options struct {
	MySQL     string // server DSN; empty: SQLite alone, said aloud
	Redis     string
	HDFS      string // host:port of a name-node; empty: not measured, said aloud
	Dir       string // on a real disk: fsync is part of what is measured
	Bin       string // folder with capri and capri-shim
	Workloads string
	Only      string // run only benchmarks whose name holds this
	Runs      int    // the median of so many
	Million   bool   // with the 1,000,000 batch steps
	Out       io.Writer
}

// Bench is a run under way.
type Bench struct {
	Options
	figures []Figure
}

// Run measures everything and returns the figures.
func Run(ctx context.Context, o Options) ([]Figure, error) {
	b := &Bench{Options: o}
	fmt.Fprintf(b.Out, "%s, %d CPUs, %s; median of %d\n", runtime.Version(), runtime.NumCPU(), cpuModel(), o.Runs)
	type step struct {
		name string
		run  func(context.Context, *db) error
	}
	steps := []step{
		{"generate", b.generate}, {"meet", b.meet}, {"ready", b.ready}, {"list", b.list}, {"dispatch", b.dispatch},
		{"whole", b.wholeWay}, {"handover", b.handOver}, {"memory", b.memory}, {"jobs", b.jobs}, {"workload", b.workload}, {"campaign", b.campaign}, {"api", b.api},
	}
	kinds := []string{"sqlite"}
	if o.MySQL != "" {
		kinds = append(kinds, "mariadb")
	} else {
		fmt.Fprintln(b.Out, "NOT MEASURED: MariaDB (CAPRI_TEST_MYSQL_DSN is not set)")
	}
	for _, s := range steps {
		for _, kind := range kinds {
			name := s.name + "/" + kind
			if !strings.Contains(name, o.Only) {
				continue
			}
			fmt.Fprintf(b.Out, "\n== %s\n", name)
			d, err := b.open(ctx, kind)
			if err != nil {
				return b.figures, fmt.Errorf("%s: %w", name, err)
			}
			err = s.run(ctx, d)
			d.close()
			if err != nil {
				return b.figures, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if strings.Contains("hdfs/real", o.Only) {
		if o.HDFS == "" {
			fmt.Fprintln(b.Out, "NOT MEASURED: HDFS (CAPRI_TEST_HDFS is not set; scripts/with-hdfs sets it)")
			return b.figures, nil
		}
		fmt.Fprintln(b.Out, "\n== hdfs/real")
		if err := b.hdfs(ctx); err != nil {
			return b.figures, fmt.Errorf("hdfs: %w", err)
		}
	}
	return b.figures, nil
}

func (b *Bench) add(f Figure) {
	b.figures = append(b.figures, f)
	mark := "ok"
	if !f.OK {
		mark = "MISS"
	}
	fmt.Fprintf(b.Out, "%-44s %12.4g %-10s limit %12.4g  ratio %6.3f  target %-12s %s\n", f.Name, f.Value, f.Unit, f.Limit, f.Ratio, f.Target, mark)
}

// rate adds a figure that should be at least share of its limit.
func (b *Bench) rate(name string, value, limit float64, unit string, share float64) {
	b.add(Figure{name, value, unit, limit, value / limit, fmt.Sprintf(">= %g", share), value/limit >= share})
}

// atMost adds a figure that should not be above factor times its limit.
func (b *Bench) atMost(name string, value, limit float64, unit string, factor float64) {
	b.add(Figure{name, value, unit, limit, value / limit, fmt.Sprintf("<= %g", factor), value/limit <= factor})
}

func (b *Bench) note(format string, a ...any) { fmt.Fprintf(b.Out, "   "+format+"\n", a...) }

// WriteJSON writes the figures.
func WriteJSON(path string, figures []Figure) error {
	data, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Table prints the figures and tells whether all targets were met.
func Table(w io.Writer, figures []Figure) (ok bool) {
	ok = true
	fmt.Fprintf(w, "\n%-44s %12s %-10s %12s %7s %-12s\n", "benchmark", "value", "unit", "limit", "ratio", "target")
	for _, f := range figures {
		mark := ""
		if !f.OK {
			mark, ok = "  MISS", false
		}
		fmt.Fprintf(w, "%-44s %12.4g %-10s %12.4g %7.3f %-12s%s\n", f.Name, f.Value, f.Unit, f.Limit, f.Ratio, f.Target, mark)
	}
	return ok
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// db is one database under measurement: the store, and plain access beside it for the limits.
type db struct {
	kind  string
	store *store.Store
	plain *sql.DB
	path  string // SQLite
	dsn   string // MariaDB, with the database
	name  string
	cal   calendar.Calendar
	drop  func()
}

// benchNow is a Friday morning; batches are generated for the day before.
var benchNow = capri.InstantOf(time.Date(2026, 11, 20, 0, 1, 0, 0, time.UTC))

func (b *Bench) open(ctx context.Context, kind string) (*db, error) {
	d := &db{kind: kind, cal: calendar.New(time.UTC)}
	var err error
	if kind == "sqlite" {
		dir, err := os.MkdirTemp(b.Dir, "capri-bench-")
		if err != nil {
			return nil, err
		}
		d.path = filepath.Join(dir, "capri.db")
		d.drop = func() { os.RemoveAll(dir) }
		d.store, err = store.Open(ctx, store.Options{Path: d.path})
		if err != nil {
			return nil, err
		}
		d.plain, err = sql.Open("sqlite", "file:"+d.path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
		if err != nil {
			return nil, err
		}
		d.plain.SetMaxOpenConns(1)
	} else {
		d.name = fmt.Sprintf("capri_bench_%d", rand.Uint32())
		cfg, err := mysql.ParseDSN(b.MySQL)
		if err != nil {
			return nil, err
		}
		admin, err := sql.Open("mysql", b.MySQL)
		if err != nil {
			return nil, err
		}
		if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+d.name); err != nil {
			return nil, err
		}
		d.drop = func() {
			admin.Exec("DROP DATABASE " + d.name)
			admin.Close()
		}
		cfg.DBName = d.name
		d.dsn = cfg.FormatDSN()
		d.store, err = store.Open(ctx, store.Options{DSN: d.dsn})
		if err != nil {
			return nil, err
		}
		cfg.InterpolateParams = true
		d.plain, err = sql.Open("mysql", cfg.FormatDSN())
		if err != nil {
			return nil, err
		}
		d.plain.SetMaxIdleConns(8)
	}
	_, err = schema.Up(ctx, d.store.DB(), d.store.Dialect(), "UTC")
	return d, err
}

func (d *db) close() {
	d.plain.Close()
	d.store.Close()
	d.drop()
}

// reopen points plain access at another SQLite file.
func (d *db) reopen(ctx context.Context, path string) (err error) {
	d.plain, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err == nil {
		d.plain.SetMaxOpenConns(1)
		err = d.plain.PingContext(ctx)
	}
	return err
}

// exec runs plain statements, and stops the run where one fails: a limit that did not do its work is no limit.
func (d *db) exec(ctx context.Context, text string, args ...any) {
	if _, err := d.plain.ExecContext(ctx, text, args...); err != nil {
		panic(fmt.Sprintf("%s: %v", short(text), err))
	}
}

func short(text string) string {
	if len(text) > 160 {
		return text[:150] + " …"
	}
	return text
}

// empty makes tables empty, indexes and all.
func (d *db) empty(ctx context.Context, tables ...string) {
	for _, t := range tables {
		if d.kind == "sqlite" {
			d.exec(ctx, "DELETE FROM "+t)
		} else {
			d.exec(ctx, "TRUNCATE TABLE "+t)
		}
	}
	if d.kind == "sqlite" {
		d.exec(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
}

var batchTables = []string{"task_work", "task_data", "tthird_data", "tparent_data", "dependency_change", "batch_event", "generate_mark", "generate_failure"}

// rows copies a table into memory.
func (d *db) rows(ctx context.Context, table string) (columns []string, rows [][]any) {
	return d.rowsOf(ctx, "SELECT * FROM "+table)
}

func (d *db) rowsOf(ctx context.Context, text string) (columns []string, rows [][]any) {
	r, err := d.plain.QueryContext(ctx, text)
	if err != nil {
		panic(err)
	}
	defer r.Close()
	columns, _ = r.Columns()
	for r.Next() {
		row := make([]any, len(columns))
		dest := make([]any, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		if err := r.Scan(dest...); err != nil {
			panic(err)
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = string(b)
			}
		}
		rows = append(rows, row)
	}
	d.must(r.Err())
	return columns, rows
}

// insertText is a multi-row INSERT.
func insertText(table string, columns []string, n int) string {
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES " + strings.Repeat(",(?"+strings.Repeat(",?", len(columns)-1)+")", n)[1:]
}

// execer is a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// insertPlain inserts rows by multi-row INSERTs, perStatement at a time.
func insertPlain(ctx context.Context, x execer, table string, columns []string, rows [][]any, perStatement int) {
	for part := range slices.Chunk(rows, perStatement) {
		args := make([]any, 0, len(part)*len(columns))
		for _, r := range part {
			args = append(args, r...)
		}
		if _, err := x.ExecContext(ctx, insertText(table, columns, len(part)), args...); err != nil {
			panic(err)
		}
	}
}
