package api

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capri"
	"capri/api/wire"
)

func TestProblemTypes_are_those_of_the_documentation(t *testing.T) {
	var kinds []string
	for kind := range maps.Values(problemKinds) {
		kinds = append(kinds, wire.ProblemType+kind)
	}
	for _, kind := range []string{problemUnderWay, problemDone, problemUnconfirmed} {
		kinds = append(kinds, wire.ProblemType+kind)
	}
	text, err := os.ReadFile("../docs/api.md")
	require.NoError(t, err)
	var documented []string
	for _, line := range regexp.MustCompile("\\| [0-9]{3} \\| `("+wire.ProblemType+"[a-z-]+)`").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, line[1])
	}
	slices.Sort(kinds)
	slices.Sort(documented)
	assert.Equal(t, kinds, documented)
}

func TestEveryStatus_has_a_problem_type(t *testing.T) {
	for status := 400; status < 600; status++ {
		if p := newProblem(status, ""); http.StatusText(status) != "" {
			assert.Greater(t, len(strings.TrimPrefix(p.Type, wire.ProblemType)), 3, "%d", status)
		}
	}
	assert.Equal(t, "urn:capri:problem:bad-request", newProblem(http.StatusTeapot, "").Type)
	assert.Equal(t, "urn:capri:problem:fault", newProblem(http.StatusBadGateway, "").Type)
}

func TestWhatIsNotReachable_is_named(t *testing.T) {
	s := &server{Options: Options{Log: slog.New(slog.DiscardHandler)}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, x := range []struct {
		ctx  context.Context
		err  error
		says string
	}{
		{t.Context(), fmt.Errorf("read a log: %w", capri.Unavailable("node n1 does not answer")), "read a log: node n1 does not answer"},
		{t.Context(), context.DeadlineExceeded, "the database does not answer; try again"},
		{gone, capri.Unavailable("node n1 does not answer"), "it took longer than is allowed, and was stopped"},
	} {
		var p *problem
		require.ErrorAs(t, s.problem(x.ctx, "logs", x.err), &p)
		assert.Equal(t, http.StatusServiceUnavailable, p.Status)
		assert.Equal(t, x.says, p.Detail)
	}
}
