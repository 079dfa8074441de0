// Package lineage says which batches a batch waits for, and which wait for it. It is pure: generation, edits,
// reruns, cascades, the check for cycles and "why is it not running?" all ask here, so they cannot disagree.
//
// What a child waits for of one parent is always an unbroken row of the parent's intervals, a span:
//
//	parent is          without a window               with from/to (counted in the parent's period)
//	the same period    the same interval              0   is the interval that holds the child's data start
//	finer              all wholly inside the child's  end is the newest that has ended by the child's end
//	coarser            the newest ended by its end    (of a finer period the last inside)
//	cron (either side) those that end within
//	                   (start,end] of the child,
//	                   else the newest ended
//
// Both ends of the span move on with the child's interval and never back. Children (the inverse) and Cycle
// rest on that. Readers is the inverse for paths: who waits for one.
package lineage
