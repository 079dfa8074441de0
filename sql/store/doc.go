// Package store is everything that Capri asks of its database, as typed operations, a file per noun. It is the only
// package that speaks SQL to the tables of package schema, and what it promises holds on MySQL, MariaDB and SQLite
// alike (one conformance suite runs on each).
//
// What keeps it right (design §4):
//
//	change.go   the only way in which a batch that exists changes its state: the rows are locked (ids ascending),
//	            compared, set, and their events and alerts written, in one transaction
//	tx.go       a service's transaction begins by proving that its lease's epoch is the newest; any error rolls
//	            the whole transaction back and the whole closure runs again
//	recount     unmet is counted from the conditions, never decremented (condition.go)
//
// A lost comparison is an outcome that is returned, not an error.
package store
