package runner

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestIds_are_read_whole_and_from_the_clients_own_words(t *testing.T) {
	for _, row := range []struct{ remote, said, want string }{
		{"spark", "INFO YarnClientImpl: Submitted application application_17_0001\n", "application_17_0001"},
		{"spark", "tracking application_17_0001 of somebody else\n", ""},
		{"spark", "Submitted application application_17_0001\nApplication report for application_17_0001 (state: FINISHED)\nApplication report for application_17_0001 (state: FINISHED)\n", ""},
		{"spark", "Submitted application application_17_00", ""}, // the rest never came
		{"hive", "Executing on YARN cluster with App id application_17_0001\n", ""},
		{"mapreduce", "Running job: job_17_0001\nJob job_17_0001 completed successfully\n", ""},
		{"trino", "\x1b[2KQuery 20261120_100000_00001_abcde, QUEUED\rQuery 20261120_100000_00002_abcde, RUNNING\r", "20261120_100000_00002_abcde 20261120_100000_00001_abcde"},
		{"trino", "Query 20261120_100000_00001_abcde failed: line 1:8\n", ""},
		{"spark", strings.Repeat("x", 2*mostLine) + " Submitted application application_17_0001\nSubmitted application application_17_0002\n", "application_17_0002"},
	} {
		for _, piece := range []int{1, 7, 1 << 20} { // however it arrives
			var log bytes.Buffer
			w := &watcher{remote: remotes[row.remote], to: &log, over: map[string]bool{}, tell: func(string) {}}
			for p := range slices.Chunk([]byte(row.said), piece) {
				if n, err := w.Write(p); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
			}
			if got := strings.Join(w.take(), " "); got != row.want {
				t.Errorf("%s in pieces of %d: %.200q gives %q, want %q", row.remote, piece, row.said, got, row.want)
			}
			if again := w.take(); len(again) > 0 {
				t.Errorf("%v would be killed twice", again)
			}
			if piece == 1<<20 && !strings.HasPrefix(log.String(), row.said) {
				t.Errorf("what the client says is changed: %q", log.String())
			}
		}
	}
}
