package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"go.yaml.in/yaml/v3"

	"capri"
)

func checkFormat(format string) error {
	switch format {
	case "table", "json", "yaml":
		return nil
	}
	return capri.Invalid("--output", format, "table, json or yaml")
}

// print writes v as JSON or YAML, or calls human for the table. v must be what people's scripts may rely on.
func (a *app) print(v any, human func(w io.Writer)) error {
	if a.format == "table" {
		var b bytes.Buffer
		human(&b)
		_, err := a.out.Write(b.Bytes())
		return err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // && in a command is for reading
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	if a.format == "json" {
		_, err := a.out.Write(b.Bytes())
		return err
	}
	// JSON is YAML already; reading it as such keeps the order of the keys and the same names in both.
	var doc yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &doc); err != nil {
		return err
	}
	plain(&doc)
	y := yaml.NewEncoder(a.out)
	y.SetIndent(2)
	if err := y.Encode(&doc); err != nil {
		return err
	}
	return y.Close()
}

// plain takes JSON's quotes and brackets away; the encoder puts quotes back where a text would read as a number.
func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// say prints one sentence where a person reads, and nothing else where a script does.
func (a *app) say(v any, format string, args ...any) error {
	return a.print(v, func(w io.Writer) { fmt.Fprintf(w, format+"\n", args...) })
}

// grid is a table being filled. Columns that are empty in every row are left out, which keeps the usual case
// within 100 columns.
type grid struct {
	head []string
	rows [][]string
	max  map[string]int // widest text of a column
}

func newGrid(head ...string) *grid { return &grid{head: head, max: map[string]int{}} }

func (g *grid) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cell(c)
	}
	g.rows = append(g.rows, row)
}

// limit wraps a column at n characters.
func (g *grid) limit(column string, n int) *grid {
	g.max[column] = n
	return g
}

func (g *grid) write(w io.Writer, none string) {
	if len(g.rows) == 0 {
		fmt.Fprintln(w, none)
		return
	}
	t := table.NewWriter()
	t.SetOutputMirror(nil)
	style := table.StyleDefault
	style.Box = table.StyleBoxDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = 0
	t.SetStyle(style)
	t.SuppressTrailingSpaces()

	var keep []int
	var configs []table.ColumnConfig
	for i, h := range g.head {
		for _, r := range g.rows {
			if r[i] != "" {
				keep = append(keep, i)
				configs = append(configs, table.ColumnConfig{Number: len(keep), WidthMax: g.max[h], WidthMaxEnforcer: text.WrapSoft})
				break
			}
		}
	}
	line := func(cells []string) table.Row {
		out := make(table.Row, len(keep))
		for i, k := range keep {
			out[i] = cells[k]
		}
		return out
	}
	upper := make([]string, len(g.head))
	for i, h := range g.head {
		upper[i] = strings.ToUpper(h)
	}
	t.AppendHeader(line(upper))
	for _, r := range g.rows {
		t.AppendRow(line(r))
	}
	t.SetColumnConfigs(configs)
	fmt.Fprintln(w, t.Render())
}

const tableTime = "2006-01-02 15:04:05"

// cell writes a value for a table. Times came from the server in the business zone and keep it.
func cell(v any) string {
	switch v := v.(type) {
	case string:
		return oneLine(v)
	case *string:
		if v == nil {
			return ""
		}
		return *v
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		if v {
			return "yes"
		}
		return ""
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.Format(tableTime)
	case *time.Time:
		if v == nil {
			return ""
		}
		return v.Format(tableTime)
	}
	return oneLine(fmt.Sprint(v))
}

// oneLine keeps a row a row, and keeps what a job or a third party wrote from steering the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return -1
		}
		return r
	}, s)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
