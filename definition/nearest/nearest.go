// Package nearest finds what somebody probably meant when a word is not one of those that exist: "did you
// mean concurrency?". It is shared by everything that refuses unknown names.
package nearest

import (
	"math/bits"
	"unicode/utf8"
)

// Word gives the choice closest to word, or "" when none is close enough to be a slip of the hand. Equal
// distances go to the earlier choice, so the answer does not change from run to run.
func Word(word string, choices []string) string {
	// A third of the letters may be wrong; more would offer words that have nothing to do with it.
	letters := []rune(word)
	limit := max(1, (len(letters)+1)/3)
	wordMask, scratch := mask(word), make([]int, 0, 128)
	best, bestDistance := "", limit+1
	for _, c := range choices {
		n := utf8.RuneCountInString(c)
		if n-len(letters) >= bestDistance || len(letters)-n >= bestDistance {
			continue
		}
		// A slip brings at most one letter in and one out. This test spares 100,000 task names the real one.
		if bits.OnesCount64(wordMask^mask(c)) >= 2*bestDistance {
			continue
		}
		if d := distance(letters, []rune(c), scratch); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, replace or swap with their neighbour (optimal string
// alignment). Swaps count once, since they are the commonest slip of all.
func distance(a, b []rune, scratch []int) int {
	n := len(b) + 1
	if cap(scratch) < 3*n {
		scratch = make([]int, 3*n)
	}
	scratch = scratch[:3*n]
	before, last, row := scratch[:n], scratch[n:2*n], scratch[2*n:]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// mask has a bit for each letter that occurs (some share one).
func mask(s string) (m uint64) {
	for _, r := range s {
		m |= 1 << (r % 64)
	}
	return m
}
