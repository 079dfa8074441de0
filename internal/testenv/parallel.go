package testenv

import (
	"flag"
	"strconv"
)

// AtOnce lets so many parallel tests of a package run at a time, for a TestMain. By default they are as many as there are
// processors, which is right for tests that compute; most of what runs jobs and outlives leases waits, and would wait for
// its turn as well. Who gives -parallel has the last word.
func AtOnce(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if now, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String()); given || err != nil || now >= n {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
