package logs

import "regexp"

// A job that prints its environment prints the token of its attempt, and a careless one an app's key. Who may read a log is
// not therefore to have them: they are covered when a log is read. Other people's secrets nobody can know by their looks.
var secret = regexp.MustCompile(`capri_(?:attempt_[0-9]+\.[0-9]+_[0-9a-f]{64}|[A-Za-z0-9_-]{43})`)

// What may become one when more is written: its mark, and what can follow that.
var (
	secretMark = []byte("capri_")
	secretRun  = regexp.MustCompile(`^capri_[A-Za-z0-9_.-]*$`)
)

// mostSecret is as long as one can be; so much more is read on both sides, or one that lies across the edge of a piece
// would be seen in two halves.
const mostSecret = 128

// mask covers secrets in place, so that offsets stay good.
func mask(text []byte) {
	for _, found := range secret.FindAllIndex(text, -1) {
		for i := found[0] + len("capri_"); i < found[1]; i++ {
			text[i] = '*'
		}
	}
}
