package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"capri"
	"capri/client"
)

func checkFormat(format string) error {
	switch format {
	case "table", "json", "yaml":
		return nil
	}
	return capri.Invalid("--output", format, "table, json or yaml")
}

// limitFlag is --limit of a list that comes in pages, and checkLimit what it may be.
func limitFlag(cmd *cobra.Command, limit *int, otherwise int) {
	cmd.Flags().IntVar(limit, "limit", otherwise, "at most so many; 0: all")
}

func checkLimit(limit int) error {
	if limit < 0 {
		return capri.Invalid("--limit", strconv.Itoa(limit), "how many at most, or 0 for all")
	}
	return nil
}

// print writes v as JSON or YAML, or calls human for the table. v must be what people's scripts may rely on.
func (a *app) print(v any, human func(w io.Writer)) error {
	if a.format == "table" {
		b := page{terminal: a.screen}
		if b.columns == 0 {
			b.terminal = terminalOf(a.out, a.getenv)
		}
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
		_, err := a.out.Write(harmless(b.Bytes()))
		return err
	}
	// JSON is YAML already; reading it as such keeps the order of the keys and the same names in both.
	var doc yaml.Node
	if err := yaml.Unmarshal(harmless(b.Bytes()), &doc); err != nil {
		return err
	}
	plain(&doc)
	b.Reset()
	y := yaml.NewEncoder(&b)
	y.SetIndent(2)
	if err := errors.Join(y.Encode(&doc), y.Close()); err != nil {
		return err
	}
	_, err := a.out.Write(harmless(b.Bytes()))
	return err
}

// page is what print hands to its table: it knows for what it is written.
type page struct {
	bytes.Buffer
	terminal
}

// plain takes JSON's quotes and brackets away; the encoder puts quotes back where a text would read as a number.
func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	if strings.ContainsFunc(n.Value, steersText) {
		n.Style = yaml.DoubleQuotedStyle // in which there are escapes (see harmless)
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// say prints one sentence where a person reads, and nothing else where a script does.
func (a *app) say(v any, format string, args ...any) error {
	return a.print(v, func(w io.Writer) { fmt.Fprintf(w, format+"\n", args...) })
}

// paragraph prints a text as one line; on a terminal it is wrapped between words, and what follows is indented a little more.
func paragraph(w io.Writer, indent, s string) {
	s = oneLine(s)
	if p, ok := w.(*page); ok {
		if room := p.columns - len(indent) - len(gap); p.columns > 0 && room > narrowest {
			s = strings.ReplaceAll(strings.TrimRight(text.WrapSoft(s, room), " "), "\n", "\n"+indent+gap)
		}
	}
	fmt.Fprintln(w, indent+s)
}

// grid is a table being filled. Columns that are empty in every row are left out. On a terminal the table fits its width:
// columns are wrapped. In a file or a pipe every row is one line, in full.
type grid struct {
	head []string
	rows [][]string
	max  map[string]int // what a column may be wrapped at first
}

func newGrid(head ...string) *grid { return &grid{head: head, max: map[string]int{}} }

func (g *grid) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cell(c)
	}
	g.rows = append(g.rows, row)
}

// limit says that where the table does not fit, this column is wrapped at n characters before others are.
func (g *grid) limit(column string, n int) *grid {
	g.max[column] = n
	return g
}

// printTable prints a list, in a table a row for each; none is said where there are no rows.
func printTable[T any](a *app, all []T, g *grid, none string, row func(T) []any) error {
	return a.print(all, func(w io.Writer) {
		for _, x := range all {
			g.add(row(x)...)
		}
		g.write(w, none)
	})
}

// newList makes the command that lists all that get gives.
func newList[T any](a *app, short string, get func(*client.Client, context.Context) ([]T, error), g *grid, none string, row func(T) []any) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short, Args: noArgs, RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		all, err := get(c, ctx)
		if err != nil {
			return err
		}
		return printTable(a, all, g, none, row)
	})}
}

