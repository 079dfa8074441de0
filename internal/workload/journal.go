package workload

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"capri"
)

// Journal is what jobs themselves wrote of their runs, in the order in which it happened.
type Journal struct{ Lines []JournalLine }

// JournalLine is the beginning or the end of an attempt.
type JournalLine struct {
	capri.Attempt
	Begin bool
}

// ReadJournal reads a journal. Lines are appended whole, so only the last one can be cut off, by a machine that stops.
func ReadJournal(path string) (*Journal, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	j := &Journal{}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		what, attempt, _ := strings.Cut(s.Text(), " ")
		id, number, _ := strings.Cut(attempt, ".")
		b, err := strconv.ParseInt(id, 10, 64)
		n, err2 := strconv.Atoi(number)
		if err != nil || err2 != nil || what != "begin" && what != "end" {
			return nil, fmt.Errorf("%s: line %q", path, s.Text())
		}
		j.Lines = append(j.Lines, JournalLine{capri.Attempt{Batch: capri.BatchID(b), Number: n}, what == "begin"})
	}
	return j, nil
}

// Begun tells how often each batch's job began.
func (j *Journal) Begun() map[capri.BatchID]int {
	out := map[capri.BatchID]int{}
	for _, l := range j.Lines {
		if l.Begin {
			out[l.Batch]++
		}
	}
	return out
}

// Most is the largest number of jobs at once, not counting those that never wrote their end.
func (j *Journal) Most() int {
	ended := map[capri.Attempt]bool{}
	for _, l := range j.Lines {
		if !l.Begin {
			ended[l.Attempt] = true
		}
	}
	now, most := 0, 0
	for _, l := range j.Lines {
		switch {
		case !ended[l.Attempt]:
		case l.Begin:
			now++
			most = max(most, now)
		default:
			now--
		}
	}
	return most
}

// Check finds what must never be: two attempts of a batch at once, or a job that begins before one that it waits for
// has ended well. parents gives the batches whose ends a batch needs.
func (j *Journal) Check(parents func(capri.BatchID) []capri.BatchID) error {
	running, done := map[capri.BatchID]int{}, map[capri.BatchID]bool{}
	for i, l := range j.Lines {
		if !l.Begin {
			if running[l.Batch] == l.Number {
				delete(running, l.Batch)
			}
			done[l.Batch] = true
			continue
		}
		// An attempt that was killed never writes its end; a later one after it is right, an earlier one is not.
		if other := running[l.Batch]; other >= l.Number && other != 0 {
			return fmt.Errorf("journal line %d: attempt %s begins while attempt %d runs", i+1, l.Attempt, other)
		}
		running[l.Batch] = l.Number
		for _, p := range parents(l.Batch) {
			if !done[p] {
				return fmt.Errorf("journal line %d: attempt %s begins before its parent's batch %d has ended", i+1, l.Attempt, p)
			}
		}
	}
	return nil
}
