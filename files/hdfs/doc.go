// Package hdfs is the file systems behind hdfs:// paths.
//
//	There ─┐              ┌ breaker ┐   ┌ pool of clients ┐   ┌ guard ─────────────┐
//	Stat ──┼─▶ name service ─────────┼──▶ one goroutine each ──▶ every connection has  ├─▶ name-node, data-node
//	Fetch ─┘  by authority└ silent? ┘   └ thrown away on  ┘   │ an end that we keep │
//	   └▶ cache of files, by checksum     any doubt           └─────────────────────┘
//
// The library beneath (colinmarc/hdfs) knows neither deadlines nor contexts: a name-node that is silent would hold a call, and
// even Close, for ever. So nothing of it is called without a guard, which owns the connections and closes them when the
// time is up; a client whose connection failed is never used again, since the next answer on it could be that of the
// call before. A name service that did not answer is left alone for a moment, so that a dead name-node costs one
// time limit and not one for each path.
//
// Nothing is written to HDFS but what a Store keeps there.
package hdfs
