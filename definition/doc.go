// Package definition turns task files into definitions and back. It reads what people wrote (Load, Parse), says
// everything that is wrong with it at once (Validate), shows what applying it would change (Diff), and writes
// definitions as a file that applies back to no change (Export). It touches no database: the caller hands in
// what exists already, and applies all or nothing.
//
//	files ──Load──▶ bytes ──Parse──▶ items ──Validate──▶ nothing wrong: Diff, save
//	                          │                  │
//	                          └──────────────────┴─────▶ or every mistake: file, line, task, field, value, cure
//
// Two rules make the messages good. Parsing is strict and goes on after a mistake: a field that does not exist
// is refused with the one that was probably meant, and 500 mistakes come out as 500. And defaults are filled in
// before a document is read, so that an absent field and a zero are different things here and nowhere else: a
// Spec that left this package means what it says.
//
// JSON is YAML, so Parse reads request bodies, too.
package definition
