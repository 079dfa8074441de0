package duty

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

// at reads a time; one without an offset is of the rota's zone, the first where it comes twice.
func at(t testing.TB, z *time.Location, text string) capri.Instant {
	t.Helper()
	if x, err := time.Parse(time.RFC3339, text); err == nil {
		return capri.InstantOf(x)
	}
	x, err := time.ParseInLocation("2006-01-02 15:04", text, z)
	require.NoError(t, err)
	return capri.InstantOf(x)
}

// rota parses a spec that must be right.
func rota(t testing.TB, s Spec) Rota {
	t.Helper()
	r, wrong := Parse(s, time.UTC)
	require.Empty(t, wrong)
	return r
}

func weekly(t testing.TB) Rota {
	return rota(t, Spec{Department: "dw", Timezone: "Asia/Shanghai",
		Primary:   SpecRotation{People: []string{"alice", "bob", "carol"}, Start: "2026-11-16"},
		Secondary: SpecRotation{People: []string{"dave", "erin"}, Days: 14, Start: "2026-11-16"}})
}

var everybody = map[string]Person{}

func init() {
	for _, name := range []string{"alice", "bob", "carol", "dave", "erin"} {
		everybody[name] = Person{Enabled: true, Phone: "+86"}
	}
}

// with changes one of everybody.
func with(name string, p Person) map[string]Person {
	people := map[string]Person{}
	for n, x := range everybody {
		people[n] = x
	}
	people[name] = p
	return people
}

func text(z *time.Location, i capri.Instant) string {
	if i == 0 {
		return "…"
	}
	return i.In(z).Format("01-02 15:04")
}

func shifts(r Rota, from, to capri.Instant) []string {
	var out []string
	for _, s := range Shifts(r, from, to) {
		out = append(out, strings.TrimRight(fmt.Sprintf("%s %q %s to %s %s", s.Place, s.User, text(r.Zone, s.From), text(r.Zone, s.To), s.Reason), " "))
	}
	return out
}

func holes(r Rota, people map[string]Person, from, to capri.Instant) []string {
	var out []string
	for _, h := range Holes(r, people, from, to) {
		out = append(out, fmt.Sprintf("%s %q %s: %s to %s", h.Place, h.User, h.Why, text(r.Zone, h.From), text(r.Zone, h.To)))
	}
	return out
}

func TestPeople_take_turns_in_their_order(t *testing.T) {
	r := weekly(t)
	for _, c := range []struct {
		when string
		want Duty
	}{
		{"2026-11-16 08:59", Duty{}},
		{"2026-11-16 09:00", Duty{"alice", "dave"}},
		{"2026-11-23 08:59", Duty{"alice", "dave"}},
		{"2026-11-23 09:00", Duty{"bob", "dave"}},
		{"2026-11-30 09:00", Duty{"carol", "erin"}},
		{"2026-12-07 09:00", Duty{"alice", "erin"}},
		{"2036-11-17 09:00", Duty{"alice", "erin"}}, // 522 weeks later: 522 % 3 = 0, 261 % 2 = 1
		{"1999-01-01 00:00", Duty{}},
	} {
		assert.Equal(t, c.want, At(r, at(t, r.Zone, c.when)), c.when)
	}
}

func TestAShift_of_a_day_changes_every_day(t *testing.T) {
	r := rota(t, Spec{HandOver: "18:30", Primary: SpecRotation{People: []string{"alice", "bob"}, Days: 1, Start: "2026-11-16"}})
	assert.Equal(t, "alice", At(r, at(t, r.Zone, "2026-11-17 18:29")).Primary)
	assert.Equal(t, "bob", At(r, at(t, r.Zone, "2026-11-17 18:30")).Primary)
	assert.Equal(t, []string{`primary "alice" 11-16 18:30 to 11-17 18:30`, `primary "bob" 11-17 18:30 to 11-18 18:30`},
		shifts(r, at(t, r.Zone, "2026-11-17 00:00"), at(t, r.Zone, "2026-11-18 18:30")), "whole shifts, and none that begins at the end")
}

