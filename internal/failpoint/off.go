//go:build !failpoint

package failpoint

import "time"

// Enabled says whether this build has failpoints.
const Enabled = false

// Wait passes a point that may be slow.
func Wait(Point) {}

// Cut passes a point at which the connection may be lost.
func Cut(Point) error { return nil }

// On says whether something is to be done wrong.
func On(Point) bool { return false }

// Clock is the SQL expression of business time, made of that of the database's clock.
func Clock(expression string) string { return expression }

// Real is how long a stretch of business time takes.
func Real(d time.Duration) time.Duration { return d }

// Now is this machine's clock, for what compares it with the database's.
func Now() time.Time { return time.Now() }
