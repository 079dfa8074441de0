package calendar

import (
	"testing"

	"capri"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTemplate(t *testing.T) {
	for _, tt := range []struct {
		name     string
		zone     string
		start    string
		template string
		want     string
	}{
		{"plain text", "UTC", "2026-11-20", "/warehouse/orders", "/warehouse/orders"},
		{"nothing", "UTC", "2026-11-20", "", ""},
		{"a date and an hour", "Asia/Shanghai", "2026-11-20 09:00", "/o/${yyyyMMdd}/${HH}", "/o/20261120/09"},
		{"separators are literal", "UTC", "2026-11-20 09:05:07", "${yyyy-MM-dd HH:mm:ss}|${yyyy/MM_dd.HH,mm}", "2026-11-20 09:05:07|2026/11_20.09,05"},
		{"Chinese separators", "UTC", "2026-06-09 09:00", "${yyyy年M月d日}", "2026年6月9日"},
		{"unpadded, as in Hive", "UTC", "2026-06-09 00:03:04", "month=${M}/day=${d}/hour=${H}/${m}/${s}", "month=6/day=9/hour=0/3/4"},
		{"a short year", "UTC", "2026-06-09", "${yyMMdd}", "260609"},
		{"a day earlier", "UTC", "2026-03-01", "${yyyyMMdd-1d}", "20260228"},
		{"with dashes before the shift", "UTC", "2028-03-01", "${yyyy-MM-dd-1d}", "2028-02-29"},
		{"a day later", "UTC", "2026-12-31", "${yyyyMMdd+1d}", "20270101"},
		{"a week earlier", "UTC", "2026-11-20", "${yyyyMMdd-1w}", "20261113"},
		{"a month clamps", "UTC", "2026-03-31", "${yyyyMMdd-1M}", "20260228"},
		{"twelve months from a leap day", "UTC", "2028-02-29", "${yyyyMMdd+12M}", "20290228"},
		{"a month over New Year", "UTC", "2026-01-15", "${yyyyMM-1M} ${yyyyMM-13M}", "202512 202412"},
		{"an hour shift is elapsed time", "America/New_York", "2026-03-08 03:00", "${yyyyMMddHH-1h}", "2026030801"},
		{"a day shift is on the wall", "America/New_York", "2026-03-09 00:00", "${yyyyMMddHH-1d}", "2026030800"},
		{"a day shift into a gap is after it", "America/New_York", "2026-03-09 02:00", "${yyyyMMddHH-1d}", "2026030803"},
		{"the mark", "UTC", "2026-11-20", "${yyyyMMdd} ${schedule:yyyyMMdd} ${schedule:HHmm}", "20261120 20261121 0001"},
		{"the mark, shifted", "UTC", "2026-11-20", "${schedule:yyyyMMdd-1d}", "20261120"},
		{"the offset", "America/New_York", "2026-11-01T01:00:00-05:00", "${HHZ}", "01-0500"},
		{"the first of two equal hours", "America/New_York", "2026-11-01T01:00:00-04:00", "${HH}${Z}", "01-0400"},
		{"UTC's offset", "UTC", "2026-11-01", "${Z}", "+0000"},
		{"many moments", "UTC", "2026-11-20", "${dd}${dd-1d}${dd-2d}${dd-3d}${dd-4d}${dd-5d}", "201918171615"},
		{"a dollar without braces", "UTC", "2026-11-20", "$d/${d}", "$d/20"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, tt.zone)
			iv := c.Containing(capri.Day, at(t, c, tt.start))
			for _, kind := range []TemplateKind{PathTemplate, CommandTemplate} {
				tmpl, err := ParseTemplate(tt.template, kind)
				require.NoError(t, err)
				assert.Equal(t, tt.want, tmpl.Expand(c, at(t, c, tt.start), iv.Mark))
				assert.Equal(t, tt.template, tmpl.String())
			}
		})
	}
}

