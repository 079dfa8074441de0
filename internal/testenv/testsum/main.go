// Testsum reads the events of go test -json and shows what a person wants to see: go test's own line for each
// package, everything that a failed test printed, and at the end which tests were skipped and why, and one line of
// figures. It exits with 1 when a test failed, when no test ran at all, and in CI (CI=true) when one was skipped,
// except for want of what cannot be had everywhere (absent).
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

type event struct {
	Action, Package, ImportPath, Test, Output string
}

type testKey struct{ pkg, test string }

type summary struct {
	out                   io.Writer
	running               map[testKey]*strings.Builder // what each test printed that has not ended yet
	order                 []testKey
	skipped               map[string][]string // by reason: tests
	passed, failed, skips int
	brokenPackages        int
}

func main() {
	start := time.Now()
	s := &summary{out: os.Stdout, running: map[testKey]*strings.Builder{}, skipped: map[string][]string{}}
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	if !s.end(ci, time.Since(start)) {
		os.Exit(1)
	}
}

func (s *summary) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadString('\n')
		var e event
		switch {
		case line == "":
		case line[0] == '{' && json.Unmarshal([]byte(line), &e) == nil:
			s.take(e)
		default:
			fmt.Fprint(s.out, line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) take(e event) {
	key := testKey{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(s.out, e.Output)
	case e.Test == "":
		s.takePackage(e)
	case e.Action == "output":
		b := s.running[key]
		if b == nil {
			b = &strings.Builder{}
			s.running[key] = b
			s.order = append(s.order, key)
		}
		b.WriteString(e.Output)
	case e.Action == "pass":
		s.passed++
		delete(s.running, key)
	case e.Action == "fail":
		s.failed++
		s.show(key)
	case e.Action == "skip":
		s.skips++
		why := reason(s.running[key])
		s.skipped[why] = append(s.skipped[why], strings.TrimPrefix(e.Package, "capri/")+"."+e.Test)
		delete(s.running, key)
	}
}

func (s *summary) takePackage(e event) {
	switch e.Action {
	case "output":
		if e.Output != "PASS\n" && e.Output != "FAIL\n" && !strings.Contains(e.Output, "[no test files]") {
			fmt.Fprint(s.out, e.Output)
		}
	case "fail":
		s.brokenPackages++
		// A panic or a time-out ends the program: what its tests had said until then is all there is.
		for _, key := range s.order {
			if key.pkg == e.Package && s.running[key] != nil {
				s.show(key)
			}
		}
		fallthrough
	case "pass", "skip":
		s.order = slices.DeleteFunc(s.order, func(k testKey) bool { return k.pkg == e.Package })
	}
}

func (s *summary) show(key testKey) {
	if b := s.running[key]; b != nil {
		fmt.Fprint(s.out, b.String())
	}
	delete(s.running, key)
}

// reason is what a skipped test said: the lines that go test did not write itself, without their place.
func reason(b *strings.Builder) string {
	if b == nil {
		return "no reason given"
	}
	var said []string
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if place, text, ok := strings.Cut(line, ": "); ok && strings.Contains(place, ".go:") {
			line = text
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// absent is what no installation can bring everywhere, and what becomes of it: a test that names one of these may be
// skipped in CI, too, aloud.
var absent = map[string]string{
	"CAPRI_WORKLOADS":  "they are not part of the module",
	"CAPRI_TEST_HDFS":  "the next step, make test-hdfs, runs them where Hadoop can be had",
	"CAPRI_TEST_SPARK": "it is large; the recorded clients of the same package stand for it",
	"cgroups":          "who may make them depends on the machine; the other way to know a job's processes is tested everywhere",
}

// allowed tells why tests that are skipped for a reason may be, in CI.
func allowed(reason string) (because string, ok bool) {
	for what, because := range absent {
		if strings.Contains(reason, what) {
			return because, true
		}
	}
	return "", false
}

// end prints the figures and reports whether all is well.
func (s *summary) end(ci bool, took time.Duration) bool {
	forbidden := 0
	for _, why := range slices.SortedFunc(maps.Keys(s.skipped), cmp.Compare[string]) {
		tests := s.skipped[why]
		fmt.Fprintf(s.out, "SKIPPED %d: %s\n", len(tests), why)
		because, may := allowed(why)
		switch {
		case may:
			fmt.Fprintf(s.out, "        allowed in CI: %s\n", because)
		case ci:
			forbidden += len(tests)
		}
		for i, test := range tests {
			if i == 5 && !ci {
				fmt.Fprintf(s.out, "        … and %d more\n", len(tests)-i)
				break
			}
			fmt.Fprintf(s.out, "        %s\n", test)
		}
	}
	fmt.Fprintf(s.out, "%d tests passed, %d failed, %d skipped in %s\n", s.passed, s.failed, s.skips, took.Round(100*time.Millisecond))
	ok := s.failed == 0 && s.brokenPackages == 0
	if s.brokenPackages > 0 {
		fmt.Fprintf(s.out, "FAIL: %d packages failed or did not build\n", s.brokenPackages)
	}
	if s.passed+s.failed == 0 {
		fmt.Fprintln(s.out, "FAIL: no test ran")
		ok = false
	}
	if forbidden > 0 {
		fmt.Fprintf(s.out, "FAIL: %d tests were skipped, and in CI each must run\n", forbidden)
		ok = false
	}
	return ok
}
