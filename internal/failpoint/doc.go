// Package failpoint lets a test hurt a running capri in places that nothing outside the process can reach. It is
// compiled in by the build tag failpoint alone; in every other build its functions are empty, are inlined to nothing,
// and no name, variable or text of it is in the binary (a test looks).
//
//	go build -tags failpoint ./cmd/capri
//
//	CAPRI_FAILPOINT_CLOCK ──▶ business time, fixed for a process's life: shifted and sped up, in SQL
//	CAPRI_FAILPOINT_FILE  ──▶ rules, one a line, looked at again while the process runs
//
// These are all of them:
//
//	point          where it stands                            what a rule may do there
//	before-commit  sql/store, before a transaction's COMMIT   delay, exit; cut: the transaction is rolled back as if
//	                                                          the connection had been lost on the way
//	after-commit   sql/store, after it                        delay, exit; cut: committed, but the reply is lost
//	claim-start    worker, between claim and start            delay
//	plan-assign    services/dispatch, between plan and write  delay
//	lease-blind    lease, where a lease is seen to be over     hit: it is not seen, and the service writes on
//	lease-stay     lease, where surplus ones are given away   hit: they stay where they are
//	alert-taken    services/alert, new alerts are read        cut, exit
//	alert-filed    services/alert, incidents are written      cut, exit
//	alert-composed services/alert, before messages are sent   cut, exit
//	alert-sent     services/alert, sent and not noted yet     cut, exit
//	alert-noted    services/alert, after that                 cut, exit
//	local-clock    whatever compares this machine's clock     shift
//
// A line of the file is a point and what to do there: "after-commit cut share=0.1", "plan-assign delay=2s",
// "local-clock shift=-1h". share is how many of the passes are hit, of 1; without it all are; skip=N lets the first N go by.
// exit ends the process there and then, as a crash does, with ExitCode. A file with a slip in it
// ends the process: a fault that silently does nothing would make a test pass.
//
// The clock is "REAL BUSINESS SPEED": at epoch millisecond REAL business time is BUSINESS, and from there on it runs
// SPEED times as fast. All processes of a run get the same. Leases and beats count on their own and stay real, so a
// day's marks come within half an hour while a lost node takes as long as it takes.
package failpoint

// Point is a named place in the code.
type Point string

// The places; the package comment says what each may do.
const (
	BeforeCommit Point = "before-commit"
	AfterCommit  Point = "after-commit"
	ClaimStart   Point = "claim-start"
	PlanAssign   Point = "plan-assign"
	LeaseBlind   Point = "lease-blind"
	LeaseStay    Point = "lease-stay"
	LocalClock   Point = "local-clock"

	AlertTaken    Point = "alert-taken"
	AlertFiled    Point = "alert-filed"
	AlertComposed Point = "alert-composed"
	AlertSent     Point = "alert-sent"
	AlertNoted    Point = "alert-noted"
)

// ExitCode is that of a process that a rule has ended.
const ExitCode = 86
