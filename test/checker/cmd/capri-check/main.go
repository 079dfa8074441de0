// Command capri-check decides whether the guarantees held in a run that has ended:
//
//	capri-check -run run.json [-witness DIR] [-nemesis FILE] [-json] DSN|FILE
//
// Exit code 0: no violation, 1: a violation, 2: it could not be decided.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"capri/test/checker"
)

func main() {
	run := flag.String("run", "", "the run file")
	witness := flag.String("witness", "", "the directory of the witness log")
	nemesis := flag.String("nemesis", "", "the nemesis log")
	asJSON := flag.Bool("json", false, "the report as JSON")
	flag.Parse()
	if *run == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: capri-check -run FILE [-witness DIR] [-nemesis FILE] [-json] DSN|SQLITE-FILE")
		os.Exit(2)
	}
	rep, err := check(*run, *witness, *nemesis, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "capri-check:", err)
		os.Exit(2)
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(rep)
	} else {
		rep.Print(os.Stdout)
	}
	switch {
	case err != nil:
		os.Exit(2)
	case !rep.OK:
		os.Exit(1)
	}
}

func check(runFile, witness, nemesis, dsn string) (checker.Report, error) {
	run, err := checker.ReadRun(runFile)
	if err != nil {
		return checker.Report{}, err
	}
	db, err := checker.OpenDatabase(dsn)
	if err != nil {
		return checker.Report{}, err
	}
	defer db.Close()
	h, err := checker.Load(context.Background(), db, run)
	if err != nil {
		return checker.Report{}, err
	}
	if witness != "" {
		if h.Witness, err = checker.ReadWitness(witness); err != nil {
			return checker.Report{}, err
		}
	}
	if nemesis != "" {
		if h.Faults, err = checker.ReadFaults(nemesis); err != nil {
			return checker.Report{}, err
		}
	}
	return checker.Check(h), nil
}
