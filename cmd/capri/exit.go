package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"capri"
)

// Exit codes; scripts rely on them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2 // bad usage or bad input
	exitNotFound    = 3
	exitRefused     = 4 // no right to it, or in conflict with what is there
	exitUnreachable = 5 // the server, or the database, does not answer
)

func exitCode(err error) int {
	var as codeError
	switch {
	case errors.As(err, &as):
		return int(as)
	case errors.Is(err, capri.ErrInvalid):
		return exitUsage
	case errors.Is(err, capri.ErrNotFound):
		return exitNotFound
	case errors.Is(err, capri.ErrForbidden), errors.Is(err, capri.ErrConflict):
		return exitRefused
	case errors.Is(err, capri.ErrUnavailable):
		return exitUnreachable
	}
	return exitFailed
}

// complain prints an error: a sentence, or a line for each thing that is wrong.
func (a *app) complain(err error) {
	var as codeError
	if errors.Is(err, errQuiet) || errors.As(err, &as) {
		return
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.err, "capri: interrupted")
		return
	}
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for _, line := range lines[:min(len(lines), mostComplaints)] {
		fmt.Fprintln(a.err, "capri: "+oneLine(line))
	}
	if more := len(lines) - mostComplaints; more > 0 {
		fmt.Fprintf(a.err, "capri: and %d more\n", more)
	}
}

// mostComplaints is how much anybody reads before mending it. Of a thousand tasks one thing may be wrong a thousand times.
const mostComplaints = 100

// errQuiet ends a command with exit code 1 after it has said on stdout what is wrong.
var errQuiet = errors.New("failed")

// codeError ends a command with a code of its own, of which everything has been said.
type codeError int

func (e codeError) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// confirm asks before something that cannot be taken back. Where nobody can answer, it refuses: a script has to
// say --yes.
func (a *app) confirm(yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	question := fmt.Sprintf(format, args...)
	if !isTerminal(a.in) {
		return usage("%s: give --yes to do it", question)
	}
	fmt.Fprintf(a.err, "%s? Type yes: ", question)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && answer == "" {
		return usage("%s: not confirmed", question)
	}
	if strings.TrimSpace(answer) != "yes" {
		return capri.Conflict("not confirmed, nothing was changed")
	}
	return nil
}
