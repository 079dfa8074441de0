// Command capri-bench prints how fast Capri is beside the limits of the machine it runs on, and writes bench.json. It
// ends with exit code 1 when a target is missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"

	"capri/internal/bench"
)

func main() {
	o := bench.Options{Out: os.Stdout, MySQL: os.Getenv("CAPRI_TEST_MYSQL_DSN"), Redis: os.Getenv("CAPRI_TEST_REDIS"), HDFS: os.Getenv("CAPRI_TEST_HDFS"), Workloads: os.Getenv("CAPRI_WORKLOADS")}
	flag.StringVar(&o.Only, "only", "", "run only benchmarks whose name holds this, e.g. generate or /sqlite")
	flag.IntVar(&o.Runs, "runs", 5, "the median of so many")
	flag.BoolVar(&o.Million, "million", true, "with the steps of 1,000,000 batches")
	flag.StringVar(&o.Dir, "dir", ".", "where SQLite files are made; on a real disk, since fsync is part of what is measured")
	flag.StringVar(&o.Bin, "bin", "bin", "folder of capri and capri-shim")
	out := flag.String("json", "bench.json", "where the figures go")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the run")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "capri-bench:", err)
			os.Exit(1)
		}
	}
	figures, err := bench.Run(context.Background(), o)
	ok := bench.Table(os.Stdout, figures)
	if err == nil {
		err = bench.WriteJSON(*out, figures)
	}
	pprof.StopCPUProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "capri-bench:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}
