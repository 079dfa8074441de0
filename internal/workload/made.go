package workload

import (
	"fmt"

	"capri"
)

// Descendants are definitions made up to measure cascades: a task "root" and n others that depend on it, each on one to
// three before it, by parents, by paths, or by both, a few of them by week and month. It is the same at each call.
func Descendants(n int) []capri.Spec {
	path := func(i int) string { return fmt.Sprintf("hdfs://nn/warehouse/layer%d/t%06d/${yyyyMMdd}", i%7, i) }
	name := func(i int) string {
		if i == 0 {
			return "root"
		}
		return fmt.Sprintf("t%06d", i)
	}
	specs := make([]capri.Spec, n+1)
	for i := range specs {
		s := capri.Spec{Name: name(i), Group: "made", Period: capri.Day, Cascade: true, Enabled: true, Priority: 5,
			Job:     capri.Job{Type: "shell", Command: "true"},
			Worker:  capri.Placement{Pool: "default", Strategy: capri.LeastLoaded, Slots: 1},
			Limits:  capri.Limits{Concurrency: 1, BeginMinutes: -1},
			Check:   capri.CheckExitCode,
			Outputs: []capri.Output{{Path: path(i)}}}
		if i > 0 {
			switch i % 100 {
			case 33:
				s.Period = capri.Week
			case 66:
				s.Period = capri.Month
			}
			// Which ones is any choice that goes to and fro between near and far; the depth grows with the logarithm.
			for k := range 1 + i%3 {
				p := (i*7919 + k*104729) % ((i + 9) / 10)
				if specs[p].Period != capri.Day {
					p = 0
				}
				if i%5 != k {
					s.Parents = append(s.Parents, capri.Parent{Task: name(p), Policy: capri.All})
				}
				if i%4 != k && s.Period == capri.Day {
					s.Inputs = append(s.Inputs, capri.Input{Path: path(p)})
				}
			}
			if len(s.Parents)+len(s.Inputs) == 0 {
				s.Parents = []capri.Parent{{Task: "root", Policy: capri.All}}
			}
		}
		specs[i] = s
	}
	return specs
}
