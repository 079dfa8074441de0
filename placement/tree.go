package placement

// tree finds a node of a pool without looking at all of them. It is a tournament: each inner place holds the
// most free slots, the most memory and the greatest free share of the nodes below it, so that a search skips
// whole branches in which nothing fits. Placing a batch costs a few steps up and down, whatever the pool's size.
type tree struct {
	members []int
	leaves  int // a power of two; leaf k is at leaves+k
	most    []most
}

// most is the best that stands below a place. Memory and slots may be of different nodes: a branch may
// promise too much, never too little, and the leaf decides.
type most struct {
	free   int
	memory int
	share  float64
}

// unlimited stands for the memory of a node that has no limit.
const unlimited = int(^uint(0) >> 1)

func newTree(nodes []node, members []int) *tree {
	t := &tree{members: members, leaves: 1}
	for t.leaves < len(members) {
		t.leaves *= 2
	}
	t.most = make([]most, 2*t.leaves)
	for place := range members {
		t.most[t.leaves+place] = t.leaf(nodes, place)
	}
	for i := t.leaves - 1; i >= 1; i-- {
		t.most[i] = join(t.most[2*i], t.most[2*i+1])
	}
	return t
}

func (t *tree) leaf(nodes []node, place int) most {
	n := &nodes[t.members[place]]
	if !n.accepts || n.free <= 0 {
		return most{share: -1} // free 0: no search ever comes here, as each batch takes a slot
	}
	m := most{free: n.free, memory: n.left, share: float64(n.free) / float64(n.slots)}
	if n.memory == 0 {
		m.memory = unlimited
	}
	return m
}

func join(a, b most) most {
	return most{max(a.free, b.free), max(a.memory, b.memory), max(a.share, b.share)}
}

// update is called when a member's load has changed.
func (t *tree) update(nodes []node, place int) {
	i := t.leaves + place
	for t.most[i] = t.leaf(nodes, place); i > 1; {
		i /= 2
		t.most[i] = join(t.most[2*i], t.most[2*i+1])
	}
}

// may tells whether something below place i may fit.
func (t *tree) may(i int, c *class) bool {
	m := &t.most[i]
	return m.free >= c.slots && (c.memory == 0 || m.memory >= c.memory)
}

// freest gives the place of the fitting member with the greatest free share, the first among equals; -1: none.
func (t *tree) freest(nodes []node, c class) int {
	best, place := -1.0, -1
	t.search(1, nodes, &c, &best, &place)
	return place
}

func (t *tree) search(i int, nodes []node, c *class, best *float64, place *int) {
	if !t.may(i, c) || t.most[i].share < *best || (t.most[i].share == *best && *place >= 0 && *place < t.first(i)) {
		return
	}
	if i >= t.leaves {
		if t.members[i-t.leaves] != c.avoid {
			*best, *place = t.most[i].share, i-t.leaves
		}
		return
	}
	// The better half first: the other is then mostly skipped. Equals are settled by place above.
	if a, b := 2*i, 2*i+1; t.most[a].share >= t.most[b].share {
		t.search(a, nodes, c, best, place)
		t.search(b, nodes, c, best, place)
	} else {
		t.search(b, nodes, c, best, place)
		t.search(a, nodes, c, best, place)
	}
}

// first is the leftmost member below place i.
func (t *tree) first(i int) int {
	for i < t.leaves {
		i *= 2
	}
	return i - t.leaves
}

// from gives the first fitting member at or after a place, -1: none.
func (t *tree) from(nodes []node, c class, start int) int {
	return t.seek(1, 0, t.leaves, start, nodes, &c)
}

// seek looks below place i, which covers the members [lo, hi).
func (t *tree) seek(i, lo, hi, start int, nodes []node, c *class) int {
	if hi <= start || !t.may(i, c) {
		return -1
	}
	if i >= t.leaves {
		if t.members[lo] == c.avoid {
			return -1
		}
		return lo
	}
	mid := (lo + hi) / 2
	if place := t.seek(2*i, lo, mid, start, nodes, c); place >= 0 {
		return place
	}
	return t.seek(2*i+1, mid, hi, start, nodes, c)
}
