package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri/cron"
)

func TestWhatAnExpressionMayHold(t *testing.T) {
	// Each expression fires at the times given, and at no other time in the days from 2026-11-01 to 2026-12-01.
	// 2026-11-01 is a Sunday.
	for _, c := range []struct{ name, expression, want string }{
		{"a value", "0 0 0 5 * ?", "05T00:00:00"},
		{"a value with zeros before it", "00 05 007 5 * ?", "05T07:05:00"},
		{"a list", "0 0 0 5,7,5 * ?", "05T00:00:00 07T00:00:00"},
		{"a range", "0 0 0 5-7 * ?", "05T00:00:00 06T00:00:00 07T00:00:00"},
		{"a range of one", "0 0 0 5-5 * ?", "05T00:00:00"},
		{"a range over the end of the minute", "58-1 0 0 5 * ?", "05T00:00:00 05T00:00:01 05T00:00:58 05T00:00:59"},
		{"a range over the end of the day", "0 0 22-2/2 5 * ?", "05T00:00:00 05T02:00:00 05T22:00:00"},
		{"a range over the end of the month", "0 0 0 29-1 * ?", "01T00:00:00 29T00:00:00 30T00:00:00"},
		{"a range over the end of the year", "0 0 0 5 NOV-FEB ?", "05T00:00:00"},
		{"a range over the end of the week", "0 0 0 ? * FRI-MON 2026", "01 02 06 07 08 09 13 14 15 16 20 21 22 23 27 28 29 30"},
		{"a range with a step over the end of the week", "0 0 0 ? * 6-3/2", "01 03 06 08 10 13 15 17 20 22 24 27 29"},
		{"a step from a value", "0 20/20 0 5 * ?", "05T00:20:00 05T00:40:00"},
		{"a step from a value that reaches no second one", "0 50/20 0 5 * ?", "05T00:50:00"},
		{"a step in a range", "0 5-40/15 0 5 * ?", "05T00:05:00 05T00:20:00 05T00:35:00"},
		{"a step from *", "0 0 0 */7 * ?", "01 08 15 22 29"},
		{"a step from nothing", "0 0 0 /14 * ?", "01 15 29"},
		{"the largest step", "0 0/59 0 5 * ?", "05T00:00:00 05T00:59:00"},
		{"a list of all kinds", "0 0 0 3,10-12,25/3 * ?", "03 10 11 12 25 28"},
		{"a list with *", "0 0 0 ? * *,3 2026-2027", "01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30"},
		{"names in small letters", "0 0 0 ? nov fri", "06 13 20 27"},
		{"names and numbers in a list", "0 0 0 ? JAN,11 1,Tue", "01 03 08 10 15 17 22 24 29"},
		{"numbers of weekdays begin with Sunday", "0 0 0 ? * 1", "01 08 15 22 29"},
		{"L as a weekday is Saturday", "0 0 0 ? * L", "07 14 21 28"},
		{"L is the last day", "0 0 0 L * ?", "30"},
		{"L-0 is the last day", "0 0 0 L-0 * ?", "30"},
		{"L-3 is three days before the last", "0 0 0 l-3 * ?", "27"},
		{"L-29 is the first of thirty", "0 0 0 L-29 * ?", "01"},
		{"L-30 does not exist in November", "0 0 0 L-30 * ?", ""},
		{"LW", "0 0 0 lw * ?", "30"},
		{"L-1W from a Sunday goes forward", "0 0 0 L-1W * ?", "30"},
		{"L-2W from a Saturday goes back", "0 0 0 L-2W * ?", "27"},
		{"W on a weekday", "0 0 0 3W * ?", "03"},
		{"W on a Saturday", "0 0 0 14W * ?", "13"},
		{"W on a Sunday", "0 0 0 15w * ?", "16"},
		{"31W does not fire in a month of thirty days", "0 0 0 31W * ?", ""},
		{"the last Friday", "0 0 0 ? * 6L", "27"},
		{"the last Friday by name", "0 0 0 ? * FriL", "27"},
		{"the third Friday", "0 0 0 ? * 6#3", "20"},
		{"the first Sunday by name", "0 0 0 ? * SUN#1", "01"},
		{"a fifth Sunday that exists", "0 0 0 ? * 1#5", "29"},
		{"a fifth Friday that does not", "0 0 0 ? * 6#5", ""},
		{"a year", "0 0 0 5 * ? 2026", "05"},
		{"another year", "0 0 0 5 * ? 2027-2199", ""},
		{"a step of years", "0 0 0 5 * ? 2020/3", "05"},
		{"the largest step of years", "0 0 0 5 11 ? 1970/229,2026", "05"},
		{"tabs and much space", "  0\t0   0 5 *\t?\n", "05"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := parse(t, c.expression)
			var want []string
			for _, w := range strings.Fields(c.want) {
				if len(w) == 2 {
					w += "T00:00:00"
				}
				want = append(want, "2026-11-"+w+"Z")
			}
			fires := e.Between(instant(t, "2026-11-01T00:00:00Z"), instant(t, "2026-12-01T00:00:00Z"), time.UTC, 100)
			assert.Equal(t, want, nilIfEmpty(inUTC(fires)))
		})
	}
}

