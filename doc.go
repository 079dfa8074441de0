// Package capri holds the words of the scheduler and nothing else: what a task, a batch, a condition, a node
// and an alert are, which states a batch passes through, and the kinds of errors everybody speaks of. It does
// no I/O and imports nothing of the project, so every other package can share its vocabulary.
//
// A batch's way through the code:
//
//	definition ──▶ batch ──▶ conditions ──▶ dispatch ──▶ attempt ──▶ result ──▶ alert
//	(definition)  (generate) (dependency)   (dispatch)   (worker)    (store)    (alerting)
//
// Start at task.go (what people write), then batch.go (what runs), then docs/architecture.md.
package capri
