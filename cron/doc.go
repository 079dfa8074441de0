// Package cron reads Quartz cron expressions and says when they fire.
//
//	e, err := cron.Parse("0 30 2 ? * MON-FRI")
//	fire, ok := e.Next(time.Now(), zone) // the first fire strictly after now; false when there is none
//
// An expression has six or seven fields, seconds first:
//
//	seconds  minutes  hours  day-of-month      month            day-of-week             year (may be left out)
//	0-59     0-59     0-23   1-31 ? L L-3 LW   1-12 or JAN-DEC  1-7 or SUN-SAT ? L 6L   1970-2199
//	                         15W L-3W                           FRIL 6#3 FRI#3 (1 = SUN)
//
// Every field takes * (all), lists 1,3,5, ranges 9-17, and steps 0/15, 5-40/5 or */7. Ranges of all fields but the
// year go over the end: 22-2, FRI-MON, NOV-FEB. Letters may be small. Exactly one of the two day fields is ?.
// In day-of-month L is the last day, L-3 three days before it, 15W the weekday (Monday to Friday) nearest to the 15th
// in the same month, LW the last weekday. In day-of-week L is Saturday, 6L the last Friday of the month, 6#3 the third.
//
// # The set of fires
//
// The fires of an expression in a zone are a fixed set of instants: Next, Prev and Between only look at it, and answer
// the same wherever they are asked from. An instant is in the set when the wall clock of the zone then shows a matching
// time, except that expressions with fixed hours leave out all but the last of several equal wall times:
//
//   - A wall time that a clock change skips does not fire on that day.
//   - A wall time that comes twice fires at the later one if the hours are fixed (one hour, or a list), so that
//     a nightly job runs once, and both times if the hours run on (*, a range, or a step), so that no hour is lost.
//
// Read on in parse.go (text to sets), wall.go (wall clock and instants) and next.go (the search).
//
// # Where this differs from Quartz 2.3.2
//
// Fires agree with org.quartz.CronExpression for what both accept, except:
//
//   - When a clock goes back, Quartz leaves out the first of two equal hours even for expressions that run on, and its
//     answer depends on where it is asked from.
//   - After a gap of half an hour (Lord Howe) Quartz leaves out 02:40 if it looked for a skipped 02:17 first.
//   - 29W, 30W, 31W, L-30W: a month without that day has no fire. Quartz fires 31W on 30 April, and searches for L-30W
//     for ever.
//   - Years go to 2199; Quartz stops 100 years from now.
//
// Text that Quartz takes by accident, reading something else than is written, is refused with the field named:
//
//   - names by their first three letters (MONDAY), and what follows a name (MON/2, MON-FRI/2 mean MON, MON-FRI to it);
//   - empty list entries, ranges of three (1-2-3), 1.5, 0x5, *5, L-W, and anything after the seventh field;
//   - lists with W or # (of 1W,15W it keeps the 1W), ? in a list, L in a range (1-5L), in hours, minutes or seconds;
//   - 0W (an endless loop), a step of 0, a step larger than the field behind a range, years outside 1970 to 2199.
package cron
