//go:build demo

package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"capri/internal/testenv"
)

// TestDemo is scripts/demo: both pipelines, one after the other, in one fresh standalone, with lines for people.
func TestDemo(t *testing.T) {
	dir := testenv.Workloads(t)
	const slots = 64
	in := standalone(t, slots)
	say := func(format string, a ...any) { fmt.Printf(format+"\n", a...) }
	say("capri standalone with %d slots: %s", slots, in.server)
	var table []string
	for _, w := range []struct {
		name  string
		scale float64
	}{{"montage-dss10", 50}, {"wikimedia-refinery", 270}} {
		r := newReplay(t, in, dir, w.name, slots, w.scale)
		r.progress = say
		r.begin()
		r.await(5 * time.Minute)
		table = append(table, fmt.Sprintf("\n%s, %s, runtimes divided by %g", w.name, r.load.Day.Format(time.DateOnly), w.scale))
		table = append(table, r.figures(nil)...)
	}
	in.stop()
	say("%s", strings.Join(table, "\n"))
}
