package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What a job, a third party or a stranger wrote must not move the cursor, change colours, or turn a line round.
func TestNothingThatSteersATerminal_is_printed(t *testing.T) {
	steers := rapid.SampledFrom([]rune("\x00\a\b\v\f\r\x1b\x7f\u0085\u009b\u200e\u200f\u061c\u202a\u202e\u2066\u2069\u2028\u2029\ufeff"))
	rapid.Check(t, func(rt *rapid.T) {
		said := rapid.String().Draw(rt, "before") + string(steers.Draw(rt, "steers")) + "[31m" + rapid.String().Draw(rt, "after")
		var out, errs bytes.Buffer
		for _, format := range []string{"table", "json", "yaml"} {
			a := &app{out: &out, err: &errs, format: format}
			require.NoError(rt, a.print(map[string]any{"said": said, "pointed": &said}, func(w io.Writer) {
				g := newGrid("said", "pointed", "number")
				g.add(said, &said, 1)
				g.write(w, "none")
			}))
			if format == "json" {
				var read map[string]string
				require.NoError(rt, json.Unmarshal(out.Bytes(), &read))
				assert.Equal(rt, said, read["said"], "a script reads what there is")
			}
			out.WriteString("|")
			a.complain(errors.New("it said " + said))
			a.complain(fmt.Errorf("wrapped: %w", errors.New(said)))
			for _, r := range out.String() + errs.String() {
				if r != '\n' && (unicode.IsControl(r) || steersText(r)) {
					rt.Fatalf("%s: %q in %q and %q", format, r, out.String(), errs.String())
				}
			}
			out.Reset()
			errs.Reset()
		}
	})
}
