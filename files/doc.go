// Package files is what Capri knows of file systems: whether a datum's done-flag is there, whether it changed, and
// how a task's files reach the directory of an attempt.
//
//	dependency service ──There──┐                     ┌─ local   no scheme, file://
//	worker ──There/Stat/Fetch───┴─▶ ByScheme (Files) ─┤
//	                                                  └─ hdfs    hdfs://, the name services of the configuration
//
// It promises that one path is asked once however often it occurs, that a file system which hangs costs its own
// paths their answer and nobody else's, and that "not there" is said only of what was seen not to be there: what
// could not be looked at comes back in an *UnseenError.
//
// What each of them has to keep is a suite of tests, files/filestest, that every one of them passes.
//
// Paths are canonical (lineage.CanonicalPath); the flag is a file inside the path, "" means the path itself.
package files