// What is not a time is the shell's in a command, and refused in a path with the culprit named.
func TestNotATemplate(t *testing.T) {
	c := in(t, "UTC")
	for _, tt := range []struct{ name, text, command, refusal string }{
		{"a variable", "${HOME}/x", "${HOME}/x", `"O"`},
		{"a name that begins with a time letter", "${M_x}", "${M_x}", `"x"`},
		{"a lower-case name", "${path}", "${path}", `"p"`},
		{"letters of the wrong number", "${yyy}", "${yyy}", `"yyy"`},
		{"a letter of other formats", "${yyyy-MM-ddTHH}", "${yyyy-MM-ddTHH}", `"T"`},
		{"a default", "${x:-y}", "${x:-y}", `"x"`},
		{"a default of a time letter", "${d:-1}", "${d:-1}", "units h d w M"},
		{"a default that is a time letter", "${d:-s}", "${d:-s}", `":-"`},
		{"a length", "${#d}", "${#d}", `"#"`},
		{"a cut suffix", "${d%.*}", "${d%.*}", `"%"`},
		{"an unknown unit", "${yyyyMMdd-1y}", "${yyyyMMdd-1y}", "units h d w M"},
		{"a shift without unit", "${yyyyMMdd-1}", "${yyyyMMdd-1}", "units h d w M"},
		{"a shift without sign", "${yyyyMMdd1d}", "${yyyyMMdd1d}", "sign"},
		{"two shifts", "${yyyyMMdd-1M-1d}", "${yyyyMMdd-1M-1d}", "units h d w M"},
		{"a shift out of reach", "${yyyyMMdd-100001d}", "${yyyyMMdd-100001d}", "at most 100000"},
		{"a shift alone", "${-1d}", "${-1d}", "begins and ends with time letters"},
		{"nothing inside", "${}", "${}", "begins and ends with time letters"},
		{"schedule of nothing", "${schedule:}", "${schedule:}", "begins and ends with time letters"},
		{"a separator at the end", "${yyyy-}", "${yyyy-}", "begins and ends with time letters"},
		{"not closed", "/a/${yyyy", "/a/${yyyy", "closed by }"},
		{"a time inside the shell's", "${x:-${dd}}", "${x:-20}", "closed by }"},
		{"both", "${HOME}/${yyyyMMdd}", "${HOME}/20261120", `"O"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tmpl, err := ParseTemplate(tt.text, CommandTemplate)
			require.NoError(t, err)
			start := at(t, c, "2026-11-20")
			assert.Equal(t, tt.command, tmpl.Expand(c, start, start))

			_, err = ParseTemplate(tt.text, PathTemplate)
			require.ErrorIs(t, err, capri.ErrInvalid)
			assert.Contains(t, err.Error(), tt.refusal)
		})
	}
}

func TestAmbiguousInFold(t *testing.T) {
	for _, tt := range []struct {
		name, zone, template string
		want                 bool
	}{
		{"an hour without offset", "America/New_York", "/a/${yyyyMMdd}/${HH}", true},
		{"with its offset", "America/New_York", "/a/${yyyyMMdd}/${HHZ}", false},
		{"the offset of the mark does not help", "America/New_York", "/a/${yyyyMMddHH}${schedule:Z}", true},
		{"a daily path is meant to be shared", "America/New_York", "/a/${yyyyMMdd}", false},
		{"a clock that never goes back", "Asia/Shanghai", "/a/${yyyyMMddHH}", false},
		{"half an hour makes one long hour", "Australia/Lord_Howe", "/a/${yyyyMMddHH}", false},
		{"two hours back", "Antarctica/Troll", "/a/${yyyyMMddHH}", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := in(t, tt.zone)
			tmpl, err := ParseTemplate(tt.template, PathTemplate)
			require.NoError(t, err)
			assert.Equal(t, tt.want, tmpl.AmbiguousInFold(c, at(t, c, "2026-06-01")))
		})
	}
}
