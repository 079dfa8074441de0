package shim

import (
	"log"
	"os"
	"time"
)

// sampleEvery is how often the memory of jobs is looked at. What a job takes for less than that is seen only if a
// single process took it: the kernel remembers that one.
const sampleEvery = 5 * time.Second

// sampleJobs watches what jobs use, for ever: one look at /proc for all of them.
func (s *shim) sampleJobs() {
	for {
		time.Sleep(sampleEvery)
		s.mu.Lock()
		jobs := make([]Tracked, 0, len(s.pids))
		for _, j := range s.pids {
			jobs = append(jobs, s.tracked(j))
		}
		s.mu.Unlock()
		members, err := Members(jobs)
		if err != nil {
			log.Printf("look at the memory of %d attempts: %v", len(jobs), err)
			continue
		}
		s.sample(members)
	}
}

// usage is what the processes of a job have at one time, or the most of each that was ever seen.
type usage struct {
	memory    int64 // bytes in memory; pages that processes share are counted for each of them
	processes int
}

func (s *shim) sample(members map[int]Member) {
	now := map[string]usage{}
	page := int64(os.Getpagesize())
	for _, m := range members {
		u := now[m.Attempt]
		now[m.Attempt] = usage{u.memory + m.Resident*page, u.processes + 1}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.pids {
		u := now[j.attempt]
		j.peak = usage{max(j.peak.memory, u.memory), max(j.peak.processes, u.processes)}
		if j.endOver > 0 && u.memory > j.endOver && !j.over && j.deadline.IsZero() {
			log.Printf("attempt %s is ended: it has %d MB in memory", j.attempt, megabytes(u.memory))
			j.over = true
			s.terminate(j)
		}
	}
}

// megabytes rounds up: what is used is never 0.
func megabytes(bytes int64) int { return int((bytes + 1<<20 - 1) >> 20) }
