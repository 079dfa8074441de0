package placement

import (
	"fmt"
	"slices"
	"strings"
)

// reason says why no node takes the class now. It goes from what will never change by itself to what passes,
// and names the first thing that somebody would have to change.
func (p *Planner) reason(c class) string {
	g := c.group
	if len(g.members) == 0 {
		if len(g.unknown) > 0 {
			return "node list names unknown nodes: " + someOf(g.unknown)
		}
		return "no such pool: " + strings.TrimPrefix(g.what, "pool ") + " has no node"
	}
	// Nodes that a list names and nobody knows may be the true cause, whatever the others lack.
	note := ""
	if len(g.unknown) > 0 {
		note = "; unknown: " + someOf(g.unknown)
	}
	if c.avoid >= 0 {
		note += "; avoiding " + p.nodes[c.avoid].name + ", which it was taken from"
	}
	any := func(is func(*node) bool) bool {
		return slices.ContainsFunc(g.members, func(i int) bool { return i != c.avoid && is(&p.nodes[i]) })
	}
	down := "lost"
	if any(func(n *node) bool { return n.stopped }) {
		down = "stopped or lost"
	}
	rests := "draining"
	if any(func(n *node) bool { return n.short }) {
		rests = "draining or short of disk or CPU"
	}
	if any(func(n *node) bool { return n.paused }) {
		others := any(func(n *node) bool { return n.up && !n.accepts && !n.paused })
		if rests = "paused or " + rests; !others {
			rests = "paused"
		}
	}
	if !any(func(n *node) bool { return n.accepts }) {
		switch up := any(func(n *node) bool { return n.up }); {
		case !up:
			return "all nodes of " + g.what + " are " + down + note
		case any(func(n *node) bool { return !n.up }):
			return "all nodes of " + g.what + " are " + down + " or " + rests + note
		}
		return "all nodes of " + g.what + " are " + rests + note
	}
	// Could any node do it when idle? If only lost or draining ones could, say that.
	asks := ""
	switch {
	case !any(func(n *node) bool { return n.accepts && n.has(c.slots, 0) }):
		asks = "asks " + slots(c.slots)
	case !any(func(n *node) bool { return n.accepts && n.has(1, c.memory) }):
		asks = fmt.Sprintf("asks %d MB", c.memory)
	case !any(func(n *node) bool { return n.accepts && n.has(c.slots, c.memory) }):
		asks = fmt.Sprintf("asks %s and %d MB", slots(c.slots), c.memory)
	}
	if asks != "" {
		if any(func(n *node) bool { return n.has(c.slots, c.memory) }) {
			return asks + ", and the nodes of " + g.what + " that have so much are " + down + " or " + rests + note
		}
		return asks + ", but no node of " + g.what + " has that much at all" + note
	}
	switch {
	case any(func(n *node) bool { return n.fits(c.slots, 0) }):
		return fmt.Sprintf("no node of %s with a free slot has %d MB of memory left", g.what, c.memory) + note
	case c.slots > 1:
		return fmt.Sprintf("no node of %s has %d free slots", g.what, c.slots) + note
	}
	return "no free slot in " + g.what + note
}

func slots(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return fmt.Sprintf("%d slots", n)
}
