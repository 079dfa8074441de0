package main

import (
	"strings"
	"testing"
	"time"
)

const (
	passes = `{"Action":"output","Package":"capri/a","Test":"TestX","Output":"noise\n"}
{"Action":"pass","Package":"capri/a","Test":"TestX"}
{"Action":"output","Package":"capri/a","Output":"PASS\n"}
{"Action":"output","Package":"capri/a","Output":"ok  \tcapri/a\t0.1s\n"}
{"Action":"pass","Package":"capri/a"}
`
	fails = `{"Action":"output","Package":"capri/b","Test":"TestY","Output":"    b_test.go:7: it broke\n"}
{"Action":"fail","Package":"capri/b","Test":"TestY"}
{"Action":"output","Package":"capri/b","Output":"FAIL\tcapri/b\t0.1s\n"}
{"Action":"fail","Package":"capri/b"}
`
	panics = `{"Action":"output","Package":"capri/c","Test":"TestZ","Output":"panic: boom\n"}
{"Action":"output","Package":"capri/c","Output":"FAIL\tcapri/c\t0.1s\n"}
{"Action":"fail","Package":"capri/c"}
`
	skipsServer = `{"Action":"output","Package":"capri/d","Test":"TestS","Output":"=== RUN   TestS\n"}
{"Action":"output","Package":"capri/d","Test":"TestS","Output":"    d_test.go:9: needs MariaDB: run make test\n"}
{"Action":"skip","Package":"capri/d","Test":"TestS"}
{"Action":"pass","Package":"capri/d"}
`
	skipsWorkloads = `{"Action":"output","Package":"capri/d","Test":"TestW","Output":"    d_test.go:9: needs recorded pipelines: set CAPRI_WORKLOADS\n"}
{"Action":"skip","Package":"capri/d","Test":"TestW"}
{"Action":"pass","Package":"capri/d"}
`
	skipsHDFS = `{"Action":"output","Package":"capri/d","Test":"TestH","Output":"    d_test.go:9: NOT TESTED AGAINST A REAL HDFS: run make test-hdfs, or set CAPRI_TEST_HDFS\n"}
{"Action":"skip","Package":"capri/d","Test":"TestH"}
{"Action":"pass","Package":"capri/d"}
`
	doesNotBuild = `{"ImportPath":"capri/e","Action":"build-output","Output":"e.go:1: undefined: x\n"}
{"ImportPath":"capri/e","Action":"build-fail"}
{"Action":"fail","Package":"capri/e","FailedBuild":"capri/e"}
`
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name, in string
		ci, ok   bool
		want     []string
		not      string
	}{
		{"what passes is quiet", passes, false, true, []string{"ok  \tcapri/a", "1 tests passed, 0 failed, 0 skipped"}, "noise"},
		{"a failure shows what it said", passes + fails, false, false, []string{"b_test.go:7: it broke", "1 tests passed, 1 failed"}, ""},
		{"a panic shows what it said", passes + panics, false, false, []string{"panic: boom"}, ""},
		{"a package that does not build fails", passes + doesNotBuild, false, false, []string{"undefined: x", "1 packages"}, ""},
		{"a skip is aloud", passes + skipsServer, false, true, []string{"SKIPPED 1: needs MariaDB: run make test", "d.TestS"}, "FAIL"},
		{"a skip fails in CI", passes + skipsServer, true, false, []string{"1 tests were skipped"}, ""},
		{"recorded pipelines may be absent in CI", passes + skipsWorkloads, true, true, []string{"SKIPPED 1: needs recorded"}, "FAIL"},
		{"HDFS may be absent in CI, aloud", passes + skipsHDFS, true, true, []string{"SKIPPED 1: NOT TESTED AGAINST A REAL HDFS", "allowed in CI: the next step"}, "FAIL"},
		{"no test at all fails", "", false, false, []string{"no test ran"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			s := &summary{out: &out, running: map[testKey]*strings.Builder{}, skipped: map[string][]string{}}
			if err := s.read(strings.NewReader(c.in)); err != nil {
				t.Fatal(err)
			}
			if ok := s.end(c.ci, time.Second); ok != c.ok {
				t.Errorf("ended with %v, want %v", ok, c.ok)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
			if c.not != "" && strings.Contains(out.String(), c.not) {
				t.Errorf("%q in:\n%s", c.not, out.String())
			}
		})
	}
}
