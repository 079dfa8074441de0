// Package calendar turns instants into data intervals and back: when a period's marks are, which interval a
// mark is for, what its batch_no is, and what a path template means for it. Everything is a pure function of
// its arguments and of one zone; nothing here reads the wall clock.
//
//	      interval of 20261120              interval of 20261121
//	──┬──────────────────────────────────┬──┬───────────────────────────────┬─▶ business time
//	Start                              End  Mark (00:01, batch 20261120 is made)
//
// Days, not hours of 3600 s, are what people mean, and the clock of a zone jumps. Three rules keep that in
// hand, and nothing else in the project does arithmetic on local times:
//
//   - Hours are those that the clock shows. An interval is an unbroken stretch during which date and hour
//     read the same: 23 on the day of a one-hour jump forward, 25 on the day of a jump back, where the two
//     equal ones carry their offset (2026110101-0400, 2026110101-0500). A jump by half an hour makes an hour
//     shorter or longer and never a second one, since the clock goes on to show the same hour.
//   - Days, weeks and months are labelled by dates, and a date begins at the first instant that its midnight,
//     or what comes after it, is shown. So they tile time without hole or overlap, whatever the clock does
//     at midnight, and a date that the zone never had has no interval.
//   - Wall clock → instant goes through one function (clock.resolve): the first instant that shows it, else
//     the first after the gap. time.Date does neither.
package calendar
