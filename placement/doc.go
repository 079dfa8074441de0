// Package placement chooses the node that runs a ready batch, and says why when none can. It is pure: facts
// in, decisions out, no clock, no database, and chance only from the generator that is handed in. The dispatch
// service reads the facts, asks here, and writes what it is told.
//
//	facts ──▶ NewPlanner ──▶ Place(batch) … Place(batch) ──▶ node, or the reason why not
//	                              ▲ ready batches, page by page, in order
//
// What it promises, whatever it is handed: no node takes more slots or memory than it has, no task runs more
// at once than it allows, max_running and pauses hold, and no batch goes to a node that is lost, draining, not
// of its pool, or to be avoided. A batch that is refused does not hold up those behind it, and is never
// overtaken by a later one with equal wishes.
//
// Reasons are sentences for people, written to the batch's row when they change. They therefore name settings
// ("asks 9000 MB") and never what moves each second ("3 of 40 slots free").
//
// 100,000 batches are placed in some tens of milliseconds because three things keep the work small: what was
// refused once is not tried again (class), what is full answers at once (refused), and a pool is searched
// through a tree (tree.go).
package placement