func TestTheHandOver_is_by_the_zones_clock(t *testing.T) {
	r := weekly(t)
	assert.Equal(t, "alice", At(r, at(t, time.UTC, "2026-11-16 01:00")).Primary)
	assert.Equal(t, "", At(r, at(t, time.UTC, "2026-11-16 00:59")).Primary)
}

func TestWeeks_stand_one_by_one_and_between_them_is_nobody(t *testing.T) {
	r := rota(t, Spec{Primary: SpecRotation{Weeks: []SpecWeek{{"2026-11-30", "carol"}, {"2026-11-16", "alice"}}}})
	from, to := at(t, r.Zone, "2026-11-01 00:00"), at(t, r.Zone, "2026-12-31 00:00")
	assert.Equal(t, []string{`primary "" … to 11-16 09:00`, `primary "alice" 11-16 09:00 to 11-23 09:00`, `primary "" 11-23 09:00 to 11-30 09:00`,
		`primary "carol" 11-30 09:00 to 12-07 09:00`, `primary "" 12-07 09:00 to …`}, shifts(r, from, to))
	assert.Equal(t, []string{`primary "" is on duty: … to 11-16 09:00`, `primary "" is on duty: 11-23 09:00 to 11-30 09:00`, `primary "" is on duty: 12-07 09:00 to …`},
		holes(r, everybody, from, to))
}

func TestAnOverride_counts_in_its_time_alone(t *testing.T) {
	r := weekly(t)
	r.Overrides = []Override{{ID: 1, Place: Primary, From: at(t, r.Zone, "2026-11-18 12:00"), To: at(t, r.Zone, "2026-11-19 12:00"), User: "erin", Reason: "swap"}}
	for when, want := range map[string]string{"2026-11-18 11:59": "alice", "2026-11-18 12:00": "erin", "2026-11-19 11:59": "erin", "2026-11-19 12:00": "alice"} {
		assert.Equal(t, Duty{want, "dave"}, At(r, at(t, r.Zone, when)), when)
	}
	assert.Equal(t, []string{`primary "alice" 11-16 09:00 to 11-18 12:00`, `primary "erin" 11-18 12:00 to 11-19 12:00 swap`, `primary "alice" 11-19 12:00 to 11-23 09:00`,
		`secondary "dave" 11-16 09:00 to 11-30 09:00`}, shifts(r, at(t, r.Zone, "2026-11-17 00:00"), at(t, r.Zone, "2026-11-20 00:00")))
}

func TestAnOverride_of_many_shifts_is_one_shift_wherever_one_looks(t *testing.T) {
	r := weekly(t)
	r.Overrides = []Override{{ID: 1, Place: Primary, From: at(t, r.Zone, "2026-11-20 00:00"), To: at(t, r.Zone, "2026-12-20 00:00"), User: "erin"}}
	whole := `primary "erin" 11-20 00:00 to 12-20 00:00`
	for _, day := range []string{"2026-11-20", "2026-11-30", "2026-12-19"} {
		from := at(t, r.Zone, day+" 00:00")
		assert.Equal(t, whole, shifts(r, from, from+1)[0], day)
	}
}

func TestOfOverrides_that_overlap_the_last_one_made_counts(t *testing.T) {
	r := weekly(t)
	r.Overrides = []Override{
		{ID: 2, Place: Primary, From: at(t, r.Zone, "2026-11-18 00:00"), To: at(t, r.Zone, "2026-11-19 00:00"), User: "erin"},
		{ID: 1, Place: Primary, From: at(t, r.Zone, "2026-11-17 00:00"), To: at(t, r.Zone, "2026-11-20 00:00"), User: "dave"},
		{ID: 9, Place: Secondary, From: at(t, r.Zone, "2026-11-17 00:00"), To: at(t, r.Zone, "2026-11-20 00:00"), User: "carol"},
	}
	assert.Equal(t, []string{`primary "alice" 11-16 09:00 to 11-17 00:00`, `primary "dave" 11-17 00:00 to 11-18 00:00`, `primary "erin" 11-18 00:00 to 11-19 00:00`,
		`primary "dave" 11-19 00:00 to 11-20 00:00`, `primary "alice" 11-20 00:00 to 11-23 09:00`,
		`secondary "dave" 11-16 09:00 to 11-17 00:00`, `secondary "carol" 11-17 00:00 to 11-20 00:00`, `secondary "dave" 11-20 00:00 to 11-30 09:00`},
		shifts(r, at(t, r.Zone, "2026-11-16 09:00"), at(t, r.Zone, "2026-11-23 09:00")))
}

