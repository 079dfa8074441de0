package capri

// Conditions are what one batch waits for, and what it will have produced. They are made with the batch,
// all unmet. Groups are what Batch.Unmet counts: each path and each third-party datum is one, each
// dependency on a parent is one.
type Conditions struct {
	Inputs     []PathCondition
	Outputs    []PathCondition
	ThirdParty []ThirdPartyCondition
	Parents    []ParentCondition
	Notes      []string // what is not waited for, and why (before the parent's first valid mark)
}

// Groups is the number of groups: what Batch.Unmet is at birth.
func (c *Conditions) Groups() int {
	n, last := len(c.Inputs)+len(c.ThirdParty), -1
	for _, p := range c.Parents {
		if p.Group != last { // rows of a group stand together
			n, last = n+1, p.Group
		}
	}
	return n
}

// PathCondition is one distinct path with its done-flag. Path is canonical (lineage.CanonicalPath); Flag is "" when the path itself is the datum.
type PathCondition struct {
	Path string
	Flag string
}

// ThirdPartyCondition waits for a code's report for an interval.
type ThirdPartyCondition struct {
	Code    string
	Period  Period
	BatchNo BatchNo
}

// ParentCondition waits for the latest run of one batch of a parent. Rows with the same Group belong to one
// dependency: with Any one of them is enough, else all are needed.
type ParentCondition struct {
	Group   int
	Any     bool
	TaskID  TaskID
	BatchNo BatchNo
}
