package cron

import "math/bits"

// set holds small numbers, 0 to 63: seconds, minutes, hours, days, months. Bit n is number n.
type set uint64

func (s *set) add(v int)     { *s |= 1 << v }
func (s set) has(v int) bool { return s>>v&1 == 1 }

// from is the smallest member that is v or more, or -1.
func (s set) from(v int) int {
	rest := s >> v << v
	if rest == 0 {
		return -1
	}
	return bits.TrailingZeros64(uint64(rest))
}

// upTo is the largest member that is v (-1 to 63) or less, or -1.
func (s set) upTo(v int) int {
	return bits.Len64(uint64(s&^(^set(0)<<(v+1)))) - 1
}

func (s set) first() int { return s.from(0) }
func (s set) last() int  { return s.upTo(63) }

const (
	minYear = 1970
	maxYear = 2199
)

// years is a set of the years minYear to maxYear, the earliest at index 0.
type years [maxYear - minYear + 1]bool

func (y *years) add(year int) { y[year-minYear] = true }

// from is the smallest member that is year or more, or -1.
func (y *years) from(year int) int {
	for i := max(year-minYear, 0); i < len(y); i++ {
		if y[i] {
			return minYear + i
		}
	}
	return -1
}

// upTo is the largest member that is year or less, or -1.
func (y *years) upTo(year int) int {
	for i := min(year-minYear, len(y)-1); i >= 0; i-- {
		if y[i] {
			return minYear + i
		}
	}
	return -1
}
