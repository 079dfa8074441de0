// Command capri-shim holds the running jobs of one worker life; see package capri/worker/shim.
package main

import (
	"os"

	"capri/worker/shim"
)

func main() { os.Exit(shim.Main(os.Args)) }