func (g *grid) write(w io.Writer, none string) {
	if len(g.rows) == 0 {
		fmt.Fprintln(w, none)
		return
	}
	var to terminal
	if p, ok := w.(*page); ok {
		to = p.terminal
	}
	t := table.NewWriter()
	t.SetOutputMirror(nil)
	style := table.StyleDefault
	style.Box = table.StyleBoxDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", gap
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = 0
	t.SetStyle(style)
	t.SuppressTrailingSpaces()

	var keep []int
	for i := range g.head {
		if slices.ContainsFunc(g.rows, func(r []string) bool { return r[i] != "" }) {
			keep = append(keep, i)
		}
	}
	var configs []table.ColumnConfig
	for n, width := range g.fit(keep, to.columns) {
		c := table.ColumnConfig{Number: n + 1, WidthMax: width, WidthMaxEnforcer: text.WrapSoft}
		if to.colour && slices.Contains([]string{"state", "result", "level"}, g.head[keep[n]]) {
			c.Transformer = func(v any) string { return coloured(fmt.Sprint(v)) }
		}
		configs = append(configs, c)
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

// gap stands between two columns.
const gap = "  "

// narrowest is what no column is wrapped below: a table of a letter a line is worse than one that is too wide.
const narrowest = 8

// fit gives each column that is kept its width on a terminal of so many columns, 0 for no limit.
func (g *grid) fit(keep []int, columns int) []int {
	widths, sum := make([]int, len(keep)), 0
	if columns == 0 {
		return widths
	}
	for n, k := range keep {
		widths[n] = text.StringWidth(g.head[k])
		for _, r := range g.rows {
			widths[n] = max(widths[n], text.StringWidth(r[k]))
		}
		sum += widths[n] + len(gap)
	}
	for n, k := range keep {
		if most := g.max[g.head[k]]; sum > columns && most > 0 && widths[n] > most {
			cut := min(sum-columns, widths[n]-most)
			widths[n], sum = widths[n]-cut, sum-cut
		}
	}
	for sum > columns {
		widest := 0
		for n := range widths {
			if widths[n] > widths[widest] {
				widest = n
			}
		}
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
		sum--
	}
	return widths
}

// colours of the words that a person looks for in a table.
var colours = map[string]text.Color{
	"failed": text.FgRed, "lost": text.FgRed, "severe": text.FgRed, "stopped": text.FgRed, "dependency_timeout": text.FgRed, "output_timeout": text.FgRed,
	"killed": text.FgYellow, "killing": text.FgYellow, "held": text.FgYellow, "skipped": text.FgYellow, "draining": text.FgYellow, "important": text.FgYellow,
	"success": text.FgGreen, "up": text.FgGreen, "done": text.FgGreen,
	"running": text.FgCyan, "preparing": text.FgCyan,
}

// coloured paints a cell by its first word, if that is all of it or stands before a comma or a figure ("running 40%").
func coloured(cell string) string {
	word, _, _ := strings.Cut(cell, " ")
	c, ok := colours[strings.TrimRight(word, ",:")]
	if !ok || len(strings.Fields(cell)) > 2 {
		return cell
	}
	// The escape is written here: the library asks the process's own standard output whether it takes colour.
	return c.EscapeSeq() + cell + "\x1b[0m"
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
		return oneLine(*v)
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
		case unicode.IsControl(r) || steersText(r):
			return -1
		}
		return r
	}, s)
}

// steersText tells whether a character shows nothing, and changes how what stands around it is shown: line separators, and
// those that turn the direction of writing.
func steersText(r rune) bool {
	return unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) || r == '\ufeff'
}

// harmless writes in a JSON document as escapes what a terminal would take as orders; it is the same document.
func harmless(doc []byte) []byte {
	if bytes.IndexFunc(doc, func(r rune) bool { return r != '\n' && unicode.IsControl(r) || steersText(r) }) < 0 {
		return doc
	}
	var b bytes.Buffer
	for _, r := range string(doc) {
		if r != '\n' && unicode.IsControl(r) || steersText(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
