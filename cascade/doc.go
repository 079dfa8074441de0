// Package cascade plans what is to run: which batches a rerun reaches, why each is in, in which order they must run,
// what they cost and how long that takes. Reruns, cascades and cold starts all ask here. It is pure: it knows the
// definitions and nothing of the batches that exist; what is there, and what is in the way, the caller looks up.
//
//	tasks, first marks ──New──▶ *Graph                                 (once for many questions; may be shared)
//
//	roots: (task, intervals) ─┐
//	                          ├─Reach──▶ []Item, each once, parents first ──Estimate──▶ hours, longest chain, load
//	by: none, logic, data ────┘             │
//	     stored items ──Connect──▶──────────┤
//	                                        ├── Keep: without those that do not run
//	                                        └── Sort: newest first
//
// An item is one (task, interval). From each item an edge goes to every batch that waits for it:
//
//	by logic   the child names the task as a parent, and what it waits for of it has this interval (lineage.Children)
//	by data    the child's inputs have a path, with the same flag, that this interval makes (lineage.Readers)
//
//	          hour 2026112000 ┐                        day 20261120 ─ logic ─▶ week 2026W47
//	             …            ├─ logic ─▶ day 20261120 ─┤
//	          hour 2026112023 ┘   (once, whatever       └─ data ──▶ month 202611
//	                               the number of ways)      /dwd/orders/20261120
//
// What an item's Conditions would say is the truth; this is their inverse, and nothing else. So it goes through windows,
// shifts, clock changes and weeks across the year's end as generation does.
//
// An edge is followed only if the batch at its end takes part: its mark has come, it is inside the task's validity and
// not before the task's first mark (a cascade makes no history; a cold start does), and the task may be reached at all
// (cascade: false is never entered, so nothing is reached through it). A disabled task's batch is listed and does not
// run, so nothing is reached through it either. Manual tasks have no intervals that could be reached.
//
// Edges among the items are all followed for the order, also those that the cascade itself does not go along: a rerun
// by logic alone must still make a path before somebody reads it.
package cascade