func TestAPlaceThatNobodyIsWantedFor_is_no_hole_and_may_be_filled_by_an_override(t *testing.T) {
	r := rota(t, Spec{Primary: SpecRotation{People: []string{"alice"}, Start: "2026-11-16"}})
	from, to := at(t, r.Zone, "2026-11-17 00:00"), at(t, r.Zone, "2026-11-18 00:00")
	assert.Empty(t, holes(r, everybody, from, to))
	r.Overrides = []Override{{ID: 1, Place: Secondary, From: from, To: to, User: "bob"}}
	assert.Equal(t, Duty{"alice", "bob"}, At(r, from))
	assert.Equal(t, []string{`primary "alice" 11-16 09:00 to 11-23 09:00`, `secondary "bob" 11-17 00:00 to 11-18 00:00`}, shifts(r, from, to))
}

func TestAPersonWhoCannotBeReached_is_a_hole(t *testing.T) {
	r := weekly(t)
	from, to := at(t, r.Zone, "2026-11-16 09:00"), at(t, r.Zone, "2026-11-30 09:00")
	unknown := with("bob", Person{})
	delete(unknown, "bob")
	for why, people := range map[string]map[string]Person{
		"is disabled":         with("bob", Person{Phone: "+86"}),
		"has no phone number": with("bob", Person{Enabled: true}),
		"is not known":        unknown,
	} {
		assert.Equal(t, []string{`primary "bob" ` + why + `: 11-23 09:00 to 11-30 09:00`}, holes(r, people, from, to))
	}
	assert.Empty(t, holes(r, everybody, from, to))
}

func TestAHole_is_the_same_from_whenever_one_looks(t *testing.T) {
	r := weekly(t)
	people := with("bob", Person{Enabled: true})
	want := []string{`primary "bob" has no phone number: 11-23 09:00 to 11-30 09:00`}
	for _, day := range []string{"2026-11-17", "2026-11-23", "2026-11-29"} {
		from := at(t, r.Zone, day+" 12:00")
		assert.Equal(t, want, holes(r, people, from, from.Add(7*24*time.Hour))[:1], day)
	}
}

func TestOnePersonInBothPlaces_is_a_hole_as_long_as_both_last(t *testing.T) {
	r := weekly(t)
	r.Overrides = []Override{{ID: 1, Place: Secondary, From: at(t, r.Zone, "2026-11-20 00:00"), To: at(t, r.Zone, "2026-11-25 00:00"), User: "alice"}}
	from, to := at(t, r.Zone, "2026-11-16 09:00"), at(t, r.Zone, "2026-11-30 09:00")
	assert.Equal(t, []string{` "alice" is primary and secondary: 11-20 00:00 to 11-23 09:00`}, holes(r, everybody, from, to))
	assert.Empty(t, holes(r, everybody, at(t, r.Zone, "2026-11-23 09:00"), to), "it has ended")
	assert.Len(t, holes(r, with("alice", Person{Enabled: true}), from, to), 2, "one who cannot be reached anyway is a hole of each place, and no third")
}

func TestOnePersonInBothPlaces_at_different_times_is_no_hole(t *testing.T) {
	r := weekly(t)
	r.Overrides = []Override{{ID: 1, Place: Secondary, From: at(t, r.Zone, "2026-11-23 09:00"), To: at(t, r.Zone, "2026-11-25 00:00"), User: "alice"}}
	assert.Empty(t, holes(r, everybody, at(t, r.Zone, "2026-11-16 09:00"), at(t, r.Zone, "2026-11-30 09:00")))
}

func TestBeforeTheStart_nobody_is_on_duty(t *testing.T) {
	r := weekly(t)
	assert.Equal(t, []string{`primary "" is on duty: … to 11-16 09:00`, `secondary "" is on duty: … to 11-16 09:00`},
		holes(r, everybody, at(t, r.Zone, "2026-11-10 00:00"), at(t, r.Zone, "2026-11-17 00:00")))
}

