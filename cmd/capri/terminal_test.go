package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func tableFor(to terminal, g *grid) string {
	p := &page{terminal: to}
	g.write(p, "none")
	return p.String()
}

func TestATable_fits_the_terminal_where_its_columns_can_be_made_narrower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z_]{2,10}`), 1, 6, rapid.ID[string]).Draw(t, "head")
		g := newGrid(head...)
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			cells := make([]any, len(head))
			for i := range cells {
				cells[i] = rapid.StringMatching(`[a-zA-Z0-9 张伟]{0,120}`).Draw(t, "cell")
			}
			cells[0] = "x" + cells[0].(string) // a column that is empty throughout is left out
			g.add(cells...)
		}
		g.limit(head[0], rapid.IntRange(5, 40).Draw(t, "limit"))
		columns := rapid.IntRange((10+len(gap))*len(head), 200).Draw(t, "columns") // heads have up to 10 letters
		out := tableFor(terminal{columns: columns}, g)
		for line := range strings.Lines(out) {
			require.LessOrEqual(t, text.StringWidth(strings.TrimRight(line, "\n")), columns, out)
		}
		letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
		full := tableFor(terminal{}, g)
		require.Len(t, letters(out), len(letters(full)), "wrapped, and nothing is lost")
		require.Equal(t, len(g.rows)+1, strings.Count(full, "\n"), "in a pipe a row is a line")
	})
}

func TestAParagraph_is_a_line_in_a_pipe_and_wrapped_between_words_on_a_terminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := "- " + strings.Join(rapid.SliceOfN(rapid.StringMatching(`[a-z张/_]{1,20}`), 1, 30).Draw(t, "words"), " ")
		indent := rapid.SampledFrom([]string{"", "  ", "      "}).Draw(t, "indent")
		columns := rapid.IntRange(50, 120).Draw(t, "columns") // a word is never cut
		wrapped, full := &page{terminal: terminal{columns: columns}}, &page{}
		paragraph(wrapped, indent, said)
		paragraph(full, indent, said)
		require.Equal(t, indent+said+"\n", full.String())
		require.Equal(t, strings.Fields(said), strings.Fields(wrapped.String()))
		for i, line := range strings.Split(strings.TrimSuffix(wrapped.String(), "\n"), "\n") {
			require.LessOrEqual(t, text.StringWidth(strings.TrimRight(line, " ")), columns)
			require.True(t, strings.HasPrefix(line, indent+strings.Repeat(gap, min(i, 1))), line)
		}
	})
}

func TestATable_that_fits_is_left_as_it_is(t *testing.T) {
	g := newGrid("task", "reason").limit("reason", 5)
	g.add("orders", "a reason of some words")
	assert.Equal(t, tableFor(terminal{}, g), tableFor(terminal{columns: 80}, g))
	assert.NotEqual(t, tableFor(terminal{}, g), tableFor(terminal{columns: 24}, g))
}

func TestColour_is_for_the_words_of_states_on_a_terminal_alone(t *testing.T) {
	g := newGrid("task", "state")
	g.add("failed", "failed")
	g.add("x", "running 40%")
	g.add("y", "failed to be anything that we know")
	out := tableFor(terminal{columns: 80, colour: true}, g)
	assert.Contains(t, out, "\x1b[31mfailed\x1b[0m")
	assert.Equal(t, 2, strings.Count(out, "\x1b[0m"), "not the task of that name: %q", out)
	assert.NotContains(t, tableFor(terminal{columns: 80}, g), "\x1b")
	assert.Equal(t, terminal{}, terminalOf(&bytes.Buffer{}, func(string) string { return "" }))
}

func TestProgress_is_drawn_for_a_person_and_taken_away(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := &progress{w: &out, what: "cold start", columns: 80, now: func() time.Time { return now }}
	p.set(0, 200)
	p.set(1, 200) // too soon
	now = now.Add(redraw)
	p.set(84, 200)
	p.set(200, 200)
	p.end()
	assert.Equal(t, []string{"cold start [                        ]   0% 0/200", "cold start [##########              ]  42% 84/200", "cold start [########################] 100% 200/200", ""},
		strings.Split(out.String(), "\r\x1b[K")[1:])
	quiet := (&app{err: &out, getenv: func(string) string { return "" }}).progress("x")
	out.Reset()
	quiet.set(1, 2)
	quiet.end()
	assert.Empty(t, out.String(), "not to a file")
	assert.Equal(t, "x 7", progressLine("x", 7, 0, 80))
	assert.Len(t, progressLine(strings.Repeat("long", 50), 7, 10, 40), 39)
}