func TestWeekdaysNearestDoNotLeaveTheMonth(t *testing.T) {
	for _, c := range []struct{ name, expression, after, want string }{
		{"the first is a Saturday", "0 0 0 1W * ?", "2026-07-15T00:00:00Z", "2026-08-03T00:00:00Z"},
		{"the first is a Sunday", "0 0 0 1W * ?", "2026-10-15T00:00:00Z", "2026-11-02T00:00:00Z"},
		{"the last is a Saturday", "0 0 0 LW * ?", "2026-10-15T00:00:00Z", "2026-10-30T00:00:00Z"},
		{"the last is a Sunday", "0 0 0 LW * ?", "2026-05-15T00:00:00Z", "2026-05-29T00:00:00Z"},
		{"the 31st is a Sunday", "0 0 0 31W * ?", "2026-05-15T00:00:00Z", "2026-05-29T00:00:00Z"},
		{"the first, counted from the last, is a Saturday", "0 0 0 L-30W * ?", "2026-07-15T00:00:00Z", "2026-08-03T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := parse(t, c.expression).Next(instant(t, c.after), time.UTC)
			assert.True(t, ok)
			assert.Equal(t, instant(t, c.want), got)
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct{ name, text, field, value, want string }{
		{"empty text", "", "expression", "", "seconds first"},
		{"only space", " \t\n", "expression", "", "seconds first"},
		{"too few fields", "0 0 12 *", "expression", "0 0 12 *", "six or seven fields"},
		{"no seconds", "30 2 * * *", "seconds", "30 2 * * *", "seconds come first, as in 0 30 2 * * *, and one day field is ?: 0 30 2 * * ?"},
		{"no seconds, a weekday", "30 2 * * FRI", "seconds", "30 2 * * FRI", "one day field is ?: 0 30 2 ? * FRI"},
		{"no seconds, a weekday's number", "30 2 * * 1", "seconds", "30 2 * * 1", "0 30 2 ? * 1 (1 is SUN here, and 7 is SAT)"},
		{"no seconds, but a ?", "30 2 * * ?", "seconds", "30 2 * * ?", "seconds come first, as in 0 30 2 * * ?"},
		{"a nickname", "@hourly", "expression", "@hourly", "0 0 * * * ?"},
		{"a nickname with an argument", "@every 1h", "expression", "@every 1h", "six or seven fields"},
		{"text after the year", "0 0 0 1 1 ? 2026; DROP TABLE", "year", "DROP TABLE", "nothing after the year"},
		{"text right after the year", "0 0 0 1 1 ? 2026;", "year", "2026;", "1970 to 2199"},
		{"too long", strings.Repeat("0,", 200) + "0 0 0 * * ?", "expression", strings.Repeat("0,", 200) + "0 0 0 * * ?", "at most 255"},
		{"a control character", "0 0 0 \x001 * ?", "day-of-month", "\x001", "plain"},
		{"a line break in place of a space", "0 0 0 1 *\n?", "month", "*\n?", "plain"},
		{"a line break within a field", "0 0 0 1 1\n2 ?", "month", "1\n2", "plain"},
		{"a letter whose capital is an S", "0 0 0 ? * \u017fun", "day-of-week", "\u017fun", "plain"},
		{"digits of another script", "0 0 0 \u0661 * ?", "day-of-month", "\u0661", "plain"},
		{"space that does not break", "0 0 0\u00a0 1 * ?", "hours", "0\u00a0", "plain"},

		{"seconds out of range", "60 0 0 1 * ?", "seconds", "60", "0 to 59"},
		{"minutes out of range", "0 60 0 1 * ?", "minutes", "60", "0 to 59"},
		{"hours out of range", "0 0 24 1 * ?", "hours", "24", "0 to 23"},
		{"a day 0", "0 0 0 0 * ?", "day-of-month", "0", "1 to 31"},
		{"a day 32", "0 0 0 32 * ?", "day-of-month", "32", "1 to 31"},
		{"a month 13", "0 0 0 1 13 ?", "month", "13", "1 to 12 or JAN to DEC"},
		{"a weekday 0, Sunday for Unix", "0 0 0 ? * 0", "day-of-week", "0", "1 to 7 or SUN to SAT"},
		{"a weekday 8", "0 0 0 ? * 8", "day-of-week", "8", "1 to 7 or SUN to SAT"},
		{"a year too early", "0 0 0 1 1 ? 1969", "year", "1969", "1970 to 2199"},
		{"a year too late", "0 0 0 1 1 ? 2200", "year", "2200", "1970 to 2199"},
		{"the end of a range out of range", "0 0 20-24 * * ?", "hours", "24", "0 to 23"},
		{"more digits than a number has", "0 0 99999999999999999999 * * ?", "hours", "99999999999999999999", "0 to 23"},
		{"years backwards", "0 0 0 1 1 ? 2028-2026", "year", "2028-2026", "the earlier year first"},

		{"a full name of a weekday", "0 0 0 ? * Monday", "day-of-week", "Monday", "MON"},
		{"a full name of a month", "0 0 0 1 JANUARY ?", "month", "JANUARY", "JAN"},
		{"a name that is too short", "0 0 0 ? * TU", "day-of-week", "TU", "SUN to SAT"},
		{"a weekday's name as a month", "0 0 0 1 MON ?", "month", "MON", "JAN to DEC"},
		{"a name in the hours", "0 0 MON * * ?", "hours", "MON", "0 to 23"},
		{"a step after a name", "0 0 0 ? * MON/2", "day-of-week", "MON/2", "a name cannot have one"},
		{"a step after a range of names", "0 0 0 ? * MON-FRI/2", "day-of-week", "MON-FRI/2", "a name cannot have one"},
		{"a range from a name to a number", "0 0 0 ? * MON-6", "day-of-week", "MON-6", "both ends"},
		{"a range from a number to a name", "0 0 0 1 1-MAR ?", "month", "1-MAR", "both ends"},

		{"a step of 0", "0 0/0 0 * * ?", "minutes", "0/0", "a step of 1 to 59"},
		{"a step of 0 from *", "0 */0 0 * * ?", "minutes", "*/0", "a step of 1 to 59"},
		{"a step larger than the field", "0 0/60 0 * * ?", "minutes", "0/60", "a step of 1 to 59"},
		{"a step larger than the field behind a range", "0 1-5/60 0 * * ?", "minutes", "1-5/60", "a step of 1 to 59"},
		{"a step larger than the hours", "0 0 0/24 * * ?", "hours", "0/24", "a step of 1 to 23"},
		{"a step larger than the week", "0 0 0 ? * */8", "day-of-week", "*/8", "a step of 1 to 7"},
		{"a step larger than the years", "0 0 0 1 1 ? */230", "year", "*/230", "a step of 1 to 229"},
		{"a step that is missing", "0 5/ 0 * * ?", "minutes", "5/", "a step of 1 to 59"},
		{"only a slash", "0 / 0 * * ?", "minutes", "/", "a step of 1 to 59"},
		{"two steps", "0 0/5/5 0 * * ?", "minutes", "0/5/5", "a step of 1 to 59"},
		{"a step with a W", "0 0 0 1/5W * ?", "day-of-month", "1/5W", "1W to 31W"},

		{"an empty entry at the end", "0 5,, 0 * * ?", "minutes", "5,,", "each comma"},
		{"an empty entry at the beginning", "0 ,5 0 * * ?", "minutes", ",5", "each comma"},
		{"only a comma", "0 , 0 * * ?", "minutes", ",", "each comma"},
		{"a range of three", "0 1-2-3 0 * * ?", "minutes", "1-2-3", "both ends"},
		{"a range without an end", "0 5- 0 * * ?", "minutes", "5-", "both ends"},
		{"a range without a beginning", "0 -5 0 * * ?", "minutes", "-5", "both ends"},
		{"a fraction", "0 1.5 0 * * ?", "minutes", "1.5", "0 to 59"},
		{"a hexadecimal number", "0 0x5 0 * * ?", "minutes", "0x5", "0 to 59"},
		{"a plus", "0 +5 0 * * ?", "minutes", "+5", "0 to 59"},
		{"a * with more", "0 *5 0 * * ?", "minutes", "*5", "0 to 59"},
		{"a letter", "0 a 0 * * ?", "minutes", "a", "0 to 59"},

		{"? in the minutes", "0 ? 0 * * ?", "minutes", "?", "day-of-month or day-of-week"},
		{"? in the month", "0 0 0 1 ? ?", "month", "?", "day-of-month or day-of-week"},
		{"? in a list", "0 0 0 ?,5 * ?", "day-of-month", "?", "stands alone"},
		{"? twice", "0 0 0 ? * ?", "day-of-week", "?", "only one"},
		{"no ?", "0 0 0 * * *", "day-of-week", "*", "exactly one"},
		{"no ?, a day", "0 0 0 1 * *", "day-of-week", "*", "exactly one"},
		{"no ?, a weekday", "0 0 0 * * FRI", "day-of-month", "*", "exactly one"},
		{"no ?, a day and a weekday", "0 0 0 13 * FRI", "day-of-week", "FRI", "exactly one"},

		{"L in the seconds", "L 0 0 * * ?", "seconds", "L", "0 to 59"},
		{"L in the hours", "0 0 L * * ?", "hours", "L", "0 to 23"},
		{"L in the month", "0 0 0 1 L ?", "month", "L", "1 to 12"},
		{"L in a list of days", "0 0 0 L,20 * ?", "day-of-month", "L,20", "alone"},
		{"L after a day", "0 0 0 5L * ?", "day-of-month", "5L", "L-3"},
		{"L too far", "0 0 0 L-31 * ?", "day-of-month", "L-31", "L-0 to L-30"},
		{"L without its number", "0 0 0 L- * ?", "day-of-month", "L-", "L-0 to L-30"},
		{"L without its number and a W", "0 0 0 L-W * ?", "day-of-month", "L-W", "L-0 to L-30"},
		{"W alone", "0 0 0 W * ?", "day-of-month", "W", "1W to 31W"},
		{"WL", "0 0 0 WL * ?", "day-of-month", "WL", "LW"},
		{"0W", "0 0 0 0W * ?", "day-of-month", "0W", "1W to 31W"},
		{"32W", "0 0 0 32W * ?", "day-of-month", "32W", "1W to 31W"},
		{"W after a range", "0 0 0 1-5W * ?", "day-of-month", "1-5W", "1W to 31W"},
		{"a list of W", "0 0 0 1W,15W * ?", "day-of-month", "1W,15W", "alone"},
		{"more after a W", "0 0 0 15WX * ?", "day-of-month", "15WX", "15W"},
		{"W in the weekdays", "0 0 0 ? * 5W", "day-of-week", "5W", "1 to 7"},
		{"a list with a last weekday", "0 0 0 ? * FRIL,MON", "day-of-week", "FRIL,MON", "alone"},
		{"L after a range of weekdays", "0 0 0 ? * 1-5L", "day-of-week", "1-5L", "a single day"},
		{"a last weekday 0", "0 0 0 ? * 0L", "day-of-week", "0L", "a single day"},
		{"L-3 in the weekdays", "0 0 0 ? * L-3", "day-of-week", "L-3", "a single day"},
		{"a list with a #", "0 0 0 ? * MON,FRI#3", "day-of-week", "MON,FRI#3", "alone"},
		{"a sixth Friday", "0 0 0 ? * FRI#6", "day-of-week", "FRI#6", "1 to 5"},
		{"a zeroth Friday", "0 0 0 ? * FRI#0", "day-of-week", "FRI#0", "1 to 5"},
		{"a # without a day", "0 0 0 ? * #3", "day-of-week", "", "1 to 7"},
		{"a # after a range", "0 0 0 ? * 1-3#2", "day-of-week", "1-3", "1 to 7"},
		{"a # in the days of the month", "0 0 0 6#3 * ?", "day-of-month", "6#3", "1 to 31"},
		{"two #", "0 0 0 ? * 6#3#1", "day-of-week", "6#3#1", "1 to 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := cron.Parse(c.text)
			assert.Nil(t, e)
			var refusal *cron.Error
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, c.field, refusal.Field)
			assert.Equal(t, c.value, refusal.Value)
			assert.Contains(t, refusal.Want, c.want)
			assert.Contains(t, err.Error(), c.field)
			assert.Less(t, len(err.Error()), 300, "a message for a dialog")
		})
	}
}

func TestSuggestionsForMissingSecondsAreExpressions(t *testing.T) {
	for _, text := range []string{"30 2 * * *", "30 2 * * FRI", "*/5 * 1 * *", "30 2 1 * ?", "30 2 ? * *"} {
		_, err := cron.Parse(text)
		var refusal *cron.Error
		require.ErrorAs(t, err, &refusal)
		words := strings.Fields(refusal.Want)
		_, err = cron.Parse(strings.Join(words[len(words)-6:], " "))
		assert.NoError(t, err, refusal.Want)
	}
}

func TestFixedHours(t *testing.T) {
	for hours, fixed := range map[string]bool{
		"2": true, "1,2": true, "0,1,2,3": true,
		"*": false, "1-3": false, "2-2": false, "0/6": false, "*/6": false, "/6": false, "1,3-5": false, "22-2": false,
	} {
		assert.Equal(t, fixed, parse(t, "0 0 "+hours+" * * ?").FixedHours(), hours)
	}
}

func TestStringIsTheTextTrimmed(t *testing.T) {
	assert.Equal(t, "0 0\t2 ? * Mon", parse(t, "\t 0 0\t2 ? * Mon \r\n").String())
}