func TestTheNextHandOver_is_of_whichever_place_changes_first(t *testing.T) {
	r := weekly(t)
	assert.Equal(t, at(t, r.Zone, "2026-11-23 09:00"), HandOverAfter(r, at(t, r.Zone, "2026-11-17 00:00")))
	r.Overrides = []Override{{ID: 1, Place: Secondary, From: at(t, r.Zone, "2026-11-18 00:00"), To: at(t, r.Zone, "2026-11-19 00:00"), User: "bob"}}
	assert.Equal(t, at(t, r.Zone, "2026-11-18 00:00"), HandOverAfter(r, at(t, r.Zone, "2026-11-17 00:00")))
	over := rota(t, Spec{Primary: SpecRotation{Weeks: []SpecWeek{{"2020-01-06", "alice"}}}})
	assert.Zero(t, HandOverAfter(over, at(t, r.Zone, "2026-11-17 00:00")), "nobody comes any more")
}

func TestABrokenRota_has_its_overrides_and_else_nobody(t *testing.T) {
	r := Rota{Department: "dw", Zone: time.UTC, Broken: "timezone", Primary: Rotation{People: []string{"bob"}, Days: 7}}
	r.Overrides = []Override{{ID: 1, Place: Primary, From: 1000, To: 2000, User: "alice"}}
	assert.Equal(t, Duty{"alice", ""}, At(r, 1500))
	assert.Equal(t, Duty{}, At(r, 2000))
	assert.Len(t, Holes(r, everybody, 1000, 3000), 1)
}

func TestAHandOver_in_a_gap_is_the_first_instant_after_it(t *testing.T) {
	r := rota(t, Spec{Timezone: "America/New_York", HandOver: "02:30", Primary: SpecRotation{People: []string{"alice", "bob"}, Days: 1, Start: "2026-03-07"}})
	assert.Equal(t, "alice", At(r, at(t, r.Zone, "2026-03-08T01:59:59-05:00")).Primary)
	assert.Equal(t, "bob", At(r, at(t, r.Zone, "2026-03-08T03:00:00-04:00")).Primary)
	assert.Equal(t, "alice", At(r, at(t, r.Zone, "2026-03-09T02:30:00-04:00")).Primary)
}

func TestAHandOver_that_comes_twice_is_the_first(t *testing.T) {
	r := rota(t, Spec{Timezone: "America/New_York", HandOver: "01:30", Primary: SpecRotation{People: []string{"alice", "bob"}, Days: 1, Start: "2026-10-31"}})
	assert.Equal(t, "alice", At(r, at(t, r.Zone, "2026-11-01T01:29:59-04:00")).Primary)
	assert.Equal(t, "bob", At(r, at(t, r.Zone, "2026-11-01T01:30:00-04:00")).Primary)
	assert.Equal(t, "bob", At(r, at(t, r.Zone, "2026-11-01T01:29:59-05:00")).Primary, "the hour again")
	assert.Equal(t, "bob", At(r, at(t, r.Zone, "2026-11-01T01:30:00-05:00")).Primary)
}

func TestADateThatComesTwice_begins_once(t *testing.T) {
	// Until 2011 the clock of St. John's went back at 00:01, to 23:01 of the day before.
	r := rota(t, Spec{Timezone: "America/St_Johns", HandOver: "00:00", Primary: SpecRotation{People: []string{"alice", "bob"}, Days: 1, Start: "2010-11-06"}})
	first := at(t, r.Zone, "2010-11-07T00:00:00-02:30")
	assert.Equal(t, "alice", At(r, first-1).Primary)
	for _, later := range []time.Duration{0, 59 * time.Second, time.Minute, time.Hour, 2 * time.Hour} {
		assert.Equal(t, "bob", At(r, first.Add(later)).Primary, later)
	}
}

func TestADateThatTheZoneNeverHad_begins_where_the_next_one_does(t *testing.T) {
	r := rota(t, Spec{Timezone: "Pacific/Apia", HandOver: "00:00", Primary: SpecRotation{People: []string{"alice", "bob", "carol"}, Days: 1, Start: "2011-12-29"}})
	day29 := at(t, r.Zone, "2011-12-29 12:00")
	assert.Equal(t, "alice", At(r, day29).Primary)
	assert.Equal(t, "carol", At(r, day29.Add(24*time.Hour)).Primary, "bob's day never was")
	assert.Len(t, Shifts(r, day29, day29.Add(24*time.Hour)), 2)
}

// Each instant belongs to exactly one shift of each place, whatever the clock of the zone does and whatever overrides are
// there; At and Shifts agree; and shifts of a rotation begin when the clock first shows the time of the hand-over.
func TestEachInstant_belongs_to_exactly_one_shift(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const day = 24 * time.Hour
	for _, name := range []string{"America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo"} {
		z := zone(t, name)
		begin := capri.InstantOf(time.Date(2014, 1, 1, 0, 0, 0, 0, time.UTC))
		end := begin.Add(3653 * day)
		for range 12 {
			s := Spec{Timezone: name, HandOver: fmt.Sprintf("%02d:%02d", rnd.IntN(24), rnd.IntN(60)),
				Primary:   SpecRotation{People: []string{"alice", "bob", "carol"}, Days: []int{1, 7, 14}[rnd.IntN(3)], Start: "2014-01-06"},
				Secondary: SpecRotation{Weeks: []SpecWeek{{"2015-03-02", "dave"}, {"2015-03-09", "erin"}, {"2019-10-28", "dave"}}}}
			r := rota(t, s)
			for id := range rnd.IntN(5) {
				from := begin.Add(time.Duration(rnd.Int64N(int64(3000 * day))))
				r.Overrides = append(r.Overrides, Override{ID: int64(id + 1), Place: places[rnd.IntN(2)], From: from, To: from.Add(time.Duration(1 + rnd.Int64N(int64(100*day)))), User: "erin"})
			}
			all := Shifts(r, begin, end)
			for _, p := range places {
				var mine []Shift
				for _, x := range all {
					if x.Place == p {
						mine = append(mine, x)
					}
				}
				require.True(t, mine[0].From == 0 || mine[0].From <= begin)
				last := mine[len(mine)-1].To
				require.True(t, last == 0 || last >= end)
				for i := 1; i < len(mine); i++ {
					require.Equal(t, mine[i-1].To, mine[i].From, "%s %v: a gap, or an overlap", name, s)
					require.True(t, mine[i].To == 0 || mine[i].From < mine[i].To, "an empty shift")
				}
				for _, x := range mine { // without gap and overlap, so an instant of this one is of no other
					first, last := max(x.From, begin), end-1
					if x.To != 0 {
						last = min(x.To-1, last)
					}
					for _, look := range []capri.Instant{first, last, first + capri.Instant(rnd.Int64N(int64(last-first)+1))} {
						d := At(r, look)
						require.Equal(t, x.User, map[Place]string{Primary: d.Primary, Secondary: d.Secondary}[p], "%s at %s", name, look)
					}
					if x.Override == 0 && x.From > 0 && !slices.ContainsFunc(r.Overrides, func(o Override) bool { return o.Place == p && o.To == x.From }) {
						shown, before := x.From.In(z), (x.From - 1).In(z)
						want := fmt.Sprintf("%02d:%02d", r.HandOver/60, r.HandOver%60)
						skipped := shown.Sub(before) == time.Millisecond && shown.Format("15:04") > want && before.Format("15:04") < want || shown.YearDay() != before.YearDay()
						require.True(t, shown.Format("15:04") == want || skipped, "%s hands over at %s, and not at %s", name, shown, want)
					}
				}
			}
		}
	}
}

func TestAMinuteOfEveryDay_is_handed_over_once_by_the_clock_on_the_wall(t *testing.T) {
	for _, name := range []string{"America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo"} {
		z := zone(t, name)
		start, err := ParseDate("2014-01-01")
		require.NoError(t, err)
		for _, minutes := range []int{0, 30, 60, 90, 105, 120, 150, 180, 540, 1439} { // clocks change at night
			for d := start; d < start+3653; d++ {
				got := reach(z, d, minutes)
				wall := int64(d)*daySeconds + int64(minutes)*60
				shown := func(i capri.Instant) int64 { // what the clock shows, as if it were UTC
					_, offset := time.UnixMilli(int64(i)).In(z).Zone()
					return int64(i)/1000 + int64(offset)
				}
				if shown(got) < wall || shown(got-1000) >= wall || shown(got.Add(-time.Hour)) >= wall { // require is slow
					t.Fatalf("%s, %s, minute %d: %s is not the first instant whose clock shows it", name, d, minutes, got)
				}
			}
		}
	}
}

func TestParse_says_everything_that_is_wrong_at_once(t *testing.T) {
	_, wrong := Parse(Spec{Department: "a b", Timezone: "Mars/Base", HandOver: "9:00",
		Primary:   SpecRotation{People: []string{"alice", "bob,carol", ""}, Days: 400, Start: "16.11.2026"},
		Secondary: SpecRotation{Weeks: []SpecWeek{{"2026-11-16", "dave"}, {"2026-11-20", "erin"}, {"soon", "x=y"}}, Days: 7, Start: "2026-11-16"}}, time.UTC)
	var fields []string
	for _, w := range wrong {
		fields = append(fields, w.Field)
		assert.NotEmpty(t, w.Want, w.Field)
	}
	assert.Equal(t, []string{"department", "timezone", "hand_over", "primary.start", "primary.days", "primary.people[1]", "primary.people[2]",
		"secondary.days", "secondary.start", "secondary.weeks[2].from", "secondary.weeks[2].user", "secondary.weeks"}, fields)
}

func TestParse_refuses_what_cannot_be_a_rota(t *testing.T) {
	good := SpecRotation{People: []string{"alice"}, Start: "2026-11-16"}
	for field, s := range map[string]Spec{
		"primary":           {},
		"timezone":          {Timezone: "Local", Primary: good},
		"hand_over":         {HandOver: "24:00", Primary: good},
		"primary.start":     {Primary: SpecRotation{People: []string{"alice"}}},
		"primary.days":      {Primary: SpecRotation{People: []string{"alice"}, Days: -1, Start: "2026-11-16"}},
		"primary.weeks":     {Primary: SpecRotation{People: []string{"alice"}, Start: "2026-11-16", Weeks: []SpecWeek{{"2026-11-16", "bob"}}}},
		"primary.people":    {Primary: SpecRotation{People: slices.Repeat([]string{"alice"}, 201), Start: "2026-11-16"}},
		"secondary.weeks":   {Primary: good, Secondary: SpecRotation{Weeks: make([]SpecWeek, 601)}},
		"secondary.start":   {Primary: good, Secondary: SpecRotation{Start: "2026-11-16"}},
		"primary.people[0]": {Primary: SpecRotation{People: []string{strings.Repeat("a", 129)}, Start: "2026-11-16"}},
	} {
		_, wrong := Parse(s, time.UTC)
		if assert.NotEmpty(t, wrong, field) {
			assert.Equal(t, field, wrong[0].Field)
		}
	}
}

func TestASpec_comes_back_with_nothing_left_out(t *testing.T) {
	s := Spec{Department: "数据", Primary: SpecRotation{People: []string{"alice"}, Start: "2026-11-16"},
		Secondary: SpecRotation{Weeks: []SpecWeek{{"2026-11-16", "bob"}}}}
	r, wrong := Parse(s, zone(t, "Asia/Shanghai"))
	require.Empty(t, wrong)
	s.Timezone, s.HandOver, s.Primary.Days = "Asia/Shanghai", "09:00", 7
	assert.Equal(t, s, r.Spec())
	again := rota(t, r.Spec())
	assert.Equal(t, r.Spec(), again.Spec())
}

func TestAnOverride_is_checked(t *testing.T) {
	good := Override{Place: Primary, User: "alice", From: 1000, To: 2000}
	require.Empty(t, good.Check())
	for field, change := range map[string]func(*Override){
		"place": func(o *Override) { o.Place = "third" },
		"user":  func(o *Override) { o.User = "" },
		"from":  func(o *Override) { o.From = 0 },
		"to":    func(o *Override) { o.To = o.From },
	} {
		o := good
		change(&o)
		wrong := o.Check()
		if assert.Len(t, wrong, 1, field) {
			assert.Equal(t, field, wrong[0].Field)
		}
	}
	long := good
	long.To = long.From.Add(367 * 24 * time.Hour)
	assert.Len(t, long.Check(), 1)
}
